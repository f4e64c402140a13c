//! `devherd._native`: what Python sees of the scan core. `python/devherd/_native.pyi` is its typed description.
//!
//! Objects are immutable and compared by value. The GIL is released while the host is being looked at.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;

use crate::device;
use crate::host::Host;
use crate::nvml::probe::{self, ProbeError};
use crate::settings::Settings;
use crate::{allocation, process, scan, uevent, watch};

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(Clone, PartialEq)]
struct Node(device::Node);

#[pymethods]
impl Node {
    #[new]
    fn new(host_path: String, container_path: String, permissions: String) -> Self {
        Self(device::Node { host_path, container_path, permissions })
    }

    #[getter]
    fn host_path(&self) -> &str {
        &self.0.host_path
    }

    #[getter]
    fn container_path(&self) -> &str {
        &self.0.container_path
    }

    #[getter]
    fn permissions(&self) -> &str {
        &self.0.permissions
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(Clone, PartialEq)]
struct Mount(device::Mount);

#[pymethods]
impl Mount {
    #[new]
    fn new(host_path: String, container_path: String, read_only: bool) -> Self {
        Self(device::Mount { host_path, container_path, read_only })
    }

    #[getter]
    fn host_path(&self) -> &str {
        &self.0.host_path
    }

    #[getter]
    fn container_path(&self) -> &str {
        &self.0.container_path
    }

    #[getter]
    fn read_only(&self) -> bool {
        self.0.read_only
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// A device within the scan that found it: ten thousand of them cross without being copied.
#[pyclass(frozen, eq, module = "devherd._native")]
struct Device {
    scan: Arc<scan::Scan>,
    index: usize,
}

impl Device {
    fn get(&self) -> &device::Device {
        &self.scan.devices[self.index]
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (*, vendor, id, card = String::new(), resource_name = None, first_sight_resource_name = None,
        reasons = Vec::new(), numa_nodes = Vec::new(), nodes = Vec::new(), mounts = Vec::new(), envs = BTreeMap::new(),
        annotations = BTreeMap::new(), cdi_devices = Vec::new(), cdi_edits = BTreeMap::new(),
        attributes = BTreeMap::new(), sources = BTreeMap::new(), distances = BTreeMap::new()))]
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    #[expect(clippy::too_many_arguments, reason = "a record's constructor has as many arguments as it has fields")]
    fn new(
        vendor: String,
        id: String,
        card: String,
        resource_name: Option<String>,
        first_sight_resource_name: Option<String>,
        reasons: Vec<String>,
        numa_nodes: Vec<u32>,
        nodes: Vec<Bound<'_, Node>>,
        mounts: Vec<Bound<'_, Mount>>,
        envs: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
        cdi_devices: Vec<String>,
        cdi_edits: BTreeMap<String, String>,
        attributes: BTreeMap<String, String>,
        sources: BTreeMap<String, String>,
        distances: BTreeMap<String, u32>,
    ) -> PyResult<Self> {
        let device = device::Device {
            vendor: Cow::Owned(vendor),
            card,
            id,
            resource_name,
            first_sight_resource_name,
            reasons: reasons.iter().map(|word| reason(word)).collect::<PyResult<_>>()?,
            numa_nodes,
            nodes: nodes.iter().map(|node| node.get().0.clone()).collect(),
            mounts: mounts.iter().map(|mount| mount.get().0.clone()).collect(),
            envs,
            annotations,
            cdi_devices,
            cdi_edits,
            attributes,
            sources,
            distances,
            checks: Vec::new(),
        };
        Ok(Self { scan: Arc::new(scan::Scan { devices: vec![device], ..scan::Scan::default() }), index: 0 })
    }

    #[getter]
    fn vendor(&self) -> &str {
        &self.get().vendor
    }

    #[getter]
    fn card(&self) -> &str {
        &self.get().card
    }

    #[getter]
    fn id(&self) -> &str {
        &self.get().id
    }

    #[getter]
    fn resource_name(&self) -> Option<&str> {
        self.get().resource_name.as_deref()
    }

    #[getter]
    fn first_sight_resource_name(&self) -> Option<&str> {
        self.get().first_sight_resource_name.as_deref()
    }

    #[getter]
    fn reasons(&self) -> Vec<&'static str> {
        words(&self.get().reasons)
    }

    #[getter]
    fn numa_nodes(&self) -> Vec<u32> {
        self.get().numa_nodes.clone()
    }

    #[getter]
    fn nodes(&self) -> Vec<Node> {
        self.get().nodes.iter().cloned().map(Node).collect()
    }

    #[getter]
    fn mounts(&self) -> Vec<Mount> {
        self.get().mounts.iter().cloned().map(Mount).collect()
    }

    #[getter]
    fn envs(&self) -> &BTreeMap<String, String> {
        &self.get().envs
    }

    #[getter]
    fn annotations(&self) -> &BTreeMap<String, String> {
        &self.get().annotations
    }

    #[getter]
    fn cdi_devices(&self) -> &[String] {
        &self.get().cdi_devices
    }

    #[getter]
    fn cdi_edits(&self) -> &BTreeMap<String, String> {
        &self.get().cdi_edits
    }

    #[getter]
    fn attributes(&self) -> &BTreeMap<String, String> {
        &self.get().attributes
    }

