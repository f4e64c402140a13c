//! The scanner, and the result of a scan.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use super::container_edits::{Edits, way};
use super::devices::{Device, Finding, Platform};
use super::lock;
use crate::health::source::Count;
use crate::health::{self, Awaited, Place, PollReason};
use crate::settings::Settings;
use crate::{device, scan};

/// Vendor, card and id of a device.
type Key = (String, String, String);

/// PCI address, RDMA device, part, name, kind and number of a count.
type CountRow = (String, String, String, &'static str, String, u64);

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
pub(super) struct NotExamined(device::NotExamined);

#[pymethods]
impl NotExamined {
    #[getter]
    fn vendor(&self) -> &str {
        self.0.vendor
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
pub(super) struct Scan(Arc<scan::Scan>);

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
pub(super) struct Look(pub(super) health::Look);

#[pymethods]
impl Look {
    #[getter]
    fn vendor(&self) -> &str {
        &self.0.vendor
    }

    #[getter]
    fn card(&self) -> &str {
        &self.0.card
    }

    #[getter]
    fn id(&self) -> &str {
        &self.0.id
    }

    #[getter]
    fn findings(&self) -> Vec<Finding> {
        self.0.findings.iter().cloned().map(Finding).collect()
    }

    #[getter]
    fn not_looked(&self) -> BTreeMap<&'static str, &str> {
        self.0.not_looked.iter().map(|(source, why)| (*source, why.as_str())).collect()
    }

    #[getter]
    fn is_unsure(&self) -> bool {
        self.0.is_unsure
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
        Scan(py.detach(|| lock(&self.0).scan(&|| call(beat.as_ref()))))
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    #[pyo3(signature = (beat = None))]
    fn poll(&self, py: Python<'_>, beat: Option<Py<PyAny>>) -> Vec<Look> {
        self.looks(py, &PollReason::Anything, beat.as_ref())
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    #[pyo3(signature = (awaited = Vec::new(), beat = None))]
    fn poll_due(&self, py: Python<'_>, awaited: Vec<(Key, BTreeSet<String>)>, beat: Option<Py<PyAny>>) -> Vec<Look> {
        let mut by_card: HashMap<String, Vec<Awaited>> = HashMap::new();
        for ((vendor, card, id), sources) in awaited {
            by_card.entry(card).or_default().push(Awaited { vendor, id, sources });
        }
        self.looks(py, &PollReason::Regular(by_card), beat.as_ref())
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    #[pyo3(signature = (named, paths, beat = None))]
    fn poll_named(&self, py: Python<'_>, named: Vec<PathBuf>, paths: bool, beat: Option<Py<PyAny>>) -> Vec<Look> {
        self.looks(py, &PollReason::Events { named, paths }, beat.as_ref())
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    #[pyo3(signature = (beat = None))]
    fn are_as_found(&self, py: Python<'_>, beat: Option<Py<PyAny>>) -> bool {
        py.detach(|| lock(&self.0).are_as_found(&|| call(beat.as_ref())))
    }

    fn pause(&self) -> u64 {
        lock(&self.0).pause()
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    fn watch_also(&self, py: Python<'_>, devices: Vec<Py<Device>>) {
        let devices = devices.iter().map(|device| Arc::clone(&device.get().0)).collect();
        py.detach(|| lock(&self.0).watch_also(devices));
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    #[pyo3(signature = (beat = None))]
    fn device_dumps(&self, py: Python<'_>, beat: Option<Py<PyAny>>) -> PyResult<Vec<(String, Finding)>> {
        let dumps = py.detach(|| lock(&self.0).device_dumps(&|| call(beat.as_ref())));
        let dumps = dumps.map_err(PyOSError::new_err)?.into_iter();
        Ok(dumps.map(|(device, finding)| (device, Finding(finding))).collect())
    }

    fn leave_alone(&self, sources: BTreeSet<String>) {
        lock(&self.0).leave_alone(sources);
    }

    fn reads_kernel_log(&self, is_logged: bool) {
        lock(&self.0).reads_kernel_log(is_logged);
    }

    fn new_memories(&self) -> Option<Vec<(Place, String)>> {
        Some(lock(&self.0).new_memories()?.into_iter().collect())
    }

    fn new_counts(&self) -> Option<Vec<CountRow>> {
        let counts = lock(&self.0).new_counts()?.into_iter();
        let row = |one: Count| (one.pci_address, one.ibdev, one.part, one.name, one.kind.into_owned(), one.number);
        Some(counts.map(row).collect())
    }

    fn recall(&self, memories: Vec<(Place, String)>) {
        lock(&self.0).recall(memories.into_iter().collect());
    }

    fn forget_best(&self, card: &str, reason: &str) {
        lock(&self.0).forget_best(card, reason);
    }

    #[getter]
    fn is_simulated(&self) -> bool {
        lock(&self.0).is_simulated()
    }

    fn edits(
        &self,
        device: &Device,
        platform: Option<&Platform>,
        by: &str,
        resource_name: &str,
    ) -> PyResult<Option<Edits>> {
        let nothing = device::Platform::default();
        let platform = platform.map_or(&nothing, |platform| &platform.0);
        Ok(lock(&self.0).edits(&device.0, platform, way(by)?, resource_name).map(Edits::from))
    }

    fn left_out(&self, device: &Device) -> Option<&'static str> {
        lock(&self.0).left_out(&device.0)
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    fn are_gone(&self, py: Python<'_>, devices: Vec<Py<Device>>) -> Vec<bool> {
        let devices = devices.iter().map(|device| Arc::clone(&device.get().0)).collect();
        py.detach(|| lock(&self.0).are_gone(devices))
    }

    fn watched_directories(&self, py: Python<'_>) -> Vec<String> {
        let directories = py.detach(|| lock(&self.0).watched_directories());
        directories.into_iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }

    fn processor_nodes(&self) -> Vec<u32> {
        lock(&self.0).processor_nodes()
    }
}

impl Scanner {
    fn looks(&self, py: Python<'_>, reason: &PollReason, beat: Option<&Py<PyAny>>) -> Vec<Look> {
        let looks = py.detach(|| lock(&self.0).poll(reason, &|| call(beat)));
        looks.into_iter().map(Look).collect()
    }
}

/// Calls Python's `beat` during a wait. An exception in it does not end the scan; Python prints it.
pub(super) fn call(beat: Option<&Py<PyAny>>) {
    let Some(beat) = beat else { return };
    Python::attach(|py| {
        if let Err(error) = beat.call0(py) {
            error.write_unraisable(py, Some(beat.bind(py)));
        }
    });
}
