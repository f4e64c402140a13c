//! The container edits of a device.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::edits::{self, Way};
use crate::spool;

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct Node(edits::Node);

#[pymethods]
impl Node {
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

    #[getter]
    fn access(&self) -> Option<(u32, u32)> {
        self.0.access.map(|access| (access.group, access.mode))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct Mount(edits::Mount);

#[pymethods]
impl Mount {
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

    #[getter]
    fn options(&self) -> Vec<&'static str> {
        self.0.options.to_vec()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct Hook(edits::Hook);

#[pymethods]
impl Hook {
    #[getter]
    fn hook_name(&self) -> &str {
        self.0.hook_name
    }

    #[getter]
    fn path(&self) -> &str {
        &self.0.path
    }

    #[getter]
    fn args(&self) -> Vec<&str> {
        self.0.args.iter().map(String::as_str).collect()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct Edits(Arc<edits::Edits>);

impl From<edits::Edits> for Edits {
    fn from(edits: edits::Edits) -> Self {
        Self(Arc::new(edits))
    }
}

#[pymethods]
impl Edits {
    #[getter]
    fn envs(&self) -> &BTreeMap<String, String> {
        &self.0.envs
    }

    #[getter]
    fn annotations(&self) -> &BTreeMap<String, String> {
        &self.0.annotations
    }

    #[getter]
    fn nodes(&self) -> Vec<Node> {
        self.0.nodes.iter().cloned().map(Node).collect()
    }

    #[getter]
    fn mounts(&self) -> Vec<Mount> {
        self.0.mounts.iter().cloned().map(Mount).collect()
    }

    #[getter]
    fn hooks(&self) -> Vec<Hook> {
        self.0.hooks.iter().cloned().map(Hook).collect()
    }

    #[getter]
    fn cdi_devices(&self) -> &[String] {
        &self.0.cdi_devices
    }

    #[getter]
    fn specs(&self) -> BTreeMap<&str, Edits> {
        self.0.specs.iter().map(|(name, edits)| (name.as_str(), Edits(Arc::clone(edits)))).collect()
    }

    fn encoded<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &spool::edits(&self.0))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// Parses `device-plugin` or `cdi`.
pub(super) fn way(word: &str) -> PyResult<Way> {
    match word {
        "device-plugin" => Ok(Way::DevicePlugin),
        "cdi" => Ok(Way::Cdi),
        _ => Err(PyValueError::new_err(format!("unknown way {word:?}: device-plugin or cdi"))),
    }
}
