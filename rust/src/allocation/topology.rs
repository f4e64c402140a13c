//! The devices of a resource, what they are part of, and how far apart their cards are: made once per snapshot.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::order::natural;

/// With more cards than this there are no distances: their number grows with the square, and no host has so many cards.
pub const MOST_CARDS: usize = 256;

/// Larger distances are cut to this, so that no sum of them overflows.
pub const MOST_DISTANT: u32 = 1 << 24;

/// A number that no NUMA node has.
const NOWHERE: i64 = -1;

/// A device of a resource, as in the spool.
#[derive(Debug, Clone, Default)]
pub struct Device {
    /// The id that the kubelet sees.
    pub id: String,
    /// The scanned device, which its replicas share; `id` if empty.
    pub physical_id: String,
    /// The card it is a part of; the physical device if empty.
    pub card: String,
    /// Empty if unknown.
    pub numa_nodes: Vec<i64>,
    /// Whether Allocate would give it to a container.
    pub healthy: bool,
    /// Distance of other cards, by card: lower is closer, and a card that is not listed is farthest.
    pub distances: BTreeMap<String, u32>,
}

/// Numbers of a device's card, physical device and set of NUMA nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) card: usize,
    pub(super) physical: usize,
    pub(super) nodes: usize,
}

/// The devices of a resource. Devices, cards and physical devices are numbered in natural order of their (first) id.
#[derive(Debug)]
pub struct Topology {
    ids: Vec<String>,
    healthy: Vec<bool>,
    numbers: HashMap<String, usize>,
    places: Vec<Place>,
    node_sets: Vec<BTreeSet<i64>>,
    card_sizes: Vec<usize>,
    physical_sizes: Vec<usize>,
    distances: Option<Vec<Vec<u64>>>,
}

impl Topology {
    /// A topology without distances between cards; only the aligned preference needs them.
    #[must_use]
    pub fn new(devices: Vec<Device>) -> Self {
        Self::made(devices, |_, _, _| None)
    }

    /// A topology with the distance of every two cards, up to [`MOST_CARDS`].
    #[must_use]
    pub fn with_distances(devices: Vec<Device>) -> Self {
        Self::made(devices, |devices, places, cards| (cards <= MOST_CARDS).then(|| distances(devices, places, cards)))
    }

    fn made(
        mut devices: Vec<Device>,
        distances: impl FnOnce(&[Device], &[Place], usize) -> Option<Vec<Vec<u64>>>,
    ) -> Self {
        devices.sort_by(|left, right| natural(&left.id, &right.id));
        devices.dedup_by(|left, right| left.id == right.id);
        // A device without nodes would count as close to everything: it counts as on every node and on one more, so that
        // others are preferred.
        let known: BTreeSet<i64> = devices.iter().flat_map(|device| &device.numa_nodes).copied().collect();
        let anywhere: BTreeSet<i64> = known.iter().copied().chain((!known.is_empty()).then_some(NOWHERE)).collect();
        let numa_nodes = |device: &Device| match &device.numa_nodes[..] {
            [] => anywhere.clone(),
            nodes => nodes.iter().copied().collect(),
        };
        let (mut cards, mut physical, mut nodes) = (Numbers::default(), Numbers::default(), Numbers::default());
        let places: Vec<Place> = devices
            .iter()
            .map(|device| Place {
                card: cards.of(card(device).to_owned()),
                physical: physical.of(physical_id(device).to_owned()),
                nodes: nodes.of(numa_nodes(device)),
            })
            .collect();
        Self {
            distances: distances(&devices, &places, cards.count()),
            card_sizes: sizes(cards.count(), places.iter().map(|place| place.card)),
            physical_sizes: sizes(physical.count(), places.iter().map(|place| place.physical)),
            node_sets: nodes.in_order(),
            numbers: devices.iter().enumerate().map(|(number, device)| (device.id.clone(), number)).collect(),
            healthy: devices.iter().map(|device| device.healthy).collect(),
            ids: devices.into_iter().map(|device| device.id).collect(),
            places,
        }
    }

    pub(super) fn id(&self, device: usize) -> &str {
        &self.ids[device]
    }

    /// The number of a device; `None` if the id is unknown.
    pub(super) fn known(&self, id: &str) -> Option<usize> {
        self.numbers.get(id).copied()
    }

    pub(super) fn is_healthy(&self, device: usize) -> bool {
        self.healthy[device]
    }

    pub(super) fn place(&self, device: usize) -> Place {
        self.places[device]
    }

    /// The NUMA nodes of a device; empty if unknown.
    pub(super) fn nodes(&self, device: usize) -> &BTreeSet<i64> {
        &self.node_sets[self.places[device].nodes]
    }

    /// Number of devices that a card has, free or not.
    pub(super) fn card_size(&self, card: usize) -> usize {
        self.card_sizes[card]
    }

    /// Number of replicas that a physical device has, free or not.
    pub(super) fn physical_size(&self, physical: usize) -> usize {
        self.physical_sizes[physical]
    }

    /// Distances between devices by their cards; on the diagonal between two devices of one card.
    pub(super) fn distances(&self) -> Option<&[Vec<u64>]> {
        self.distances.as_deref()
    }
}

