//! One run of the command that asks NVML, from its start to its facts; killed with all its offspring when it is overdue.

#![expect(unsafe_code, reason = "what a forked process does before its exec can be said in no other way")]

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal};

use super::facts::Facts;

/// The exit code that says that there is no library: `devherd.errors.ExitCode.UNREACHABLE`.
const NO_LIBRARY: i32 = 4;

/// Between two looks at whether it has ended: at first and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// What a killed process may take to vanish; one that takes longer sleeps in the kernel, out of reach.
const GRACE: Duration = Duration::from_secs(1);

/// More than the facts of any host.
const LONGEST_ANSWER: u64 = 16 << 20;

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// NVML's answer.
    Facts(Facts),
    /// There is no NVML here.
    NoLibrary,
    /// Why there is no answer, and the cure.
    Failed(String),
}

/// A running command.
pub(super) struct Attempt {
    child: Child,
    output: File,
    errors: File,
}

impl Attempt {
    /// Starts the command in a process group of its own, which dies with the calling thread.
    ///
    /// It writes to memory rather than to pipes: nobody has to read while it runs, or waits for a descendant to close one.
    pub(super) fn start(command: &[String]) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (output, errors) = (memory("nvml facts")?, memory("nvml errors")?);
        let mut command = Command::new(program);
        command.args(arguments).process_group(0).stdin(Stdio::null());
        command.stdout(output.try_clone()?).stderr(errors.try_clone()?);
        let parent = rustix::process::getpid();
        // SAFETY: the closure makes three system calls and allocates nothing, as is fit between fork and exec.
        unsafe { command.pre_exec(move || prepare(parent)) };
        Ok(Self { child: command.spawn()?, output, errors })
    }

    /// Waits until it has ended or is overdue, `pause`-ing in between; a pause that answers `true` breaks it off.
    ///
    /// `None` when it does not vanish though killed: [`Attempt::reap`] waits for that.
    pub(super) fn outcome(&mut self, deadline: Duration, mut pause: impl FnMut(Duration) -> bool) -> Option<Outcome> {
        if let Some(status) = self.wait(deadline, &mut pause) {
            return Some(self.told(status));
        }
        self.kill();
        let overdue = format!(
            "NVML did not answer within {} s — it hangs — see what `dmesg` says of the GPUs",
            deadline.as_secs_f32()
        );
        self.wait(GRACE, |length| {
            std::thread::sleep(length);
            false
        })?;
        Some(Outcome::Failed(overdue))
    }

    /// Waits for as long as it takes.
    pub(super) fn reap(&mut self) {
        // An error means that somebody else has reaped it.
        let _ = self.child.wait();
    }

    fn wait(&mut self, limit: Duration, mut pause: impl FnMut(Duration) -> bool) -> Option<ExitStatus> {
        let start = Instant::now();
        let [mut length, longest] = PAUSES;
        loop {
            // One that somebody else has reaped is judged by what it printed.
            if let Some(status) = self.child.try_wait().unwrap_or_else(|_| Some(ExitStatus::default())) {
                return Some(status);
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() || pause(length.min(left)) {
                return None;
            }
            length = longest.min(length * 2);
        }
    }

    /// It has not been reaped, so that the number is still its own.
    fn kill(&self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // A group that is gone needs no killing.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }

    fn told(&mut self, status: ExitStatus) -> Outcome {
        if status.success() {
            let facts = read(&mut self.output).and_then(|text| Ok(serde_json::from_str(&text)?));
            return facts.map_or_else(
                |error| Outcome::Failed(format!("NVML's answer is none — {error} — report this as a defect")),
                Outcome::Facts,
            );
        }
        if status.code() == Some(NO_LIBRARY) {
            return Outcome::NoLibrary;
        }
        if let Some(signal) = status.signal() {
            return Outcome::Failed(format!(
                "NVML crashed — the process that asked it ended by signal {signal} — install the driver's libraries anew"
            ));
        }
        let said = read(&mut self.errors).unwrap_or_default();
        let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it said nothing");
        Outcome::Failed(last.trim_start_matches("devherd: ").to_owned())
    }
}

/// In the new process, before the exec.
fn prepare(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before that call, and does not know then.
    if rustix::process::getppid() != Some(parent) {
        return Err(Errno::SRCH.into());
    }
    // A library that crashes at each attempt must not fill the disk; that is no reason not to ask it.
    let _ = rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    Ok(())
}

fn memory(name: &str) -> io::Result<File> {
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

fn read(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.take(LONGEST_ANSWER).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::attribute::Attribute;

    fn outcome(script: &str, deadline: Duration) -> Option<Outcome> {
        let command = ["sh", "-c", script].map(str::to_owned);
        Attempt::start(&command).unwrap().outcome(deadline, |length| {
            std::thread::sleep(length);
            false
        })
    }

    fn failure(script: &str, deadline: Duration) -> String {
        match outcome(script, deadline) {
            Some(Outcome::Failed(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_it_prints_are_the_facts() {
        let facts = Facts { driver_version: Some("590.48.01".to_owned()), ..Facts::default() };
        assert_eq!(outcome(r#"echo '{"driver_version": "590.48.01"}'"#, LONG), Some(Outcome::Facts(facts)));
    }

    #[test]
    fn a_missing_library_is_no_failure() {
        assert_eq!(outcome("exit 4", LONG), Some(Outcome::NoLibrary));
    }

    #[test]
    fn what_goes_wrong_is_said() {
        assert_eq!(failure("echo first >&2; echo 'devherd: a — b — c' >&2; exit 1", LONG), "a — b — c");
        assert_eq!(failure("exit 7", LONG), "it said nothing");
        assert!(failure("kill -SEGV $$", LONG).contains("signal 11"));
        assert!(failure("echo nonsense", LONG).contains("answer is none"));
        assert!(failure("sleep 60", Duration::from_millis(20)).contains("did not answer within 0.02 s"));
    }

    #[test]
    fn offspring_of_an_overdue_command_is_killed_too() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let script = format!("sleep 60 & echo $! > {}; wait", file.display());
        assert!(failure(&script, Duration::from_millis(500)).contains("did not answer"));
        let pid: u32 = text(&file).trim().parse().unwrap();
        let start = Instant::now();
        while is_running(pid) {
            assert!(start.elapsed() < LONG, "{pid} still runs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A killed process whose new parent has not reaped it yet is as good as gone.
    fn is_running(pid: u32) -> bool {
        let stat = text(Path::new(&format!("/proc/{pid}/stat")));
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
    }

    /// Nothing where there is no such file.
    fn text(path: &Path) -> String {
        Attribute::read(path).map(|read| read.text().to_owned()).unwrap_or_default()
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        assert_eq!(Attempt::start(&["/nonexistent".to_owned()]).err().unwrap().kind(), io::ErrorKind::NotFound);
        assert_eq!(Attempt::start(&[]).err().unwrap().kind(), io::ErrorKind::InvalidInput);
    }
}
