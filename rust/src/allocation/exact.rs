//! The best set, found by branch and bound over the number of devices to take of each card.
//!
//! Three things keep the tree small. Cards that do not differ are taken in order only. At most one card is taken in
//! part, except where devices of a card are farther from each other than from those of another card. And a branch ends
//! when no completion of it can be better, by the lower bound of [`Bound`].

use std::collections::HashMap;
use std::ops::Range;

use super::aligned::{Score, Sets};

/// On more cards than this there is no exact search.
pub(super) const MOST_CARDS: usize = 32;

/// Limit of branches and prices looked at, then the best set found so far is used: about a millisecond.
///
/// The hardest distances found take 15 000 for 16 GPUs, and 1000 for 63 partitions that are closest to their own card.
/// The limit is reached if devices of a card are farther from each other than from those of most other cards, and by
/// arbitrary distances of more than 16 cards.
const MOST_LOOKS: usize = 60_000;

type PerCard = [u64; MOST_CARDS];

/// Numbers of devices to take of each card, with a score of at most `known`; of equal sets the one that takes the most
/// of the first cards.
pub(super) fn choose(sets: &Sets, known: (Vec<usize>, Score)) -> Vec<usize> {
    let mut search = Search::new(sets, known);
    search.run();
    search.best
}

struct Search<'a> {
    sets: &'a Sets,
    /// For each card, an equal card before it.
    twins: Vec<Option<usize>>,
    /// For each card, as bits, the cards that may be taken in part together with it.
    repelled: Vec<u32>,
    /// Number of devices of each card and those after it.
    left: Vec<usize>,
    /// Smallest loss of each card and those after it.
    least_loss: Vec<u64>,
    bound: Bound<'a>,
    counts: Vec<usize>,
    best: Vec<usize>,
    best_score: Score,
    /// Whether `best` comes from this search: then an equal set is no better.
    found: bool,
    /// Branches looked at; the bound counts its own.
    looks: usize,
}

/// A choice for the cards before `card`.
#[derive(Clone, Copy)]
struct Branch {
    card: usize,
    missing: usize,
    score: Score,
    /// Distance from one device of each card to everything taken or required.
    to_taken: PerCard,
    /// The cards taken in part, as bits.
    in_part: u32,
}

impl<'a> Search<'a> {
    fn new(sets: &'a Sets, (best, best_score): (Vec<usize>, Score)) -> Self {
        let cards = &sets.cards;
        let count = cards.len();
        let repelled = |card| (0..count).filter(|&other| sets.repel(card, other)).map(|other| 1 << other).sum();
        Self {
            sets,
            twins: (0..count).map(|card| (0..card).rev().find(|&other| are_twins(sets, card, other))).collect(),
            repelled: (0..count).map(repelled).collect(),
            left: (0..=count).map(|card| cards[card..].iter().map(|card| card.free).sum()).collect(),
            least_loss: (0..count)
                .map(|card| cards[card..].iter().map(|card| card.loss).min().unwrap_or_default())
                .collect(),
            bound: Bound::new(sets),
            counts: vec![0; count],
            best,
            best_score,
            found: false,
            looks: 0,
        }
    }

    fn run(&mut self) {
        let to_taken = per_card(self.sets.cards.iter().map(|card| card.to_kept));
        let missing = self.sets.wanted;
        self.visit(&Branch { card: 0, missing, score: Score::default(), to_taken, in_part: 0 });
    }

    fn visit(&mut self, branch: &Branch) {
        if branch.missing == 0 {
            self.compare(branch.score);
            return;
        }
        if self.looks + self.bound.looks > MOST_LOOKS || !self.is_promising(branch) {
            return;
        }
        let card = branch.card;
        let most = self.sets.cards[card].free.min(branch.missing);
        let most = self.twins[card].map_or(most, |twin| most.min(self.counts[twin]));
        let least = branch.missing.saturating_sub(self.left[card + 1]);
        for count in (least..=most).rev() {
            self.looks += 1;
            if let Some(next) = self.taking(branch, count) {
                self.counts[card] = count;
                self.visit(&next);
            }
        }
        self.counts[card] = 0;
    }

    fn compare(&mut self, score: Score) {
        if score < self.best_score || (score == self.best_score && !self.found) {
            self.best.clone_from(&self.counts);
            self.best_score = score;
            self.found = true;
        }
    }

    /// The branch with `count` devices of the next card; `None` if it takes cards in part that a best set need not.
    fn taking(&self, branch: &Branch, count: usize) -> Option<Branch> {
        let card = branch.card;
        let mut next = Branch { card: card + 1, missing: branch.missing - count, ..*branch };
        if count == 0 {
            return Some(next);
        }
        if count < self.sets.cards[card].free {
            if branch.in_part & !self.repelled[card] != 0 {
                return None;
            }
            next.in_part |= 1 << card;
        }
        next.score = self.sets.with(branch.score, card, count, branch.to_taken[card]);
        for (sum, distance) in next.to_taken.iter_mut().zip(&self.sets.distances[card]) {
            *sum += distance * count as u64;
        }
        Some(next)
    }

