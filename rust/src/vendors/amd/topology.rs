//! KFD's topology: one node for each GPU or partition that can compute.
//!
//! <https://docs.kernel.org/gpu/amdgpu/index.html>; `drivers/gpu/drm/amd/amdkfd/kfd_topology.c`. The nodes are read on each
//! scan. Links and memory banks are many and change only when the driver makes a new topology: see `links`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rustix::io::Errno;

use super::VENDOR;
use super::pci_slot::Place;
use super::properties::Properties;
use crate::device::Problem;
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError, Cause};
use crate::host::directory::Directory;

const NOT_ALLOWED: &str =
    "the kernel shows a GPU only to those who may use its device nodes: run the scanner as a privileged container";

/// What tells one topology from another: its generation, and of each node, those of processors included, the render node and
/// the place, where it has them.
pub(super) type Shape = (Option<String>, BTreeMap<u32, Option<(u32, Place)>>);

/// What KFD knows.
#[derive(Debug, Default)]
pub(super) struct Topology {
    /// GPUs and partitions, by number.
    pub(super) nodes: Vec<Node>,
    pub(super) shape: Shape,
    /// Number of /dev/kfd.
    pub(super) kfd_number: Option<(u32, u32)>,
    /// Whether a node could not be read: a GPU that is not among `nodes` may still exist.
    pub(super) incomplete: bool,
    pub(super) problems: Vec<Problem>,
}

/// A GPU or partition.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) number: u32,
    /// `nodes/<number>`.
    pub(super) path: PathBuf,
    /// Number of its node /dev/dri/renderD….
    pub(super) render_minor: u32,
    pub(super) place: Place,
    /// Which partition of its GPU it is.
    pub(super) partition: u64,
    pub(super) properties: Properties,
}

/// `/sys/class/kfd/kfd/topology/nodes`.
pub(super) fn nodes_directory(host: &Host) -> PathBuf {
    host.sys("class/kfd/kfd/topology/nodes")
}

impl Topology {
    /// Reads all nodes; one that cannot be read is a problem and does not affect others.
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
                // It went while we looked.
                Err(error) if error.is_absent() => {}
                Err(error) => {
                    topology.add(number, None);
                    topology.note(host, &error);
                }
            }
        }
        Ok(topology)
    }

    /// The node that computes through a render node.
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
        // A refusal is the same for every node.
        if self.problems.iter().all(|other| other.error != problem.error) {
            self.problems.push(problem);
        }
    }
}

impl Node {
    /// `None` for a node of processors. Old kernels have no `domain`: then all GPUs are in the first.
    fn of(number: u32, path: PathBuf, properties: Properties) -> Option<Self> {
        let render_minor = properties.number("drm_render_minor")?.try_into().ok().filter(|&minor| minor > 0)?;
        let location = properties.number("location_id").unwrap_or_default();
        let place = Place::of_location(properties.number("domain").unwrap_or_default(), location);
        Some(Self { number, path, render_minor, place, partition: partition(location), properties })
    }
}

/// Which partition of its GPU a `location_id` means: drivers have it in the four bits on top, or in those of the function.
fn partition(location: u64) -> u64 {
    match location >> 28 & 0xf {
        0 => location & 7,
        partition => partition,
    }
}

#[cfg(test)]
mod tests {
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
}
