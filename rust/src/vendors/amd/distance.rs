//! How far GPUs are from each other, by the weights of AMD's own plugin: lower is closer.

use std::collections::BTreeMap;

use super::links::{Fabric, Link};
use super::pci_slot::Place;

/// A GPU, and the NUMA node it is close to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spot {
    /// Its PCI address.
    pub(super) card: String,
    pub(super) place: Place,
    pub(super) numa_node: Option<u32>,
}

/// The distance of each GPU to each other, by card. A pair without a link is not named, so it is the farthest.
pub(super) fn distances(spots: &[Spot], fabric: &Fabric) -> BTreeMap<String, BTreeMap<String, u32>> {
    let from = |one: &Spot| {
        spots.iter().filter_map(|other| Some((other.card.clone(), distance(one, other, fabric)?))).collect()
    };
    spots.iter().map(|one| (one.card.clone(), from(one))).collect()
}

fn distance(one: &Spot, other: &Spot, fabric: &Fabric) -> Option<u32> {
    let pair = (one.place.min(other.place), one.place.max(other.place));
    let link = fabric.links.get(&pair).copied();
    if one.place == other.place {
        // Partitions of one GPU share its memory, whatever links KFD reports.
        return Some(weight(true, link.unwrap_or(Link::Xgmi), true));
    }
    Some(weight(false, link?, one.numa_node == other.numa_node))
}

fn weight(same_gpu: bool, link: Link, same_numa_node: bool) -> u32 {
    let gpu = if same_gpu { 10 } else { 20 };
    let way = match link {
        Link::Xgmi => 10,
        Link::Pcie => 40,
        Link::Other => 50,
    };
    let numa = if same_numa_node { 10 } else { 20 };
    gpu + way + numa
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(bus: u64, numa_node: Option<u32>) -> Spot {
        let place = Place::of_location(0, bus << 8);
        Spot { card: place.to_string(), place, numa_node }
    }

    fn between(one: &Spot, other: &Spot, link: Option<Link>) -> Option<u32> {
        let pair = (one.place.min(other.place), one.place.max(other.place));
        let fabric = Fabric { links: link.map(|link| (pair, link)).into_iter().collect(), ..Fabric::default() };
        distances(&[one.clone(), other.clone()], &fabric)[&one.card].get(&other.card).copied()
    }

    #[test]
    fn the_sums_are_those_of_the_vendors_plugin() {
        let (near, same, far) = (spot(1, Some(0)), spot(2, Some(0)), spot(3, Some(1)));
        for (other, link, sum) in [
            (&near, Some(Link::Xgmi), Some(30)),
            (&same, Some(Link::Xgmi), Some(40)),
            (&far, Some(Link::Xgmi), Some(50)),
            (&same, Some(Link::Pcie), Some(70)),
            (&far, Some(Link::Pcie), Some(80)),
            (&same, Some(Link::Other), Some(80)),
            (&far, Some(Link::Other), Some(90)),
            (&same, None, None),
            (&near, None, Some(30)),
        ] {
            assert_eq!(between(&near, other, link), sum, "{other:?} {link:?}");
            assert_eq!(between(other, &near, link), sum, "{other:?} {link:?}");
        }
    }

    #[test]
    fn two_unknown_numa_nodes_are_the_same() {
        assert_eq!(between(&spot(1, None), &spot(2, None), Some(Link::Xgmi)), Some(40));
        assert_eq!(between(&spot(1, None), &spot(2, Some(0)), Some(Link::Xgmi)), Some(50));
    }
}
