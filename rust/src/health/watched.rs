//! One subject that is looked at again and again: when it is due, and what the last look came to.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::kept_file::Keeping;
use super::source::{About, Class, Examination, Here, Sight, Subject};
use crate::host::Host;

/// When a look is taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Regular polls so far.
    pub(super) polls: u64,
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
    /// Locked while it is looked at: for good, where that hangs.
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    examination: Box<dyn Examination>,
    last: Option<(Sight, Moment)>,
}

impl Watched {
    pub(super) fn new(source: &'static About, subject: Subject) -> Self {
        let most_open = subject.examination.most_open();
        let Subject { file, variant, examination } = subject;
        Self { source, file, variant, most_open, state: Mutex::new(State { examination, last: None }) }
    }

    pub(super) fn key(&self, card: &str) -> Key {
        (card.to_owned(), self.source.name, self.file.clone(), self.variant.clone())
    }

    /// Looks, and keeps what that comes to.
    pub(super) fn look(&self, host: &Host, keeping: Keeping, moment: Moment) {
        let mut state = self.lock();
        let here = Here { host, file: &self.file, keeping, now: moment.now };
        let sight = state.examination.look(here);
        state.last = Some((sight, moment));
    }

    /// Whether it is time to look. What hangs is due, so that it is not forgotten that it does.
    pub(super) fn is_due(&self, moment: Moment) -> bool {
        let Some(state) = self.try_lock() else { return true };
        state.last.as_ref().is_none_or(|(sight, last)| {
            let period = period(self.source.reads, sight, state.examination.is_urgent());
            is_over(*last, moment, period)
        })
    }

    /// Whether its last look found something, so that there is nothing to confirm until it is due.
    pub(super) fn stands(&self) -> bool {
        self.try_lock().is_some_and(|state| matches!(state.last, Some((Sight::Seen(_), _))))
    }

    /// What the last look came to, where that says anything.
    pub(super) fn said(&self) -> Option<Sight> {
        let state = self.lock();
        let sight = state.last.as_ref().map(|(sight, _)| sight)?;
        (!matches!(sight, Sight::Fine | Sight::Nothing)).then(|| sight.clone())
    }

    pub(super) fn is_being_looked_at(&self) -> bool {
        self.try_lock().is_none()
    }

    /// Whether it has a count to go on with. Its files are closed; those of one that hangs stay.
    pub(super) fn is_worth_keeping(&self) -> bool {
        let Some(mut state) = self.try_lock() else { return true };
        state.examination.close();
        state.examination.has_counted()
    }

    /// What a later process has to know of it; an error where that cannot be asked, because it is being looked at.
    pub(super) fn memory(&self) -> Result<Option<String>, Busy> {
        self.try_lock().map(|state| state.examination.memory()).ok_or(Busy)
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

/// So many regular polls, or seconds, from one look to the next at what may wake a device or wait for it, or at what an event
/// tells of: a node that goes, an attribute that comes with a driver.
const SELDOM: u32 = 10;

/// The same for what keeps the card's firmware busy.
const VERY_SELDOM: u32 = 30;

/// Regular polls from one look to the next; where polls are rarer than one a second, as many seconds.
fn period(reads: Class, sight: &Sight, is_urgent: bool) -> u32 {
    match (reads, sight) {
        (_, Sight::Unsure(_)) => 1,
        (Class::Firmware, _) => VERY_SELDOM * if is_urgent { 1 } else { 2 },
        (Class::ConfigSpace | Class::DeviceRegisters | Class::Filesystem, _) | (_, Sight::Nothing) => SELDOM,
        _ if !is_urgent => SELDOM,
        (Class::KernelMemory | Class::None, _) => 1,
    }
}

fn is_over(last: Moment, moment: Moment, period: u32) -> bool {
    moment.polls - last.polls >= period.into() || moment.now - last.now >= Duration::from_secs(period.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_due_after_so_many_polls_and_where_polls_are_rare_after_so_many_seconds() {
        let start = Instant::now();
        let at = |polls, seconds| Moment { polls, now: start + Duration::from_secs(seconds) };
        for (polls, seconds, period, expected) in
            [(0, 0, 1, false), (1, 0, 1, true), (9, 9, 10, false), (10, 1, 10, true), (2, 10, 10, true)]
        {
            assert_eq!(is_over(at(0, 0), at(polls, seconds), period), expected, "{polls} {seconds} {period}");
        }
    }

    #[test]
    fn what_may_wake_or_block_is_read_seldom_and_what_is_absent_too() {
        for (reads, sight, expected) in [
            (Class::KernelMemory, Sight::Fine, 1),
            (Class::KernelMemory, Sight::Nothing, 10),
            (Class::ConfigSpace, Sight::Fine, 10),
            (Class::ConfigSpace, Sight::Unsure(String::new()), 1),
            (Class::ConfigSpace, Sight::NotLooked(String::new()), 10),
            (Class::Filesystem, Sight::Fine, 10),
            (Class::DeviceRegisters, Sight::Fine, 10),
            (Class::Firmware, Sight::Fine, 30),
            (Class::Firmware, Sight::Nothing, 30),
        ] {
            assert_eq!(period(reads, &sight, true), expected, "{reads:?} {sight:?}");
            assert!(period(reads, &sight, false) >= expected);
        }
        assert_eq!(period(Class::KernelMemory, &Sight::Fine, false), 10);
    }
}
