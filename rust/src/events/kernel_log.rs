//! The kernel log, read without ever waiting: <https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg>.
//!
//! The device `/dev/kmsg` gives one record a read, from the oldest that is kept. A simulated node has a stand-in
//! (`simulated_kernel_log.rs`).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::time::ClockId;

use super::kernel_log_record::Record;
use super::kernel_log_rules::{Rules, Said};
use super::simulated_kernel_log::SimulatedLog;
use crate::host::Host;

/// The kernel's `CONSOLE_EXT_LOG_MAX`: no record is longer. Of one that is, the read fails and the next gives the next.
const LONGEST_RECORD: usize = 8192;

/// The device number of the log.
const NUMBER: (u32, u32) = (1, 11);

/// Reads that are kept of how far the clock of the log lags behind: the least is right, as some read waited the least.
const LAGS: usize = 16;

/// Something that the log said, once or more often.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What it said.
    pub said: Said,
    /// The newest text, for people.
    pub text: String,
    /// `CLOCK_MONOTONIC` second of the newest.
    pub monotonic: f64,
    /// How many records said so.
    pub times: u64,
}

/// What some records said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// What they said: equal ones as one, in the order of the newest of each.
    pub events: Vec<Event>,
    /// Records that were overwritten before they were read.
    pub lost: u64,
    /// Whether more records may wait.
    pub more: bool,
}

/// Where a reader is, to be kept over its restart in the same boot.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Position {
    /// The number of the first record that it has not read.
    pub next: u64,
    /// Seconds that the clock of the log lags behind `CLOCK_MONOTONIC`, which time servers correct.
    pub lag: f64,
}

/// The log of a host. It is closed when dropped.
#[derive(Debug)]
pub struct KernelLog {
    records: Records,
    rules: Rules,
    next: Option<u64>,
    lags: VecDeque<f64>,
    has_caught_up: bool,
}

#[derive(Debug)]
enum Records {
    Device(OwnedFd),
    Node(SimulatedLog),
}

impl KernelLog {
    /// Opens the log, to be read from its beginning, or from where an earlier reader was.
    ///
    /// # Errors
    /// Those of `open`: `EPERM` without the right to it. `ENODEV` where the path is not the log.
    pub fn of_host(host: &Host, root: &Path, rules: Rules, after: Option<Position>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = rustix::fs::openat(CWD, host.dev("kmsg"), flags, Mode::empty())?;
        let records = if host.is_simulated() {
            Records::Node(SimulatedLog::new(file, root)?)
        } else if is_the_log(&file)? {
            Records::Device(file)
        } else {
            return Err(Errno::NODEV.into());
        };
        Ok(Self::of(records, rules, after))
    }

    fn of(records: Records, rules: Rules, after: Option<Position>) -> Self {
        let next = after.map(|position| position.next);
        // None was ever measured where it is exactly zero.
        let lags = after.iter().map(|position| position.lag).filter(|&lag| lag != 0.0).collect();
        Self { records, rules, next, lags, has_caught_up: false }
    }

    /// Where it is by now.
    #[must_use]
    pub fn position(&self) -> Position {
        let least = self.lags.iter().copied().reduce(f64::min);
        Position { next: self.next.unwrap_or(0), lag: least.unwrap_or(0.0) }
    }

    /// What the records since the last call said: at most `most` of them are read, and none is waited for.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn drain(&mut self, most: usize) -> io::Result<Batch> {
        let mut batch = Batch { more: true, ..Batch::default() };
        let mut buffer = [0; LONGEST_RECORD];
        let mut newest = None;
        for _ in 0..most {
            let Some(length) = self.records.next(&mut buffer)? else {
                batch.more = false;
                break;
            };
            let Some(record) = Record::parsed(&buffer[..length]) else { continue };
            let expected = self.next.unwrap_or(record.sequence);
            if record.sequence < expected {
                continue;
            }
            batch.lost += record.sequence - expected;
            self.next = Some(record.sequence + 1);
            let written = seconds(record.microseconds);
            newest = Some(written);
            if record.facility == 0 {
                if let Some((said, text)) = self.rules.read(&record) {
                    batch.add(said, text, written);
                }
            }
        }
        self.note_lag(newest, batch.more);
        let lag = self.position().lag;
        batch.events.iter_mut().for_each(|event| event.monotonic += lag);
        Ok(batch)
    }

    /// What arrives while the reader waits has just been written.
    fn note_lag(&mut self, newest: Option<f64>, more: bool) {
        if let Some(newest) = newest.filter(|_| self.has_caught_up && !more) {
            self.lags.truncate(LAGS - 1);
            self.lags.push_front(now() - newest);
        }
        self.has_caught_up = !more;
    }
}

impl Batch {
    fn add(&mut self, said: Said, text: String, written: f64) {
        let known = self.events.iter().position(|event| event.said == said);
        let times = known.map_or(0, |place| self.events.remove(place).times) + 1;
        self.events.push(Event { said, text, monotonic: written, times });
    }
}

impl Records {
    /// The length of the next record; `None` when there is none by now. Records that were overwritten, or are too long, are
    /// left out: their numbers are missing.
    fn next(&mut self, buffer: &mut [u8; LONGEST_RECORD]) -> io::Result<Option<usize>> {
        match self {
            Self::Device(device) => loop {
                match rustix::io::read(&*device, &mut buffer[..]) {
                    Ok(0) | Err(Errno::AGAIN) => return Ok(None),
                    Ok(length) => return Ok(Some(length)),
                    Err(Errno::PIPE | Errno::INVAL | Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            },
            Self::Node(log) => log.next(buffer),
        }
    }
}

fn is_the_log(file: &OwnedFd) -> io::Result<bool> {
    let status = rustix::fs::fstat(file)?;
    let number = (rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev));
    Ok(FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice && number == NUMBER)
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of a century fit")]
fn seconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "seconds of a century fit")]
fn now() -> f64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

