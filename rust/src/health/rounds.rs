//! Which round of regular polls it is, and in which a card looks at what is not worth a look in each: cards take turns, so that
//! no round has to look at everything.

use std::time::{Duration, Instant};

/// The period of what is looked at in each round.
pub(super) const EACH: u64 = 1;

const SECOND: Duration = Duration::from_secs(1);

/// Counts rounds: one with each regular poll, and where polls are rarer than one a second, one with each second.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    last_poll: Option<Instant>,
    /// As if no two polls were less than a second apart.
    passed: Duration,
}

impl Rounds {
    /// The round of the last regular poll.
    pub(super) fn now(&self) -> u64 {
        self.passed.as_secs()
    }

    /// Another regular poll.
    pub(super) fn go_on(&mut self, now: Instant) {
        let since_last = self.last_poll.map_or(SECOND, |last| now.saturating_duration_since(last));
        self.passed = self.passed.saturating_add(since_last.max(SECOND));
        self.last_poll = Some(now);
    }
}

/// The round of a card's next look at something that it looks at once in so many rounds. Which of them is its turn follows from its place
/// in the line of cards alone: however late a look was, the cards stay apart.
pub(super) fn next_turn(last_look: u64, period: u64, place_in_line: u64) -> u64 {
    let turn = 1 + place_in_line % period;
    let since_turn = (last_look + period - turn % period) % period;
    last_look + period - since_turn
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_round_is_a_poll_and_where_polls_are_rare_a_second() {
        let start = Instant::now();
        for (pause, expected) in [(0.1, 10), (1.0, 10), (1.9, 18), (5.0, 46), (10.0, 91)] {
            let mut rounds = Rounds::default();
            (0..10).for_each(|poll| rounds.go_on(start + Duration::from_secs_f64(pause * f64::from(poll))));
            assert_eq!(rounds.now(), expected, "{pause}");
        }
    }

    #[test]
    fn a_single_card_looks_in_the_first_round_and_then_in_each_tenth() {
        assert_eq!([0, 1, 5, 11].map(|last| next_turn(last, 10, 0)), [1, 11, 11, 21]);
    }

    proptest! {
        #[test]
        fn a_turn_comes_within_its_period_and_always_in_the_same_rounds(
            last in 0_u64..10_000, period in 1_u64..100, place in 0_u64..10_000,
        ) {
            let next = next_turn(last, period, place);
            prop_assert!(last < next && next <= last + period, "{last} {next}");
            prop_assert_eq!(next_turn(next, period, place), next + period);
            prop_assert_eq!(next_turn(last, EACH, place), last + 1);
        }

        #[test]
        fn in_each_round_it_is_the_turn_of_as_many_cards(cards in 1_u64..2000, period in 1_u64..100, round in 1_u64..10_000) {
            let turns = (0..cards).filter(|&place| next_turn(round - 1, period, place) == round).count() as u64;
            prop_assert!((cards / period..=cards.div_ceil(period)).contains(&turns), "{turns}");
        }
    }
}
