//! KFD's topology in sysfs: one node for each GPU or partition that can compute.
//!
//! <https://docs.kernel.org/gpu/amdgpu/index.html>; `drivers/gpu/drm/amd/amdkfd/kfd_topology.c`. The nodes are read on
//! each scan. Links and memory banks are numerous and change only with the topology: see `links`.
//!
//! A topology is used once two reads agree. For each partition that is added or removed, the kernel removes the nodes
//! of all GPUs and adds them again, one after another (`kfd_topology_update_sysfs`), without an event. A read in
//! between sees half of the nodes, or an incomplete node, and partitions whose node is missing look like spare ones.
//! The generation alone cannot show that: it rises before nodes are removed, and after they are added.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use super::VENDOR;
use super::links::{Fabric, KnownFabric};
use crate::bus::pci;
use crate::device::Problem;
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError, Cause};
use crate::host::directory::Directory;

const NOT_ALLOWED: &str =
    "the kernel shows a GPU only to those who may use its device nodes: run the scanner as a privileged container";

/// The identity of a topology: its generation and, for each node (including nodes of processors), the render node's
/// minor number and the place, if the node has them.
pub(super) type Shape = (Option<String>, BTreeMap<u32, Option<(u32, Place)>>);

/// KFD's nodes.
#[derive(Debug, Default)]
pub(super) struct Topology {
    /// GPUs and partitions, in order of their numbers.
    pub(super) nodes: Vec<Node>,
    pub(super) shape: Shape,
    /// Device number of /dev/kfd.
    pub(super) kfd_number: Option<(u32, u32)>,
    /// Whether a node was unreadable: a GPU that is not in `nodes` may still exist.
    pub(super) incomplete: bool,
    pub(super) problems: Vec<Problem>,
}

/// The node of a GPU or partition.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) number: u32,
    /// `nodes/<number>`.
    pub(super) path: PathBuf,
    /// Minor number of its device node /dev/dri/renderD….
    render_minor: u32,
    pub(super) place: Place,
    /// Number of the partition within its GPU.
    pub(super) partition: u64,
    pub(super) properties: Properties,
}

/// `/sys/class/kfd/kfd/topology/nodes`.
pub(super) fn nodes_directory(host: &Host) -> PathBuf {
    host.sys("class/kfd/kfd/topology/nodes")
}

impl Topology {
    /// Reads all nodes; an unreadable node becomes a problem and does not affect the others.
    ///
    /// # Errors
    /// When the nodes cannot be listed.
    pub(super) fn read(host: &Host) -> Result<Self, AttributeError> {
        let directory = Directory::open(nodes_directory(host))?;
        let kfd = host.sys("class/kfd/kfd");
        let generation = Attribute::read(kfd.join("topology/generation_id")).map(|id| id.text().to_owned()).ok();
        let mut topology = Self {
            shape: (generation, BTreeMap::new()),
            kfd_number: Attribute::read(kfd.join("dev")).and_then(|dev| dev.device_number()).ok(),
            ..Self::default()
        };
        for number in directory.names()?.iter().filter_map(|name| name.parse().ok()) {
            let path = directory.path().join(format!("{number}"));
            match Properties::read(&path.join("properties")) {
                Ok(properties) => topology.add(number, Node::of(number, path, properties)),
                // The node vanished meanwhile.
                Err(error) if error.is_absent() => {}
                Err(error) => {
                    topology.add(number, None);
                    topology.note(host, &error);
                }
            }
        }
        Ok(topology)
    }

    /// The node of the GPU or partition with this render node.
    pub(super) fn node(&self, render_minor: u32) -> Option<&Node> {
        self.nodes.iter().find(|node| node.render_minor == render_minor)
    }

    fn add(&mut self, number: u32, node: Option<Node>) {
        self.shape.1.insert(number, node.as_ref().map(|node| (node.render_minor, node.place)));
        self.nodes.extend(node);
    }

    fn note(&mut self, host: &Host, error: &AttributeError) {
        self.incomplete = true;
        let path = host.own_path(&error.path);
        let problem = match error.cause {
            Cause::System(Errno::PERM) => Problem::new(VENDOR, path, NOT_ALLOWED),
            _ => Problem::new(VENDOR, path, &error.cause),
        };
        // A refusal is usually the same for every node: report it once.
        if self.problems.iter().all(|other| other.error != problem.error) {
            self.problems.push(problem);
        }
    }
}

