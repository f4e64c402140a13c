//! `devherd._native`: what Python sees of the scan core. `python/devherd/_native.pyi` is its typed description.
//!
//! Objects are immutable and compared by value. The GIL is released while the host is being looked at.

mod device;
mod events;
mod nvml;
mod preference;
mod process;
mod scan;

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

/// The scan core.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::device::{Device, Mount, Node};
    #[pymodule_export]
    use super::events::{DirectoryWatch, UeventSocket};
    #[pymodule_export]
    use super::nvml::nvml_facts;
    #[pymodule_export]
    use super::preference::Preference;
    #[pymodule_export]
    use super::process::{die_with_parent, set_process_name};
    #[pymodule_export]
    use super::scan::{Problem, Scan, Scanner, Unseen};
}

/// No panic happens while one of these locks is held that would leave half-changed data behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