fn physical_id(device: &Device) -> &str {
    if device.physical_id.is_empty() { &device.id } else { &device.physical_id }
}

fn card(device: &Device) -> &str {
    if device.card.is_empty() { physical_id(device) } else { &device.card }
}

/// Numbers things in the order in which they are first met.
struct Numbers<T>(HashMap<T, usize>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: std::hash::Hash + Eq> Numbers<T> {
    fn of(&mut self, thing: T) -> usize {
        let next = self.0.len();
        *self.0.entry(thing).or_insert(next)
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn in_order(self) -> Vec<T> {
        let mut things: Vec<(T, usize)> = self.0.into_iter().collect();
        things.sort_unstable_by_key(|&(_, number)| number);
        things.into_iter().map(|(thing, _)| thing).collect()
    }
}

fn sizes(count: usize, numbers: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut sizes = vec![0; count];
    numbers.for_each(|number| sizes[number] += 1);
    sizes
}

/// What all devices of a card say about it.
#[derive(Default, Clone)]
struct Card<'a> {
    name: &'a str,
    named: BTreeMap<&'a str, u32>,
    numa_nodes: BTreeSet<i64>,
    physical: BTreeSet<usize>,
}

fn distances(devices: &[Device], places: &[Place], count: usize) -> Vec<Vec<u64>> {
    let mut cards = vec![Card::default(); count];
    for (device, place) in devices.iter().zip(places) {
        let known = &mut cards[place.card];
        known.name = card(device);
        known.numa_nodes.extend(&device.numa_nodes);
        known.physical.insert(place.physical);
        for (name, &distance) in &device.distances {
            let farthest = known.named.entry(name).or_default();
            *farthest = distance.min(MOST_DISTANT).max(*farthest);
        }
    }
    let unnamed =
        cards.iter().flat_map(|card| card.named.values()).max().map_or(0, |&farthest| u64::from(farthest) + 1);
    cards.iter().map(|left| cards.iter().map(|right| distance(left, right, unnamed)).collect()).collect()
}

/// The distance that one of the cards lists for the other, the larger if they disagree. Cards that do not list each
/// other are farther apart than any listed pair; then NUMA nodes decide. A card whose nodes are unknown is as close to
/// every card as cards of one node are to each other: of equal sets, the one that leaves it behind is better.
fn distance(left: &Card, right: &Card, unnamed: u64) -> u64 {
    let named = left.named.get(right.name).max(right.named.get(left.name));
    match named {
        Some(&distance) => u64::from(distance),
        None if left.name != right.name => {
            let are_known = !left.numa_nodes.is_empty() && !right.numa_nodes.is_empty();
            unnamed + 1 + u64::from(are_known && left.numa_nodes.is_disjoint(&right.numa_nodes))
        }
        None if left.physical.len() == 1 => 0, // replicas of one device: nothing is closer than itself
        None => unnamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(id: &str, card: &str, numa_nodes: &[i64], distances: &[(&str, u32)]) -> Device {
        Device {
            id: id.to_owned(),
            card: card.to_owned(),
            numa_nodes: numa_nodes.to_vec(),
            distances: distances.iter().map(|&(card, distance)| (card.to_owned(), distance)).collect(),
            ..Device::default()
        }
    }

    #[test]
    fn numa_nodes_stand_in_for_distances_that_nobody_names() {
        let topology = Topology::with_distances(vec![
            device("a0", "a", &[0], &[]),
            device("a1", "a", &[0], &[]),
            device("b", "b", &[0], &[]),
            device("c", "c", &[1], &[]),
        ]);
        assert_eq!(topology.distances().unwrap(), [vec![0, 1, 2], vec![1, 0, 2], vec![2, 2, 0]]);
    }

    /// AMD defect 35: a missing link had weight 0, the best of all.
    #[test]
    fn a_card_that_is_not_named_is_farther_than_any_that_is() {
        let topology = Topology::with_distances(vec![
            device("a", "a", &[0], &[("b", 40)]),
            device("b", "b", &[0], &[("a", 40), ("c", 80)]),
            device("c", "c", &[0], &[]),
        ]);
        assert_eq!(topology.distances().unwrap(), [vec![0, 40, 82], vec![40, 0, 80], vec![82, 80, 0]]);
    }

    #[test]
    fn devices_of_one_card_are_as_far_apart_as_the_card_says() {
        let own = Topology::with_distances(vec![
            device("a0", "a", &[], &[("a", 30), ("b", 40)]),
            device("a1", "a", &[], &[("a", 30), ("b", 40)]),
            device("b0", "b", &[], &[("a", 40)]),
            device("b1", "b", &[], &[("a", 40)]),
        ]);
        assert_eq!(own.distances().unwrap(), [vec![30, 40], vec![40, 41]]);
    }

    #[test]
    fn too_many_cards_have_no_distances() {
        let many = (0..=MOST_CARDS).map(|number| device(&number.to_string(), "", &[], &[])).collect();
        assert!(Topology::with_distances(many).distances().is_none());
    }
}