/// The slot of each GPU, `0000:0c:00`, by KFD's id of the GPU; partitions have ids of their own. Unreadable nodes are
/// left out: the kernel hides a GPU if the device cgroup denies access to its render node.
#[must_use]
pub fn slots(host: &Host) -> BTreeMap<u32, String> {
    let nodes = Topology::read(host).map(|topology| topology.nodes).unwrap_or_default();
    let slot = |node: Node| {
        let id = Attribute::read(node.path.join("gpu_id")).ok()?.text().parse().ok().filter(|&id| id > 0)?;
        Some((id, node.place.to_string().strip_suffix(".0")?.to_owned()))
    };
    nodes.into_iter().filter_map(slot).collect()
}

impl Node {
    /// Parses a node; `None` for a node of processors. Old kernels write no `domain`, and then all GPUs are in domain
    /// 0.
    fn of(number: u32, path: PathBuf, properties: Properties) -> Option<Self> {
        let render_minor = properties.number("drm_render_minor")?.try_into().ok().filter(|&minor| minor > 0)?;
        let location = properties.number("location_id").unwrap_or_default();
        let place = Place::of_location(properties.number("domain").unwrap_or_default(), location);
        Some(Self { number, path, render_minor, place, partition: partition(location), properties })
    }
}

/// The partition number in a `location_id`. Depending on the driver, it is in the top four bits or in the bits of the
/// function.
fn partition(location: u64) -> u64 {
    match location >> 28 & 0xf {
        0 => location & 7,
        partition => partition,
    }
}

/// The topology at the last read.
#[derive(Debug, Default)]
pub(super) struct StableTree {
    last: Mutex<Option<Shape>>,
    fabric: KnownFabric,
}

impl StableTree {
    /// Reads the topology and the links of its GPUs; `None` if the topology differs from the last read. The first call
    /// reads the topology twice.
    ///
    /// # Errors
    /// When the nodes cannot be listed. The next call then counts as the first.
    pub(super) fn look(&self, host: &Host) -> Result<Option<(Topology, Arc<Fabric>)>, AttributeError> {
        let Some(topology) = self.twice_the_same(|| Topology::read(host))? else { return Ok(None) };
        let fabric = self.fabric.of(&topology);
        Ok(Some((topology, fabric)))
    }

    fn twice_the_same<E>(&self, read: impl Fn() -> Result<Topology, E>) -> Result<Option<Topology>, E> {
        // The value is taken out, because a read that hangs must not hold the lock.
        let last = self.replace(None);
        let last = last.map_or_else(|| Ok(read()?.shape), Ok)?;
        let topology = read()?;
        self.replace(Some(topology.shape.clone()));
        Ok((topology.shape == last).then_some(topology))
    }

    fn replace(&self, shape: Option<Shape>) -> Option<Shape> {
        std::mem::replace(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner), shape)
    }
}

/// A file of KFD: lines of `key value`, with unsigned values of up to 64 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Properties(Attribute);

impl Properties {
    pub(super) fn read(path: &Path) -> Result<Self, AttributeError> {
        Attribute::read(path).map(Self)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The value of a key; `None` if the key is missing or its value is not a number.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        number_in(self.0.text(), key)
    }
}

/// The value of the first line whose key is exactly `key`.
fn number_in(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        (name == key).then_some(value)
    })?;
    value.trim().parse().ok()
}

/// The place of a GPU: domain, bus and device of its PCI address. The function is left out, because partitions use its
/// bits for their own number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    domain: u64,
    bus: u8,
    device: u8,
}

impl Place {
    /// The place in KFD's `domain` and `location_id`: bus, then five bits of device, then three of function.
    #[expect(clippy::cast_possible_truncation, reason = "the bits that are meant")]
    pub(super) fn of_location(domain: u64, location: u64) -> Self {
        Self { domain, bus: (location >> 8) as u8, device: (location >> 3) as u8 & 0x1f }
    }

    /// The place in an address, `0000:19:00.0`; domains behind VMD have more than four digits.
    pub(super) fn of_address(address: &str) -> Option<Self> {
        let parts = pci::is_address(address).then(|| address.split([':', '.']).collect::<Vec<_>>())?;
        let [domain, bus, device, _] = parts[..] else { return None };
        Some(Self {
            domain: u64::from_str_radix(domain, 16).ok()?,
            bus: u8::from_str_radix(bus, 16).ok()?,
            device: u8::from_str_radix(device, 16).ok()?,
        })
    }
}

