//! NVML's last good answer, and when to ask again: a scan never waits for NVML longer than a probe may take.
//!
//! It is asked when what the driver shows has changed, and after a failure again and again, at growing distances. A scan waits
//! for an answer only as long as NVML is not known to be in trouble; otherwise it takes what was said last, and the next scan
//! takes the new answer. One attempt runs at a time: one that sleeps in the kernel, where nothing can end it, is the last
//! until it comes back.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::attempt::{Attempt, Outcome};
use super::facts::Facts;

/// An attempt may take this many probes' time: GPUs that nobody keeps initialised take a second or more each.
const PROBES: u32 = 10;

/// No scan waits longer, whatever a probe may take: a first scan is broken off after 5 s, a silent scanner killed after 10.
const LONGEST_WAIT: Duration = Duration::from_secs(4);

const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);

const SLOW: &str =
    "NVML has not answered yet — it is slow, or hangs — see whether nvidia-smi works, and start nvidia-persistenced";
const STUCK: &str =
    "NVML hangs in the kernel and cannot be ended — a GPU does not respond — see `dmesg`; it may take a reboot";

/// What is known of NVML's facts now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// What NVML last said.
    pub facts: Option<Arc<Facts>>,
    /// Why that is not from now, and the cure.
    pub problem: Option<String>,
    /// Whether its first answer is still to come: nobody should conclude anything from its silence.
    pub awaited: bool,
}

/// Asks NVML through a command that prints [`Facts`] as JSON.
#[derive(Debug)]
pub struct Nvml {
    command: Vec<String>,
    wait: Duration,
    deadline: Duration,
    shared: Arc<Shared>,
}

impl Nvml {
    /// Nothing is started yet. An answer is waited for up to `patience`, 4 s at most; an attempt is ended after ten times that.
    #[must_use]
    pub fn new(command: Vec<String>, patience: Duration) -> Self {
        Self { command, wait: patience.min(LONGEST_WAIT), deadline: patience * PROBES, shared: Arc::default() }
    }

    /// NVML's facts; `present` is what the driver shows: when that changes, NVML has something new to say.
    #[must_use]
    pub fn answer(&self, present: &str) -> Answer {
        let mut state = self.shared.lock();
        if state.is_due(present, Instant::now()) {
            state.outstanding = Some(Instant::now());
            self.begin(&mut state, present);
        }
        while let Some(left) = state.worth_waiting(self.wait) {
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.answer(self.wait)
    }

    fn begin(&self, state: &mut State, present: &str) {
        let (shared, command, asked_for) = (Arc::clone(&self.shared), self.command.clone(), present.to_owned());
        let deadline = self.deadline;
        let attend = move || attend(&shared, &command, deadline, &asked_for);
        if let Err(error) = thread::Builder::new().name("nvml".to_owned()).spawn(attend) {
            state.conclude(not_started(&error), present.to_owned(), Instant::now());
            state.outstanding = None;
        }
    }
}

impl Drop for Nvml {
    /// Whatever still runs is ended by its thread.
    fn drop(&mut self) {
        self.shared.lock().abandoned = true;
        self.shared.changed.notify_all();
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rests; whether nobody wants an answer any more.
    fn pause(&self, length: Duration) -> bool {
        let state = self.lock();
        if state.abandoned {
            return true;
        }
        self.changed.wait_timeout(state, length).unwrap_or_else(PoisonError::into_inner).0.abandoned
    }
}

#[derive(Debug, Default)]
struct State {
    facts: Option<Arc<Facts>>,
    problem: Option<String>,
    /// Since when an attempt runs.
    outstanding: Option<Instant>,
    /// What the driver showed when the last attempt that ended was begun, and when it ended.
    last: Option<(String, Instant)>,
    /// Attempts since the last good one.
    failures: u32,
    abandoned: bool,
}

impl State {
    fn is_due(&self, present: &str, now: Instant) -> bool {
        let Some((asked_for, ended)) = &self.last else { return self.outstanding.is_none() };
        let rested = self.failures > 0 && now.duration_since(*ended) >= rest(self.failures);
        self.outstanding.is_none() && (asked_for != present || rested)
    }

    /// For how long; `None` when there is nothing to wait for, or NVML is in trouble.
    fn worth_waiting(&self, wait: Duration) -> Option<Duration> {
        let left = wait.saturating_sub(self.outstanding?.elapsed());
        (self.failures == 0 && !left.is_zero()).then_some(left)
    }

    fn answer(&self, wait: Duration) -> Answer {
        let slow = self.outstanding.is_some_and(|since| since.elapsed() >= wait).then(|| SLOW.to_owned());
        Answer {
            facts: self.facts.clone(),
            problem: self.problem.clone().or(slow),
            awaited: self.facts.is_none() && self.failures == 0 && self.outstanding.is_some(),
        }
    }

