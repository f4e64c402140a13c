//! The choice of devices for a container, the list for the kubelet, and the natural order as a key for `sorted`.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::pyclass::CompareOp;
use pyo3::types::PyBytes;

use crate::allocation;
use crate::order::natural;
use crate::spool;

/// Id, physical id, card, NUMA nodes, whether it is healthy, distances by card.
type PreferenceDevice = (String, String, String, Vec<i64>, bool, BTreeMap<String, u32>);

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct Preference(allocation::Preference);

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

#[pyfunction]
pub(super) fn device_list<'py>(py: Python<'py>, resource: &[u8]) -> PyResult<(Bound<'py, PyBytes>, Vec<String>)> {
    let (list, unhealthy) = spool::device_list(resource).map_err(|_| PyValueError::new_err("no Resource message"))?;
    Ok((PyBytes::new(py, &list), unhealthy))
}

fn texts(ids: &[PyBackedStr]) -> Vec<&str> {
    ids.iter().map(|id| &**id).collect()
}

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct NaturalKey(String);

#[pymethods]
impl NaturalKey {
    #[new]
    fn new(text: String) -> Self {
        Self(text)
    }

    fn __richcmp__(&self, other: &Self, operation: CompareOp) -> bool {
        operation.matches(natural(&self.0, &other.0))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("NaturalKey({:?})", self.0)
    }
}
