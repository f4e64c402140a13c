//! On the fewest NUMA nodes, then cards, then physical devices, the fullest first; then natural order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::topology::{Place, Topology};
use super::{Question, numa};

/// What devices are parts of, from the largest down.
type Level = fn(Place) -> usize;
const LEVELS: [Level; 2] = [|place| place.card, |place| place.physical];

pub(super) fn choose(question: &Question) -> Vec<usize> {
    let topology = question.topology;
    let numa::Narrowed { whole, last } = numa::narrow(topology, &question.free, &question.kept, question.wanted);
    let used: Vec<usize> = question.kept.iter().chain(&whole).copied().collect();
    let chosen = pack(topology, last, &used, question.wanted - whole.len(), &LEVELS);
    [whole, chosen].concat()
}

/// Members of one card: replicas of one physical device together, then in natural order.
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

/// Takes the largest groups until one of the others suffices, and of those that do the smallest: large ones stay whole.
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