/// Writes the address of the first function.
impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_partition_is_in_the_topmost_bits_or_in_those_of_the_function() {
        for (location, expected) in [
            (0x0a00, 0),
            (0x0a03, 3),
            (0x0a07, 7),
            (0x3000_0a00, 3),
            (0xf000_0a00, 15),
            (0x7000_0af8, 7),
            (0x1_0000_0a02, 2),
        ] {
            assert_eq!(partition(location), expected, "{location:#x}");
        }
    }

    /// A topology with so many nodes.
    fn with_nodes(count: u32) -> Topology {
        let shape = (Some("5".to_owned()), (0..count).map(|number| (number, None)).collect::<BTreeMap<_, _>>());
        Topology { shape, ..Topology::default() }
    }

    /// Whether each look returns a topology, given the number of nodes at each read; `None` is a read that fails.
    fn believed(looks: usize, readings: &[Option<u32>]) -> Vec<Result<bool, ()>> {
        let (stable_tree, readings) = (StableTree::default(), RefCell::new(readings.iter()));
        let read = || readings.borrow_mut().next().copied().flatten().map(with_nodes).ok_or(());
        (0..looks).map(|_| stable_tree.twice_the_same(read).map(|topology| topology.is_some())).collect()
    }

    #[test]
    fn what_two_looks_agree_on_is_believed() {
        let (whole, half) = (Some(3), Some(1));
        assert_eq!(believed(1, &[whole, whole]), [Ok(true)]);
        assert_eq!(believed(1, &[half, whole]), [Ok(false)]);
        assert_eq!(believed(4, &[whole, whole, half, whole, whole]), [Ok(true), Ok(false), Ok(false), Ok(true)]);
    }

    #[test]
    fn after_a_failure_the_first_look_looks_twice_again() {
        assert_eq!(believed(3, &[Some(3), Some(3), None, Some(2), Some(2)]), [Ok(true), Err(()), Ok(true)]);
    }

    const NODE: &str = "cpu_cores_count 0\nsimd_count 256\nsimd_id_base 2147487744\nunique_id 18446744073709551615\n";

    #[test]
    fn keys_are_whole_and_values_may_have_64_bits() {
        for (key, value) in [
            ("simd_count", Some(256)),
            ("simd_id_base", Some(2_147_487_744)),
            ("unique_id", Some(u64::MAX)),
            ("count", None),
            ("simd", None),
            ("asdf", None),
            ("", None),
        ] {
            assert_eq!(number_in(NODE, key), value, "{key}");
        }
    }

    #[test]
    fn a_value_that_is_not_a_number_is_absent() {
        for text in ["domain", "domain ", "domain x", "domain -1", "domain 1 2", "domain 18446744073709551616"] {
            assert_eq!(number_in(text, "domain"), None, "{text}");
        }
        assert_eq!(number_in("domain 1\ndomain 2", "domain"), Some(1));
    }

    proptest! {
        #[test]
        fn any_text_can_be_asked_for_anything(text: String, key: String) {
            number_in(&text, &key);
        }

        #[test]
        fn what_was_written_is_found(values: Vec<u64>) {
            let lines = values.iter().enumerate().map(|(index, value)| format!("key{index} {value}"));
            let text = lines.collect::<Vec<_>>().join("\n");
            for (index, value) in values.iter().enumerate() {
                prop_assert_eq!(number_in(&text, &format!("key{index}")), Some(*value));
            }
        }
    }

    #[test]
    fn a_location_is_bus_and_device_and_the_partition_does_not_count() {
        for (domain, location, address) in [
            (0, 2560, "0000:0a:00.0"),
            (0, 2562, "0000:0a:00.0"),
            (1, 0xc900, "0001:c9:00.0"),
            (0x1_0000, 0x1ffd, "10000:1f:1f.0"),
        ] {
            assert_eq!(Place::of_location(domain, location).to_string(), address);
        }
    }

    #[test]
    fn what_is_no_address_has_no_place() {
        for text in ["", "bind", "0000:0a:00", "0000:0a:00.0.0", "000:0a:00.0", "amdgpu_xcp_1"] {
            assert_eq!(Place::of_address(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn kfd_and_pci_agree(domain in 0_u64..0x10_0000, bus: u8, device in 0_u8..32, function in 0_u8..8) {
            let location = u64::from(bus) << 8 | u64::from(device) << 3 | u64::from(function);
            let address = format!("{domain:04x}:{bus:02x}:{device:02x}.{function}");
            prop_assert_eq!(Place::of_address(&address), Some(Place::of_location(domain, location)));
        }
    }
}
