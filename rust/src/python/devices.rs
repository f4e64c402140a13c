//! A device and its parts: paths, attributes, findings, the platform.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::DecodeError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::device::{self, Access};
use crate::fact_kinds::FactKind;
use crate::finding;
use crate::spool;

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(Clone, PartialEq)]
pub(super) struct HostPath(device::HostPath);

#[pymethods]
impl HostPath {
    #[new]
    fn new(
        path: String,
        role: String,
        is_node: bool,
        number: Option<(u32, u32)>,
        is_required: bool,
        target: String,
        access: Option<(u32, u32)>,
    ) -> Self {
        let access = access.map(|(group, mode)| Access { group, mode });
        Self(device::HostPath { path, role: Cow::Owned(role), is_node, number, is_required, target, access })
    }

    #[getter]
    fn path(&self) -> &str {
        &self.0.path
    }

    #[getter]
    fn role(&self) -> &str {
        &self.0.role
    }

    #[getter]
    fn is_node(&self) -> bool {
        self.0.is_node
    }

    #[getter]
    fn number(&self) -> Option<(u32, u32)> {
        self.0.number
    }

    #[getter]
    fn is_required(&self) -> bool {
        self.0.is_required
    }

    #[getter]
    fn target(&self) -> &str {
        &self.0.target
    }

    #[getter]
    fn access(&self) -> Option<(u32, u32)> {
        self.0.access.map(|access| (access.group, access.mode))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, eq, hash, module = "devherd._native")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct PciFunction(device::PciFunction);

#[pymethods]
impl PciFunction {
    #[new]
    fn new(path: PathBuf, driver: Option<String>, physical: Option<PathBuf>) -> Self {
        Self(device::PciFunction { path, driver, physical })
    }

    #[getter]
    fn path(&self) -> Cow<'_, str> {
        self.0.path.to_string_lossy()
    }

    #[getter]
    fn driver(&self) -> Option<&str> {
        self.0.driver.as_deref()
    }

    #[getter]
    fn physical(&self) -> Option<Cow<'_, str>> {
        self.0.physical.as_deref().map(Path::to_string_lossy)
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(Clone, PartialEq)]
pub(super) struct Fact(device::Fact);

#[pymethods]
impl Fact {
    #[new]
    fn new(kind: &str, text: &str, source: String) -> PyResult<Self> {
        let kind = FactKind::named(kind).ok_or_else(|| refused("kind of fact", kind))?;
        let value = kind.parse(text).ok_or_else(|| refused(kind.as_str(), text))?;
        Ok(Self(device::Fact { value, source }))
    }

    #[getter]
    fn kind(&self) -> &'static str {
        FactKind::of(&self.0.value).as_str()
    }

    #[getter]
    fn text(&self) -> String {
        self.0.value.to_string()
    }

    #[getter]
    fn source(&self) -> &str {
        &self.0.source
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

fn refused(what: &str, given: &str) -> PyErr {
    PyValueError::new_err(format!("no {what}: {given:?}"))
}

fn attributes_of(facts: BTreeMap<String, Bound<'_, Fact>>) -> device::Attributes {
    facts.into_iter().map(|(name, fact)| (name, fact.get().0.clone())).collect()
}

fn paths_of(paths: &[Bound<'_, HostPath>]) -> Vec<device::HostPath> {
    paths.iter().map(|path| path.get().0.clone()).collect()
}

fn facts_of(attributes: &device::Attributes) -> BTreeMap<&str, Fact> {
    attributes.iter().map(|(name, fact)| (name.as_str(), Fact(fact.clone()))).collect()
}

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct Platform(pub(super) Arc<device::Platform>);

#[pymethods]
impl Platform {
    #[new]
    #[pyo3(signature = (*, facts = BTreeMap::new(), paths = Vec::new()))]
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    fn new(facts: BTreeMap<String, Bound<'_, Fact>>, paths: Vec<Bound<'_, HostPath>>) -> Self {
        Self(Arc::new(device::Platform { attributes: attributes_of(facts), paths: paths_of(&paths) }))
    }

    #[getter]
    fn facts(&self) -> BTreeMap<&str, Fact> {
        facts_of(&self.0.attributes)
    }

    #[getter]
    fn paths(&self) -> Vec<HostPath> {
        self.0.paths.iter().cloned().map(HostPath).collect()
    }

    fn in_inventory<'py>(&self, py: Python<'py>, vendor: &str) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &spool::platform_in_inventory(vendor, &self.0))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, eq, hash, module = "devherd._native")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Finding(pub(super) finding::Finding);

#[pymethods]
impl Finding {
    #[new]
    #[pyo3(signature = (*, source, reason, detail = "", file = "", value = "", count = 0))]
    fn new(source: String, reason: String, detail: &str, file: &str, value: &str, count: u64) -> Self {
        Self(finding::Finding::new(source, reason).because(detail).at(file).reading(value).counted(count))
    }

    #[getter]
    fn source(&self) -> &str {
        &self.0.source
    }

