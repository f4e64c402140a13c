//! The natural order as a key for `sorted`.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;

use crate::order::natural;

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
