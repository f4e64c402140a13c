//! Links between GPUs, and the memory of each GPU: read again only if KFD has a new topology.
//!
//! All partitions of one GPU have the same links to another GPU, so only the links of the first partition are read: 504
//! files instead of 3906 for eight GPUs of eight partitions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::kfd_topology::{Node, Place, Properties, Shape, Topology};
use crate::host::attribute::refused_opens;
use crate::host::directory::Directory;

/// Kind of a link: `CRAT_IOLINK_TYPE_*` of `kfd_crat.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Link {
    /// Type 11.
    Xgmi,
    /// Type 2.
    Pcie,
    /// Any other.
    Other,
}

/// Two GPUs, the lower place first; two partitions of one GPU have the same place twice.
pub(super) type Pair = (Place, Place);

/// Facts that stay the same until the topology changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fabric {
    pub(super) links: BTreeMap<Pair, Link>,
    /// Bytes of a node's own memory, by node number.
    pub(super) memory: BTreeMap<u32, u64>,
}

/// The last topology and its fabric.
#[derive(Debug, Default)]
pub(super) struct KnownFabric {
    known: Mutex<Option<(Shape, Arc<Fabric>)>>,
}

impl KnownFabric {
    /// The fabric of this topology, read only if the topology differs from the last one.
    pub(super) fn of(&self, topology: &Topology) -> Arc<Fabric> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a generation, a change of links would go unnoticed.
        let is_same = |other: &Shape| other.0.is_some() && *other == topology.shape;
        if let Some((_, fabric)) = known.as_ref().filter(|(other, _)| is_same(other)) {
            return Arc::clone(fabric);
        }
        let refused = refused_opens();
        let fabric = Arc::new(Fabric::read(&topology.nodes));
        let is_whole = refused_opens() == refused;
        *known = is_whole.then(|| (topology.shape.clone(), Arc::clone(&fabric)));
        fabric
    }
}

impl Fabric {
    fn read(nodes: &[Node]) -> Self {
        let places: BTreeMap<u32, Place> = nodes.iter().map(|node| (node.number, node.place)).collect();
        let mut speakers: BTreeMap<Place, &Node> = BTreeMap::new();
        for node in nodes {
            speakers.entry(node.place).or_insert(node);
        }
        let read = |kind: &str| {
            let records = speakers.values().flat_map(|node| records(&node.path.join(kind)));
            closest(records, &places)
        };
        let mut links = read("io_links");
        // The direct links between two GPUs, if there are any.
        links.extend(read("p2p_links"));
        Self { links, memory: nodes.iter().filter_map(|node| Some((node.number, memory(node)?))).collect() }
    }
}

/// A link's record: from node, to node, kind.
type Record = (u32, u32, Link);

/// The best link of each pair. Links to processors are ignored, because processors have no place.
fn closest(records: impl Iterator<Item = Record>, places: &BTreeMap<u32, Place>) -> BTreeMap<Pair, Link> {
    let mut links = BTreeMap::new();
    for (from, to, link) in records {
        if let (Some(&from), Some(&to)) = (places.get(&from), places.get(&to)) {
            let best = links.entry((from.min(to), from.max(to))).or_insert(link);
            *best = link.min(*best);
        }
    }
    links
}

/// The records in a directory of links, unreadable ones left out.
fn records(directory: &Path) -> Vec<Record> {
    let names = Directory::open(directory).and_then(|open| open.names()).unwrap_or_default();
    let numbered = names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    numbered.filter_map(|name| record(&Properties::read(&directory.join(name).join("properties")).ok()?)).collect()
}

fn record(properties: &Properties) -> Option<Record> {
    let node = |key: &str| properties.number(key)?.try_into().ok();
    let link = match properties.number("type")? {
        11 => Link::Xgmi,
        2 => Link::Pcie,
        _ => Link::Other,
    };
    Some((node("node_from")?, node("node_to")?, link))
}

fn memory(node: &Node) -> Option<u64> {
    Properties::read(&node.path.join("mem_banks/0/properties")).ok()?.number("size_in_bytes")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(bus: u64) -> Place {
        Place::of_location(0, bus << 8)
    }

    fn links() -> impl Strategy<Value = Vec<Record>> {
        let link = prop_oneof![Just(Link::Xgmi), Just(Link::Pcie), Just(Link::Other)];
        proptest::collection::vec((0_u32..20, 0_u32..20, link), 0..40)
    }

    #[test]
    fn links_to_processors_are_left_out() {
        let places = BTreeMap::from([(2, place(1)), (3, place(2))]);
        let records = [(2, 0, Link::Pcie), (3, 2, Link::Xgmi), (2, 3, Link::Pcie), (9, 2, Link::Xgmi)];
        assert_eq!(closest(records.into_iter(), &places), BTreeMap::from([((place(1), place(2)), Link::Xgmi)]));
    }

    proptest! {
        #[test]
        fn the_order_and_direction_of_records_do_not_matter(mut records in links()) {
            let places: BTreeMap<u32, Place> = (0..16).map(|number| (number, place(u64::from(number / 2)))).collect();
            let found = closest(records.clone().into_iter(), &places);
            records.reverse();
            let turned = records.into_iter().map(|(from, to, link)| (to, from, link));
            prop_assert_eq!(&closest(turned, &places), &found);
            prop_assert!(found.keys().all(|(low, high)| low <= high));
        }
    }
}
