//! One subject that is looked at again and again: when it is due, and what the last look came to.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use super::count::Count;
use super::kept_file::Keeping;
use super::rounds::{EACH, next_turn};
use super::source::{About, Class, Examination, Here, Sight, Subject};
use crate::host::Host;

/// When a look is taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Which round of regular polls it is: see [`super::rounds::Rounds`].
    pub(super) round: u64,
    pub(super) now: Instant,
}

/// Card, source, file and variant of a subject.
pub(super) type Key = (String, &'static str, String, String);

/// It is being looked at.
#[derive(Debug)]
pub(super) struct Busy;

/// A subject, and its last look.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) source: &'static About,
    pub(super) file: String,
    variant: String,
    pub(super) most_open: u64,
    /// Whether its files are worth keeping open before those of others: it is looked at more often.
    pub(super) is_urgent: bool,
    /// Whether it reads numbers that are no findings.
    pub(super) is_counting: bool,
    /// Locked while it is looked at: for good, where that hangs.
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    examination: Box<dyn Examination>,
    last: Option<(Sight, Moment)>,
    /// Whether there has ever been something to look at.
    was_there: bool,
    /// What somebody was last told that a later process has to know.
    told: Option<String>,
}

/// What a look has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct News {
    /// It came to something else than the look before.
    pub(super) sight: bool,
    /// A later process has to know something else.
    pub(super) memory: bool,
    /// It may have counted something else.
    pub(super) counts: bool,
}

impl Watched {
    pub(super) fn new(source: &'static About, subject: Subject) -> Self {
        let (most_open, is_urgent) = (subject.examination.most_open(), subject.examination.is_urgent());
        let is_counting = subject.examination.is_counting();
        let Subject { file, variant, examination } = subject;
        let state = State { examination, last: None, was_there: false, told: None };
        Self { source, file, variant, most_open, is_urgent, is_counting, state: Mutex::new(state) }
    }

    pub(super) fn key(&self, card: &str) -> Key {
        (card.to_owned(), self.source.name, self.file.clone(), self.variant.clone())
    }

    /// Looks, and keeps what that comes to.
    pub(super) fn look(&self, host: &Host, keeping: Keeping, moment: Moment) -> News {
        let mut state = self.lock();
        let here = Here { host, file: &self.file, keeping, now: moment.now };
        let sight = state.examination.look(here);
        let news = News {
            sight: state.last.as_ref().is_none_or(|(before, _)| *before != sight),
            memory: state.examination.memory() != state.told,
            counts: self.is_counting && state.examination.takes_other_counts(),
        };
        state.was_there |= sight != Sight::Nothing;
        state.last = Some((sight, moment));
        news
    }

    /// In which round a card with this place in the line looks at it next, and whether it does so in each; nothing while it is being
    /// looked at.
    pub(super) fn due(&self, place_in_line: u64) -> Option<(u64, bool)> {
        let state = self.try_lock()?;
        let Some((sight, last)) = &state.last else { return Some((0, false)) };
        let period = period(self.source.reads, sight, state.examination.is_urgent(), state.was_there);
        Some((next_turn(last.round, period, place_in_line), period == EACH))
    }

    /// Whether its last look found something, so that there is nothing to confirm until it is due.
    pub(super) fn stands(&self) -> bool {
        self.try_lock().is_some_and(|state| matches!(state.last, Some((Sight::Seen(_), _))))
    }

    /// What the last look came to, where that says anything; an error while it is being looked at.
    pub(super) fn said(&self) -> Result<Option<Sight>, Busy> {
        let state = self.try_lock().ok_or(Busy)?;
        let sight = state.last.as_ref().map(|(sight, _)| sight);
        Ok(sight.filter(|sight| !matches!(sight, Sight::Fine | Sight::Nothing)).cloned())
    }

    /// What it has counted; an error where that cannot be asked, because it is being looked at.
    pub(super) fn counts(&self) -> Result<Vec<Count>, Busy> {
        Ok(self.try_lock().ok_or(Busy)?.examination.counts())
    }

    pub(super) fn is_being_looked_at(&self) -> bool {
        self.try_lock().is_none()
    }

    /// Whether it has a count to go on with, or is being looked at.
    pub(super) fn is_worth_keeping(&self) -> bool {
        self.try_lock().is_none_or(|state| state.examination.has_counted())
    }

    /// Closes its files; those of one that hangs stay.
    pub(super) fn close(&self) {
        if let Some(mut state) = self.try_lock() {
            state.examination.close();
        }
    }

    /// What a later process has to know of it; an error where that cannot be asked, because it is being looked at.
    pub(super) fn memory(&self) -> Result<Option<String>, Busy> {
        let mut state = self.try_lock().ok_or(Busy)?;
        state.told = state.examination.memory();
        Ok(state.told.clone())
    }

    /// Takes in what an earlier process knew.
    pub(super) fn recall(&self, memory: &str) {
        if let Some(mut state) = self.try_lock() {
            state.examination.recall(memory);
        }
    }

    /// A look that panicked has left nothing half done that the next one would not read anew.
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

/// So many rounds from one look to the next at what may wake a device or wait for it, or at what an event tells of: a node or a
/// driver that goes.
const SELDOM: u64 = 10;

/// The same for what keeps the card's firmware busy.
const VERY_SELDOM: u64 = 30;

/// The same for an attribute that has never been there: it comes with a driver, of which an event tells.
const RARELY: u64 = 60;

/// Rounds from one look to the next, at most.
fn period(reads: Class, sight: &Sight, is_urgent: bool, was_there: bool) -> u64 {
    match (reads, sight) {
        (_, Sight::Unsure(_)) => EACH,
        (Class::Firmware, _) if !is_urgent => 2 * VERY_SELDOM,
        (_, Sight::Nothing) if !was_there => RARELY,
        (Class::Firmware, _) => VERY_SELDOM,
        (Class::ConfigSpace | Class::DeviceRegisters | Class::Filesystem, _) | (_, Sight::Nothing) => SELDOM,
        _ if !is_urgent => SELDOM,
        (Class::KernelMemory | Class::None, _) => EACH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_wake_or_block_is_read_seldom_and_what_was_never_there_rarely() {
        for (reads, sight, was_there, expected) in [
            (Class::KernelMemory, Sight::Fine, true, 1),
            (Class::KernelMemory, Sight::Nothing, true, 10),
            (Class::KernelMemory, Sight::Nothing, false, 60),
            (Class::ConfigSpace, Sight::Fine, true, 10),
            (Class::ConfigSpace, Sight::Unsure(String::new()), true, 1),
            (Class::ConfigSpace, Sight::NotLooked(String::new()), true, 10),
            (Class::Filesystem, Sight::Fine, true, 10),
            (Class::DeviceRegisters, Sight::Fine, true, 10),
            (Class::DeviceRegisters, Sight::Nothing, false, 60),
            (Class::Firmware, Sight::Fine, true, 30),
            (Class::Firmware, Sight::Nothing, true, 30),
            (Class::Firmware, Sight::Nothing, false, 60),
        ] {
            assert_eq!(period(reads, &sight, true, was_there), expected, "{reads:?} {sight:?} {was_there}");
            assert!(period(reads, &sight, false, was_there) >= expected);
        }
        assert_eq!(period(Class::KernelMemory, &Sight::Fine, false, true), 10);
        assert_eq!(period(Class::Firmware, &Sight::Fine, false, true), 60);
    }
}
