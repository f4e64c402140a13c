//! Spreads devices over the cards, and on each card over its physical devices: the least allocated first.
//!
//! Like NVIDIA's policy for replicas (nvidia.md 3.9), except that a MIG device or a partition counts for its card as
//! well, and that ties go to the NUMA nodes in use, and then to natural order.

use std::collections::BTreeMap;

use super::topology::Topology;
use super::{Question, packed};

/// A kind of part that devices are spread over: the number of the part that a device belongs to, and the size of a
/// part.
type Level = (fn(&Topology, usize) -> usize, fn(&Topology, usize) -> usize);
const LEVELS: [Level; 2] = [
    (|topology, device| topology.place(device).card, Topology::card_size),
    (|topology, device| topology.place(device).physical, Topology::physical_size),
];

pub(super) fn choose(question: &Question) -> Vec<usize> {
    spread(question.topology, question.free.clone(), &question.kept, question.wanted, &LEVELS)
}

/// The free devices of a card or a physical device, and how many of them to take.
struct Part {
    free: Vec<usize>,
    allocated: usize,
    picked: usize,
}

fn spread(topology: &Topology, free: Vec<usize>, used: &[usize], wanted: usize, levels: &[Level]) -> Vec<usize> {
    let Some(((part_of, size), finer)) = levels.split_first() else {
        return free.into_iter().take(wanted).collect();
    };
    let mut by_part: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for device in free {
        by_part.entry(part_of(topology, device)).or_default().push(device);
    }
    let mut parts: Vec<Part> = by_part
        .into_iter()
        .map(|(part, free)| Part { allocated: size(topology, part) - free.len(), free, picked: 0 })
        .collect();
    pick(topology, &mut parts, used, wanted);
    let picked = parts.into_iter().filter(|part| part.picked > 0);
    picked.flat_map(|part| spread(topology, part.free, used, part.picked, finer)).collect()
}

/// Picks one device of each part with the least allocated, again and again, until enough are picked.
fn pick(topology: &Topology, parts: &mut [Part], used: &[usize], wanted: usize) {
    let mut waiting: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (number, part) in parts.iter().enumerate() {
        waiting.entry((part.allocated, 0)).or_default().push(number);
    }
    let mut missing = wanted;
    while let Some(((allocated, picked), equals)) = waiting.pop_first().filter(|_| missing > 0) {
        let turn = if equals.len() > missing { by_node(topology, parts, &equals, used, missing) } else { equals };
        missing -= turn.len();
        for number in turn {
            parts[number].picked += 1;
            if parts[number].picked < parts[number].free.len() {
                waiting.entry((allocated + 1, picked + 1)).or_default().push(number);
            }
        }
    }
}

/// Of equal parts, those that leave the container on the fewest NUMA nodes.
fn by_node(topology: &Topology, parts: &[Part], equals: &[usize], used: &[usize], wanted: usize) -> Vec<usize> {
    let first: BTreeMap<usize, usize> = equals.iter().map(|&number| (parts[number].free[0], number)).collect();
    let begun = parts.iter().filter(|part| part.picked > 0).map(|part| part.free[0]);
    let used: Vec<usize> = used.iter().copied().chain(begun).collect();
    let candidates: Vec<usize> = first.keys().copied().collect();
    let packed::Narrowed { whole, last } = packed::narrow(topology, &candidates, &used, wanted);
    whole.iter().chain(&last).take(wanted).map(|device| first[device]).collect()
}
