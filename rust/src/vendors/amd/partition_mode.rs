//! What a GPU is split into: `cpx_nps4`.

use std::path::Path;

use super::VENDOR;
use crate::device::Problem;
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError};

/// How a GPU is partitioned, as its driver reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum PartitionMode {
    /// Not partitionable, or its driver does not report both.
    #[default]
    Whole,
    /// `current_compute_partition` and `current_memory_partition`, in lower case.
    Partitioned { compute: String, memory: String },
    /// It can be, and its current mode cannot be read.
    Unknown,
}

impl PartitionMode {
    /// Of a PCI function; what cannot be read is a problem.
    pub(super) fn read(host: &Host, function: &Path, problems: &mut Vec<Problem>) -> Self {
        let mut half = |name: &str| match Attribute::read(function.join(name)) {
            Ok(attribute) => Ok(word(attribute.text())),
            Err(error) if error.is_absent() => Ok(Some(String::new())),
            Err(error) => {
                problems.push(problem(host, &error));
                Err(())
            }
        };
        match (half("current_compute_partition"), half("current_memory_partition")) {
            (Ok(Some(compute)), Ok(Some(memory))) if compute.is_empty() || memory.is_empty() => Self::Whole,
            (Ok(Some(compute)), Ok(Some(memory))) => Self::Partitioned { compute, memory },
            _ => Self::Unknown,
        }
    }

    /// The last part of the resource name in naming `mixed`.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Partitioned { compute, memory } => Some(format!("{compute}_{memory}")),
            Self::Whole | Self::Unknown => None,
        }
    }
}

/// `None` where the driver itself does not know.
fn word(text: &str) -> Option<String> {
    let word = text.to_lowercase();
    (word != "unknown").then_some(word)
}

fn problem(host: &Host, error: &AttributeError) -> Problem {
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
