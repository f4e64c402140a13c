//! The character devices below /dev/infiniband that speak for RDMA devices.
//!
//! The kernel's documentation: `Documentation/infiniband/user_verbs.rst` and `user_mad.rst`.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::io::Errno;

use super::VENDOR;
use crate::device::Problem;
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError, Cause};
use crate::host::directory::{Directory, is_numbered};

pub(super) const CONNECTION_MANAGER: &str = "rdma_cm";

/// One character device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Companion {
    /// `uverbs0`, `umad0`, `issm0`, `rdma_cm`.
    pub(super) name: String,
    /// Major and minor number; `None` where the kernel does not say.
    pub(super) number: Option<(u32, u32)>,
}

/// Character devices, by the RDMA device that each names.
pub(super) type ByDevice = BTreeMap<String, Vec<Companion>>;

/// Those of a class directory; empty while its module is not loaded. An entry that does not say whose it is is a problem.
pub(super) fn of_class(
    host: &Host,
    class: &Path,
    prefixes: &[&str],
    problems: &mut Vec<Problem>,
) -> Result<ByDevice, AttributeError> {
    let mut by_device = ByDevice::new();
    for name in names(class)?.into_iter().filter(|name| prefixes.iter().any(|prefix| is_numbered(name, prefix))) {
        let attribute = |attribute: &str| Attribute::read(class.join(&name).join(attribute));
        match attribute("ibdev") {
            Ok(owner) => {
                let number = attribute("dev").and_then(|dev| dev.device_number()).ok();
                by_device.entry(owner.text().to_owned()).or_default().push(Companion { name, number });
            }
            Err(error) => problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause)),
        }
    }
    Ok(by_device)
}

/// Entries of a class directory; empty while its module is not loaded.
pub(super) fn names(class: &Path) -> Result<Vec<String>, AttributeError> {
    match Directory::open(class).and_then(|directory| directory.names()) {
        Err(error) if error.cause == Cause::System(Errno::NOENT) => Ok(Vec::new()),
        read => read,
    }
}

/// The one node for all RDMA devices, by which connections are made; `None` while its module is not loaded.
pub(super) fn connection_manager(host: &Host) -> Option<Companion> {
    let dev = Attribute::read(host.sys("class/misc").join(CONNECTION_MANAGER).join("dev"));
    let number = dev.as_ref().ok().and_then(|dev| dev.device_number().ok());
    let is_there = dev.is_ok() || !host.lacks_node(&host.dev("infiniband").join(CONNECTION_MANAGER), None);
    is_there.then(|| Companion { name: CONNECTION_MANAGER.to_owned(), number })
}
