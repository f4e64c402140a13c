//! The best set there is, by branch and bound over how many devices to take of each card.
//!
//! Three things keep the tree small. Cards that cannot be told apart are taken in order only. At most one card is taken
//! in part, but where devices of a card are farther from each other than from those of another card. And a branch ends
//! when no completion of it can be better: half the distance to its closest others is the least that a device costs.

use std::collections::HashMap;

use super::sets::{Score, Sets};

/// More cards are not searched.
pub(super) const MOST_CARDS: usize = 16;

/// Branches looked at before the best set found so far has to do.
const MOST_BRANCHES: usize = 20_000;

type PerCard = [u64; MOST_CARDS];

/// Counts a card that score at most `known`; of equal ones those that take the most of the first cards.
pub(super) fn choose(sets: &Sets, known: (Vec<usize>, Score)) -> Vec<usize> {
    Search::new(sets, known).run()
}

struct Search<'a> {
    sets: &'a Sets,
    distances: Vec<PerCard>,
    /// The card before each that cannot be told apart from it.
    twins: Vec<Option<usize>>,
    /// With which cards each may be taken in part together, as bits.
    repelled: Vec<u32>,
    /// Devices of each card and those after it.
    left: Vec<usize>,
    /// The least loss of each card and those after it.
    least_loss: Vec<u64>,
    nearest: HashMap<(usize, usize), PerCard>,
    counts: Vec<usize>,
    best: Vec<usize>,
    best_score: Score,
    /// Whether `best` is of this search: then an equal one is no better.
    found: bool,
    branches: usize,
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
            distances: sets.distances.iter().map(|row| per_card(row.iter().copied())).collect(),
            twins: (0..count).map(|card| (0..card).rev().find(|&other| are_twins(sets, card, other))).collect(),
            repelled: (0..count).map(repelled).collect(),
            left: (0..=count).map(|card| cards[card..].iter().map(|card| card.free).sum()).collect(),
            least_loss: (0..count)
                .map(|card| cards[card..].iter().map(|card| card.loss).min().unwrap_or_default())
                .collect(),
            nearest: HashMap::new(),
            counts: vec![0; count],
            best,
            best_score,
            found: false,
            branches: 0,
        }
    }

    fn run(mut self) -> Vec<usize> {
        let to_taken = per_card(self.sets.cards.iter().map(|card| card.to_kept));
        let missing = self.sets.wanted;
        self.visit(&Branch { card: 0, missing, score: Score::default(), to_taken, in_part: 0 });
        self.best
    }

    fn visit(&mut self, branch: &Branch) {
        if branch.missing == 0 {
            self.compare(branch.score);
            return;
        }
        self.branches += 1;
        if self.branches > MOST_BRANCHES || !self.is_promising(branch) {
            return;
        }
        let card = branch.card;
        let most = self.sets.cards[card].free.min(branch.missing);
        let most = self.twins[card].map_or(most, |twin| most.min(self.counts[twin]));
        let least = branch.missing.saturating_sub(self.left[card + 1]);
        for count in (least..=most).rev() {
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
        for (sum, distance) in next.to_taken.iter_mut().zip(&self.distances[card]) {
            *sum += distance * count as u64;
        }
        Some(next)
    }

    fn is_promising(&mut self, branch: &Branch) -> bool {
        let missing = branch.missing as u64;
        let bound = Score {
            cost: branch.score.cost + self.least_cost(branch),
            loss: branch.score.loss + missing * self.least_loss[branch.card],
            cards: branch.score.cards,
        };
        if self.found { bound < self.best_score } else { bound <= self.best_score }
    }

    /// At most what the missing devices add: each counts half its distance to as many others as are missing beside it,
    /// the closest of those that are left.
    fn least_cost(&mut self, branch: &Branch) -> u64 {
        let (sets, first) = (self.sets, branch.card);
        let key = (first, branch.missing);
        let nearest = *self.nearest.entry(key).or_insert_with(|| nearest(sets, first, branch.missing - 1));
        let mut prices = [(0, 0); MOST_CARDS];
        let count = sets.cards.len() - first;
        for (price, card) in prices.iter_mut().zip(first..sets.cards.len()) {
            *price = (2 * branch.to_taken[card] + nearest[card], sets.cards[card].free);
        }
        let prices = &mut prices[..count];
        prices.sort_unstable();
        cheapest(prices, branch.missing).div_ceil(2)
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

/// From one device of each card to its closest others, on the cards from `first` on.
fn nearest(sets: &Sets, first: usize, others: usize) -> PerCard {
    per_card((0..sets.cards.len()).map(|card| {
        let free = |other: usize| sets.cards[other].free - usize::from(other == card);
        let mut prices: Vec<(u64, usize)> =
            (first..sets.cards.len()).map(|other| (sets.distances[card][other], free(other))).collect();
        prices.sort_unstable();
        cheapest(&prices, others)
    }))
}

/// The sum of the lowest prices, each of which is to be had so many times.
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
