//! What a process does to itself.

use pyo3::prelude::*;

use crate::process;

#[pyfunction]
pub(super) fn die_with_parent(signal: i32) -> PyResult<()> {
    Ok(process::die_with_parent(signal)?)
}

#[pyfunction]
pub(super) fn set_process_name(name: &str) -> PyResult<()> {
    Ok(process::set_process_name(name)?)
}
