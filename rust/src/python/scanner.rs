//! The scanner, and the result of a scan.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::container_edits::{Edits, way};
use super::devices::{Device, Finding, Platform};
use super::{beat_of, lock};
use crate::settings::Settings;
use crate::vendors::classes;
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

    #[getter]
    fn refusal(&self) -> Option<(&str, bool)> {
        self.0.refusal.as_ref().map(|refusal| (refusal.what.as_str(), refusal.is_bound))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct NotExamined(device::NotExamined);

#[pymethods]
impl NotExamined {
    #[getter]
    fn vendor(&self) -> &str {
        self.0.vendor
    }

    #[getter]
    fn class_name(&self) -> Option<&str> {
        self.0.class.as_deref()
    }

    #[getter]
    fn card(&self) -> Option<&str> {
        self.0.card.as_deref()
    }

    #[getter]
    fn finding(&self) -> Option<Finding> {
        self.0.finding.clone().map(Finding)
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct Scan(pub(super) Arc<scan::Scan>);

#[pymethods]
impl Scan {
    #[getter]
    fn devices(&self) -> Vec<Device> {
        self.0.devices.iter().cloned().map(Device).collect()
    }

    #[getter]
    fn platforms(&self) -> BTreeMap<&'static str, Platform> {
        self.0.platforms.iter().map(|(vendor, platform)| (*vendor, Platform(Arc::clone(platform)))).collect()
    }

    #[getter]
    fn driverless(&self) -> Vec<Problem> {
        self.0.driverless.iter().cloned().map(Problem).collect()
    }

    #[getter]
    fn not_offered(&self) -> Vec<Problem> {
        self.0.not_offered.iter().cloned().map(Problem).collect()
    }

    #[getter]
    fn problems(&self) -> Vec<Problem> {
        self.0.problems.iter().cloned().map(Problem).collect()
    }

    #[getter]
    fn unseen(&self) -> Vec<NotExamined> {
        self.0.unseen.iter().cloned().map(NotExamined).collect()
    }

    #[getter]
    fn requests(&self) -> BTreeMap<&'static str, String> {
        self.0.requests.iter().cloned().collect()
    }

    #[getter]
    fn look_again(&self) -> bool {
        self.0.look_again
    }

    #[getter]
    fn changes_in_silence(&self) -> bool {
        self.0.changes_in_silence
    }

    #[getter]
    fn vendors(&self) -> Vec<&'static str> {
        self.0.vendors.clone()
    }

    #[getter]
    fn vendors_with_devices(&self) -> BTreeSet<&str> {
        self.0.devices.iter().map(|device| &*device.vendor).collect()
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

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct ClassEntry(classes::ClassEntry);

#[pymethods]
impl ClassEntry {
    #[getter]
    fn path(&self) -> Cow<'_, str> {
        self.0.path.to_string_lossy()
    }

    #[getter]
    fn class_name(&self) -> &str {
        &self.0.class
    }

    #[getter]
    fn is_taken(&self) -> bool {
        self.0.is_taken
    }

    #[getter]
    fn why(&self) -> &str {
        &self.0.why
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct Scanner(pub(super) Mutex<scan::Scanner>);

#[pymethods]
impl Scanner {
    #[new]
    fn new(host_root: &str, settings: &str) -> PyResult<Self> {
        let settings = Settings::from_json(settings).map_err(PyValueError::new_err)?;
        Ok(Self(Mutex::new(scan::Scanner::new(settings.host(host_root), &settings))))
    }

    fn reconfigure(&self, settings: &str) -> PyResult<()> {
        let settings = Settings::from_json(settings).map_err(PyValueError::new_err)?;
        lock(&self.0).reconfigure(&settings);
        Ok(())
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    #[pyo3(signature = (beat = None))]
    fn scan(&self, py: Python<'_>, beat: Option<Py<PyAny>>) -> Scan {
        Scan(py.detach(|| lock(&self.0).scan(&beat_of(beat.as_ref()))))
    }

    fn forget(&self) {
        lock(&self.0).forget();
    }

    #[getter]
    fn is_simulated(&self) -> bool {
        lock(&self.0).is_simulated()
    }

    #[pyo3(signature = (device, platform, by, resource_name, mps_root = None))]
    fn edits(
        &self,
        device: &Device,
        platform: Option<&Platform>,
        by: &str,
        resource_name: &str,
        mps_root: Option<&str>,
    ) -> PyResult<Option<Edits>> {
        let nothing = device::Platform::default();
        let platform = platform.map_or(&nothing, |platform| &platform.0);
        Ok(lock(&self.0).edits(&device.0, platform, way(by)?, resource_name, mps_root).map(Edits::from))
    }

    fn left_out(&self, device: &Device, by: &str) -> PyResult<Option<(Cow<'static, str>, bool)>> {
        let left_out = lock(&self.0).left_out(&device.0, way(by)?);
        Ok(left_out.map(|left_out| (left_out.why, left_out.unless_named)))
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    fn are_gone(&self, py: Python<'_>, devices: Vec<Py<Device>>) -> Vec<bool> {
        let devices = devices.iter().map(|device| Arc::clone(&device.get().0)).collect();
        py.detach(|| lock(&self.0).are_gone(devices))
    }

    fn class_entries(&self, py: Python<'_>) -> Vec<ClassEntry> {
        py.detach(|| lock(&self.0).class_entries()).into_iter().map(ClassEntry).collect()
    }

    fn watched_directories(&self, py: Python<'_>) -> Vec<String> {
        let directories = py.detach(|| lock(&self.0).watched_directories());
        directories.into_iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }

    fn processor_nodes(&self) -> Vec<u32> {
        lock(&self.0).processor_nodes()
    }
}
