//! Finds the GPUs of a host: functions of the driver, and the platform devices of their further partitions, with their
//! DRM nodes: <https://docs.kernel.org/gpu/drm-uapi.html#render-nodes>.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::VENDOR;
use super::kfd_topology::{Node, Place, Topology};
use crate::bus::pci;
use crate::device::{Found, NotExamined, Problem};
use crate::host::Host;
use crate::host::attribute::{AttributeError, Cause};
use crate::host::directory::{self, Directory};

/// A GPU. It is read as one and hangs as one.
#[derive(Debug)]
pub(super) struct Card {
    /// Its PCI address.
    pub(super) key: String,
    pub(super) place: Place,
    /// Directory of the PCI function, which is also the first partition; `None` if only other partitions are visible.
    pub(super) function: Option<PathBuf>,
    /// The partitions after the first.
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

/// A link to `/sys/bus/pci/drivers/amdgpu`. That directory lists the driver's functions, and also has `bind`, `new_id`,
/// ….
pub(super) fn driver_directory(host: &Host) -> PathBuf {
    host.sys("module/amdgpu/drivers/pci:amdgpu")
}

/// `/sys/devices/platform`.
fn platform_directory(host: &Host) -> PathBuf {
    host.sys("devices/platform")
}

/// Every GPU of the host. Errors, and cards that cannot be examined, are added to `found`.
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

/// Address and directory of each PCI function in a driver's directory.
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
            // The function vanished meanwhile.
            Err(error) if error.is_absent() => {}
            Err(error) => {
                found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause).of(&address));
                keep(address, found);
            }
        }
    }
    functions
}

/// The target of a driver's directory. Below /sys/module this directory is itself a link, and links in it are relative
/// to the target.
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
        // A tree written by hand may have a plain directory instead of a link.
        Err(error) if error.cause == Cause::System(Errno::INVAL) => Ok(driver.join(address)),
        Err(error) => Err(error),
    }
}

/// The partitions that KFD lists. The driver also makes spare platform devices; their render nodes are in no topology.
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
                // It may be a spare partition: its last known state stays.
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

/// Whether a name is a partition: `amdgpu_xcp_30` with the out-of-tree driver, `amdgpu_xcp.30` with the kernel's.
fn is_partition(name: &str) -> bool {
    let digits = name.strip_prefix("amdgpu_xcp").and_then(|rest| rest.strip_prefix(['_', '.'])).unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Adds the problem of an unreadable directory, and keeps all devices as they were.
fn unseen(host: &Host, error: &AttributeError, found: &mut Found) {
    found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), &error.cause));
    found.unseen.push(NotExamined::new(VENDOR, None));
}

/// Keeps the devices of this card, or of this partition on any card, as they were.
fn keep(name: String, found: &mut Found) {
    found.unseen.push(NotExamined::new(VENDOR, Some(name)));
}

/// `DRM_MAJOR`. The number in a node's name is its minor number, both for primary and for render nodes.
pub(super) const MAJOR: u32 = 226;

/// The numbers in `card1` and `renderD128`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DrmNodes {
    pub(super) card: Option<u32>,
    pub(super) render: Option<u32>,
}

impl DrmNodes {
    /// The DRM nodes in a device's directory.
    pub(super) fn read(device: &Path) -> Result<Self, AttributeError> {
        Directory::open(device.join("drm")).and_then(|open| open.names()).map(|names| Self::among(&names))
    }

    /// The numbers of the names that match as a whole: connectors (`card1-DP-1`) and `controlD64` do not match.
    fn among(names: &[String]) -> Self {
        let number = |prefix: &str| names.iter().find_map(|name| decimal(name.strip_prefix(prefix)?));
        Self { card: number("card"), render: number("renderD") }
    }
}

fn decimal(digits: &str) -> Option<u32> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    fn among(names: &[&str]) -> (Option<u32>, Option<u32>) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let nodes = DrmNodes::among(&names);
        (nodes.card, nodes.render)
    }

    #[test]
    fn other_entries_are_passed_over() {
        assert_eq!(among(&["card1", "renderD128"]), (Some(1), Some(128)));
        let odd = ["by", "card", "cardX", "card1-DP-1", "card-1", "controlD64", "renderD", "renderD-1", "renderDX"];
        assert_eq!(among(&odd), (None, None));
        assert_eq!(among(&["card1-DP-1", "card7", "controlD64", "renderD130"]), (Some(7), Some(130)));
        assert_eq!(among(&["card99999999999"]), (None, None));
    }

    proptest! {
        #[test]
        fn any_name_can_be_there(names: Vec<String>) {
            DrmNodes::among(&names);
        }
    }
}
