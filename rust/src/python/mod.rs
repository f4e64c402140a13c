//! `devherd._native`: the scan core as Python sees it. `python/devherd/_native.pyi` is its typed description.
//!
//! Objects are immutable and compared by value. The GIL is released during every look at the host.
//!
//! ```text
//! scanner            the scanner, and the result of a scan
//! health             the poller, and the result of a poll
//! devices            a device and its parts
//! container_edits    the edits of a container
//! preference         the choice of devices for a container, and the natural order
//! registry           the vendors and the health sources, without a look at a host
//! listeners          the event sources that wake the scanner
//! nvml               NVML, called in this process
//! host               single looks at the host
//! child_process      what a forked child applies to itself, and what it sees of others
//! ```

mod child_process;
mod container_edits;
mod devices;
mod health;
mod host;
mod listeners;
mod nvml;
mod preference;
mod registry;
mod scanner;

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

/// The scan core.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::child_process::{
        adopt_orphans, die_with_parent, open_devices, restrict, sandbox_missing, set_process_name,
    };
    #[pymodule_export]
    use super::container_edits::{Edits, Hook, Mount, Node};
    #[pymodule_export]
    use super::devices::{Device, Fact, Finding, HostPath, PciFunction, Platform};
    #[pymodule_export]
    use super::health::{Look, Poller};
    #[pymodule_export]
    use super::host::{answering, awake, boot_id, kfd_slots, machine, pci_driver, pci_functions, prints_no_xids};
    #[pymodule_export]
    use super::listeners::{
        Devlink, DirectoryWatch, HealthReporter, KernelLog, KernelLogEvent, UeventSocket, check_kernel_log_rules,
    };
    #[pymodule_export]
    use super::nvml::{Hangs, NvmlWatch, answered, nvml_facts, nvml_interface};
    #[pymodule_export]
    use super::preference::{NaturalKey, Preference, device_list};
    #[pymodule_export]
    use super::registry::{
        Evidence, FactDeclaration, HealthSource, Meaning, VendorRow, facts, health_sources, vendors,
    };
    #[pymodule_export]
    use super::scanner::{ClassEntry, NotExamined, Problem, Scan, Scanner};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("__revision__", option_env!("DEVHERD_REVISION").unwrap_or_default())
    }
}

/// Locks a mutex also after a panic: no panic leaves half-changed data behind one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A function that calls Python's `beat` during a wait. An exception in `beat` does not end the wait; Python prints it.
fn beat_of(beat: Option<&Py<PyAny>>) -> impl Fn() {
    move || {
        let Some(beat) = beat else { return };
        Python::attach(|py| {
            if let Err(error) = beat.call0(py) {
                error.write_unraisable(py, Some(beat.bind(py)));
            }
        });
    }
}
