//! Finds the RDMA devices of a host and their character devices below /dev/infiniband. Reads only links, names and
//! numbers, and therefore touches no hardware.
//!
//! The kernel's documentation: ABI/stable/sysfs-class-infiniband (also for `node_type`),
//! `Documentation/infiniband/user_verbs.rst` and `user_mad.rst`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::card::Facts;
use super::{RdmaMode, VENDOR};
use crate::bus::pci;
use crate::device::{Found, NotExamined, Problem};
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError, Cause};
use crate::host::directory::{Directory, exists, is_numbered};

/// One RDMA device.
#[derive(Debug, PartialEq)]
pub(super) struct Hca {
    /// `mlx5_0`.
    pub(super) name: String,
    /// Its directory in the class `infiniband`.
    pub(super) path: PathBuf,
    /// The directory of its device: a PCI function or a part of one.
    pub(super) device: PathBuf,
    /// The directory of the PCI function.
    pub(super) function: PathBuf,
    pub(super) address: String,
    /// Its character devices: `uverbsN`, `umadN` and `issmN` for each port, and the connection manager, which all RDMA
    /// devices share.
    pub(super) companions: Vec<Companion>,
}

/// `/sys/class/infiniband`.
pub(super) fn class_directory(host: &Host) -> PathBuf {
    host.sys("class/infiniband")
}

/// Every device of the class that is on PCI. Devices in software only are skipped.
pub(super) fn devices(host: &Host, found: &mut Found) -> Vec<Hca> {
    let (names, mut verbs, mut mads) = match classes(host, &mut found.problems) {
        Ok(classes) => classes,
        Err(error) => {
            found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause));
            found.unseen.push(NotExamined::new(VENDOR, None));
            return Vec::new();
        }
    };
    let connection_manager = connection_manager(host);
    let mut devices = Vec::new();
    for name in names {
        let mut companions = verbs.remove(&name).unwrap_or_default();
        companions.extend(mads.remove(&name).unwrap_or_default());
        companions.extend(connection_manager.clone());
        match device(host, &name, companions) {
            Ok(device) => devices.extend(device),
            Err(error) => {
                found.problems.push(Problem::new(VENDOR, host.own_path(error.path), error.cause).of(&name));
                found.unseen.push(NotExamined::new(VENDOR, Some(name)));
            }
        }
    }
    found.unseen.extend(moved(host, &verbs));
    devices
}

/// The names of all devices, and their character devices.
fn classes(host: &Host, problems: &mut Vec<Problem>) -> Result<(Vec<String>, ByDevice, ByDevice), AttributeError> {
    let class = |name: &str| host.sys("class").join(name);
    Ok((
        names_in(&class_directory(host))?,
        of_class(host, &class("infiniband_verbs"), &["uverbs"], problems)?,
        of_class(host, &class("infiniband_mad"), &["umad", "issm"], problems)?,
    ))
}

/// A device of the class; `None` if it is not on PCI, or has just been removed.
fn device(host: &Host, name: &str, companions: Vec<Companion>) -> Result<Option<Hca>, AttributeError> {
    let class = class_directory(host);
    let path = behind_entry(host, &class, name);
    let function =
        pci::function_of(&path).and_then(|path| Some((path.to_path_buf(), pci::address_of(path)?.to_owned())));
    let Some((function, address)) = function else {
        let is_listed = || names_in(&class).is_ok_and(|names| names.iter().any(|one| one == name));
        return Directory::open(path).map(|_| None).or_else(|error| if is_listed() { Err(error) } else { Ok(None) });
    };
    let device = path.parent().and_then(Path::parent).unwrap_or(&function).to_path_buf();
    Ok(Some(Hca { name: name.to_owned(), path, device, function, address, companions }))
}

/// The devices that were moved to the network namespace of a container. They are missing from the class `infiniband`,
/// which lists the devices of one namespace, but their character devices are still in their class, which lists all.
/// Their last known state stays.
fn moved(host: &Host, verbs_left: &ByDevice) -> Vec<NotExamined> {
    let class = host.sys("class/infiniband_verbs");
    let paths = verbs_left.values().flatten().map(|verbs| behind_entry(host, &class, &verbs.name));
    let addresses = paths.filter_map(|path| pci::address_of(pci::function_of(&path)?).map(str::to_owned));
    addresses.map(|address| NotExamined::new(VENDOR, Some(address))).collect()
}

