//! NVML, called in this process.

use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use pyo3::create_exception;
use pyo3::exceptions::{PyBlockingIOError, PyException, PyFileNotFoundError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde::Serialize;

use super::lock;
use crate::fence::{Fence, Outcome};
use crate::nvml::gather::{self, ProbeError};
use crate::nvml::interface;
use crate::nvml::watch::Watch;

#[pyfunction]
pub(super) fn nvml_facts(py: Python<'_>, driver_root: Option<&str>, library: Option<&str>) -> PyResult<String> {
    let facts = py.detach(|| gather::facts(driver_root.map(Path::new), library.map(Path::new)));
    json(&facts.map_err(|error| raised(py, &error))?)
}

/// For a test: the layouts and numbers of `nvml.h` that devherd uses.
#[pyfunction]
pub(super) fn nvml_interface() -> String {
    interface::described().to_string()
}

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct NvmlWatch(Mutex<Option<Watch>>);

#[pymethods]
impl NvmlWatch {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 makes the list")]
    fn new(py: Python<'_>, driver_root: Option<&str>, library: Option<&str>, gpus: Vec<String>) -> PyResult<Self> {
        let watch = py.detach(|| Watch::open(driver_root.map(Path::new), library.map(Path::new), &gpus));
        Ok(Self(Mutex::new(Some(watch.map_err(|error| raised(py, &error))?))))
    }

    fn wait(&self, py: Python<'_>, milliseconds: u32) -> PyResult<String> {
        json(&py.detach(|| lock(&self.0).as_ref().map(|watch| watch.wait(milliseconds)).unwrap_or_default()))
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 makes the list")]
    fn look(&self, py: Python<'_>, gpus: Vec<String>) -> PyResult<String> {
        json(&py.detach(|| lock(&self.0).as_mut().map(|watch| watch.look(&gpus)).unwrap_or_default()))
    }

    fn count(&self, py: Python<'_>) -> Option<u32> {
        py.detach(|| lock(&self.0).as_ref().and_then(Watch::count))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| lock(&self.0).take().map(Watch::close));
    }
}

create_exception!(
    devherd._native,
    Hangs,
    PyException,
    "A call has not returned in time. `args` has the id of its thread."
);

/// The fence for calls to NVML: the rest of the process goes on.
static FENCE: LazyLock<Fence> = LazyLock::new(|| Fence::new(Duration::from_secs(1)));

/// Interval of heartbeats and checks for signals during a call.
const BEAT_PERIOD: Duration = Duration::from_millis(100);

#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
pub(super) fn answered(py: Python<'_>, ask: Py<PyAny>, seconds: f64, beat: Py<PyAny>) -> PyResult<Py<PyAny>> {
    let deadline = Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let raised = Mutex::new(None);
    let goes_on = || match Python::attach(|py| beat.call0(py).and_then(|_| py.check_signals())) {
        Ok(()) => true,
        Err(error) => {
            *lock(&raised) = Some(error);
            false
        }
    };
    let thread = Arc::new(AtomicI32::new(0));
    let asked = Arc::clone(&thread);
    let call = move |()| {
        asked.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        Python::attach(|py| ask.call0(py))
    };
    let outcome = py.detach(|| FENCE.each_while(deadline, vec![()], |()| "NVML", call, (BEAT_PERIOD, &goes_on)).pop());
    match (lock(&raised).take(), outcome) {
        (Some(error), _) => Err(error),
        (None, Some(Outcome::Done(answer))) => answer,
        (None, Some(Outcome::Panicked(message))) => Err(PyRuntimeError::new_err(message)),
        (None, Some(Outcome::NotStarted(why))) => Err(PyBlockingIOError::new_err(why)),
        (None, Some(Outcome::Overdue) | None) => Err(Hangs::new_err(thread.load(Ordering::Relaxed))),
    }
}

/// The Python exception. An `OSError` with the attribute `library_version` means that library and driver differ in
/// version.
fn raised(py: Python<'_>, error: &ProbeError) -> PyErr {
    let text = error.to_string();
    match error {
        ProbeError::NoLibrary => PyFileNotFoundError::new_err(text),
        ProbeError::Unusable(_) => PyOSError::new_err(text),
        ProbeError::OtherVersion(version) => {
            let raised = PyOSError::new_err(text);
            raised.value(py).setattr("library_version", version.as_deref().unwrap_or_default()).err().unwrap_or(raised)
        }
    }
}

fn json<T: Serialize>(value: &T) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))
}
