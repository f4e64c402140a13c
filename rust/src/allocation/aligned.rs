//! Close to each other: the least sum of distances.

use super::sets::Sets;
use super::topology::Topology;
use super::{Question, exact, exchange, packed};

/// `None` without distances.
pub(super) fn choose(question: &Question) -> Option<Vec<usize>> {
    let topology = question.topology;
    let distances = topology.distances()?;
    let free = by_card(topology, &question.free, distances.len());
    let kept = by_card(topology, &question.kept, distances.len());
    let sets = Sets::of(distances, &lengths(&free), &lengths(&kept), question.wanted);
    let good = exchange::choose(&sets);
    let counts = if sets.cards.len() <= exact::MOST_CARDS { exact::choose(&sets, good) } else { good.0 };
    let taken = sets.cards.iter().zip(counts).filter(|&(_, count)| count > 0);
    let chosen =
        taken.flat_map(|(card, count)| packed::within_card(topology, &free[card.number], &kept[card.number], count));
    Some(chosen.collect())
}

fn by_card(topology: &Topology, devices: &[usize], cards: usize) -> Vec<Vec<usize>> {
    let mut by_card = vec![Vec::new(); cards];
    for &device in devices {
        by_card[topology.place(device).card].push(device);
    }
    by_card
}

fn lengths(lists: &[Vec<usize>]) -> Vec<usize> {
    lists.iter().map(Vec::len).collect()
}
