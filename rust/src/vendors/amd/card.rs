//! The facts of one GPU, read from sysfs and not yet judged.

use std::path::{Path, PathBuf};

use super::VENDOR;
use super::drm::DrmNodes;
use super::locate::Card;
use super::partition_mode::PartitionMode;
use super::pci_slot::Place;
use super::topology::{Node, Topology};
use crate::bus::pci;
use crate::device::{Problem, Reading};
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::vendors::gpu_sensors;

/// Everything read of a GPU.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) function: Option<pci::Function>,
    pub(super) partition_mode: PartitionMode,
    /// `product_name`, where the board has one.
    pub(super) product_name: Option<Attribute>,
    /// The GPU or its partitions, the first partition first.
    pub(super) parts: Vec<Part>,
    /// What says whether it is too hot.
    pub(super) readings: Vec<Reading>,
    pub(super) problems: Vec<Problem>,
}

/// What becomes one device.
#[derive(Debug)]
pub(super) struct Part {
    /// `0000:19:00.0` or `amdgpu_xcp_30`.
    pub(super) id: String,
    pub(super) path: PathBuf,
    pub(super) nodes: DrmNodes,
    /// `None` for a GPU that KFD does not know.
    pub(super) node: Option<Node>,
}

impl Facts {
    pub(super) fn read(host: &Host, card: Card, topology: &Topology) -> Self {
        let mut facts = Self::of_function(host, &card, topology);
        facts.parts.extend(card.partitions.into_iter().map(|partition| Part {
            id: partition.name,
            path: partition.path,
            nodes: partition.nodes,
            node: Some(partition.node),
        }));
        facts
    }

    fn of_function(host: &Host, card: &Card, topology: &Topology) -> Self {
        let mut problems = Vec::new();
        let path = card.function.as_deref();
        let first = path.map(|path| first_part(host, &card.key, path, topology, &mut problems));
        let partition_mode = path.map(|path| PartitionMode::read(host, path, &mut problems)).unwrap_or_default();
        Self {
            key: card.key.clone(),
            place: card.place,
            function: path.map(pci::Function::read),
            partition_mode,
            product_name: path.and_then(|path| Attribute::read(path.join("product_name")).ok()),
            parts: first.into_iter().collect(),
            readings: path.map(|path| gpu_sensors::readings(host, path)).unwrap_or_default(),
            problems,
        }
    }

    pub(super) fn numa_node(&self) -> Option<u32> {
        self.function.as_ref()?.numa_node.as_ref().map(|(node, _)| *node)
    }
}

fn first_part(host: &Host, id: &str, path: &Path, topology: &Topology, problems: &mut Vec<Problem>) -> Part {
    let nodes = DrmNodes::read(path).unwrap_or_else(|error| {
        // A GPU without nodes is a problem where they are needed.
        if !error.is_absent() {
            problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause).of(id));
        }
        DrmNodes::default()
    });
    let node = nodes.render.and_then(|minor| topology.node(minor)).cloned();
    Part { id: id.to_owned(), path: path.to_path_buf(), nodes, node }
}
