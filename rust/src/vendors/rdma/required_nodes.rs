//! Which character devices an RDMA device is nothing without, and the problem of one that lacks them.
//!
//! The kernel's documentation: ABI/stable/sysfs-class-infiniband has `node_type`.

use super::VENDOR;
use super::card::Facts;
use super::companion::CONNECTION_MANAGER;
use super::options::RdmaMode;
use crate::device::Problem;
use crate::host::Host;
use crate::host::directory::exists;

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
