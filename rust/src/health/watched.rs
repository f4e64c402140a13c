//! One subject that is looked at again and again: when it is due, and the result of the last look.
//!
//! Cards take turns at the subjects that are not looked at in each round of regular polls, so that no round looks at
//! everything.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::kept_file::ReadOnce;
use super::source::{About, Count, Examination, LookContext, Observation, Subject};
use crate::host::Host;

/// When a look is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// The round of regular polls: see [`Rounds`].
    pub(super) round: u64,
    /// Whether the kernel log is read: it reports some faults before a regular look would see them.
    pub(super) is_logged: bool,
    pub(super) now: Instant,
}

/// Card, source, file and variant of a subject.
pub(super) type Key = (String, &'static str, String, String);

/// The error of a subject that is being looked at.
#[derive(Debug)]
pub(super) struct Busy;

/// A subject, and its last look.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) source: &'static About,
    pub(super) file: String,
    variant: String,
    /// Whether it has counts.
    pub(super) is_counting: bool,
    /// Locked while it is looked at; for good if the look hangs.
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    examination: Box<dyn Examination>,
    last: Option<(Observation, Moment)>,
    /// Whether there has ever been something to look at.
    was_there: bool,
    /// The memory that was last reported for later processes.
    reported_memory: Option<String>,
}

/// What looks may have changed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct News {
    /// Whether the memory for a later process may have changed.
    pub(super) memory: bool,
    pub(super) counts: bool,
}

impl News {
    pub(super) const ANYTHING: Self = Self { memory: true, counts: true };

    pub(super) fn and(self, other: Self) -> Self {
        Self { memory: self.memory || other.memory, counts: self.counts || other.counts }
    }
}

impl Watched {
    pub(super) fn new(source: &'static About, subject: Subject) -> Self {
        let is_counting = subject.examination.is_counting();
        let Subject { file, variant, examination } = subject;
        let state = State { examination, last: None, was_there: false, reported_memory: None };
        Self { source, file, variant, is_counting, state: Mutex::new(state) }
    }

    /// Whether it is looked at in each round, so that its file stays open where possible.
    pub(super) fn is_frequent(&self, is_logged: bool) -> bool {
        self.source.pace.rounds(is_logged) == EACH
    }

    pub(super) fn key(&self, card: &str) -> Key {
        (card.to_owned(), self.source.name, self.file.clone(), self.variant.clone())
    }

    /// Looks, and keeps the observation.
    pub(super) fn look(&self, host: &Host, stays_open: bool, reads: &ReadOnce, moment: Moment) -> News {
        let mut state = self.lock();
        let context = LookContext { host, file: &self.file, stays_open, reads, now: moment.now };
        let observation = state.examination.look(context);
        state.was_there |= observation != Observation::Nothing;
        state.last = Some((observation, moment));
        News { memory: state.examination.memory() != state.reported_memory, counts: self.is_counting }
    }

    /// The round in which a card at this position looks at it next. A subject that is being looked at is due, so that
    /// its hang is reported again.
    pub(super) fn due(&self, place_in_line: u64, is_logged: bool) -> u64 {
        let Some(state) = self.try_lock() else { return 0 };
        let Some((observation, last)) = &state.last else { return 0 };
        next_turn(last.round, period(self.source.pace.rounds(is_logged), observation, state.was_there), place_in_line)
    }

    /// Whether its last look was a finding, so that there is nothing to confirm until it is due.
    pub(super) fn has_finding(&self) -> bool {
        self.try_lock().is_some_and(|state| matches!(state.last, Some((Observation::Seen(_), _))))
    }

    /// The last observation, unless it is `Fine` or `Nothing`. Fails while it is being looked at.
    pub(super) fn observation(&self) -> Result<Option<Observation>, Busy> {
        let state = self.try_lock().ok_or(Busy)?;
        let observation = state.last.as_ref().map(|(observation, _)| observation);
        Ok(observation.filter(|observation| !matches!(observation, Observation::Fine | Observation::Nothing)).cloned())
    }

    /// Its counts. Fails while it is being looked at.
    pub(super) fn counts(&self) -> Result<Vec<Count>, Busy> {
        Ok(self.try_lock().ok_or(Busy)?.examination.counts())
    }

