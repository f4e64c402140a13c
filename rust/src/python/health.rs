//! The poller, and the result of a poll.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use super::devices::{Device, Finding};
use super::scanner::{Scan, Scanner};
use super::{beat_of, lock};
use crate::health::source::Count;
use crate::health::{self, Awaited, Place, PollReason};

/// Vendor, card and id of a device.
type Key = (String, String, String);

/// PCI address, RDMA device, part, name, kind and number of a count.
type CountRow = (String, String, String, &'static str, String, u64);

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
pub(super) struct Poller(Mutex<health::Poller>);

#[pymethods]
impl Poller {
    #[new]
    fn new(scanner: &Scanner) -> Self {
        Self(Mutex::new(lock(&scanner.0).poller()))
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    fn switch_off(&self, sources: BTreeSet<String>) {
        lock(&self.0).switch_off(&sources);
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    fn watch(&self, py: Python<'_>, scan: &Scan, kept: Vec<Py<Device>>) {
        let kept: Vec<_> = kept.iter().map(|device| Arc::clone(&device.get().0)).collect();
        py.detach(|| lock(&self.0).watch(&scan.0.devices, &kept));
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

    fn pause(&self) -> u64 {
        lock(&self.0).pause()
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    #[pyo3(signature = (beat = None))]
    fn device_dumps(&self, py: Python<'_>, beat: Option<Py<PyAny>>) -> PyResult<Vec<(String, Finding)>> {
        let dumps = py.detach(|| lock(&self.0).device_dumps(&beat_of(beat.as_ref())));
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
}

impl Poller {
    fn looks(&self, py: Python<'_>, reason: &PollReason, beat: Option<&Py<PyAny>>) -> Vec<Look> {
        let looks = py.detach(|| lock(&self.0).poll(reason, &beat_of(beat)));
        looks.into_iter().map(Look).collect()
    }
}
