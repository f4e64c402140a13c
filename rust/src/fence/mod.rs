//! Deadlines for reads that hang: a hung device leaves its reader in uninterruptible sleep, and nothing else may wait for it.
//!
//! [`Fence::each`] gives units of work, a card each, to a worker thread. One worker does them all while they are prompt. When
//! every worker is busy for longer than a short patience, as many again go on with the rest, and the slow ones keep running to
//! their full deadline: hanging units are waited for side by side. A unit that misses the deadline is answered
//! [`Outcome::Overdue`], and again at once in later calls until its thread has come back.
//!
//! A thread in uninterruptible sleep cannot be ended, so their number is bounded. When all of them hang, nothing more
//! can be looked at: what was not started is answered [`Outcome::NotStarted`], which says nothing about it.
//!
//! A unit may use the fence itself, as a vendor does for its cards. Its own deadline should then be a longer one, since it
//! waits for theirs: [`Fence::each_within`].

mod batch;
mod crew;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use batch::Batch;
use crew::{Crew, Job};

/// A unit that takes longer than this no longer holds up the others.
const PATIENCE: Duration = Duration::from_millis(50);

/// The caller's heart beats at least this often while it waits.
const BEAT_PERIOD: Duration = Duration::from_millis(500);

/// Why a unit was answered [`Outcome::NotStarted`], and the cure.
pub const FULL: &str = "not examined: all probe threads hang in the kernel; look for blocked tasks in the kernel log, then restart devherd";

/// What became of a unit of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<R> {
    /// It came back in time.
    Done(R),
    /// It did not, or an earlier one of the same key still has not.
    Overdue,
    /// No thread was free to do it: its result is unknown.
    NotStarted,
    /// It panicked; the message.
    Panicked(String),
}

/// A deadline for units of work, and the threads that do them.
#[derive(Debug)]
pub struct Fence {
    deadline: Duration,
    patience: Duration,
    crew: Arc<Crew>,
}

impl Fence {
    /// A fence that waits `deadline` for each unit. Threads start with the first unit, so a fork before that is safe.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        Self { deadline, patience: PATIENCE.min(deadline / 2), crew: Arc::new(Crew::default()) }
    }

    /// Does `work` on every unit and answers in their order. Units and work outlive the call where a thread hangs.
    ///
    /// `key` names what a unit hangs on, a card: as long as one unit of a key hangs, no further thread is spent on it.
    pub fn each<U, R, W>(&self, units: Vec<U>, key: impl Fn(&U) -> String, work: W) -> Vec<Outcome<R>>
    where
        U: Send + 'static,
        R: Send + 'static,
        W: Fn(U) -> R + Send + Sync + 'static,
    {
        self.each_within(self.deadline, units, key, work, &|| {})
    }

    /// [`Fence::each`] with a deadline of its own for each unit. `beat` is called from this thread while it waits, every half
    /// second: whoever watches over the caller learns that it lives.
    pub fn each_within<U, R, W>(
        &self,
        deadline: Duration,
        units: Vec<U>,
        key: impl Fn(&U) -> String,
        work: W,
        beat: &dyn Fn(),
    ) -> Vec<Outcome<R>>
    where
        U: Send + 'static,
        R: Send + 'static,
        W: Fn(U) -> R + Send + Sync + 'static,
    {
        let keys: Vec<String> = units.iter().map(key).collect();
        let batch = Arc::new(Batch::new(units, keys, &self.crew));
        let work = Arc::new(work);
        let job = || -> Job {
            let (batch, work, crew) = (Arc::clone(&batch), Arc::clone(&work), Arc::clone(&self.crew));
            Box::new(move || batch.drain(&*work, &crew))
        };
        self.oversee(&batch, deadline, job, beat)
    }

    /// The deadline of [`Fence::each`].
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Waits for a batch, sends for more workers when the present ones are slow, and calls time.
    fn oversee<U, R>(
        &self,
        batch: &Batch<U, R>,
        deadline: Duration,
        job: impl Fn() -> Job,
        beat: &dyn Fn(),
    ) -> Vec<Outcome<R>> {
        let mut last_beat = Instant::now();
        let mut state = lock(&batch.state);
        loop {
            let now = Instant::now();
            state.call_time(now, deadline, &self.crew);
            if state.is_settled() {
                let outcomes = std::mem::take(&mut state.outcomes).into_iter();
                return outcomes.map(|outcome| outcome.unwrap_or(Outcome::NotStarted)).collect();
            }
            if now - last_beat >= BEAT_PERIOD {
                last_beat = now;
                drop(state);
                beat();
                state = lock(&batch.state);
                continue;
            }
            let wanted = state.wanted_workers(now, self.patience);
            if wanted > 0 {
                state.workers += wanted;
                // A new worker wants this lock at once.
                drop(state);
                let taken_on = (0..wanted).take_while(|_| self.crew.take_on(job())).count();
                state = lock(&batch.state);
                state.workers -= wanted - taken_on;
                if taken_on > 0 {
                    continue;
                }
                if state.workers == state.late {
                    state.give_up_waiting();
                    continue;
                }
            }
            let pause = state.next_event(now, self.patience, deadline).min(BEAT_PERIOD);
            state = batch.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        lock(&self.crew.state).closed = true;
        self.crew.work_or_end.notify_all();
    }
}

/// A panic is caught before it reaches any lock, so a poisoned one still holds good data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a panic said.
#[must_use]
pub fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("panicked").to_owned()
}

#[cfg(test)]
mod tests;