impl AsFd for KernelLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.records {
            Records::Device(device) => device.as_fd(),
            Records::Node(log) => log.as_fd(),
        }
    }
}

impl AsRawFd for KernelLog {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::super::kernel_log_rules::Row;
    use super::*;

    /// Sick devices are called `sick`, with their address.
    fn rules() -> Rules {
        let row = Row { name: "sick".into(), contains: "sick".into(), pattern: r"^(?P<bdf>\S+) is sick".into() };
        Rules::new(vec![row]).unwrap()
    }

    /// A log whose records are written to the socket: it keeps their borders, as the device does.
    fn log(after: Option<Position>) -> (KernelLog, OwnedFd) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (reader, writer) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        (KernelLog::of(Records::Device(reader), rules(), after), writer)
    }

    fn write(writer: &OwnedFd, record: &str) {
        rustix::io::write(writer, record.as_bytes()).unwrap();
    }

    fn heard(batch: &Batch) -> Vec<(&str, u64)> {
        batch.events.iter().map(|event| (event.said.pci_address.as_str(), event.times)).collect()
    }

    #[test]
    fn equal_records_are_one_event_with_the_time_of_the_newest() {
        let (mut log, writer) = log(None);
        for (sequence, device) in ["a", "b", "a"].iter().enumerate() {
            write(&writer, &format!("3,{sequence},{sequence}000000,-;{device} is sick\n"));
        }
        let batch = log.drain(100).unwrap();
        assert_eq!(heard(&batch), [("b", 1), ("a", 2)]);
        let times: Vec<String> = batch.events.iter().map(|event| format!("{:.3}", event.monotonic)).collect();
        assert_eq!(times, ["1.000", "2.000"]);
        assert_eq!((batch.lost, batch.more), (0, false));
        assert_eq!(log.drain(100).unwrap(), Batch::default());
    }

    #[test]
    fn what_a_process_writes_into_the_log_does_not_count() {
        let (mut log, writer) = log(None);
        write(&writer, "11,0,1,-;a is sick\n"); // priority 3 of facility 1: whoever may write to /dev/kmsg
        write(&writer, "3,1,1,-;b is sick\n");
        assert_eq!(heard(&log.drain(100).unwrap()), [("b", 1)]);
    }

    #[test]
    fn records_that_were_overwritten_are_counted() {
        let (mut log, writer) = log(None);
        for sequence in [700, 701, 705, 706] {
            write(&writer, &format!("3,{sequence},1,-;x\n"));
        }
        assert_eq!(log.drain(100).unwrap().lost, 3); // and none before the first that is there
        assert_eq!(log.position().next, 707);
    }

    #[test]
    fn a_restarted_reader_goes_on_where_the_earlier_one_was() {
        let (mut log, writer) = log(Some(Position { next: 3, lag: 2.0 }));
        for (sequence, device) in [(1, "a"), (2, "b"), (3, "c"), (6, "d")] {
            write(&writer, &format!("3,{sequence},1000000,-;{device} is sick\n"));
        }
        let batch = log.drain(100).unwrap();
        assert_eq!((heard(&batch), batch.lost), (vec![("c", 1), ("d", 1)], 2));
        assert!((batch.events[0].monotonic - 3.0).abs() < 1e-9); // by the lag that was known
    }

    #[test]
    fn no_more_records_are_read_than_asked_for() {
        let (mut log, writer) = log(None);
        for sequence in 0..3 {
            write(&writer, &format!("3,{sequence},1,-;{sequence} is sick\n"));
        }
        let first = log.drain(2).unwrap();
        assert_eq!((heard(&first), first.more), (vec![("0", 1), ("1", 1)], true));
        let second = log.drain(2).unwrap();
        assert_eq!((heard(&second), second.more), (vec![("2", 1)], false));
    }

    #[test]
    fn what_comes_while_the_reader_waits_has_just_been_written_whatever_the_clock_of_the_log_says() {
        let (mut log, writer) = log(None);
        write(&writer, "3,0,1,-;x\n");
        log.drain(100).unwrap();
        let before = now();
        write(&writer, "3,1,1,-;a is sick\n");
        let batch = log.drain(100).unwrap();
        assert!((before..=now()).contains(&batch.events[0].monotonic));
    }

    #[test]
    fn only_the_log_s_own_device_is_the_log() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/kmsg"), "3,0,1,-;a is sick\n").unwrap();
        let error = KernelLog::of_host(&Host::new(root.path()), root.path(), rules(), None).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NODEV.raw_os_error()));
    }

    proptest! {
        #[test]
        fn however_a_log_is_read_in_parts_every_event_comes_once(
            devices in prop::collection::vec("[ab]", 0..40),
            parts in prop::collection::vec(1_usize..7, 1..5),
        ) {
            let (mut before, writer) = log(None);
            for (sequence, device) in devices.iter().enumerate() {
                write(&writer, &format!("3,{sequence},1,-;{device} is sick\n"));
            }
            let mut times = std::collections::BTreeMap::new();
            let mut parts = parts.iter().cycle();
            loop {
                let batch = before.drain(*parts.next().unwrap()).unwrap();
                for event in batch.events {
                    *times.entry(event.said.pci_address).or_insert(0) += event.times;
                }
                if !batch.more {
                    break;
                }
                let position = before.position();
                before = KernelLog::of(before.records, rules(), Some(position));
            }
            for (device, times) in times {
                prop_assert_eq!(Ok(devices.iter().filter(|&one| *one == device).count()), usize::try_from(times));
            }
        }
    }
}
