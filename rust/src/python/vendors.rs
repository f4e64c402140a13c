//! What is known of each vendor without looking at a host.

use pyo3::prelude::*;

use crate::bus::pci;
use crate::vendors::table::{ROWS, Row};

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
