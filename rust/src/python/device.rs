//! A device and what it is made of.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::{device, scan};

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(Clone, PartialEq)]
pub(super) struct Node(device::Node);

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
pub(super) struct Mount(device::Mount);

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
pub(super) struct Device {
    pub(super) scan: Arc<scan::Scan>,
    pub(super) index: usize,
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

fn reason(word: &str) -> PyResult<device::Reason> {
    device::Reason::from_word(word).ok_or_else(|| PyValueError::new_err(format!("unknown reason {word:?}")))
}

/// Sorted as text, as the spool and the metrics have them.
pub(super) fn words(reasons: &BTreeSet<device::Reason>) -> Vec<&'static str> {
    let mut words: Vec<&'static str> = reasons.iter().map(|reason| reason.as_str()).collect();
    words.sort_unstable();
    words
}
