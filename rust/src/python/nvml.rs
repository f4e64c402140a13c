//! NVML, asked in this process.

use std::path::Path;

use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::nvml::probe::{self, ProbeError};

#[pyfunction]
pub(super) fn nvml_facts(py: Python<'_>, driver_root: Option<&str>, library: Option<&str>) -> PyResult<String> {
    let facts = py.detach(|| probe::facts(driver_root.map(Path::new), library.map(Path::new)));
    let facts = facts.map_err(|error| match error {
        ProbeError::NoLibrary => PyFileNotFoundError::new_err(error.to_string()),
        ProbeError::Unusable(why) => PyOSError::new_err(why),
    })?;
    serde_json::to_string(&facts).map_err(|error| PyValueError::new_err(error.to_string()))
}
