//! The facts of one GPU and its partitions, read from sysfs and not yet judged.

use std::path::{Path, PathBuf};

use super::VENDOR;
use super::kfd_topology::{Node, Place, Topology};
use super::locate::{Card, DrmNodes};
use super::product_names::ProductNames;
use crate::bus::pci;
use crate::device::{Device, Problem, Reading};
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError};
use crate::vendors::gpus;

/// The fact with the mode of a partitioned GPU.
pub(super) const COMPUTE_PARTITION: &str = "compute_partition";

/// The facts of a GPU.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) function: Option<pci::Function>,
    pub(super) partition_mode: PartitionMode,
    /// `product_name` and its file; if the board has no name, the name in a list.
    pub(super) product_name: Option<(String, PathBuf)>,
    /// `serial_number` of the board, from its FRU memory; `None` if the board has none.
    pub(super) serial: Option<Attribute>,
    /// The GPU, or its partitions, starting with the first.
    pub(super) parts: Vec<Part>,
    /// Temperatures for the health poll.
    pub(super) readings: Vec<Reading>,
    pub(super) problems: Vec<Problem>,
}

/// A GPU or partition. It becomes one device.
#[derive(Debug)]
pub(super) struct Part {
    /// `0000:19:00.0` or `amdgpu_xcp_30`.
    pub(super) id: String,
    pub(super) path: PathBuf,
    pub(super) nodes: DrmNodes,
    /// `None` for a GPU that KFD does not list.
    pub(super) node: Option<Node>,
}

impl Facts {
    pub(super) fn read(host: &Host, card: Card, topology: &Topology, names: &ProductNames) -> Self {
        let mut facts = Self::of_function(host, &card, topology, names);
        facts.parts.extend(card.partitions.into_iter().map(|partition| Part {
            id: partition.name,
            path: partition.path,
            nodes: partition.nodes,
            node: Some(partition.node),
        }));
        facts
    }

    fn of_function(host: &Host, card: &Card, topology: &Topology, names: &ProductNames) -> Self {
        let mut problems = Vec::new();
        let path = card.function.as_deref();
        let first = path.map(|path| first_part(host, &card.key, path, topology, &mut problems));
        let partition_mode = path.map(|path| PartitionMode::read(host, path, &mut problems)).unwrap_or_default();
        let function = path.map(pci::Function::read);
        let serial = path.and_then(|path| Attribute::read(path.join("serial_number")).ok());
        let product_name = function.as_ref().and_then(|function| product_name(host, function, names));
        Self {
            key: card.key.clone(),
            place: card.place,
            function,
            partition_mode,
            product_name,
            serial: serial.filter(|serial| !serial.text().is_empty()),
            parts: first.into_iter().collect(),
            readings: path.map(|path| gpus::temperature_readings(host, path)).unwrap_or_default(),
            problems,
        }
    }

    pub(super) fn numa_node(&self) -> Option<u32> {
        self.function.as_ref()?.numa_node.as_ref().map(|(node, _)| *node)
    }
}

fn product_name(host: &Host, function: &pci::Function, names: &ProductNames) -> Option<(String, PathBuf)> {
    let own = Attribute::read(function.path.join("product_name")).ok().filter(|name| !name.text().is_empty());
    let own = own.map(|name| (name.text().to_owned(), host.own_path(name.path())));
    own.or_else(|| names.of(host, function).map(|(name, list)| (name, PathBuf::from(list))))
}

fn first_part(host: &Host, id: &str, path: &Path, topology: &Topology, problems: &mut Vec<Problem>) -> Part {
    let nodes = DrmNodes::read(path).unwrap_or_else(|error| {
        // Absent nodes become a problem only where they are needed.
        if !error.is_absent() {
            problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause).of(id));
        }
        DrmNodes::default()
    });
    let node = nodes.render.and_then(|minor| topology.node(minor)).cloned();
    Part { id: id.to_owned(), path: path.to_path_buf(), nodes, node }
}