    pub(super) fn is_being_looked_at(&self) -> bool {
        self.try_lock().is_none()
    }

    /// Whether it has a count to continue, or is being looked at.
    pub(super) fn is_worth_keeping(&self) -> bool {
        self.try_lock().is_none_or(|state| state.examination.has_counted())
    }

    /// Closes its files, except while it is being looked at.
    pub(super) fn close(&self) {
        if let Some(mut state) = self.try_lock() {
            state.examination.close();
        }
    }

    /// What a later process must know about it. Fails while it is being looked at.
    pub(super) fn memory(&self) -> Result<Option<String>, Busy> {
        let mut state = self.try_lock().ok_or(Busy)?;
        state.reported_memory = state.examination.memory();
        Ok(state.reported_memory.clone())
    }

    /// Forgets the best state, and what was seen last.
    pub(super) fn forget_best(&self) {
        if let Some(mut state) = self.try_lock() {
            state.examination.forget_best();
            state.last = None;
        }
    }

    /// Takes over what an earlier process knew.
    pub(super) fn recall(&self, memory: &str) {
        if let Some(mut state) = self.try_lock() {
            state.examination.recall(memory);
        }
    }

    /// Locks the state even after a panic: the next look reads it all again.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Minimum of rounds between two looks for an absent attribute.
const SELDOM: u64 = 10;

/// Rounds between two looks for an attribute that has never existed: it comes with a driver, which an event reports.
const RARELY: u64 = 60;

/// Most rounds from one look to the next; `pace` is the source's.
fn period(pace: u64, observation: &Observation, was_there: bool) -> u64 {
    match observation {
        Observation::Unsure(_) => EACH,
        Observation::Nothing if !was_there => RARELY,
        Observation::Nothing => pace.max(SELDOM),
        Observation::Fine | Observation::Seen(_) | Observation::NotLooked(_) => pace,
    }
}

/// The period of a subject that is looked at in each round.
pub(super) const EACH: u64 = 1;

const SECOND: Duration = Duration::from_secs(1);

/// Counts rounds: one per poll, and at least one per second.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    last_poll: Option<Instant>,
    /// Time passed; less than a second between two polls counts as a second.
    passed: Duration,
}

impl Rounds {
    /// The round of the last regular poll.
    pub(super) fn now(&self) -> u64 {
        self.passed.as_secs()
    }

    /// Counts another regular poll.
    pub(super) fn go_on(&mut self, now: Instant) {
        let since_last = self.last_poll.map_or(SECOND, |last| now.saturating_duration_since(last));
        self.passed = self.passed.saturating_add(since_last.max(SECOND));
        self.last_poll = Some(now);
    }
}

/// The round of a card's next look at something with this period. The turn follows from the card's position alone:
/// however late a look was, the cards stay apart.
fn next_turn(last_look: u64, period: u64, place_in_line: u64) -> u64 {
    let turn = 1 + place_in_line % period;
    let since_turn = (last_look + period - turn % period) % period;
    last_look + period - since_turn
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::health::source::Pace;

    #[test]
    fn each_source_has_its_pace_and_what_is_absent_is_looked_for_seldom() {
        let not_looked = Observation::NotLooked(String::new());
        for (pace, observation, was_there, expected) in [
            (Pace::Each, Observation::Fine, true, 1),
            (Pace::Each, Observation::Nothing, true, 10),
            (Pace::Each, Observation::Nothing, false, 60),
            (Pace::EachUnlessLogged, Observation::Fine, true, 1),
            (Pace::Tenth, Observation::Fine, true, 10),
            (Pace::Tenth, Observation::Unsure(String::new()), true, 1),
            (Pace::Tenth, not_looked, true, 10),
            (Pace::Tenth, Observation::Nothing, false, 60),
            (Pace::Thirtieth, Observation::Fine, true, 30),
            (Pace::Thirtieth, Observation::Nothing, true, 30),
            (Pace::Thirtieth, Observation::Nothing, false, 60),
            (Pace::Sixtieth, Observation::Fine, true, 60),
        ] {
            let period = period(pace.rounds(false), &observation, was_there);
            assert_eq!(period, expected, "{pace:?} {observation:?} {was_there}");
        }
        assert_eq!(period(Pace::EachUnlessLogged.rounds(true), &Observation::Fine, true), 10);
    }

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
