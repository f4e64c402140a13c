//! The scanner, and what a scan tells.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::device::{Device, words};
use super::lock;
use crate::host::Host;
use crate::settings::Settings;
use crate::{device, scan};

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct Problem(device::Problem);

#[pymethods]
impl Problem {
    #[getter]
    fn vendor(&self) -> &str {
        self.0.vendor
    }

    #[getter]
    fn path(&self) -> Cow<'_, str> {
        self.0.path.to_string_lossy()
    }

    #[getter]
    fn error(&self) -> &str {
        &self.0.error
    }

    #[getter]
    fn device(&self) -> Option<&str> {
        self.0.device.as_deref()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct Unseen(device::Unseen);

#[pymethods]
impl Unseen {
    #[getter]
    fn vendor(&self) -> &str {
        self.0.vendor
    }

    #[getter]
    fn card(&self) -> Option<&str> {
        self.0.card.as_deref()
    }

    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.0.reason.map(device::Reason::as_str)
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct Scan(Arc<scan::Scan>);

#[pymethods]
impl Scan {
    #[getter]
    fn devices(&self) -> Vec<Device> {
        (0..self.0.devices.len()).map(|index| Device { scan: Arc::clone(&self.0), index }).collect()
    }

    #[getter]
    fn problems(&self) -> Vec<Problem> {
        self.0.problems.iter().cloned().map(Problem).collect()
    }

    #[getter]
    fn unseen(&self) -> Vec<Unseen> {
        self.0.unseen.iter().cloned().map(Unseen).collect()
    }

    #[getter]
    fn vendors(&self) -> Vec<&'static str> {
        self.0.vendors.clone()
    }

    #[getter]
    fn duration_seconds(&self) -> f64 {
        self.0.duration.as_secs_f64()
    }

    #[getter]
    fn changed(&self) -> bool {
        self.0.changed
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct Scanner(Mutex<scan::Scanner>);

#[pymethods]
impl Scanner {
    #[new]
    fn new(host_root: &str, settings: &str) -> PyResult<Self> {
        let settings = Settings::from_json(settings).map_err(PyValueError::new_err)?;
        Ok(Self(Mutex::new(scan::Scanner::new(Host::new(host_root), &settings))))
    }

    fn reconfigure(&self, settings: &str) -> PyResult<()> {
        let settings = Settings::from_json(settings).map_err(PyValueError::new_err)?;
        lock(&self.0).reconfigure(&settings);
        Ok(())
    }

    fn scan(&self, py: Python<'_>) -> Scan {
        Scan(py.detach(|| lock(&self.0).scan()))
    }

    fn poll(&self, py: Python<'_>) -> Vec<(String, String, String, Vec<&'static str>)> {
        let found = py.detach(|| lock(&self.0).poll());
        found.into_iter().map(|(vendor, card, id, reasons)| (vendor, card, id, words(&reasons))).collect()
    }

    fn watched_directories(&self, py: Python<'_>) -> Vec<String> {
        let directories = py.detach(|| lock(&self.0).watched_directories());
        directories.into_iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }
}
