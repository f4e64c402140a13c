//! Functions that a process applies to itself: its name, the signal at its parent's end, and the sandbox of a forked
//! child; and what it may see of other processes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use pyo3::prelude::*;

use crate::prctl;
use crate::processes::{self, Number};
use crate::sandbox::{self, Access};

#[pyfunction]
pub(super) fn die_with_parent(signal: i32) -> PyResult<()> {
    Ok(prctl::die_with_parent(signal)?)
}

#[pyfunction]
pub(super) fn adopt_orphans() -> PyResult<()> {
    Ok(prctl::adopt_orphans()?)
}

#[pyfunction]
pub(super) fn set_process_name(name: &str) -> PyResult<()> {
    Ok(prctl::set_process_name(name)?)
}

#[pyfunction]
#[pyo3(signature = (*, read, write, sockets, devices, execute, modes, families, listens, connects, sees_processes, capabilities))]
#[expect(
    clippy::too_many_arguments,
    clippy::fn_params_excessive_bools,
    reason = "keyword arguments, the fields of one record"
)]
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
    sees_processes: bool,
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
        sees_processes,
        capabilities,
    })?)
}

#[pyfunction]
pub(super) fn sandbox_missing() -> Vec<String> {
    sandbox::missing()
}

/// The parts of `OpenDevices`.
type Opened = (Vec<(u32, Number)>, u32, u32);

#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "what Python passes is converted to values")]
pub(super) fn open_devices(py: Python<'_>, proc: PathBuf, numbers: BTreeSet<Number>) -> PyResult<Opened> {
    let found = py.detach(|| processes::open_devices(&proc, &numbers))?;
    Ok((found.open, found.refused, found.examined))
}