    fn conclude(&mut self, outcome: Outcome, asked_for: String, now: Instant) {
        self.last = Some((asked_for, now));
        self.failures = self.failures.saturating_add(1);
        self.problem = None;
        match outcome {
            Outcome::Facts(facts) => {
                self.facts = Some(Arc::new(facts));
                self.failures = 0;
            }
            Outcome::NoLibrary => {}
            Outcome::Failed(why) => self.problem = Some(why),
        }
    }
}

/// One attempt, in a thread of its own: the command dies with the thread that started it.
fn attend(shared: &Shared, command: &[String], deadline: Duration, asked_for: &str) {
    let conclude = |outcome, is_over| {
        let mut state = shared.lock();
        state.conclude(outcome, asked_for.to_owned(), Instant::now());
        if is_over {
            state.outstanding = None;
        }
        drop(state);
        shared.changed.notify_all();
    };
    let mut attempt = match Attempt::start(command) {
        Ok(attempt) => attempt,
        Err(error) => return conclude(not_started(&error), true),
    };
    if let Some(outcome) = attempt.outcome(deadline, |length| shared.pause(length)) {
        return conclude(outcome, true);
    }
    conclude(Outcome::Failed(STUCK.to_owned()), false);
    attempt.reap();
    shared.lock().outstanding = None;
}

fn not_started(error: &std::io::Error) -> Outcome {
    Outcome::Failed(format!("NVML cannot be asked — {error} — see whether the host has processes and memory to spare"))
}

/// 1, 2, 4, … 60 s.
fn rest(failures: u32) -> Duration {
    LONGEST_REST.min(FIRST_REST * 2_u32.saturating_pow(failures.saturating_sub(1)).min(64))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Long enough for a shell to answer on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn nvml(script: &str, patience: Duration) -> Nvml {
        Nvml::new(["sh", "-c", script].map(str::to_owned).to_vec(), patience)
    }

    fn driver(answer: &Answer) -> Option<&str> {
        answer.facts.as_ref()?.driver_version.as_deref()
    }

    /// A script that says its version number, kept in a file and counted up with each run.
    fn counting(directory: &Path) -> String {
        format!(
            r#"cd {}; n=$(($(cat n 2>/dev/null || echo 0) + 1)); echo $n > n; echo "{{\"driver_version\": \"$n\"}}""#,
            directory.display()
        )
    }

    #[test]
    fn nvml_is_asked_again_only_when_something_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let nvml = nvml(&counting(directory.path()), PATIENCE);
        for (present, expected) in [("a", "1"), ("a", "1"), ("b", "2"), ("b", "2"), ("a", "3")] {
            let answer = nvml.answer(present);
            assert_eq!((driver(&answer), &answer.problem, answer.awaited), (Some(expected), &None, false));
        }
    }

    #[test]
    fn the_last_good_answer_stays_while_nvml_fails() {
        let directory = tempfile::tempdir().unwrap();
        let script = format!(
            "[ ! -e {0}/n ] || {{ echo 'devherd: a — b — c' >&2; exit 1; }}; {1}",
            directory.path().display(),
            counting(directory.path())
        );
        let nvml = nvml(&script, PATIENCE);
        assert_eq!(driver(&nvml.answer("a")), Some("1"));
        let answer = nvml.answer("b");
        assert_eq!((driver(&answer), answer.problem.as_deref()), (Some("1"), Some("a — b — c")));
    }

    #[test]
    fn a_failed_attempt_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let script = format!(
            "cd {}; [ -e ok ] || {{ touch ok; exit 1; }}; echo '{{\"driver_version\": \"1\"}}'",
            directory.path().display()
        );
        let nvml = nvml(&script, PATIENCE);
        let first = nvml.answer("a");
        assert!(first.problem.is_some() && !first.awaited);
        let start = Instant::now();
        while driver(&nvml.answer("a")) != Some("1") {
            assert!(start.elapsed() < PATIENCE, "{:?}", nvml.answer("a"));
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(nvml.answer("a").problem, None);
    }

    #[test]
    fn nobody_waits_for_an_attempt_that_hangs_and_only_one_runs() {
        let directory = tempfile::tempdir().unwrap();
        let script = format!("cd {}; echo >> n; exec sleep 60", directory.path().display());
        let nvml = nvml(&script, Duration::from_secs(1));
        for present in ["a", "a", "b", "c"] {
            let answer = nvml.answer(present);
            assert_eq!((answer.problem.as_deref(), answer.awaited), (Some(SLOW), true));
        }
        assert_eq!(std::fs::metadata(directory.path().join("n")).unwrap().len(), 1);
    }

    #[test]
    fn a_missing_library_is_quiet_and_nothing_is_awaited() {
        assert_eq!(nvml("exit 4", PATIENCE).answer("a"), Answer::default());
    }

    #[test]
    fn a_command_that_cannot_be_started_is_a_problem() {
        let answer = Nvml::new(vec!["/nonexistent/python".to_owned()], PATIENCE).answer("a");
        assert!(answer.problem.unwrap().contains("No such file"));
    }

    #[test]
    fn an_attempt_ends_with_its_asker() {
        let nvml = nvml("exec sleep 60", Duration::from_millis(100));
        let _ = nvml.answer("a");
        let shared = Arc::clone(&nvml.shared);
        drop(nvml);
        let start = Instant::now();
        while shared.lock().outstanding.is_some() {
            assert!(start.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn rests_grow_from_one_second_to_a_minute() {
        let rests: Vec<u64> = (1..10).map(|failures| rest(failures).as_secs()).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(rest(u32::MAX), LONGEST_REST);
    }
}