    #[getter]
    fn sources(&self) -> &BTreeMap<String, String> {
        &self.get().sources
    }

    #[getter]
    fn distances(&self) -> &BTreeMap<String, u32> {
        &self.get().distances
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.get())
    }
}

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
struct Problem(device::Problem);

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
struct Unseen(device::Unseen);

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
struct Scan(Arc<scan::Scan>);

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
struct Scanner(Mutex<scan::Scanner>);

#[pymethods]
impl Scanner {
    #[new]
    fn new(host_root: &str, settings: &str) -> PyResult<Self> {
        let settings = Settings::from_json(settings).map_err(PyValueError::new_err)?;
        Ok(Self(Mutex::new(scan::Scanner::new(Host::new(host_root), &settings))))
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

#[pyclass(frozen, module = "devherd._native")]
struct UeventSocket(Mutex<Option<uevent::UeventSocket>>);

#[pymethods]
impl UeventSocket {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(Self(Mutex::new(Some(uevent::UeventSocket::open()?))))
    }

    fn fileno(&self) -> PyResult<RawFd> {
        Ok(open(&mut lock(&self.0))?.as_raw_fd())
    }

    fn drain(&self) -> PyResult<Vec<String>> {
        Ok(open(&mut lock(&self.0))?.drain()?)
    }

    fn close(&self) {
        lock(&self.0).take();
    }
}

#[pyclass(frozen, module = "devherd._native")]
struct DirectoryWatch(Mutex<Option<watch::DirectoryWatch>>);

#[pymethods]
impl DirectoryWatch {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(Self(Mutex::new(Some(watch::DirectoryWatch::new()?))))
    }

    fn add(&self, path: &str) -> PyResult<()> {
        Ok(open(&mut lock(&self.0))?.add(Path::new(path))?)
    }

    fn fileno(&self) -> PyResult<RawFd> {
        Ok(open(&mut lock(&self.0))?.as_raw_fd())
    }

    fn drain(&self) -> PyResult<Vec<(String, String)>> {
        Ok(open(&mut lock(&self.0))?.drain()?)
    }

    fn close(&self) {
        lock(&self.0).take();
    }
}

/// Id, physical id, card, NUMA nodes, whether it is healthy, distances by card.
type PreferenceDevice = (String, String, String, Vec<i64>, bool, BTreeMap<String, u32>);

#[pyclass(frozen, module = "devherd._native")]
struct Preference(allocation::Preference);

#[pymethods]
impl Preference {
    #[new]
    fn new(kind: &str, devices: Vec<PreferenceDevice>) -> PyResult<Self> {
        let kind = allocation::Kind::from_word(kind)
            .ok_or_else(|| PyValueError::new_err(format!("unknown preference {kind:?}")))?;
        let devices = devices.into_iter().map(|(id, physical_id, card, numa_nodes, healthy, distances)| {
            allocation::Device { id, physical_id, card, numa_nodes, healthy, distances }
        });
        Ok(Self(allocation::Preference::new(kind, devices.collect())))
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    fn choose(&self, available: Vec<PyBackedStr>, must_include: Vec<PyBackedStr>, size: usize) -> Vec<String> {
        let (available, required) = (texts(&available), texts(&must_include));
        self.0.choose(&available, &required, size).into_iter().map(str::to_owned).collect()
    }
}

fn texts(ids: &[PyBackedStr]) -> Vec<&str> {
    ids.iter().map(|id| &**id).collect()
}

#[pyfunction]
fn die_with_parent(signal: i32) -> PyResult<()> {
    Ok(process::die_with_parent(signal)?)
}

#[pyfunction]
fn set_process_name(name: &str) -> PyResult<()> {
    Ok(process::set_process_name(name)?)
}

#[pyfunction]
fn nvml_facts(py: Python<'_>, driver_root: Option<&str>, library: Option<&str>) -> PyResult<String> {
    let facts = py.detach(|| probe::facts(driver_root.map(Path::new), library.map(Path::new)));
    let facts = facts.map_err(|error| match error {
        ProbeError::NoLibrary => PyFileNotFoundError::new_err(error.to_string()),
        ProbeError::Unusable(why) => PyOSError::new_err(why),
    })?;
    serde_json::to_string(&facts).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The scan core.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{
        Device, DirectoryWatch, Mount, Node, Preference, Problem, Scan, Scanner, UeventSocket, Unseen, die_with_parent,
        nvml_facts, set_process_name,
    };
}

/// No panic happens while one of these locks is held that would leave half-changed data behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open<T>(resource: &mut Option<T>) -> PyResult<&mut T> {
    resource.as_mut().ok_or_else(|| PyValueError::new_err("I/O operation on a closed descriptor"))
}

fn reason(word: &str) -> PyResult<device::Reason> {
    device::Reason::from_word(word).ok_or_else(|| PyValueError::new_err(format!("unknown reason {word:?}")))
}

/// Sorted as text, as the spool and the metrics have them.
fn words(reasons: &BTreeSet<device::Reason>) -> Vec<&'static str> {
    let mut words: Vec<&'static str> = reasons.iter().map(|reason| reason.as_str()).collect();
    words.sort_unstable();
    words
}