    fn is_promising(&mut self, branch: &Branch) -> bool {
        let missing = branch.missing as u64;
        let bound = Score {
            cost: branch.score.cost + self.bound.least_cost(branch.card, branch.missing, &branch.to_taken),
            loss: branch.score.loss + missing * self.least_loss[branch.card],
            cards: branch.score.cards,
        };
        if self.found { bound < self.best_score } else { bound <= self.best_score }
    }
}

fn per_card(values: impl Iterator<Item = u64>) -> PerCard {
    let mut all = [0; MOST_CARDS];
    for (place, value) in all.iter_mut().zip(values) {
        *place = value;
    }
    all
}

fn are_twins(sets: &Sets, one: usize, other: usize) -> bool {
    let (left, right) = (&sets.cards[one], &sets.cards[other]);
    let distances = &sets.distances;
    (left.free, left.to_kept, left.loss, left.fresh) == (right.free, right.to_kept, right.loss, right.fresh)
        && distances[one][one] == distances[other][other]
        && (0..sets.cards.len())
            .all(|card| card == one || card == other || distances[one][card] == distances[other][card])
}

/// A lower bound for the cost that the missing devices add to a set.
///
/// If every pair is counted twice, a device costs its distances to all others. To devices that are not chosen yet it costs
/// at least those to the closest ones, as many as are missing besides it. That is its price, and the sum of the lowest prices
/// is a lower bound.
struct Bound<'a> {
    sets: &'a Sets,
    /// By first remaining card and number of missing devices.
    tranches: HashMap<(usize, usize), Vec<Tranche>>,
    prices: Vec<(u64, usize)>,
    /// Amount of work done.
    looks: usize,
}

/// Some devices of a card, and the lowest cost of each, not counting what is taken already.
struct Tranche {
    card: usize,
    each: u64,
    count: usize,
}

impl<'a> Bound<'a> {
    fn new(sets: &'a Sets) -> Self {
        Self { sets, tranches: HashMap::new(), prices: Vec::new(), looks: 0 }
    }

    /// The lowest cost of `missing` devices from the cards from `first` on. `to_taken` is, for each card, the distance
    /// of one of its devices to everything taken.
    fn least_cost(&mut self, first: usize, missing: usize, to_taken: &[u64]) -> u64 {
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

/// The devices of a card with their prices, the lowest first.
///
/// The price is the distances among themselves and to the closest devices of other cards. So that the lowest prices of
/// all cards form a lower bound, prices that fall with the number of devices are averaged until they do not.
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

/// The steps of the largest function below this one whose steps never fall, with the length of each; both functions
/// begin at 0.
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
    use crate::allocation::aligned;

    /// Amount of work to find the best set of this many devices.
    fn looks(distance: impl Fn(usize, usize) -> u64, free: &[usize], wanted: usize) -> usize {
        let cards = 0..free.len();
        let square: Vec<Vec<u64>> =
            cards.clone().map(|one| cards.clone().map(|other| distance(one, other)).collect()).collect();
        let sets = Sets::of(&square, free, &vec![0; free.len()], wanted);
        let mut search = Search::new(&sets, aligned::good_set(&sets));
        search.run();
        search.looks + search.bound.looks
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// With only two distances many sets are nearly as good as the best: the hardest case found.
        #[test]
        fn sixteen_gpus_are_searched_to_the_end(square in vec(vec(0u64..2, 16), 16), wanted in 1usize..16) {
            let looks = looks(|one, other| square[one.min(other)][one.max(other)], &[1; 16], wanted);
            prop_assert!(looks < MOST_LOOKS / 2, "{looks}");
        }

        #[test]
        fn partitions_of_eight_gpus_are_searched_to_the_end(
            square in vec(vec(31u64..90, 8), 8), free in vec(1usize..=8, 8), share in 1usize..100
        ) {
            let distance = |one: usize, other: usize| if one == other { 30 } else { square[one.min(other)][one.max(other)] };
            let wanted = (share * free.iter().sum::<usize>()).div_ceil(100);
            let looks = looks(distance, &free, wanted);
            prop_assert!(looks < MOST_LOOKS / 10, "{looks}");
        }
    }

    #[test]
    fn no_search_goes_on_for_ever() {
        for own in [0, 50, 1000] {
            let distance = |one: usize, other: usize| if one == other { own } else { 40 + (one * other % 17) as u64 };
            assert!(looks(distance, &[100; 16], 801) < 2 * MOST_LOOKS);
        }
    }

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
