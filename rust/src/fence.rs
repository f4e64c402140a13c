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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A unit that takes longer than this no longer holds up the others.
const PATIENCE: Duration = Duration::from_millis(50);

/// Worker threads, those that hang included.
const MOST_WORKERS: usize = 64;

/// Idle threads that stay for the next batch: one for vendors, one for their cards.
const STANDING_WORKERS: usize = 2;

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

/// One call of [`Fence::each`].
struct Batch<U, R> {
    state: Mutex<Progress<U, R>>,
    /// The batch is settled.
    changed: Condvar,
}

struct Progress<U, R> {
    keys: Vec<String>,
    waiting: VecDeque<(usize, U)>,
    running: BTreeMap<usize, Instant>,
    outcomes: Vec<Option<Outcome<R>>>,
    /// Workers taken on that have not left yet.
    workers: usize,
    /// Those of them whose unit was given up.
    late: usize,
}

impl<U, R> Batch<U, R> {
    fn new(units: Vec<U>, keys: Vec<String>, crew: &Crew) -> Self {
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
    fn drain(&self, work: &impl Fn(U) -> R, crew: &Crew) {
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
    fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty() && self.workers == self.late
    }

    /// Answers what has run out of time, and remembers what it hangs on.
    fn call_time(&mut self, now: Instant, deadline: Duration, crew: &Crew) {
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
    fn wanted_workers(&self, now: Instant, patience: Duration) -> usize {
        let slow = self.running.values().filter(|&&start| now - start >= patience).count();
        if self.workers == slow + self.late { slow.max(1).min(self.waiting.len()) } else { 0 }
    }

    /// No worker is left that could come to what still waits.
    fn give_up_waiting(&mut self) {
        for (index, _) in self.waiting.drain(..) {
            self.outcomes[index] = Some(Outcome::NotStarted);
        }
    }

    /// How long until a running unit uses up patience or deadline. While units wait it is patience at most: a worker that has
    /// been taken on says nothing when it begins with one.
    fn next_event(&self, now: Instant, patience: Duration, deadline: Duration) -> Duration {
        let left = |&start: &Instant| {
            let elapsed = now - start;
            if elapsed < patience { patience.saturating_sub(elapsed) } else { deadline.saturating_sub(elapsed) }
        };
        let soonest = self.running.values().map(left).min().unwrap_or(patience);
        let soonest = if self.waiting.is_empty() { soonest } else { soonest.min(patience) };
        soonest.max(Duration::from_millis(1))
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The worker threads of a fence.
#[derive(Debug, Default)]
struct Crew {
    state: Mutex<CrewState>,
    work_or_end: Condvar,
}

#[derive(Default)]
struct CrewState {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
    /// Keys of units that missed their deadline and whose thread has not come back.
    stuck: BTreeSet<String>,
}

impl std::fmt::Debug for CrewState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CrewState")
            .field("threads", &self.threads)
            .field("stuck", &self.stuck)
            .finish_non_exhaustive()
    }
}

impl Crew {
    /// Gives a job to an idle worker or a new one; false where there may be or can be no more.
    fn take_on(self: &Arc<Self>, job: Job) -> bool {
        let mut state = lock(&self.state);
        if state.idle > state.jobs.len() {
            state.jobs.push_back(job);
            drop(state);
            self.work_or_end.notify_one();
            return true;
        }
        if state.threads >= MOST_WORKERS {
            return false;
        }
        let crew = Arc::clone(self);
        let started = thread::Builder::new().name("probe".to_owned()).spawn(move || crew.serve(job)).is_ok();
        state.threads += usize::from(started);
        started
    }

    /// A worker's life: job after job; two stay for the next scan, the others end.
    fn serve(&self, first: Job) {
        let mut next = Some(first);
        while let Some(job) = next {
            job();
            next = self.wait_for_job();
        }
        lock(&self.state).threads -= 1;
    }

    /// The next job of an idle worker; `None` when it is one too many, or the fence is gone.
    fn wait_for_job(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        while state.jobs.is_empty() && !state.closed && state.idle <= STANDING_WORKERS {
            state = self.work_or_end.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.idle -= 1;
        state.jobs.pop_front()
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
mod tests {
    use super::*;
    use std::sync::mpsc;

    const SHORT: Duration = Duration::from_millis(100);

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "what `each` asks for")]
    fn key(unit: &usize) -> String {
        format!("card{unit}")
    }

    /// A fence, and a gate that holds every unit of these numbers until it is dropped.
    fn gated(hung: Vec<usize>) -> (impl Fn(usize) -> usize + Send + Sync + Clone + 'static, mpsc::Sender<()>) {
        let (sender, receiver) = mpsc::channel::<()>();
        let receiver = Arc::new(Mutex::new(receiver));
        let work = move |unit: usize| {
            if hung.contains(&unit) {
                let _ = lock(&receiver).recv();
            }
            unit * 10
        };
        (work, sender)
    }

    fn eventually(condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(10), "did not happen");
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn prompt_units_are_answered_in_order_by_one_thread() {
        let mut fence = Fence::new(Duration::from_secs(60));
        fence.patience = Duration::from_secs(30);
        for _ in 0..3 {
            let threads = fence.each((0..200).collect(), key, |_| thread::current().id());
            assert!(threads.iter().all(|outcome| *outcome == threads[0] && matches!(outcome, Outcome::Done(_))));
        }
        assert!(lock(&fence.crew.state).threads <= STANDING_WORKERS);
        assert_eq!(fence.each(Vec::new(), key, |unit| unit), []);
    }

    #[test]
    fn a_unit_that_hangs_costs_only_itself() {
        let fence = Fence::new(SHORT);
        let (work, gate) = gated(vec![1]);
        let outcomes = fence.each(vec![0, 1, 2], key, work);
        assert_eq!(outcomes, [Outcome::Done(0), Outcome::Overdue, Outcome::Done(20)]);
        drop(gate);
    }

    #[test]
    fn a_hanging_unit_is_answered_at_once_until_its_thread_comes_back() {
        let fence = Fence::new(SHORT);
        let (work, gate) = gated(vec![1]);
        fence.each(vec![1], key, work.clone());
        let start = Instant::now();
        for _ in 0..20 {
            assert_eq!(fence.each(vec![1, 2], key, work.clone()), [Outcome::Overdue, Outcome::Done(20)]);
        }
        assert!(start.elapsed() < SHORT * 20, "waited again for what is known to hang");
        assert!(lock(&fence.crew.state).threads <= 1 + STANDING_WORKERS);
        drop(gate);
        eventually(|| lock(&fence.crew.state).stuck.is_empty());
        assert_eq!(fence.each(vec![1], key, work), [Outcome::Done(10)]);
    }

    #[test]
    fn many_units_that_hang_are_waited_for_side_by_side() {
        let deadline = Duration::from_secs(1);
        let fence = Fence::new(deadline);
        let (work, gate) = gated((0..40).collect());
        let start = Instant::now();
        let outcomes = fence.each((0..41).collect(), key, work);
        let elapsed = start.elapsed();
        assert!(outcomes[..40].iter().all(|outcome| *outcome == Outcome::Overdue));
        assert_eq!(outcomes[40], Outcome::Done(400));
        assert!(elapsed < deadline * 3, "one after another they take {:?}, these took {elapsed:?}", deadline * 40);
        drop(gate);
    }

    #[test]
    fn units_that_use_the_fence_themselves_wait_side_by_side_too() {
        let fence = Arc::new(Fence::new(SHORT * 10));
        let (work, gate) = gated(vec![0, 3, 6, 9]);
        let (within, cards) = (Arc::clone(&fence), work);
        let vendor = move |first: usize| within.each(vec![first, first + 1], key, cards.clone());
        let start = Instant::now();
        let outcomes =
            fence.each_within(Duration::from_secs(60), vec![0, 3, 6, 9], |n| format!("vendor{n}"), vendor, &|| {});
        assert!(start.elapsed() < SHORT * 30, "took {:?}", start.elapsed());
        let expected = |first: usize| Outcome::Done(vec![Outcome::Overdue, Outcome::Done(first * 10 + 10)]);
        assert_eq!(outcomes, [0, 3, 6, 9].map(expected));
        drop(gate);
    }

    #[test]
    fn the_callers_heart_beats_while_it_waits() {
        let deadline = BEAT_PERIOD * 4;
        let fence = Fence::new(deadline);
        let (work, gate) = gated(vec![0]);
        let beats = Mutex::new(vec![Instant::now()]);
        fence.each_within(deadline, vec![0], key, work, &|| lock(&beats).push(Instant::now()));
        let beats = beats.into_inner().unwrap();
        assert!(beats.len() >= 3, "{} beats in {deadline:?}", beats.len());
        drop(gate);
    }

    #[test]
    fn a_slow_unit_within_its_deadline_is_answered() {
        let fence = Fence::new(Duration::from_secs(10));
        let slow = |unit: usize| {
            if unit == 0 {
                thread::sleep(PATIENCE * 3);
            }
            unit
        };
        assert_eq!(fence.each(vec![0, 1], key, slow), [Outcome::Done(0), Outcome::Done(1)]);
    }

    #[test]
    fn the_number_of_hanging_threads_is_bounded() {
        let fence = Fence::new(Duration::from_millis(20));
        let (work, gate) = gated((0..100).collect());
        let outcomes = fence.each((0..100).collect(), key, work.clone());
        let count = |wanted: &Outcome<usize>| outcomes.iter().filter(|outcome| *outcome == wanted).count();
        assert_eq!((count(&Outcome::Overdue), count(&Outcome::NotStarted)), (MOST_WORKERS, 100 - MOST_WORKERS));
        assert_eq!(lock(&fence.crew.state).threads, MOST_WORKERS);
        assert_eq!(fence.each(vec![100], key, work.clone()), [Outcome::NotStarted]);
        drop(gate);
        eventually(|| lock(&fence.crew.state).stuck.is_empty());
        assert_eq!(fence.each(vec![100], key, work), [Outcome::Done(1000)]);
    }

    #[test]
    fn a_panic_is_an_answer() {
        let fence = Fence::new(Duration::from_secs(5));
        let outcomes = fence.each(vec![0, 1, 2], key, |unit| {
            assert!(unit != 1, "unit {unit} is bad");
            unit
        });
        assert_eq!(outcomes, [Outcome::Done(0), Outcome::Panicked("unit 1 is bad".to_owned()), Outcome::Done(2)]);
    }

    #[test]
    fn threads_end_with_their_fence() {
        let fence = Fence::new(Duration::from_secs(5));
        fence.each(vec![1], key, |unit| unit);
        let crew = Arc::clone(&fence.crew);
        drop(fence);
        eventually(|| lock(&crew.state).threads == 0);
    }
}
