//! Preferred allocation: which of the free devices suit a container best. Pure, deterministic, no I/O, bounded in time.
//!
//! ```text
//! topology        the devices of a resource, made once per snapshot
//! mod             the question, and what all answers have in common
//!   ├─ aligned        closest to each other: how many of each card, by the sum of distances; a good set quickly
//!   │    └─ exact          the best set, on up to 32 cards
//!   ├─ packed         on the fewest NUMA nodes, cards, physical devices
//!   └─ distributed    over as many cards and physical devices as there are
//! ```
//!
//! The kubelet takes the answer as a hint and fills it up at random if it is short, so an answer always has the exact
//! size.

mod aligned;
mod distributed;
mod exact;
mod packed;
mod topology;

use std::collections::BTreeSet;

use crate::order::natural;
pub use topology::{Device, MOST_CARDS, MOST_DISTANT, Topology};

/// What is preferred in a set of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Devices that are close to each other.
    Aligned,
    /// Few NUMA nodes, cards and physical devices.
    Packed,
    /// Many cards and physical devices, the least used first.
    Distributed,
}

impl Kind {
    /// The kind with this word in the configuration.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "aligned" => Some(Self::Aligned),
            "packed" => Some(Self::Packed),
            "distributed" => Some(Self::Distributed),
            _ => None,
        }
    }

    /// Its word in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aligned => "aligned",
            Self::Packed => "packed",
            Self::Distributed => "distributed",
        }
    }
}

/// The devices to choose from, by their numbers, in natural order.
#[derive(Debug)]
struct Question<'a> {
    topology: &'a Topology,
    free: Vec<usize>,
    /// Required devices, which the container gets anyway.
    kept: Vec<usize>,
    /// How many free devices to choose; fewer than there are.
    wanted: usize,
}

/// Answers questions about the devices of one resource.
#[derive(Debug)]
pub struct Preference {
    kind: Kind,
    topology: Topology,
}

impl Preference {
    /// Answers for these devices, given in any order.
    #[must_use]
    pub fn new(kind: Kind, devices: Vec<Device>) -> Self {
        let topology = match kind {
            Kind::Aligned => Topology::with_distances(devices),
            Kind::Packed | Kind::Distributed => Topology::new(devices),
        };
        Self { kind, topology }
    }

    /// `size` of the available ids: the required ones first, then the best, each group in natural order; all ids if
    /// there are fewer.
    ///
    /// Ids that are unknown or unhealthy (the kubelet's list may be older) are taken only if nothing else is left. The
    /// order in which the ids are given makes no difference.
    #[must_use]
    pub fn choose<'a>(&'a self, available: &[&'a str], required: &[&'a str], size: usize) -> Vec<&'a str> {
        if size == 0 {
            return Vec::new();
        }
        let kept = unique(required);
        let required: BTreeSet<&str> = required.iter().copied().collect();
        let offered = available.iter().copied().filter(|id| !required.contains(id));
        let (mut free, mut doubtful) = (Vec::new(), Vec::new());
        for id in offered {
            match self.topology.known(id).filter(|&device| self.topology.is_healthy(device)) {
                Some(device) => free.push(device),
                None => doubtful.push(id),
            }
        }
        free.sort_unstable();
        free.dedup();
        let missing = size.saturating_sub(kept.len());
        let chosen = self.choose_free(free, &kept, missing);
        let doubtful = unique(&doubtful).into_iter().take(missing - chosen.len());
        let chosen = chosen.into_iter().map(|device| self.topology.id(device));
        kept.iter().copied().chain(chosen).chain(doubtful).collect()
    }

    fn choose_free(&self, free: Vec<usize>, kept: &[&str], wanted: usize) -> Vec<usize> {
        if wanted == 0 || free.len() <= wanted {
            return if wanted == 0 { Vec::new() } else { free };
        }
        let kept = kept.iter().filter_map(|id| self.topology.known(id)).collect();
        let question = Question { topology: &self.topology, free, kept, wanted };
        let mut chosen = match self.kind {
            Kind::Aligned => aligned::choose(&question).unwrap_or_else(|| packed::choose(&question)),
            Kind::Packed => packed::choose(&question),
            Kind::Distributed => distributed::choose(&question),
        };
        chosen.sort_unstable();
        chosen
    }
}

fn unique<'a>(ids: &[&'a str]) -> Vec<&'a str> {
    let mut ids = ids.to_vec();
    ids.sort_unstable_by(|left, right| natural(left, right));
    ids.dedup();
    ids
}