/// The target of a class entry.
fn behind_entry(host: &Host, class: &Path, name: &str) -> PathBuf {
    let entry = class.join(name);
    match crate::host::directory::link(&entry) {
        Ok(target) => host.behind_link(class, &target),
        Err(_) => entry,
    }
}

const CONNECTION_MANAGER: &str = "rdma_cm";

/// One character device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Companion {
    /// `uverbs0`, `umad0`, `issm0`, `rdma_cm`.
    pub(super) name: String,
    /// Major and minor number; `None` if the kernel does not report them.
    pub(super) number: Option<(u32, u32)>,
}

/// Character devices by RDMA device.
pub(super) type ByDevice = BTreeMap<String, Vec<Companion>>;

/// The character devices of a class directory; empty while the module of the class is not loaded. A character device
/// without its RDMA device is a problem.
fn of_class(
    host: &Host,
    class: &Path,
    prefixes: &[&str],
    problems: &mut Vec<Problem>,
) -> Result<ByDevice, AttributeError> {
    let mut by_device = ByDevice::new();
    for name in names_in(class)?.into_iter().filter(|name| prefixes.iter().any(|prefix| is_numbered(name, prefix))) {
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

/// Entries of a class directory; empty while the module of the class is not loaded.
fn names_in(class: &Path) -> Result<Vec<String>, AttributeError> {
    match Directory::open(class).and_then(|directory| directory.names_of_links()) {
        Err(error) if error.cause == Cause::System(Errno::NOENT) => Ok(Vec::new()),
        read => read,
    }
}

/// The node for making connections, which all RDMA devices share; `None` while its module is not loaded.
fn connection_manager(host: &Host) -> Option<Companion> {
    let dev = Attribute::read(host.sys("class/misc").join(CONNECTION_MANAGER).join("dev"));
    let number = dev.as_ref().ok().and_then(|dev| dev.device_number().ok());
    let is_there = dev.is_ok() || !host.lacks_node(&host.dev("infiniband").join(CONNECTION_MANAGER), None);
    is_there.then(|| Companion { name: CONNECTION_MANAGER.to_owned(), number })
}

/// A kind of character device.
#[derive(Debug, PartialEq, Eq)]
struct Kind {
    /// The prefix of its names.
    prefix: &'static str,
    /// A path below /sys/class that exists while its module is loaded.
    sign: &'static str,
    module: &'static str,
}

const VERBS: Kind = Kind { prefix: "uverbs", sign: "infiniband_verbs", module: "ib_uverbs" };
const MANAGEMENT: Kind = Kind { prefix: "umad", sign: "infiniband_mad", module: "ib_umad" };
const CONNECTIONS: Kind = Kind { prefix: CONNECTION_MANAGER, sign: "misc/rdma_cm", module: "rdma_ucm" };

/// The kinds of nodes that a device of this `node_type` requires; a device without a type counts as a channel adapter
/// of `InfiniBand` or `RoCE`. An iWARP card (4) has no management datagrams; a card with a protocol of its own, such as
/// EFA (5 and more), has no connection manager either. Virtual functions may have only verbs, as in
/// sriov-network-device-plugin.
fn needed_kinds(mode: RdmaMode, node_type: Option<&str>) -> &'static [Kind] {
    match node_type.and_then(|text| text.split(':').next()) {
        _ if mode == RdmaMode::Sriov => &[VERBS],
        Some("4") => &[VERBS, CONNECTIONS],
        Some("5" | "6" | "7") => &[VERBS],
        _ => &[VERBS, MANAGEMENT, CONNECTIONS],
    }
}

/// The problem of a device that lacks the node of a required kind.
pub(super) fn lacking_node(host: &Host, mode: RdmaMode, facts: &Facts) -> Option<Problem> {
    let companions = &facts.hca.companions;
    let is_there = |kind: &&Kind| companions.iter().any(|companion| companion.name.starts_with(kind.prefix));
    let Kind { prefix, sign, module } = needed_kinds(mode, facts.node_type()).iter().find(|kind| !is_there(kind))?;
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
            assert_eq!(needed_kinds(mode, node_type), expected, "{mode:?} {node_type:?}");
        }
    }
}
