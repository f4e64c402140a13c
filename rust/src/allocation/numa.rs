//! The fewest NUMA nodes that have enough devices.

use std::collections::{BTreeMap, BTreeSet};

use super::topology::Topology;

type Nodes = BTreeSet<i64>;

/// What to choose from: all of `whole`, and the rest out of `last`.
pub(super) struct Narrowed {
    pub(super) whole: Vec<usize>,
    pub(super) last: Vec<usize>,
}

/// Narrows the free devices down to those on the nodes in use already, then node by node until there are enough.
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
        let mut last = take(&mut groups, &covered);
        if whole.len() + last.len() >= wanted || groups.is_empty() {
            last.sort_unstable();
            return Narrowed { whole, last };
        }
        whole.append(&mut last);
        let next = next_nodes(&groups, wanted - whole.len(), &covered);
        covered.extend(next);
    }
}

fn take(groups: &mut Vec<(&Nodes, Vec<usize>)>, covered: &Nodes) -> Vec<usize> {
    let (taken, left) = std::mem::take(groups).into_iter().partition(|(nodes, _)| nodes.is_subset(covered));
    *groups = left;
    let taken: Vec<(&Nodes, Vec<usize>)> = taken;
    taken.into_iter().flat_map(|(_, devices)| devices).collect()
}

/// The nodes to open next: the smallest that suffice, so that large ones stay whole, otherwise the largest.
fn next_nodes(groups: &[(&Nodes, Vec<usize>)], missing: usize, covered: &Nodes) -> Nodes {
    let gain = |nodes: &Nodes| -> usize {
        let fits = |others: &Nodes| others.iter().all(|node| covered.contains(node) || nodes.contains(node));
        groups.iter().filter(|(others, _)| fits(others)).map(|(_, devices)| devices.len()).sum()
    };
    let key = |nodes: &Nodes| {
        let (opened, gain) = (nodes.difference(covered).count(), gain(nodes));
        // What does not suffice is compared by its devices per node, as a fraction without division.
        if gain >= missing { (0, opened, gain) } else { (1, usize::MAX - gain * PRECISION / opened, 0) }
    };
    groups.iter().map(|(nodes, _)| *nodes).min_by_key(|nodes| (key(nodes), *nodes)).cloned().unwrap_or_default()
}

const PRECISION: usize = 1 << 16;
