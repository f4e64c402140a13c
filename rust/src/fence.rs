//! Deadlines for reads that can hang: a hung device leaves its reader in uninterruptible sleep, and no other thread may
//! wait for that reader.
//!
//! [`Fence::each`] hands units of work, one card each, to worker threads. While units finish promptly, one worker runs
//! all of them. When every worker has been busy for longer than a short patience, the fence starts as many new workers
//! on the remaining units, and the slow workers keep running until their deadline; so the fence waits for hanging units
//! in parallel. The outcome of a unit that misses its deadline is [`Outcome::Overdue`]; later calls return the same
//! outcome immediately, until the unit's thread has come back.
//!
//! A thread in uninterruptible sleep cannot be ended, so the number of threads is limited. When all of them hang, or the
//! kernel starts no thread because process ids are short, the outcome of units that were not started is
//! [`Outcome::NotStarted`], which says nothing about their cards.
//!
//! A unit may use the fence itself: a vendor's unit does so for its cards. The outer unit then needs a longer deadline
//! than the inner ones, because it waits for them: [`Fence::each_within`].

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A unit that takes longer than this no longer delays the others.
const PATIENCE: Duration = Duration::from_millis(50);

/// While the fence waits, it calls the caller's `beat` at least this often.
const BEAT_PERIOD: Duration = Duration::from_millis(500);

/// Message for [`Outcome::NotStarted`] where the limit of threads is reached, with the cure.
pub const FULL: &str = "not examined: all probe threads hang in the kernel; look for blocked tasks in the kernel log, then restart devherd";

/// Message for [`Outcome::NotStarted`] where the caller wants no more of it.
const ENDS: &str = "not examined: devherd ends";

/// Result of a unit of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<R> {
    /// The unit returned in time.
    Done(R),
    /// The unit missed its deadline, or an earlier unit with the same key still hangs.
    Overdue,
    /// No thread was free to run the unit, and why: all of them hang, or the kernel has refused to start one. Nothing
    /// is known of what the unit would have read.
    NotStarted(String),
    /// The unit panicked; the panic message.
    Panicked(String),
}

impl<R> Outcome<R> {
    /// The outcome where all threads hang.
    #[must_use]
    pub fn full() -> Self {
        Self::NotStarted(FULL.to_owned())
    }
}

/// A deadline for units of work, and the threads that run them.
#[derive(Debug)]
pub struct Fence {
    deadline: Mutex<Duration>,
    patience: Duration,
    threads: Arc<Threads>,
}

