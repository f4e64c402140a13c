//! A good set at once: grown from each card in turn, then improved by exchange as long as that helps.

use super::sets::{Score, Sets};

/// How many times a card may be looked at: ends the search on hosts of any size.
const MOST_LOOKS: usize = 150_000;

/// The best set found, and its score.
pub(super) fn choose(sets: &Sets) -> (Vec<usize>, Score) {
    let mut looks = 0;
    let mut best: Option<(Vec<usize>, Score)> = None;
    for seed in 0..sets.cards.len() {
        let mut growing = Growing::from(sets, seed);
        growing.grow();
        growing.exchange(MOST_LOOKS.saturating_sub(looks));
        looks += growing.looks;
        let score = sets.score(&growing.counts);
        if best.as_ref().is_none_or(|(_, least)| score < *least) {
            best = Some((growing.counts, score));
        }
        if looks >= MOST_LOOKS {
            break;
        }
    }
    best.unwrap_or_default()
}

struct Growing<'a> {
    sets: &'a Sets,
    counts: Vec<usize>,
    /// From one device of each card to all that is taken or required.
    to_taken: Vec<u64>,
    missing: usize,
    looks: usize,
}

impl<'a> Growing<'a> {
    fn from(sets: &'a Sets, seed: usize) -> Self {
        let mut growing = Self {
            sets,
            counts: vec![0; sets.cards.len()],
            to_taken: sets.cards.iter().map(|card| card.to_kept).collect(),
            missing: sets.wanted,
            looks: 0,
        };
        growing.take(seed);
        growing
    }

    fn grow(&mut self) {
        while self.missing > 0 {
            let open = (0..self.counts.len()).filter(|&card| self.left(card) > 0);
            // Doubled, so that half the distances among those taken at once stay whole numbers.
            let price = |card: &usize| 2 * self.to_taken[*card] + self.own(*card) * (self.step(*card) as u64 - 1);
            let Some(next) = open.min_by_key(|card| (price(card), self.sets.cards[*card].loss)) else { return };
            self.take(next);
        }
    }

    fn own(&self, card: usize) -> u64 {
        self.sets.distances[card][card]
    }

    fn left(&self, card: usize) -> usize {
        self.sets.cards[card].free - self.counts[card]
    }

    /// How many of a card to take at once.
    fn step(&self, card: usize) -> usize {
        if self.sets.cards[card].close_knit { self.left(card).min(self.missing) } else { 1 }
    }

    fn take(&mut self, card: usize) {
        let step = self.step(card);
        self.missing -= step;
        self.shift(card, step, true);
    }

    fn shift(&mut self, card: usize, count: usize, taken: bool) {
        self.looks += self.counts.len();
        self.counts[card] = if taken { self.counts[card] + count } else { self.counts[card] - count };
        for (sum, distance) in self.to_taken.iter_mut().zip(&self.sets.distances[card]) {
            let change = distance * count as u64;
            *sum = if taken { *sum + change } else { *sum - change };
        }
    }

    /// Gives some of one card back for as many of another, the best such move again and again.
    fn exchange(&mut self, most_looks: usize) {
        let cards = self.counts.len();
        while self.looks + cards * cards <= most_looks {
            self.looks += cards * cards;
            let moves = (0..cards).filter(|&from| self.counts[from] > 0).flat_map(|from| {
                (0..cards).filter(move |&to| to != from).flat_map(move |to| [(from, to, 1), (from, to, usize::MAX)])
            });
            let moves = moves.map(|(from, to, most)| (from, to, most.min(self.counts[from]).min(self.left(to))));
            let best = moves.filter(|&(_, _, count)| count > 0).map(|step| (self.change(step), step)).min();
            let Some((_, (from, to, count))) = best.filter(|&(change, _)| change < (0, 0, 0)) else { return };
            self.shift(from, count, false);
            self.shift(to, count, true);
        }
    }

    /// What a move does to the score.
    fn change(&self, (from, to, count): (usize, usize, usize)) -> (i128, i128, i128) {
        let [at_from, at_to, apart, own_from, own_to, moved] = [
            self.to_taken[from],
            self.to_taken[to],
            self.sets.distances[from][to],
            self.own(from),
            self.own(to),
            count as u64,
        ]
        .map(i128::from);
        let square = moved * moved * (own_from + own_to - 2 * apart) - moved * (own_to - own_from);
        let (giving, taking) = (&self.sets.cards[from], &self.sets.cards[to]);
        let closed = i128::from(giving.fresh && self.counts[from] == count);
        let opened = i128::from(taking.fresh && self.counts[to] == 0);
        (
            moved * (at_to - at_from) + square / 2,
            moved * (i128::from(taking.loss) - i128::from(giving.loss)),
            opened - closed,
        )
    }
}
