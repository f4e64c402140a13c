//! Preferred allocation: which of the free devices suit a container best. Pure, deterministic, no I/O, bounded in time.
//!
//! ```text
//! topology        the devices of a resource, made once per snapshot
//! mod             the question, what every answer has in common
//!   ├─ aligned        closest to each other: how many of each card, as a sum of distances
//!   │    ├─ sets           what that sum is, and when one choice is better than another
//!   │    ├─ exact          the best there is, on up to 32 cards
//!   │    │    └─ bound         what cannot be better
//!   │    └─ exchange       a good one at once, for any number
//!   ├─ packed         on the fewest NUMA nodes, cards, physical devices
//!   └─ distributed    over as many cards and physical devices as there are
//! numa            the fewest NUMA nodes
//! ```
//!
//! The kubelet takes the answer as a hint, but fills up at random when it is short: so it always has the exact size.

mod aligned;
mod bound;
mod distributed;
mod exact;
mod exchange;
mod numa;
mod packed;
mod sets;
mod topology;

use std::collections::BTreeSet;

use crate::order::natural;
pub use topology::{Device, MOST_CARDS, MOST_DISTANT, Topology};

/// What is good in a set of devices.
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
    /// The kind that the config file calls like this.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "aligned" => Some(Self::Aligned),
            "packed" => Some(Self::Packed),
            "distributed" => Some(Self::Distributed),
            _ => None,
        }
    }

    /// Its word in the config file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aligned => "aligned",
            Self::Packed => "packed",
            Self::Distributed => "distributed",
        }
    }
}

/// What there is to choose from, by number of device, in natural order.
#[derive(Debug)]
struct Question<'a> {
    topology: &'a Topology,
    free: Vec<usize>,
    /// Required ones, which the container gets anyway.
    kept: Vec<usize>,
    /// How many of the free ones; fewer than there are.
    wanted: usize,
}

/// Answers for the devices of one resource.
#[derive(Debug)]
pub struct Preference {
    kind: Kind,
    topology: Topology,
}

impl Preference {
    /// For these devices, in any order.
    #[must_use]
    pub fn new(kind: Kind, devices: Vec<Device>) -> Self {
        let topology = match kind {
            Kind::Aligned => Topology::with_distances(devices),
            Kind::Packed | Kind::Distributed => Topology::new(devices),
        };
        Self { kind, topology }
    }

    /// `size` of the available ids: first the required ones, then the best, each in natural order; all when there are
    /// fewer.
    ///
    /// Ids that are unknown or unhealthy (the kubelet's list may be an older one) are taken only when nothing else is
    /// left. The order in which the ids are given makes no difference.
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