impl Fence {
    /// A fence that waits `deadline` for each unit. Threads start with the first unit, so forking before that is safe.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        Self { deadline: Mutex::new(deadline), patience: PATIENCE, threads: Arc::default() }
    }

    /// Runs `work` on every unit and returns the outcomes in the same order. If a thread hangs, its unit and `work`
    /// outlive the call.
    ///
    /// `key` names the thing that a unit can hang on, a card: while a unit hangs, the fence spends no further thread on
    /// the same key.
    pub fn each<K, U, R, W>(&self, units: Vec<U>, key: impl Fn(&U) -> K, work: W) -> Vec<Outcome<R>>
    where
        K: AsRef<str> + Send + 'static,
        U: Send + 'static,
        R: Send + 'static,
        W: Fn(U) -> R + Send + Sync + 'static,
    {
        self.each_within(self.deadline(), units, key, work, &|| {})
    }

    /// [`Fence::each`] with another deadline. While it waits, this thread calls `beat` every half second, so that a
    /// watchdog sees that the caller is alive.
    pub fn each_within<K, U, R, W>(
        &self,
        deadline: Duration,
        units: Vec<U>,
        key: impl Fn(&U) -> K,
        work: W,
        beat: &dyn Fn(),
    ) -> Vec<Outcome<R>>
    where
        K: AsRef<str> + Send + 'static,
        U: Send + 'static,
        R: Send + 'static,
        W: Fn(U) -> R + Send + Sync + 'static,
    {
        let goes_on = || {
            beat();
            true
        };
        self.each_while(deadline, units, key, work, (BEAT_PERIOD, &goes_on))
    }

    /// [`Fence::each_within`] with another period of `beat`. If `beat` returns false, the wait ends as at the deadline.
    pub fn each_while<K, U, R, W>(
        &self,
        deadline: Duration,
        units: Vec<U>,
        key: impl Fn(&U) -> K,
        work: W,
        beat: (Duration, &dyn Fn() -> bool),
    ) -> Vec<Outcome<R>>
    where
        K: AsRef<str> + Send + 'static,
        U: Send + 'static,
        R: Send + 'static,
        W: Fn(U) -> R + Send + Sync + 'static,
    {
        let keys: Vec<K> = units.iter().map(key).collect();
        let batch = Arc::new(Batch::new(units, keys, &self.threads));
        let work = Arc::new(work);
        let job = || -> Job {
            let (batch, work, threads) = (Arc::clone(&batch), Arc::clone(&work), Arc::clone(&self.threads));
            Box::new(move || batch.drain(&*work, &threads))
        };
        self.oversee(&batch, deadline, job, beat)
    }

    /// The deadline of [`Fence::each`].
    #[must_use]
    pub fn deadline(&self) -> Duration {
        *lock(&self.deadline)
    }

    /// Sets another deadline, valid from the next call on.
    pub fn set_deadline(&self, deadline: Duration) {
        *lock(&self.deadline) = deadline;
    }

    /// Waits for a batch, adds workers while all present workers are slow, and expires units at their deadline.
    fn oversee<K: AsRef<str>, U, R>(
        &self,
        batch: &Batch<K, U, R>,
        deadline: Duration,
        job: impl Fn() -> Job,
        (period, beat): (Duration, &dyn Fn() -> bool),
    ) -> Vec<Outcome<R>> {
        let patience = self.patience.min(self.deadline() / 2);
        let mut last_beat = Instant::now();
        let mut state = lock(&batch.state);
        loop {
            let now = Instant::now();
            state.expire(now, deadline, &self.threads);
            if state.is_settled() {
                let outcomes = std::mem::take(&mut state.outcomes).into_iter();
                return outcomes.map(|outcome| outcome.unwrap_or_else(Outcome::full)).collect();
            }
            if now - last_beat >= period {
                last_beat = now;
                drop(state);
                let goes_on = beat();
                state = lock(&batch.state);
                if !goes_on {
                    state.expire(now, Duration::ZERO, &self.threads);
                    state.give_up_waiting(ENDS);
                }
                continue;
            }
            let wanted = state.wanted_workers(now, patience);
            if wanted > 0 {
                state.workers += wanted;
                // A new worker takes this lock immediately, so it must be free.
                drop(state);
                let refused = (0..wanted).find_map(|assigned| Some((assigned, self.threads.assign(job()).err()?)));
                state = lock(&batch.state);
                let Some((assigned, why)) = refused else { continue };
                state.workers -= wanted - assigned;
                if assigned > 0 {
                    continue;
                }
                if state.workers == state.late {
                    state.give_up_waiting(&why);
                    continue;
                }
            }
            let pause = state.next_event(now, patience, deadline).min(period);
            state = batch.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        lock(&self.threads.state).closed = true;
        self.threads.work_or_end.notify_all();
    }
}

/// Panics are caught before they reach a lock, so a poisoned lock still holds valid data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why there is no thread, by the error of its start: no fault of a device, nor of a driver.
fn no_thread(error: &io::Error) -> String {
    format!("not examined: no thread: {error}; raise the pod's pids limit, or the unit's TasksMax")
}

/// The message of a panic.
#[must_use]
pub fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("panicked").to_owned()
}

/// One call of [`Fence::each`].
struct Batch<K, U, R> {
    state: Mutex<Progress<K, U, R>>,
    /// Signalled when the batch is settled.
    changed: Condvar,
}

struct Progress<K, U, R> {
    keys: Vec<K>,
    waiting: VecDeque<(usize, U)>,
    /// The units that a worker has begun (one or a few), and when.
    running: Vec<(usize, Instant)>,
    outcomes: Vec<Option<Outcome<R>>>,
    /// Workers assigned to this batch that have not left it yet.
    workers: usize,
    /// The number of these workers whose unit has expired.
    late: usize,
}

impl<K: AsRef<str>, U, R> Batch<K, U, R> {
    fn new(units: Vec<U>, keys: Vec<K>, threads: &Threads) -> Self {
        let threads = lock(&threads.state);
        let mut waiting = VecDeque::with_capacity(units.len());
        let mut outcomes = Vec::with_capacity(units.len());
        for (index, unit) in units.into_iter().enumerate() {
            if threads.stuck.contains(keys[index].as_ref()) {
                outcomes.push(Some(Outcome::Overdue));
            } else {
                outcomes.push(None);
                waiting.push_back((index, unit));
            }
        }
        let progress = Progress { keys, waiting, running: Vec::new(), outcomes, workers: 0, late: 0 };
        Self { state: Mutex::new(progress), changed: Condvar::new() }
    }

    /// Body of a worker: runs units until none is waiting. The worker counts as idle before it notifies the caller, so
    /// that the caller's next batch finds an idle worker.
    fn drain(&self, work: &impl Fn(U) -> R, threads: &Threads) {
        let mut state = lock(&self.state);
        while let Some((index, unit)) = state.waiting.pop_front() {
            state.running.push((index, Instant::now()));
            drop(state);
            let outcome = match catch_unwind(AssertUnwindSafe(|| work(unit))) {
                Ok(result) => Outcome::Done(result),
                Err(payload) => Outcome::Panicked(panic_message(payload.as_ref())),
            };
            state = lock(&self.state);
            if let Some(place) = state.running.iter().position(|&(running, _)| running == index) {
                state.running.swap_remove(place);
                state.outcomes[index] = Some(outcome);
            } else {
                state.late -= 1;
                lock(&threads.state).stuck.remove(state.keys[index].as_ref());
            }
        }
        lock(&threads.state).idle += 1;
        state.workers -= 1;
        let is_last = state.is_settled();
        drop(state);
        if is_last {
            self.changed.notify_one();
        }
    }
}

