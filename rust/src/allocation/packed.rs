//! Packs devices on the fewest NUMA nodes, then cards, then physical devices, the fullest first; then natural order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::Question;
use super::topology::{Place, Topology};

/// What devices are parts of, from the largest down.
type Level = fn(Place) -> usize;
const LEVELS: [Level; 2] = [|place| place.card, |place| place.physical];

pub(super) fn choose(question: &Question) -> Vec<usize> {
    let topology = question.topology;
    let Narrowed { whole, last } = narrow(topology, &question.free, &question.kept, question.wanted);
    let used: Vec<usize> = question.kept.iter().chain(&whole).copied().collect();
    let chosen = pack(topology, last, &used, question.wanted - whole.len(), &LEVELS);
    [whole, chosen].concat()
}

/// Devices of one card: replicas of one physical device together, then natural order.
pub(super) fn within_card(topology: &Topology, free: &[usize], used: &[usize], wanted: usize) -> Vec<usize> {
    pack(topology, free.to_vec(), used, wanted, &LEVELS[1..])
}

fn pack(topology: &Topology, free: Vec<usize>, used: &[usize], wanted: usize, levels: &[Level]) -> Vec<usize> {
    let Some((level, finer)) = levels.split_first() else {
        return free.into_iter().take(wanted).collect();
    };
    let part = |device: &usize| level(topology.place(*device));
    let opened: BTreeSet<usize> = used.iter().map(part).collect();
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for device in free {
        groups.entry(part(&device)).or_default().push(device);
    }
    let (used_already, fresh): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(part, _)| opened.contains(part));
    let mut chosen = Vec::new();
    for groups in [used_already, fresh] {
        fill(groups.into_iter().map(|(_, devices)| devices).collect(), wanted, &mut chosen, |devices, missing| {
            pack(topology, devices, used, missing, finer)
        });
    }
    chosen
}

/// Takes the largest groups until one of the rest is large enough, and then the smallest such group: large ones stay
/// whole.
fn fill(
    mut groups: Vec<Vec<usize>>,
    wanted: usize,
    chosen: &mut Vec<usize>,
    some: impl Fn(Vec<usize>, usize) -> Vec<usize>,
) {
    groups.sort_by_key(|group| Reverse(group.len())); // stable: of equals the first in natural order
    let mut groups = groups.into_iter().peekable();
    while let Some(group) = groups.next_if(|group| group.len() < wanted - chosen.len()) {
        chosen.extend(group);
    }
    let missing = wanted - chosen.len();
    if let Some(group) = groups.filter(|group| group.len() >= missing).min_by_key(Vec::len) {
        chosen.extend(some(group, missing));
    }
}

type Nodes = BTreeSet<i64>;

/// The devices to choose from: all of `whole`, and the rest out of `last`.
pub(super) struct Narrowed {
    pub(super) whole: Vec<usize>,
    pub(super) last: Vec<usize>,
}

/// Narrows the free devices down to those on NUMA nodes already in use, then adds nodes until there are enough devices.
pub(super) fn narrow(topology: &Topology, free: &[usize], used: &[usize], wanted: usize) -> Narrowed {
    let mut by_nodes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &device in free {
        by_nodes.entry(topology.place(device).nodes).or_default().push(device);
    }
    let mut groups: Vec<(&Nodes, Vec<usize>)> =
        by_nodes.into_values().map(|devices| (topology.nodes(devices[0]), devices)).collect();
    let mut covered: Nodes = used.iter().flat_map(|&device| topology.nodes(device)).copied().collect();
    let mut whole = Vec::new();
    loop {
        let mut last = take_covered(&mut groups, &covered);
        if whole.len() + last.len() >= wanted || groups.is_empty() {
            last.sort_unstable();
            return Narrowed { whole, last };
        }
        whole.append(&mut last);
        let next = next_nodes(&groups, wanted - whole.len(), &covered);
        covered.extend(next);
    }
}

fn take_covered(groups: &mut Vec<(&Nodes, Vec<usize>)>, covered: &Nodes) -> Vec<usize> {
    let (taken, left) = std::mem::take(groups).into_iter().partition(|(nodes, _)| nodes.is_subset(covered));
    *groups = left;
    let taken: Vec<(&Nodes, Vec<usize>)> = taken;
    taken.into_iter().flat_map(|(_, devices)| devices).collect()
}

/// The NUMA nodes to add next: the smallest that have enough devices, so that large ones stay whole; if none has, the
/// largest.
fn next_nodes(groups: &[(&Nodes, Vec<usize>)], missing: usize, covered: &Nodes) -> Nodes {
    let gain = |nodes: &Nodes| -> usize {
        let fits = |others: &Nodes| others.iter().all(|node| covered.contains(node) || nodes.contains(node));
        groups.iter().filter(|(others, _)| fits(others)).map(|(_, devices)| devices.len()).sum()
    };
    let key = |nodes: &Nodes| {
        let (opened, gain) = (nodes.difference(covered).count(), gain(nodes));
        // Nodes without enough devices are compared by devices per node, as a fraction without division.
        if gain >= missing { (0, opened, gain) } else { (1, usize::MAX - gain * PRECISION / opened, 0) }
    };
    groups.iter().map(|(nodes, _)| *nodes).min_by_key(|nodes| (key(nodes), *nodes)).cloned().unwrap_or_default()
}

const PRECISION: usize = 1 << 16;
