//! One call of the fence: its units, which of them run and since when, and what became of them.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use super::crew::Crew;
use super::{Outcome, lock, panic_message};

/// One call of [`Fence::each`].
pub(super) struct Batch<U, R> {
    pub(super) state: Mutex<Progress<U, R>>,
    /// The batch is settled.
    pub(super) changed: Condvar,
}

pub(super) struct Progress<U, R> {
    keys: Vec<String>,
    waiting: VecDeque<(usize, U)>,
    running: BTreeMap<usize, Instant>,
    pub(super) outcomes: Vec<Option<Outcome<R>>>,
    /// Workers taken on that have not left yet.
    pub(super) workers: usize,
    /// Those of them whose unit was given up.
    pub(super) late: usize,
}

impl<U, R> Batch<U, R> {
    pub(super) fn new(units: Vec<U>, keys: Vec<String>, crew: &Crew) -> Self {
        let crew = lock(&crew.state);
        let mut waiting = VecDeque::with_capacity(units.len());
        let mut outcomes = Vec::with_capacity(units.len());
        for (index, unit) in units.into_iter().enumerate() {
            if crew.stuck.contains(&keys[index]) {
                outcomes.push(Some(Outcome::Overdue));
            } else {
                outcomes.push(None);
                waiting.push_back((index, unit));
            }
        }
        let progress = Progress { keys, waiting, running: BTreeMap::new(), outcomes, workers: 0, late: 0 };
        Self { state: Mutex::new(progress), changed: Condvar::new() }
    }

    /// A worker's part: unit after unit until none waits. It counts as idle before the caller hears of the end, so that the
    /// caller's next batch finds it.
    pub(super) fn drain(&self, work: &impl Fn(U) -> R, crew: &Crew) {
        let mut state = lock(&self.state);
        while let Some((index, unit)) = state.waiting.pop_front() {
            state.running.insert(index, Instant::now());
            drop(state);
            let outcome = match catch_unwind(AssertUnwindSafe(|| work(unit))) {
                Ok(result) => Outcome::Done(result),
                Err(payload) => Outcome::Panicked(panic_message(payload.as_ref())),
            };
            state = lock(&self.state);
            if state.running.remove(&index).is_some() {
                state.outcomes[index] = Some(outcome);
            } else {
                state.late -= 1;
                lock(&crew.state).stuck.remove(&state.keys[index]);
            }
        }
        lock(&crew.state).idle += 1;
        state.workers -= 1;
        let is_last = state.is_settled();
        drop(state);
        if is_last {
            self.changed.notify_one();
        }
    }
}

impl<U, R> Progress<U, R> {
    /// Whether every unit is answered, and every worker gone but those that hang.
    pub(super) fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty() && self.workers == self.late
    }

    /// Answers what has run out of time, and remembers what it hangs on.
    pub(super) fn call_time(&mut self, now: Instant, deadline: Duration, crew: &Crew) {
        let overdue: Vec<usize> =
            self.running.iter().filter(|&(_, &start)| now - start >= deadline).map(|(&index, _)| index).collect();
        for index in overdue {
            self.running.remove(&index);
            self.outcomes[index] = Some(Outcome::Overdue);
            self.late += 1;
            lock(&crew.state).stuck.insert(self.keys[index].clone());
        }
    }

    /// How many workers are needed besides those there are: none as long as one of them is prompt, then as many as are slow,
    /// so that any number of hanging units is reached within a few times the patience.
    pub(super) fn wanted_workers(&self, now: Instant, patience: Duration) -> usize {
        let slow = self.running.values().filter(|&&start| now - start >= patience).count();
        if self.workers == slow + self.late { slow.max(1).min(self.waiting.len()) } else { 0 }
    }

    /// No worker is left that could come to what still waits.
    pub(super) fn give_up_waiting(&mut self) {
        for (index, _) in self.waiting.drain(..) {
            self.outcomes[index] = Some(Outcome::NotStarted);
        }
    }

    /// How long until a running unit uses up patience or deadline. While units wait it is patience at most: a worker that has
    /// been taken on says nothing when it begins with one.
    pub(super) fn next_event(&self, now: Instant, patience: Duration, deadline: Duration) -> Duration {
        let left = |&start: &Instant| {
            let elapsed = now - start;
            if elapsed < patience { patience.saturating_sub(elapsed) } else { deadline.saturating_sub(elapsed) }
        };
        let soonest = self.running.values().map(left).min().unwrap_or(patience);
        let soonest = if self.waiting.is_empty() { soonest } else { soonest.min(patience) };
        soonest.max(Duration::from_millis(1))
    }
}