/// The partition mode of a GPU, as its driver reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum PartitionMode {
    /// The GPU cannot be partitioned, or its driver does not report both modes.
    #[default]
    Whole,
    /// `current_compute_partition` and `current_memory_partition`, in lower case.
    Partitioned { compute: String, memory: String },
    /// The GPU can be partitioned, but its current mode is unreadable.
    Unknown,
}

impl PartitionMode {
    /// Reads the mode of a PCI function; unreadable files are problems.
    pub(super) fn read(host: &Host, function: &Path, problems: &mut Vec<Problem>) -> Self {
        let mut half = |name: &str| match Attribute::read(function.join(name)) {
            Ok(attribute) => Ok(word(attribute.text())),
            Err(error) if error.is_absent() => Ok(Some(String::new())),
            Err(error) => {
                problems.push(unreadable(host, &error));
                Err(())
            }
        };
        match (half("current_compute_partition"), half("current_memory_partition")) {
            (Ok(Some(compute)), Ok(Some(memory))) if compute.is_empty() || memory.is_empty() => Self::Whole,
            (Ok(Some(compute)), Ok(Some(memory))) => Self::Partitioned { compute, memory },
            _ => Self::Unknown,
        }
    }

    /// The last part of the resource name with naming `mixed`: `cpx_nps4`.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Partitioned { compute, memory } => Some(format!("{compute}_{memory}")),
            Self::Whole | Self::Unknown => None,
        }
    }
}

/// Whether the GPU had another partition mode when this partition was found. The partition's platform device and nodes
/// cannot show that, because they stay for later partitions. The first partition is the GPU's own function.
pub(super) fn is_of_another_mode(host: &Host, device: &Device) -> bool {
    let Some(before) = device.attributes.get(COMPUTE_PARTITION).filter(|_| device.id != device.card) else {
        return false;
    };
    let now = Attribute::read(host.absolute(&before.source)).ok().and_then(|attribute| word(attribute.text()));
    now.is_some_and(|mode| !mode.is_empty() && mode != before.value.to_string())
}

/// A mode in lower case; `None` if the driver itself does not know the mode.
fn word(text: &str) -> Option<String> {
    let word = text.to_lowercase();
    (word != "unknown").then_some(word)
}

fn unreadable(host: &Host, error: &AttributeError) -> Problem {
    Problem::new(VENDOR, host.own_path(&error.path), &error.cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(compute: Option<&str>, memory: Option<&str>) -> (PartitionMode, usize) {
        let function = tempfile::tempdir().unwrap();
        for (name, text) in [("current_compute_partition", compute), ("current_memory_partition", memory)] {
            if let Some(text) = text {
                std::fs::write(function.path().join(name), text).unwrap();
            }
        }
        let mut problems = Vec::new();
        (PartitionMode::read(&Host::new("/"), function.path(), &mut problems), problems.len())
    }

    #[test]
    fn both_halves_make_a_mode() {
        let mode = PartitionMode::Partitioned { compute: "cpx".into(), memory: "nps4".into() };
        assert_eq!(mode.name().as_deref(), Some("cpx_nps4"));
        for (compute, memory, expected) in [
            (Some("CPX\n"), Some("NPS4\n"), (mode, 0)),
            (None, None, (PartitionMode::Whole, 0)),
            (Some("SPX\n"), None, (PartitionMode::Whole, 0)),
            (None, Some("NPS1\n"), (PartitionMode::Whole, 0)),
            (Some("\n"), Some("NPS1\n"), (PartitionMode::Whole, 0)),
            (Some("UNKNOWN\n"), Some("NPS1\n"), (PartitionMode::Unknown, 0)),
        ] {
            assert_eq!(read(compute, memory), expected, "{compute:?} {memory:?}");
        }
    }

    #[test]
    fn a_half_that_cannot_be_read_is_unknown_and_a_problem() {
        assert_eq!(read(Some(&"x".repeat(5000)), Some("NPS1\n")), (PartitionMode::Unknown, 1));
    }
}
