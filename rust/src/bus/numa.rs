//! The NUMA node of the hardware behind a device: <https://docs.kernel.org/admin-guide/mm/numaperf.html>.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError};
use crate::host::directory::{self, normal};

/// A NUMA node and the file it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNode {
    /// The node's number.
    pub node: u32,
    /// The `numa_node` file, below /sys/devices.
    pub source: PathBuf,
}

/// NUMA nodes of directories below /sys/devices, kept because many devices share parent directories.
#[derive(Debug, Default)]
pub struct NumaNodes(HashMap<PathBuf, Option<NumaNode>>);

impl NumaNodes {
    /// The NUMA node of the device behind a link: an entry of /sys/dev/char, /sys/dev/block or a /sys/bus/*/devices.
    ///
    /// The device itself rarely has a `numa_node`: the first directory above that has one counts (for USB sticks, the
    /// PCI function of their controller). `None` if there is none, or its value is -1.
    ///
    /// # Errors
    /// If the `numa_node` file cannot be read or is not a number.
    pub fn of(&mut self, host: &Host, directory: &Path, link: &str) -> Result<Option<NumaNode>, AttributeError> {
        let Ok(target) = directory::link(&directory.join(link)) else { return Ok(None) };
        self.above(&host.sys("devices"), &normal(&directory.join(target)))
    }

    /// [`NumaNodes::of`] for the device itself, below /sys/devices.
    ///
    /// # Errors
    /// See there.
    pub fn at(&mut self, host: &Host, device: &Path) -> Result<Option<NumaNode>, AttributeError> {
        self.above(&host.sys("devices"), device)
    }

    fn above(&mut self, devices: &Path, place: &Path) -> Result<Option<NumaNode>, AttributeError> {
        if let Some(known) = self.0.get(place) {
            return Ok(known.clone());
        }
        let numa_node = match place.parent().filter(|_| place != devices && place.starts_with(devices)) {
            None => None,
            Some(parent) => match Attribute::read(place.join("numa_node")) {
                Ok(attribute) => numa_node(&attribute)?,
                Err(error) if error.is_absent() => self.above(devices, parent)?,
                Err(error) => return Err(error),
            },
        };
        self.0.insert(place.to_path_buf(), numa_node.clone());
        Ok(numa_node)
    }
}

/// The NUMA nodes that have processors (`has_cpu`, or `online` on hosts without it), by
/// <https://docs.kernel.org/admin-guide/abi-stable.html>; empty if neither can be read. Nodes with only memory are not
/// suitable for a container, and a host may have dozens of them.
#[must_use]
pub fn processor_nodes(host: &Host) -> Vec<u32> {
    let directory = host.sys("devices/system/node");
    let list = |name: &str| numbers(Attribute::read(directory.join(name)).ok()?.text());
    list("has_cpu").or_else(|| list("online")).unwrap_or_default()
}

/// The numbers of a list in the kernel's notation: `0-1,3`.
fn numbers(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        numbers.extend((first..=last).take(MOST_NODES));
    }
    Some(numbers)
}

/// The most NUMA nodes of any kernel: `MAX_NUMNODES` with the largest `CONFIG_NODES_SHIFT`.
const MOST_NODES: usize = 1024;

fn numa_node(attribute: &Attribute) -> Result<Option<NumaNode>, AttributeError> {
    Ok(attribute.numa_node()?.map(|node| NumaNode { node, source: attribute.path().to_path_buf() }))
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use super::*;

    const CONTROLLER: &str = "sys/devices/pci0000:00/0000:00:14.0";

    /// A serial adapter on a USB controller with this NUMA node.
    fn host(numa_node: Option<&str>) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        create_dir_all(root.path().join(CONTROLLER).join("usb1/1-2/1-2:1.0/ttyUSB0")).unwrap();
        create_dir_all(root.path().join("sys/dev/char")).unwrap();
        write(root.path().join("sys/numa_node"), "9\n").unwrap();
        if let Some(text) = numa_node {
            write(root.path().join(CONTROLLER).join("numa_node"), text).unwrap();
        }
        let target = format!("../../../{CONTROLLER}/usb1/1-2/1-2:1.0/ttyUSB0");
        symlink(target, root.path().join("sys/dev/char/188:0")).unwrap();
        let host = Host::new(root.path());
        (root, host)
    }

    fn node(host: &Host) -> Result<Option<u32>, AttributeError> {
        Ok(NumaNodes::default().of(host, &host.sys("dev/char"), "188:0")?.map(|numa_node| numa_node.node))
    }

    #[test]
    fn the_nearest_directory_upwards_tells() {
        let (root, host) = host(Some("1\n"));
        let numa_node = NumaNodes::default().of(&host, &host.sys("dev/char"), "188:0").unwrap();
        assert_eq!(numa_node, Some(NumaNode { node: 1, source: root.path().join(CONTROLLER).join("numa_node") }));
    }

    #[test]
    fn the_way_that_devices_have_in_common_is_read_once() {
        let (root, host) = host(Some("1\n"));
        let target = format!("../../../{CONTROLLER}/usb1/1-3/1-3:1.0/ttyUSB1");
        symlink(target, root.path().join("sys/dev/char/188:1")).unwrap();
        let mut numa_nodes = NumaNodes::default();
        let first = numa_nodes.of(&host, &host.sys("dev/char"), "188:0").unwrap();
        std::fs::remove_file(root.path().join(CONTROLLER).join("numa_node")).unwrap();
        assert_eq!(numa_nodes.of(&host, &host.sys("dev/char"), "188:1"), Ok(first));
    }

    #[test]
    fn minus_one_nothing_and_no_link_are_unknown() {
        assert_eq!(node(&host(Some("-1\n")).1), Ok(None));
        assert_eq!(node(&host(None).1), Ok(None));
        let (_root, host) = host(Some("1\n"));
        assert_eq!(NumaNodes::default().of(&host, &host.sys("dev/char"), "1:3"), Ok(None));
        assert_eq!(NumaNodes::default().of(&host, &host.sys("dev/block"), "188:0"), Ok(None));
    }

    #[test]
    fn processors_are_on_the_nodes_that_the_kernel_lists() {
        let (root, host) = host(None);
        assert_eq!(processor_nodes(&host), [0; 0]);
        let nodes = root.path().join("sys/devices/system/node");
        create_dir_all(&nodes).unwrap();
        write(nodes.join("online"), "0-3\n").unwrap();
        assert_eq!(processor_nodes(&host), [0, 1, 2, 3]);
        write(nodes.join("has_cpu"), "0-1,3\n").unwrap();
        assert_eq!(processor_nodes(&host), [0, 1, 3]);
    }

    #[test]
    fn a_list_of_numbers_is_read_as_the_kernel_writes_it_or_not_at_all() {
        for (text, expected) in
            [("0", Some(vec![0])), ("2-3,7", Some(vec![2, 3, 7])), ("", None), ("a-b", None), ("1,", None)]
        {
            assert_eq!(numbers(text), expected, "{text}");
        }
        assert_eq!(numbers("0-4294967295").unwrap().len(), MOST_NODES);
    }

    #[test]
    fn what_is_no_number_is_an_error_with_its_file() {
        let (root, host) = host(Some("many"));
        assert_eq!(node(&host).unwrap_err().path, root.path().join(CONTROLLER).join("numa_node"));
    }
}
