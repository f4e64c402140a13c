//! Devices that are close to each other: the set with the smallest sum of distances.
//!
//! Devices of one card are alike, so a set of devices is a count for each card: 63 partitions are 8 numbers. The cost
//! of a set is the sum of distances of its pairs, including the required devices. Of sets with the same cost, the
//! better one leaves behind what is closest together, then uses fewer cards, then comes first (see [`Sets::of`]).
//!
//! [`good_set`] finds a good set quickly; on few enough cards `exact` then finds the best one.

use super::topology::Topology;
use super::{Question, exact, packed};

/// The chosen devices; `None` without distances.
pub(super) fn choose(question: &Question) -> Option<Vec<usize>> {
    let topology = question.topology;
    let distances = topology.distances()?;
    let free = by_card(topology, &question.free, distances.len());
    let kept = by_card(topology, &question.kept, distances.len());
    let sets = Sets::of(distances, &lengths(&free), &lengths(&kept), question.wanted);
    let good = good_set(&sets);
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

/// The cards with free devices.
#[derive(Debug, Clone)]
pub(super) struct Sets {
    /// How many devices to take in all; fewer than are free.
    pub(super) wanted: usize,
    pub(super) cards: Vec<Card>,
    /// Distance between a device of one card and a device of another; on the diagonal between two devices of the card.
    pub(super) distances: Vec<Vec<u64>>,
}

/// One card with free devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Card {
    /// Its number in the topology.
    pub(super) number: usize,
    pub(super) free: usize,
    /// Distance from one of its devices to all required ones.
    pub(super) to_kept: u64,
    /// How much closer one of its devices is to everything free or required than the worst card's: what the rest loses.
    pub(super) loss: u64,
    /// Whether none of its devices is required.
    pub(super) fresh: bool,
    /// Whether its devices are at least as close to each other as to devices of other cards.
    pub(super) close_knit: bool,
}

/// How good a choice is; less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Score {
    /// Sum of distances within the set, without those among the required devices.
    pub(super) cost: u64,
    /// By how much the sum of distances within the rest exceeds its minimum, up to a constant.
    pub(super) loss: u64,
    /// Number of cards that have no required device.
    pub(super) cards: usize,
}

impl Sets {
    /// `free` and `kept` are the numbers of free and required devices of each card. Cards with the fewest free devices
    /// come first, so that they are preferred among equal ones; then natural order.
    pub(super) fn of(all: &[Vec<u64>], free: &[usize], kept: &[usize], wanted: usize) -> Self {
        let mut numbers: Vec<usize> = (0..free.len()).filter(|&card| free[card] > 0).collect();
        numbers.sort_by_key(|&card| free[card]);
        let sum = |card: usize, counts: &[usize]| -> u64 {
            counts.iter().zip(&all[card]).map(|(&count, distance)| count as u64 * distance).sum()
        };
        let to_all = |card: usize| sum(card, free) + sum(card, kept) - all[card][card];
        let most = numbers.iter().map(|&card| to_all(card)).max().unwrap_or_default();
        let card = |number: usize| Card {
            number,
            free: free[number],
            to_kept: sum(number, kept),
            loss: most - to_all(number),
            fresh: kept[number] == 0,
            close_knit: numbers.iter().all(|&other| all[number][number] <= all[number][other]),
        };
        let distances = numbers.iter().map(|&left| numbers.iter().map(|&right| all[left][right]).collect()).collect();
        Self { wanted, cards: numbers.iter().map(|&number| card(number)).collect(), distances }
    }

    /// The score of taking this many devices of each card.
    pub(super) fn score(&self, counts: &[usize]) -> Score {
        let mut score = Score::default();
        for (card, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            let others: u64 = (0..card).map(|other| counts[other] as u64 * self.distances[card][other]).sum();
            score = self.with(score, card, count, self.cards[card].to_kept + others);
        }
        score
    }

    /// The score after taking `count` devices of one more card; `to_taken` is the distance of each of them to
    /// everything taken before.
    pub(super) fn with(&self, score: Score, card: usize, count: usize, to_taken: u64) -> Score {
        let (taken, number) = (&self.cards[card], count as u64);
        Score {
            cost: score.cost + number * to_taken + pairs(number) * self.distances[card][card],
            loss: score.loss + number * taken.loss,
            cards: score.cards + usize::from(taken.fresh),
        }
    }

    /// Whether a best set may take both cards in part.
    ///
    /// If not, one more of one card and one less of the other, or the reverse, is never worse: so all of one or none of
    /// the other is as good.
    pub(super) fn repel(&self, left: usize, right: usize) -> bool {
        self.distances[left][left] + self.distances[right][right] > 2 * self.distances[left][right]
    }
}

/// The number of pairs among this many devices.
fn pairs(count: u64) -> u64 {
    count * count.saturating_sub(1) / 2
}

/// Limit of how often a card is looked at: ends the search on hosts of any size.
const MOST_LOOKS: usize = 150_000;

/// The best set found by growing one from each card in turn and then exchanging devices while that helps; with its
/// score.
pub(super) fn good_set(sets: &Sets) -> (Vec<usize>, Score) {
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
    /// Distance from one device of each card to everything taken or required.
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

    /// How many devices of a card to take at once.
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

    /// Exchanges devices of one card for as many of another, always by the best such move, while that helps.
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

    /// The change of the score by a move.
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