    #[getter]
    fn reason(&self) -> &str {
        &self.0.reason
    }

    #[getter]
    fn detail(&self) -> &str {
        &self.0.detail
    }

    #[getter]
    fn file(&self) -> &str {
        &self.0.file
    }

    #[getter]
    fn value(&self) -> &str {
        &self.0.value
    }

    #[getter]
    fn count(&self) -> u64 {
        self.0.count
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// Shared with the scan that found it, so that ten thousand devices reach Python without being copied.
#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct Device(pub(super) Arc<device::Device>);

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (*, vendor, id, card = String::new(), resource_name = None, first_sight_resource_name = None,
        shares = Vec::new(), findings = Vec::new(), numa_nodes = Vec::new(), numa_source = String::new(), paths = Vec::new(),
        facts = BTreeMap::new(), awaited = BTreeSet::new(), distances = BTreeMap::new(), functions = Vec::new()))]
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    #[expect(clippy::too_many_arguments, reason = "a record's constructor has as many arguments as it has fields")]
    fn new(
        vendor: String,
        id: String,
        card: String,
        resource_name: Option<String>,
        first_sight_resource_name: Option<String>,
        shares: Vec<String>,
        findings: Vec<Bound<'_, Finding>>,
        numa_nodes: Vec<u32>,
        numa_source: String,
        paths: Vec<Bound<'_, HostPath>>,
        facts: BTreeMap<String, Bound<'_, Fact>>,
        awaited: BTreeSet<String>,
        distances: BTreeMap<String, u32>,
        functions: Vec<Bound<'_, PciFunction>>,
    ) -> Self {
        Self(Arc::new(device::Device {
            vendor: Cow::Owned(vendor),
            card,
            id,
            shares,
            resource_name,
            first_sight_resource_name,
            findings: findings.iter().map(|finding| finding.get().0.clone()).collect(),
            numa_nodes,
            numa_source,
            paths: paths_of(&paths),
            attributes: attributes_of(facts),
            awaited,
            distances,
            functions: functions.iter().map(|function| function.get().0.clone()).collect(),
            readings: Vec::new(),
        }))
    }

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
    fn shares(&self) -> &[String] {
        &self.0.shares
    }

    #[getter]
    fn resource_name(&self) -> Option<&str> {
        self.0.resource_name.as_deref()
    }

    #[getter]
    fn first_sight_resource_name(&self) -> Option<&str> {
        self.0.first_sight_resource_name.as_deref()
    }

    #[getter]
    fn findings(&self) -> Vec<Finding> {
        self.0.findings.iter().cloned().map(Finding).collect()
    }

    #[getter]
    fn numa_nodes(&self) -> Vec<u32> {
        self.0.numa_nodes.clone()
    }

    #[getter]
    fn numa_source(&self) -> &str {
        &self.0.numa_source
    }

    #[getter]
    fn paths(&self) -> Vec<HostPath> {
        self.0.paths.iter().cloned().map(HostPath).collect()
    }

    #[getter]
    fn functions(&self) -> Vec<PciFunction> {
        self.0.functions.iter().cloned().map(PciFunction).collect()
    }

    #[getter]
    fn facts(&self) -> BTreeMap<&str, Fact> {
        facts_of(&self.0.attributes)
    }

    #[getter]
    fn attributes(&self) -> BTreeMap<&str, String> {
        self.0.attributes.iter().map(|(name, fact)| (name.as_str(), fact.value.to_string())).collect()
    }

    #[getter]
    fn awaited(&self) -> &BTreeSet<String> {
        &self.0.awaited
    }

    #[getter]
    fn sources(&self) -> BTreeMap<&str, &str> {
        let attributes = self.0.attributes.iter().map(|(name, fact)| (name.as_str(), fact.source.as_str()));
        let all = attributes.chain([("numa_nodes", self.0.numa_source.as_str())]);
        all.filter(|(_, source)| !source.is_empty()).collect()
    }

    #[getter]
    fn key(&self) -> (&str, &str, &str) {
        self.0.key()
    }

    fn attribute(&self, name: &str) -> Option<String> {
        self.0.text(name)
    }

    #[getter]
    fn distances(&self) -> &BTreeMap<String, u32> {
        &self.0.distances
    }

    fn in_inventory<'py>(&self, py: Python<'py>, more: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        bytes(py, spool::in_inventory(&self.0, more))
    }

    fn in_offer<'py>(&self, py: Python<'py>, edits: &[u8], more: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        bytes(py, spool::in_offer(&self.0, edits, more))
    }

    fn in_resource<'py>(&self, py: Python<'py>, edits: &[u8], more: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        bytes(py, spool::in_resource(&self.0, edits, more))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

fn bytes(py: Python<'_>, encoded: Result<Vec<u8>, DecodeError>) -> PyResult<Bound<'_, PyBytes>> {
    encoded.map(|message| PyBytes::new(py, &message)).map_err(|error| PyValueError::new_err(error.to_string()))
}
