//! Which GPUs there are: functions of the driver, and the platform devices of their further partitions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::VENDOR;
use super::drm::DrmNodes;
use super::pci_slot::Place;
use super::topology::{Node, Topology};
use crate::bus::pci;
use crate::device::{Found, NotExamined, Problem};
use crate::host::Host;
use crate::host::attribute::{AttributeError, Cause};
use crate::host::directory::{self, Directory};

/// A GPU: what is probed as one and hangs as one.
#[derive(Debug)]
pub(super) struct Card {
    /// Its PCI address.
    pub(super) key: String,
    pub(super) place: Place,
    /// Directory of its PCI function, which stands for its first partition; `None` where only partitions are to be seen.
    pub(super) function: Option<PathBuf>,
    /// Its further partitions.
    pub(super) partitions: Vec<Partition>,
}

/// A partition with a platform device of its own.
#[derive(Debug)]
pub(super) struct Partition {
    /// `amdgpu_xcp_30`.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) nodes: DrmNodes,
    pub(super) node: Node,
}

/// A link to `/sys/bus/pci/drivers/amdgpu`: its functions, and with them `bind`, `new_id`, …
pub(super) fn driver_directory(host: &Host) -> PathBuf {
    host.sys("module/amdgpu/drivers/pci:amdgpu")
}

/// `/sys/devices/platform`.
pub(super) fn platform_directory(host: &Host) -> PathBuf {
    host.sys("devices/platform")
}

/// Every GPU. What could not be looked at goes into `found`.
pub(super) fn cards(host: &Host, topology: &Topology, found: &mut Found) -> Vec<Card> {
    let mut cards = BTreeMap::new();
    for (key, path) in functions(host, &driver_directory(host), found) {
        if let Some(place) = Place::of_address(&key) {
            cards.entry(place).or_insert(Vec::new()).push(Card {
                key,
                place,
                function: Some(path),
                partitions: Vec::new(),
            });
        }
    }
    for partition in partitions(host, topology, found) {
        let place = partition.node.place;
        let of_place = cards.entry(place).or_default();
        if of_place.is_empty() {
            of_place.push(Card { key: place.to_string(), place, function: None, partitions: Vec::new() });
        }
        of_place[0].partitions.push(partition);
    }
    cards.into_values().flatten().collect()
}

/// Address and directory of each PCI function in the directory of a driver.
pub(super) fn functions(host: &Host, driver: &Path, found: &mut Found) -> Vec<(String, PathBuf)> {
    let names = match Directory::open(driver).and_then(|open| open.names()) {
        Ok(names) => names,
        Err(error) => {
            unseen(host, &error, found);
            return Vec::new();
        }
    };
    let driver = real_directory(host, driver);
    let mut functions = Vec::new();
    for address in names.into_iter().filter(|name| pci::is_address(name)) {
        match function(host, &driver, &address) {
            Ok(path) => functions.push((address, path)),
            // It went while we looked.
            Err(error) if error.is_absent() => {}
            Err(error) => {
                found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause).of(&address));
                keep(address, found);
            }
        }
    }
    functions
}

/// A driver's directory below /sys/module is a link itself, and links in it are relative to its target.
fn real_directory(host: &Host, directory: &Path) -> PathBuf {
    let parent = directory.parent().unwrap_or(directory);
    match directory::link(directory) {
        Ok(target) => host.behind_link(parent, &target),
        Err(_) => directory.to_path_buf(),
    }
}

fn function(host: &Host, driver: &Path, address: &str) -> Result<PathBuf, AttributeError> {
    match directory::link(&driver.join(address)) {
        Ok(target) => Ok(host.behind_link(driver, &target)),
        // A tree written by hand may have a plain directory.
        Err(error) if error.cause == Cause::System(Errno::INVAL) => Ok(driver.join(address)),
        Err(error) => Err(error),
    }
}

/// Partitions that KFD knows. The driver makes spare platform devices, whose render nodes are in no topology.
fn partitions(host: &Host, topology: &Topology, found: &mut Found) -> Vec<Partition> {
    let platform = platform_directory(host);
    let names = match Directory::open(&platform).and_then(|open| open.names()) {
        Ok(names) => names,
        Err(error) if error.is_absent() => return Vec::new(),
        Err(error) => {
            unseen(host, &error, found);
            return Vec::new();
        }
    };
    let mut partitions = Vec::new();
    for name in names.into_iter().filter(|name| is_partition(name)) {
        let path = platform.join(&name);
        match DrmNodes::read(&path) {
            Ok(nodes) => match nodes.render.and_then(|minor| topology.node(minor)) {
                Some(node) => partitions.push(Partition { name, path, nodes, node: node.clone() }),
                // Whether it is a spare is unknown: its last known state stays.
                None if topology.incomplete => keep(name, found),
                None => {}
            },
            Err(error) if error.is_absent() => {}
            Err(error) => {
                found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause).of(&name));
                keep(name, found);
            }
        }
    }
    partitions
}

/// `amdgpu_xcp_30` of the driver out of tree, `amdgpu_xcp.30` of the kernel's.
fn is_partition(name: &str) -> bool {
    let digits = name.strip_prefix("amdgpu_xcp").and_then(|rest| rest.strip_prefix(['_', '.'])).unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A directory that cannot be listed: no device is taken for gone.
fn unseen(host: &Host, error: &AttributeError, found: &mut Found) {
    found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), &error.cause));
    found.unseen.push(NotExamined { vendor: VENDOR, card: None, finding: None });
}

/// This card, or this partition of whichever card, is not taken for gone.
fn keep(name: String, found: &mut Found) {
    found.unseen.push(NotExamined { vendor: VENDOR, card: Some(name), finding: None });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn partitions_have_two_spellings_and_no_third() {
        assert!(is_partition("amdgpu_xcp_30") && is_partition("amdgpu_xcp.30") && is_partition("amdgpu_xcp_0"));
        for name in ["amdgpu_xcp", "amdgpu_xcp_", "amdgpu_xcp.", "amdgpu_xcp_x", "amdgpu_xcp__1", "amdgpu_xcp-1"] {
            assert!(!is_partition(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_name_can_be_asked_about(name: String) {
            is_partition(&name);
        }
    }
}
