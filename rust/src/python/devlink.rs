//! Health reporters of network cards, behind a descriptor that Python waits for.

use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::events::open;
use super::lock;
use super::scan::call;
use crate::events::devlink;

/// One of `Devlink.reporters`.
#[pyclass(frozen, eq, get_all, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct HealthReporter {
    device: String,
    name: String,
    is_in_error: bool,
    errors: u64,
    recovers: bool,
}

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct Devlink(Mutex<devlink::Devlink>);

#[pymethods]
impl Devlink {
    #[new]
    #[pyo3(signature = (deadline_seconds, simulated_node = None))]
    fn new(deadline_seconds: f64, simulated_node: Option<&str>) -> PyResult<Self> {
        let deadline =
            Duration::try_from_secs_f64(deadline_seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self(Mutex::new(match simulated_node {
            None => devlink::Devlink::of_kernel(deadline),
            Some(root) => devlink::Devlink::of_simulated_node(Path::new(root), deadline),
        })))
    }

    #[getter]
    fn is_open(&self) -> bool {
        lock(&self.0).readable().is_some()
    }

    fn fileno(&self) -> PyResult<RawFd> {
        let devlink = lock(&self.0);
        Ok(open(&mut devlink.readable())?.as_raw_fd())
    }

    fn hear(&self) -> PyResult<()> {
        Ok(lock(&self.0).hear()?)
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    #[pyo3(signature = (beat = None))]
    fn dump(&self, python: Python<'_>, beat: Option<Py<PyAny>>) -> PyResult<()> {
        Ok(python.detach(|| lock(&self.0).dump(&|| call(beat.as_ref())))?)
    }

    #[getter]
    fn is_stale(&self) -> bool {
        lock(&self.0).is_stale()
    }

    #[getter]
    fn reporters(&self) -> Vec<HealthReporter> {
        let devlink = lock(&self.0);
        let reporter = |((device, name), state): (&(String, String), &devlink::State)| HealthReporter {
            device: device.clone(),
            name: name.clone(),
            is_in_error: state.is_in_error,
            errors: state.errors,
            recovers: state.recovers,
        };
        devlink.reporters().iter().map(reporter).collect()
    }

    fn close(&self) {
        lock(&self.0).close();
    }
}
