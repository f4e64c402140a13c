//! Single looks at the host. Python itself reads sysfs and procfs only about its own processes.
//!
//! They share a fence: a card that hangs costs one thread. A process must not fork after its first look.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use pyo3::prelude::*;

use crate::bus::pci;
use crate::fence::{Fence, Outcome};
use crate::health;
use crate::host::Host;
use crate::vendors::{amd, nvidia};

static FENCE: LazyLock<Fence> = LazyLock::new(|| Fence::new(Duration::from_secs(2)));

/// The result of `look` for each of these parts of the host, such as cards; `None` if it does not return in time.
fn seen<R: Send + 'static>(
    py: Python<'_>,
    host_root: &str,
    parts: Vec<String>,
    look: impl Fn(&Host, &str) -> R + Send + Sync + 'static,
) -> Vec<Option<R>> {
    let host = Host::new(host_root);
    let outcomes = py.detach(|| FENCE.each(parts, String::clone, move |part| look(&host, &part)));
    let done = |outcome| if let Outcome::Done(seen) = outcome { Some(seen) } else { None };
    outcomes.into_iter().map(done).collect()
}

/// As [`seen`], for one part.
fn of<R: Send + 'static>(
    py: Python<'_>,
    host_root: &str,
    part: &str,
    look: impl Fn(&Host, &str) -> R + Send + Sync + 'static,
) -> Option<R> {
    seen(py, host_root, vec![part.to_owned()], look).pop()?
}

#[pyfunction]
pub(super) fn boot_id(py: Python<'_>, host_root: &str) -> String {
    of(py, host_root, "boot id", |host, _| host.boot_id()).flatten().unwrap_or_default()
}

#[pyfunction]
pub(super) fn machine(py: Python<'_>, host_root: &str) -> String {
    of(py, host_root, "machine", |host, _| host.machine()).flatten().unwrap_or_default()
}

#[pyfunction]
pub(super) fn pci_driver(py: Python<'_>, host_root: &str, address: &str) -> Option<String> {
    of(py, host_root, address, pci::driver_at).flatten()
}

#[pyfunction]
pub(super) fn pci_functions(py: Python<'_>, host_root: &str, addresses: Vec<String>) -> Vec<String> {
    let found = seen(py, host_root, addresses, |host, address| host.own_path(pci::at(host, address)));
    found.into_iter().flatten().map(|path| path.to_string_lossy().into_owned()).collect()
}

#[pyfunction]
pub(super) fn awake(py: Python<'_>, host_root: &str, addresses: Vec<String>) -> Vec<String> {
    let is_awake = |host: &Host, address: &str| health::is_awake(&pci::at(host, address));
    of_these(addresses.clone(), seen(py, host_root, addresses, is_awake))
}

/// The addresses of which this is true.
fn of_these(addresses: Vec<String>, are: Vec<Option<bool>>) -> Vec<String> {
    addresses.into_iter().zip(are).filter(|(_, is)| *is == Some(true)).map(|(address, _)| address).collect()
}

/// The addresses of those functions that are awake and answer.
#[pyfunction]
pub(super) fn answering(py: Python<'_>, host_root: &str, addresses: Vec<String>) -> Vec<String> {
    let answers = |host: &Host, address: &str| health::sources::answers(&pci::at(host, address));
    of_these(addresses.clone(), seen(py, host_root, addresses, answers))
}

#[pyfunction]
pub(super) fn kfd_slots(py: Python<'_>, host_root: &str) -> BTreeMap<u32, String> {
    of(py, host_root, "kfd", |host, _| amd::slots(host)).unwrap_or_default()
}

#[pyfunction]
pub(super) fn prints_no_xids(py: Python<'_>, host_root: &str) -> bool {
    of(py, host_root, "nvidia", |host, _| nvidia::prints_no_xids(host)).unwrap_or_default()
}
