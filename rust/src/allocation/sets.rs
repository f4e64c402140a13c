//! How many devices to take of each card, and what makes one such choice better than another.
//!
//! Devices of one card are alike, so a set of devices is a count a card: 63 partitions are 8 numbers. A set costs the sum
//! of the distances of its pairs, the required devices among them. Of equal sets that one is better which leaves behind
//! what is closest together, then the one on fewer cards, then the one that comes first (see [`Sets::of`]).

/// The cards with free devices: what there is to choose from.
#[derive(Debug, Clone)]
pub(super) struct Sets {
    /// How many devices to take in all; fewer than are free.
    pub(super) wanted: usize,
    pub(super) cards: Vec<Card>,
    /// Of one device of a card to one of another, on the diagonal to another of its own.
    pub(super) distances: Vec<Vec<u64>>,
}

/// One card with free devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Card {
    /// Its number in the topology.
    pub(super) number: usize,
    pub(super) free: usize,
    /// From one of its devices to all the required ones.
    pub(super) to_kept: u64,
    /// How much closer than the worst one of its devices is to all that is free or required: what the rest loses.
    pub(super) loss: u64,
    /// Whether it has no required device yet.
    pub(super) fresh: bool,
    /// Whether no devices are closer to its own than others of its own.
    pub(super) close_knit: bool,
}

/// How good a choice is; less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Score {
    /// Sum of distances within the set, without those among the required devices.
    pub(super) cost: u64,
    /// By how much sums of distances within what is left exceed their minimum, up to a constant.
    pub(super) loss: u64,
    /// Cards opened.
    pub(super) cards: usize,
}

impl Sets {
    /// `free` and `kept` have how many devices each card has free, and required. Cards with the fewest free devices come
    /// first, so that they are taken first of equal ones; then natural order.
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

    /// The cost of taking this many of each card.
    pub(super) fn score(&self, counts: &[usize]) -> Score {
        let mut score = Score::default();
        for (card, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            let others: u64 = (0..card).map(|other| counts[other] as u64 * self.distances[card][other]).sum();
            score = self.with(score, card, count, self.cards[card].to_kept + others);
        }
        score
    }

    /// The score after taking `count` devices of another card; `to_taken` is the distance of each to all taken before.
    pub(super) fn with(&self, score: Score, card: usize, count: usize, to_taken: u64) -> Score {
        let (taken, number) = (&self.cards[card], count as u64);
        Score {
            cost: score.cost + number * to_taken + pairs(number) * self.distances[card][card],
            loss: score.loss + number * taken.loss,
            cards: score.cards + usize::from(taken.fresh),
        }
    }

    /// Whether two cards may both be taken in part in a best set.
    ///
    /// Otherwise one more of this and one less of that, or the reverse, is never worse: so taking all of one, or none of
    /// the other, is as good.
    pub(super) fn repel(&self, left: usize, right: usize) -> bool {
        self.distances[left][left] + self.distances[right][right] > 2 * self.distances[left][right]
    }
}

/// The number of pairs among this many devices.
fn pairs(count: u64) -> u64 {
    count * count.saturating_sub(1) / 2
}
