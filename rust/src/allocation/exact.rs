//! The best set there is, by branch and bound over how many devices to take of each card.
//!
//! Three things keep the tree small. Cards that do not differ are taken in order only. At most one card is taken
//! in part, but where devices of a card are farther from each other than from those of another card. And a branch ends
//! when no completion of it can be better, as far as [`Bound`] knows.

use super::bound::Bound;
use super::sets::{Score, Sets};

/// More cards are not searched.
pub(super) const MOST_CARDS: usize = 32;

/// Branches and prices looked at before the best set found so far has to do: about a millisecond.
///
/// The hardest distances of 16 GPUs that could be found take 15 000, of 63 partitions that are closest to their own card
/// 1000. It is reached where devices of a card are farther from each other than from those of most other cards, and by
/// arbitrary distances of more than 16 cards.
const MOST_LOOKS: usize = 60_000;

type PerCard = [u64; MOST_CARDS];

/// Counts a card that score at most `known`; of equal ones those that take the most of the first cards.
pub(super) fn choose(sets: &Sets, known: (Vec<usize>, Score)) -> Vec<usize> {
    let mut search = Search::new(sets, known);
    search.run();
    search.best
}

struct Search<'a> {
    sets: &'a Sets,
    /// The card before each that does not differ from it.
    twins: Vec<Option<usize>>,
    /// With which cards each may be taken in part together, as bits.
    repelled: Vec<u32>,
    /// Devices of each card and those after it.
    left: Vec<usize>,
    /// The least loss of each card and those after it.
    least_loss: Vec<u64>,
    bound: Bound<'a>,
    counts: Vec<usize>,
    best: Vec<usize>,
    best_score: Score,
    /// Whether `best` is of this search: then an equal one is no better.
    found: bool,
    /// Branches that were thought of; the bound counts its own looks.
    looks: usize,
}

/// A choice for the cards before `card`.
#[derive(Clone, Copy)]
struct Branch {
    card: usize,
    missing: usize,
    score: Score,
    /// From one device of each card to all that is taken or required.
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

    /// The branch below, unless it takes cards in part that a best set need not.
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::exchange;
    use super::*;

    /// What was looked at for the best set of so many devices.
    fn looks(distance: impl Fn(usize, usize) -> u64, free: &[usize], wanted: usize) -> usize {
        let cards = 0..free.len();
        let square: Vec<Vec<u64>> =
            cards.clone().map(|one| cards.clone().map(|other| distance(one, other)).collect()).collect();
        let sets = Sets::of(&square, free, &vec![0; free.len()], wanted);
        let mut search = Search::new(&sets, exchange::choose(&sets));
        search.run();
        search.looks + search.bound.looks
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// With only two distances many sets are nearly as good as the best: the hardest kind that was found.
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
}
