//! The compiled-in vendors and health sources, without a look at a host.

use pyo3::prelude::*;
use pyo3::types::PyFrozenSet;

use crate::bus::pci;
use crate::fact_kinds::{DECLARED, Declared};
use crate::health::source::{self, About, Class, Clears};
use crate::health::{reasons, sources};
use crate::vendors::table::{ROWS, Row};

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct Evidence;

#[pymethods]
impl Evidence {
    #[classattr]
    const REBOUND: &'static str = source::Evidence::Rebound.as_str();
    #[classattr]
    const READDED: &'static str = source::Evidence::Readded.as_str();
    #[classattr]
    const REBOOTED: &'static str = source::Evidence::Rebooted.as_str();
    #[classattr]
    const RECOVERY_NONE: &'static str = source::Evidence::RecoveryNone.as_str();
    #[classattr]
    const RECOVERY_UNASKED: &'static str = source::Evidence::RecoveryUnasked.as_str();
    #[classattr]
    const RESTARTED: &'static str = source::Evidence::Restarted.as_str();
    #[classattr]
    const STARTED: &'static str = source::Evidence::Started.as_str();
    #[classattr]
    const ANSWERED: &'static str = source::Evidence::Answered.as_str();
    #[classattr]
    const SOURCE_CLEARED: &'static str = source::Evidence::SourceCleared.as_str();
    #[classattr]
    const OPERATOR: &'static str = source::Evidence::Operator.as_str();

    #[classattr]
    #[pyo3(name = "ALL")]
    fn all(py: Python<'_>) -> PyResult<Py<PyFrozenSet>> {
        Ok(PyFrozenSet::new(py, source::Evidence::ALL.map(source::Evidence::as_str))?.unbind())
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
    fn is_relative(&self) -> bool {
        self.0.is_relative
    }

    #[getter]
    fn only_when_new(&self) -> bool {
        self.0.only_when_new
    }

    #[getter]
    fn threshold(&self) -> &'static str {
        self.0.threshold
    }

    #[getter]
    fn to_do(&self) -> &'static str {
        self.0.to_do
    }

    #[getter]
    fn to_do_by_value(&self) -> Vec<(&'static str, &'static str)> {
        self.0.to_do_by_value.to_vec()
    }

    #[getter]
    fn by_value(&self) -> Vec<(&'static str, Meaning)> {
        self.0.by_value.iter().map(|&(value, meaning)| (value, Meaning(meaning))).collect()
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
    fn pace(&self) -> &'static str {
        self.0.pace.as_str()
    }

    #[getter]
    fn is_of_scan_core(&self) -> bool {
        !matches!(self.0.reads, Class::Elsewhere(_))
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
    let of_scan_core = sources::ALL.iter().map(|source| source.about());
    of_scan_core.chain(reasons::ELSEWHERE).map(HealthSource).collect()
}

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct VendorRow(Row);

#[pymethods]
impl VendorRow {
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name
    }

    #[getter]
    fn section(&self) -> String {
        self.0.name.replace('-', "_")
    }

    #[getter]
    fn title(&self) -> &'static str {
        self.0.title
    }

    #[getter]
    fn found_in(&self) -> &'static str {
        self.0.found_in
    }

    #[getter]
    fn facts(&self) -> Vec<&'static str> {
        let of_function: &[_] = if self.0.is_pci { &pci::FACTS } else { &[] };
        [of_function, self.0.facts].concat()
    }

    #[getter]
    fn model(&self) -> Vec<&'static str> {
        self.0.model.to_vec()
    }

    fn preferred(&self, is_shared: bool) -> &'static str {
        if is_shared { self.0.preferred_shared } else { self.0.preferred }.as_str()
    }

    #[getter]
    fn uses_ways(&self) -> bool {
        self.0.uses_ways
    }

    #[getter]
    fn cdi_file_a_device(&self) -> Option<&'static str> {
        self.0.cdi_file_a_device
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyfunction]
pub(super) fn vendors() -> Vec<VendorRow> {
    ROWS.iter().copied().map(VendorRow).collect()
}

#[pyclass(frozen, eq, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct FactDeclaration(Declared);

#[pymethods]
impl FactDeclaration {
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.as_str()
    }

    #[getter]
    fn unit(&self) -> &'static str {
        self.0.unit
    }

    #[getter]
    fn about(&self) -> &'static str {
        self.0.about
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyfunction]
pub(super) fn facts() -> Vec<FactDeclaration> {
    DECLARED.iter().copied().map(FactDeclaration).collect()
}
