//! The character devices below /dev/infiniband that speak for RDMA devices, and which of them a device is nothing without.
//!
//! The kernel's documentation: `Documentation/infiniband/user_verbs.rst` and `user_mad.rst`;
//! ABI/stable/sysfs-class-infiniband has `node_type`.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::io::Errno;

use super::VENDOR;
use super::card::Facts;
use super::options::RdmaMode;
use crate::device::Problem;
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError, Cause};
use crate::host::directory::{Directory, exists, is_numbered};

const CONNECTION_MANAGER: &str = "rdma_cm";

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

/// A kind of character device.
#[derive(Debug, PartialEq, Eq)]
struct Kind {
    /// What its names begin with.
    prefix: &'static str,
    /// What of /sys/class is there while its module is loaded.
    sign: &'static str,
    module: &'static str,
}

const VERBS: Kind = Kind { prefix: "uverbs", sign: "infiniband_verbs", module: "ib_uverbs" };
const MANAGEMENT: Kind = Kind { prefix: "umad", sign: "infiniband_mad", module: "ib_umad" };
const CONNECTIONS: Kind = Kind { prefix: CONNECTION_MANAGER, sign: "misc/rdma_cm", module: "rdma_ucm" };

/// What a device of this `node_type` is nothing without; one that does not say is a channel adapter of `InfiniBand` or `RoCE`.
/// An iWARP card (4) has no management datagrams, and one of a protocol of its own, as EFA (5 and more), no connection
/// manager either. Whether a virtual function is more than its verbs is left to its user, as sriov-network-device-plugin does.
fn needed(mode: RdmaMode, node_type: Option<&str>) -> &'static [Kind] {
    match node_type.and_then(|text| text.split(':').next()) {
        _ if mode == RdmaMode::Sriov => &[VERBS],
        Some("4") => &[VERBS, CONNECTIONS],
        Some("5" | "6" | "7") => &[VERBS],
        _ => &[VERBS, MANAGEMENT, CONNECTIONS],
    }
}

/// A problem where a device has no node of a kind that it needs.
pub(super) fn lack(host: &Host, mode: RdmaMode, facts: &Facts) -> Option<Problem> {
    let companions = &facts.hca.companions;
    let is_there = |kind: &&Kind| companions.iter().any(|companion| companion.name.starts_with(kind.prefix));
    let Kind { prefix, sign, module } = needed(mode, facts.node_type()).iter().find(|kind| !is_there(kind))?;
    let cure = if exists(&host.sys("class").join(sign)) {
        format!("none in /sys/class/{sign} is its own; see the kernel log")
    } else {
        format!("load the kernel module {module}")
    };
    let error = format!("the device has no {prefix} node, which RDMA workloads need: {cure}");
    Some(Problem::new(VENDOR, host.own_path(&facts.hca.path), error).of(&facts.hca.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_needs_follows_from_its_type() {
        for (mode, node_type, expected) in [
            (RdmaMode::Device, None, &[VERBS, MANAGEMENT, CONNECTIONS][..]),
            (RdmaMode::Shared, Some("1: CA"), &[VERBS, MANAGEMENT, CONNECTIONS]),
            (RdmaMode::Sriov, Some("1: CA"), &[VERBS]),
            (RdmaMode::Device, Some("4: RNIC"), &[VERBS, CONNECTIONS]),
            (RdmaMode::Device, Some("7: unspecified"), &[VERBS]),
            (RdmaMode::Device, Some("nonsense"), &[VERBS, MANAGEMENT, CONNECTIONS]),
        ] {
            assert_eq!(needed(mode, node_type), expected, "{mode:?} {node_type:?}");
        }
    }
}
