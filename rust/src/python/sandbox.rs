//! The sandbox of a forked child.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::sandbox::{self, Access};

#[pyfunction]
#[pyo3(signature = (*, read, write, sockets, devices, execute, modes, families, listens, connects, capabilities))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments, the fields of one record")]
pub(super) fn restrict(
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    sockets: Vec<PathBuf>,
    devices: Vec<PathBuf>,
    execute: Vec<PathBuf>,
    modes: bool,
    families: Vec<i32>,
    listens: bool,
    connects: bool,
    capabilities: Vec<u8>,
) -> PyResult<Vec<String>> {
    Ok(sandbox::enter(&Access {
        read,
        write,
        sockets,
        devices,
        execute,
        modes,
        families,
        listens,
        connects,
        capabilities,
    })?)
}

#[pyfunction]
pub(super) fn sandbox_missing() -> Vec<String> {
    sandbox::missing()
}
