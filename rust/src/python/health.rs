//! Findings, what a poll says of a device, and the registry of sources.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use crate::health::source::{About, Clears};
use crate::health::{self, finding, source, sources};

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

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct Meaning(source::Meaning);

#[pymethods]
impl Meaning {
    #[getter]
    fn reason(&self) -> &'static str {
        self.0.reason
    }

    #[getter]
    fn action(&self) -> &'static str {
        self.0.action.as_str()
    }

    #[getter]
    fn clears(&self) -> &'static str {
        self.0.clears.as_str()
    }

    #[getter]
    fn quiet_seconds(&self) -> Option<u32> {
        match self.0.clears {
            Clears::Quiet(seconds) => Some(seconds),
            Clears::Level | Clears::Until(_) | Clears::Never => None,
        }
    }

    #[getter]
    fn evidence(&self) -> Vec<&'static str> {
        match self.0.clears {
            Clears::Until(evidence) => evidence.iter().map(|one| one.as_str()).collect(),
            Clears::Level | Clears::Quiet(_) | Clears::Never => Vec::new(),
        }
    }

    #[getter]
    fn after(&self) -> u32 {
        self.0.after
    }

    #[getter]
    fn is_damped(&self) -> bool {
        self.0.is_damped
    }

    #[getter]
    fn only_when_new(&self) -> bool {
        self.0.only_when_new
    }

    #[getter]
    fn threshold(&self) -> &'static str {
        self.0.threshold
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct HealthSource(&'static About);

#[pymethods]
impl HealthSource {
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name
    }

    #[getter]
    fn reads(&self) -> &'static str {
        self.0.reads.as_str()
    }

    #[getter]
    fn document(&self) -> &'static str {
        self.0.document
    }

    #[getter]
    fn meanings(&self) -> Vec<Meaning> {
        self.0.meanings.iter().copied().map(Meaning).collect()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyfunction]
pub(super) fn health_sources() -> Vec<HealthSource> {
    sources::ALL.iter().map(|source| HealthSource(source.about())).collect()
}
