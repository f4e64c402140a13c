//! `devherd._native`: what Python sees of the scan core. `python/devherd/_native.pyi` is its typed description.
//!
//! Objects are immutable and compared by value. The GIL is released while the host is being looked at.

mod device;
mod devlink;
mod edits;
mod events;
mod health;
mod immortal;
mod nvml;
mod order;
mod prctl;
mod preference;
mod sandbox;
mod scan;
mod vendors;

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

/// The scan core.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::device::{Device, Fact, HostPath, Platform};
    #[pymodule_export]
    use super::devlink::{Devlink, HealthReporter};
    #[pymodule_export]
    use super::edits::{Edits, Hook, Mount, Node};
    #[pymodule_export]
    use super::events::{DirectoryWatch, KernelLog, KernelLogEvent, UeventSocket, check_kernel_log_rules};
    #[pymodule_export]
    use super::health::{Finding, HealthSource, Look, Meaning, health_sources};
    #[pymodule_export]
    use super::immortal::make_immortal;
    #[pymodule_export]
    use super::nvml::{NvmlWatch, nvml_facts};
    #[pymodule_export]
    use super::order::NaturalKey;
    #[pymodule_export]
    use super::prctl::{die_with_parent, let_go_of_library_pages, set_process_name};
    #[pymodule_export]
    use super::preference::Preference;
    #[pymodule_export]
    use super::sandbox::{restrict, sandbox_missing};
    #[pymodule_export]
    use super::scan::{NotExamined, Problem, Scan, Scanner};
    #[pymodule_export]
    use super::vendors::{VendorRow, vendors};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("__revision__", option_env!("DEVHERD_REVISION").unwrap_or_default())
    }
}

/// No panic happens while one of these locks is held that would leave half-changed data behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
