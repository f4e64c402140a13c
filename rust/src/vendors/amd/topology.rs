//! KFD's topology: one node for each GPU or partition that can compute.
//!
//! <https://docs.kernel.org/gpu/amdgpu/index.html>; `drivers/gpu/drm/amd/amdkfd/kfd_topology.c`. The nodes are read on each
//! scan. Links and memory banks are many and change only when the driver makes a new topology: see `links`.

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

/// What KFD knows.
#[derive(Debug)]
pub(super) struct Topology {
    /// GPUs and partitions, by number.
    pub(super) nodes: Vec<Node>,
    /// `generation_id`: another one with each change.
    pub(super) generation: Option<String>,
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
        let mut topology = Self {
            nodes: Vec::new(),
            generation: Attribute::read(kfd.join("topology/generation_id")).map(|id| id.text().to_owned()).ok(),
            kfd_number: Attribute::read(kfd.join("dev")).and_then(|dev| dev.device_number()).ok(),
            incomplete: false,
            problems: Vec::new(),
        };
        for number in directory.names()?.iter().filter_map(|name| name.parse().ok()) {
            let path = directory.path().join(format!("{number}"));
            match Properties::read(&path.join("properties")) {
                Ok(properties) => topology.nodes.extend(Node::of(number, path, properties)),
                // It went while we looked.
                Err(error) if error.is_absent() => {}
                Err(error) => topology.note(host, &error),
            }
        }
        Ok(topology)
    }

    /// The node that computes through a render node.
    pub(super) fn node(&self, render_minor: u32) -> Option<&Node> {
        self.nodes.iter().find(|node| node.render_minor == render_minor)
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
        Some(Self { number, path, render_minor, place, partition: location & 7, properties })
    }
}
