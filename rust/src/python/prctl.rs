//! What a process does to itself.

use pyo3::prelude::*;

use crate::{library_pages, prctl};

#[pyfunction]
pub(super) fn die_with_parent(signal: i32) -> PyResult<()> {
    Ok(prctl::die_with_parent(signal)?)
}

#[pyfunction]
pub(super) fn set_process_name(name: &str) -> PyResult<()> {
    Ok(prctl::set_process_name(name)?)
}

#[pyfunction]
pub(super) fn let_go_of_library_pages() -> PyResult<()> {
    Ok(library_pages::let_go()?)
}