impl<K: AsRef<str>, U, R> Progress<K, U, R> {
    /// Whether every unit has an outcome, and only hanging workers are left.
    fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty() && self.workers == self.late
    }

    /// Marks overdue units, and remembers their keys as stuck.
    fn expire(&mut self, now: Instant, deadline: Duration, threads: &Threads) {
        let Self { running, outcomes, late, keys, .. } = self;
        running.retain(|&(index, start)| {
            let is_in_time = now - start < deadline;
            if !is_in_time {
                outcomes[index] = Some(Outcome::Overdue);
                *late += 1;
                lock(&threads.state).stuck.insert(keys[index].as_ref().to_owned());
            }
            is_in_time
        });
    }

    /// Number of workers to add: none while a worker is prompt, otherwise as many as are slow, so that any number of
    /// hanging units is reached within a few times the patience.
    fn wanted_workers(&self, now: Instant, patience: Duration) -> usize {
        let slow = self.running.iter().filter(|&&(_, start)| now - start >= patience).count();
        if self.workers == slow + self.late { slow.max(1).min(self.waiting.len()) } else { 0 }
    }

    /// Marks the waiting units as not started: no worker is left that could run them.
    fn give_up_waiting(&mut self, why: &str) {
        for (index, _) in self.waiting.drain(..) {
            self.outcomes[index] = Some(Outcome::NotStarted(why.to_owned()));
        }
    }

    /// Time until a running unit uses up its patience or deadline. At most the patience while units wait, because a new
    /// worker does not notify when it begins a unit.
    fn next_event(&self, now: Instant, patience: Duration, deadline: Duration) -> Duration {
        let left = |&(_, start): &(usize, Instant)| {
            let elapsed = now - start;
            if elapsed < patience { patience.saturating_sub(elapsed) } else { deadline.saturating_sub(elapsed) }
        };
        let soonest = self.running.iter().map(left).min().unwrap_or(patience);
        let soonest = if self.waiting.is_empty() { soonest } else { soonest.min(patience) };
        soonest.max(Duration::from_millis(1))
    }
}

/// Limit of worker threads, including those that hang.
const MOST_WORKERS: usize = 64;

/// Idle threads kept for the next batch: one for vendors, one for their cards.
const STANDING_WORKERS: usize = 2;

type Job = Box<dyn FnOnce() + Send>;

/// The worker threads of a fence.
#[derive(Debug, Default)]
struct Threads {
    state: Mutex<ThreadsState>,
    work_or_end: Condvar,
}

#[derive(Default)]
struct ThreadsState {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
    /// Keys of units that missed their deadline and whose thread has not come back.
    stuck: BTreeSet<String>,
}

impl std::fmt::Debug for ThreadsState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CrewState")
            .field("threads", &self.threads)
            .field("stuck", &self.stuck)
            .finish_non_exhaustive()
    }
}

impl Threads {
    /// Hands a job to an idle worker or a new one.
    ///
    /// # Errors
    /// Why there is no worker, with the cure: the limit is reached, or the kernel starts no thread.
    fn assign(self: &Arc<Self>, job: Job) -> Result<(), String> {
        let mut state = lock(&self.state);
        if state.idle > state.jobs.len() {
            state.jobs.push_back(job);
            drop(state);
            self.work_or_end.notify_one();
            return Ok(());
        }
        if state.threads >= MOST_WORKERS {
            return Err(FULL.to_owned());
        }
        let threads = Arc::clone(self);
        thread::Builder::new()
            .name("probe".to_owned())
            .spawn(move || threads.serve(job))
            .map_err(|error| no_thread(&error))?;
        state.threads += 1;
        Ok(())
    }

    /// Body of a worker thread: runs job after job. Two threads stay for the next scan, the others end.
    fn serve(&self, first: Job) {
        let mut next = Some(first);
        while let Some(job) = next {
            job();
            next = self.wait_for_job();
        }
        lock(&self.state).threads -= 1;
    }

    /// The next job for an idle worker; `None` if the worker is surplus or the fence is dropped.
    fn wait_for_job(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        while state.jobs.is_empty() && !state.closed && state.idle <= STANDING_WORKERS {
            state = self.work_or_end.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.idle -= 1;
        state.jobs.pop_front()
    }
}

#[cfg(test)]
mod tests;
