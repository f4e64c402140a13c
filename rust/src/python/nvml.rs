//! NVML, called in this process.

use std::path::Path;
use std::sync::Mutex;

use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyValueError};
use pyo3::prelude::*;
use serde::Serialize;

use super::lock;
use crate::nvml::gather::{self, ProbeError};
use crate::nvml::interface;
use crate::nvml::watch::Watch;

#[pyfunction]
pub(super) fn nvml_facts(py: Python<'_>, driver_root: Option<&str>, library: Option<&str>) -> PyResult<String> {
    let facts = py.detach(|| gather::facts(driver_root.map(Path::new), library.map(Path::new)));
    json(&facts.map_err(|error| raised(py, &error))?)
}

/// For a test.
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

    fn close(&self, py: Python<'_>) {
        py.detach(|| lock(&self.0).take().map(Watch::close));
    }
}

/// An `OSError` with the attribute `library_version` is about a library of another version than the driver.
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
