//! The least that the missing devices can add to the cost of a set.
//!
//! Counted twice, a device costs its distances to all others. Of what is not chosen yet it costs at least those to the
//! closest, as many as are missing beside it: so each has a price, and the lowest prices are a lower bound.

use std::collections::HashMap;
use std::ops::Range;

use super::sets::Sets;

pub(super) struct Bound<'a> {
    sets: &'a Sets,
    /// By first card that is left, and devices missing.
    tranches: HashMap<(usize, usize), Vec<Tranche>>,
    prices: Vec<(u64, usize)>,
    /// The work done.
    pub(super) looks: usize,
}

/// Some devices of a card, and the least that each of them costs, without what is taken already.
struct Tranche {
    card: usize,
    each: u64,
    count: usize,
}

impl<'a> Bound<'a> {
    pub(super) fn new(sets: &'a Sets) -> Self {
        Self { sets, tranches: HashMap::new(), prices: Vec::new(), looks: 0 }
    }

    /// The least cost of `missing` devices from the cards from `first` on. `to_taken`, by card: the distance of one of its
    /// devices to all that is taken.
    pub(super) fn least_cost(&mut self, first: usize, missing: usize, to_taken: &[u64]) -> u64 {
        let (sets, looks) = (self.sets, &mut self.looks);
        let tranches = self.tranches.entry((first, missing)).or_insert_with(|| {
            let cards = first..sets.cards.len();
            *looks += cards.len() * cards.len();
            cards.clone().flat_map(|card| tranches(sets, card, &cards, missing, looks)).collect()
        });
        *looks += tranches.len();
        self.prices.clear();
        self.prices.extend(tranches.iter().map(|each| (2 * to_taken[each.card] + each.each, each.count)));
        self.prices.sort_unstable();
        cheapest(&self.prices, missing).div_ceil(2)
    }
}

/// The devices of a card, those with the lowest prices first.
///
/// They cost the distances among themselves, and those to the closest of other cards. For the lowest prices of
/// all cards to be a lower bound, too, prices that fall with the number of devices are averaged until they do not.
fn tranches(sets: &Sets, card: usize, cards: &Range<usize>, missing: usize, looks: &mut usize) -> Vec<Tranche> {
    let distances = &sets.distances[card];
    let others = cards.clone().filter(|&other| other != card);
    let mut others: Vec<(u64, usize)> = others.map(|other| (distances[other], sets.cards[other].free)).collect();
    others.sort_unstable();
    let cost = |count: usize| {
        let (number, own_pairs) = (count as u64, count * count.saturating_sub(1));
        own_pairs as u64 * distances[card] + number * cheapest(&others, missing - count)
    };
    let most = sets.cards[card].free.min(missing);
    let steps = if sets.cards[card].close_knit {
        vec![(cost(most) / most as u64, most)] // the more, the lower the price
    } else {
        *looks += most * others.len();
        rising(&(0..=most).map(cost).collect::<Vec<u64>>())
    };
    steps.into_iter().map(|(each, count)| Tranche { card, each, count }).collect()
}

/// The steps of the largest function below this one whose steps never fall, and how many are alike; both begin at 0.
fn rising(costs: &[u64]) -> Vec<(u64, usize)> {
    let step = |from: usize, to: usize| (i128::from(costs[to]) - i128::from(costs[from]), (to - from) as i128);
    let mut corners = vec![0];
    for place in 1..costs.len() {
        while let [.., before, last] = corners[..] {
            let ((rise, run), (next_rise, next_run)) = (step(before, last), step(last, place));
            if rise * next_run < next_rise * run {
                break;
            }
            corners.pop();
        }
        corners.push(place);
    }
    let pairs = corners.windows(2).map(|ends| (ends[0], ends[1]));
    pairs.map(|(from, to)| ((costs[to] - costs[from]) / (to - from) as u64, to - from)).collect()
}

/// The sum of the lowest prices, given in ascending order with the number of devices at each.
fn cheapest(prices: &[(u64, usize)], wanted: usize) -> u64 {
    let mut missing = wanted;
    let mut sum = 0;
    for &(price, count) in prices {
        let taken = count.min(missing);
        sum += price * taken as u64;
        missing -= taken;
        if missing == 0 {
            break;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn steps_rise_and_stay_below(steps in vec(0u64..50, 1..12)) {
            let costs: Vec<u64> = [0].into_iter().chain(steps).collect();
            let rising = rising(&costs);
            prop_assert!(rising.windows(2).all(|pair| pair[0].0 <= pair[1].0));
            prop_assert_eq!(rising.iter().map(|(_, count)| count).sum::<usize>(), costs.len() - 1);
            for (count, cost) in costs.iter().enumerate() {
                prop_assert!(cheapest(&rising, count) <= *cost);
            }
        }
    }
}
