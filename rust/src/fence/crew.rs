//! The worker threads of a fence: a few that stay, more while some hang, and no more than so many.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use super::lock;

/// Worker threads, those that hang included.
pub(super) const MOST_WORKERS: usize = 64;

/// Idle threads that stay for the next batch: one for vendors, one for their cards.
pub(super) const STANDING_WORKERS: usize = 2;

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The worker threads of a fence.
#[derive(Debug, Default)]
pub(super) struct Crew {
    pub(super) state: Mutex<CrewState>,
    pub(super) work_or_end: Condvar,
}

#[derive(Default)]
pub(super) struct CrewState {
    jobs: VecDeque<Job>,
    pub(super) threads: usize,
    pub(super) idle: usize,
    pub(super) closed: bool,
    /// Keys of units that missed their deadline and whose thread has not come back.
    pub(super) stuck: BTreeSet<String>,
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
    pub(super) fn take_on(self: &Arc<Self>, job: Job) -> bool {
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
