//! The kernel log, read without waiting: <https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg>.
//!
//! Each read of the device `/dev/kmsg` returns one record, beginning with the oldest. A record is
//! `priority,sequence,microseconds,flags[,more];text`, followed by lines that begin with a space: `SUBSYSTEM=pci`, and
//! `DEVICE=+pci:0000:3b:00.0` if the driver names its device. On a simulated node, a file and datagrams stand in for
//! the device (`simulated_node.rs`).

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::time::ClockId;

use super::kernel_log_rules::{Match, Rules};
use super::simulated_node::SimulatedLog;
use crate::host::Host;

/// The kernel's `CONSOLE_EXT_LOG_MAX`, the size of the largest record in bytes. A longer record makes the read fail;
/// the next read returns the record after it.
const LONGEST_RECORD: usize = 8192;

/// Major and minor number of the log's device.
const NUMBER: (u32, u32) = (1, 11);

/// Number of measurements of the log clock's lag that are kept. The smallest is the most accurate: its reader waited
/// the least.
const LAGS: usize = 16;

/// A matched record, or several records with the same match.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The match, the same for all records of the event.
    pub matched: Match,
    /// The newest record's text, for people.
    pub text: String,
    /// Time of the newest record, in seconds of `CLOCK_MONOTONIC`.
    pub monotonic: f64,
    /// The number of records.
    pub times: u64,
}

/// The matches of one drain.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Events in the order of their newest record; records with equal matches are one event.
    pub events: Vec<Event>,
    /// How many records were overwritten before they were read.
    pub lost: u64,
    /// Whether more records may be waiting.
    pub more: bool,
}

/// A reader's position in the log. It stays valid when devherd restarts within the same boot.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Position {
    /// The sequence number of the first unread record.
    pub next: u64,
    /// Lag of the log's clock behind `CLOCK_MONOTONIC` in seconds; time servers correct only `CLOCK_MONOTONIC`.
    pub lag: f64,
}

/// The log of a host. Closed when dropped.
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
    /// Opens the log at an earlier reader's position, or at its beginning.
    ///
    /// # Errors
    /// Errors of `open`: `EPERM` without the right to read the log. `ENODEV` if the path is not the log.
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
        // A lag of exactly zero means that none was measured.
        let lags = after.iter().map(|position| position.lag).filter(|&lag| lag != 0.0).collect();
        Self { records, rules, next, lags, has_caught_up: false }
    }

    /// The current position.
    #[must_use]
    pub fn position(&self) -> Position {
        let least = self.lags.iter().copied().reduce(f64::min);
        Position { next: self.next.unwrap_or(0), lag: least.unwrap_or(0.0) }
    }

    /// Reads at most `most` records, without waiting for new ones, and returns those that match a rule.
    ///
    /// # Errors
    /// Errors of `read`.
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
                if let Some((matched, text)) = self.rules.read(&record) {
                    batch.add(matched, text, written);
                }
            }
        }
        self.note_lag(newest, batch.more);
        let lag = self.position().lag;
        batch.events.iter_mut().for_each(|event| event.monotonic += lag);
        Ok(batch)
    }

    /// Measures the log clock's lag: if the reader had caught up before, the newest record has just been written.
    fn note_lag(&mut self, newest: Option<f64>, more: bool) {
        if let Some(newest) = newest.filter(|_| self.has_caught_up && !more) {
            self.lags.truncate(LAGS - 1);
            self.lags.push_front(now() - newest);
        }
        self.has_caught_up = !more;
    }
}

impl Batch {
    fn add(&mut self, matched: Match, text: String, written: f64) {
        let known = self.events.iter().position(|event| event.matched == matched);
        let times = known.map_or(0, |place| self.events.remove(place).times) + 1;
        self.events.push(Event { matched, text, monotonic: written, times });
    }
}

impl Records {
    /// The length of the next record in bytes; `None` if no record is waiting. Overwritten and overlong records are
    /// skipped; the gap in the sequence numbers shows them.
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

/// The fields of a record that devherd uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// The writer: 0 is the kernel, and no process can use that number.
    pub facility: u32,
    /// The sequence number, one more than the previous record's.
    pub sequence: u64,
    /// When the record was written, in microseconds of the kernel's log clock, which starts at boot.
    pub microseconds: u64,
    /// The text with the kernel's escapes: see [`Record::text`].
    pub escaped: &'a [u8],
    /// The PCI address that the driver attached to the record.
    pub pci_address: Option<&'a str>,
}

impl<'a> Record<'a> {
    /// Parses the bytes of one read; `None` if they are not a record.
    #[must_use]
    pub fn parsed(record: &'a [u8]) -> Option<Self> {
        let separator = record.iter().position(|&byte| byte == b';')?;
        let (prefix, message) = (std::str::from_utf8(&record[..separator]).ok()?, &record[separator + 1..]);
        let mut fields = prefix.split(',');
        let priority: u32 = fields.next()?.parse().ok()?;
        let sequence = fields.next()?.parse().ok()?;
        let microseconds = fields.next()?.parse().ok()?;
        let mut lines = message.split(|&byte| byte == b'\n');
        let escaped = lines.next()?;
        let pci_address = lines.find_map(|line| std::str::from_utf8(line.strip_prefix(b" DEVICE=+pci:")?).ok());
        Some(Self { facility: priority >> 3, sequence, microseconds, escaped, pci_address })
    }

    /// The text with the kernel's `\x0a` escapes decoded.
    #[must_use]
    pub fn text(&self) -> Cow<'a, [u8]> {
        let mut rest = self.escaped;
        let Some(first) = next_escape(rest) else { return Cow::Borrowed(rest) };
        let mut text = Vec::with_capacity(rest.len());
        let mut escape = Some(first);
        while let Some((place, byte)) = escape {
            text.extend_from_slice(&rest[..place]);
            text.push(byte);
            rest = &rest[place + ESCAPE_LENGTH..];
            escape = next_escape(rest);
        }
        text.extend_from_slice(rest);
        Cow::Owned(text)
    }
}

/// The bytes of an escape like `\x0a`.
const ESCAPE_LENGTH: usize = 4;

/// Offset and value of the next escaped byte.
fn next_escape(text: &[u8]) -> Option<(usize, u8)> {
    text.windows(ESCAPE_LENGTH).enumerate().find_map(|(place, escape)| {
        let digits = std::str::from_utf8(escape.strip_prefix(b"\\x")?).ok()?;
        Some((place, u8::from_str_radix(digits, 16).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;
    use crate::events::kernel_log_rules::Row;

    /// A rule that matches records about `sick` devices with their address.
    fn rules() -> Rules {
        let row = Row { name: "sick".into(), contains: "sick".into(), pattern: r"^(?P<bdf>\S+) is sick".into() };
        Rules::new(vec![row]).unwrap()
    }

    /// A log whose records are written to the returned socket, which keeps record boundaries, as the device does.
    fn log(after: Option<Position>) -> (KernelLog, OwnedFd) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (reader, writer) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        (KernelLog::of(Records::Device(reader), rules(), after), writer)
    }

    fn write(writer: &OwnedFd, record: &str) {
        rustix::io::write(writer, record.as_bytes()).unwrap();
    }

    fn drained(batch: &Batch) -> Vec<(&str, u64)> {
        batch.events.iter().map(|event| (event.matched.pci_address.as_str(), event.times)).collect()
    }

    #[test]
    fn equal_records_are_one_event_with_the_time_of_the_newest() {
        let (mut log, writer) = log(None);
        for (sequence, device) in ["a", "b", "a"].iter().enumerate() {
            write(&writer, &format!("3,{sequence},{sequence}000000,-;{device} is sick\n"));
        }
        let batch = log.drain(100).unwrap();
        assert_eq!(drained(&batch), [("b", 1), ("a", 2)]);
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
        assert_eq!(drained(&log.drain(100).unwrap()), [("b", 1)]);
    }

    #[test]
    fn records_that_were_overwritten_are_counted() {
        let (mut log, writer) = log(None);
        for sequence in [700, 701, 705, 706] {
            write(&writer, &format!("3,{sequence},1,-;x\n"));
        }
        assert_eq!(log.drain(100).unwrap().lost, 3); // and the first that is there had none before it
        assert_eq!(log.position().next, 707);
    }

    #[test]
    fn a_restarted_reader_goes_on_where_the_earlier_one_was() {
        let (mut log, writer) = log(Some(Position { next: 3, lag: 2.0 }));
        for (sequence, device) in [(1, "a"), (2, "b"), (3, "c"), (6, "d")] {
            write(&writer, &format!("3,{sequence},1000000,-;{device} is sick\n"));
        }
        let batch = log.drain(100).unwrap();
        assert_eq!((drained(&batch), batch.lost), (vec![("c", 1), ("d", 1)], 2));
        assert!((batch.events[0].monotonic - 3.0).abs() < 1e-9); // by the lag of the position
    }

    #[test]
    fn no_more_records_are_read_than_asked_for() {
        let (mut log, writer) = log(None);
        for sequence in 0..3 {
            write(&writer, &format!("3,{sequence},1,-;{sequence} is sick\n"));
        }
        let first = log.drain(2).unwrap();
        assert_eq!((drained(&first), first.more), (vec![("0", 1), ("1", 1)], true));
        let second = log.drain(2).unwrap();
        assert_eq!((drained(&second), second.more), (vec![("2", 1)], false));
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
                    *times.entry(event.matched.pci_address).or_insert(0) += event.times;
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

    #[test]
    fn a_record_is_a_prefix_a_text_and_what_device_it_is_about() {
        let about_a_device = b"3,812,5140900,-;nvme 0000:5e:00.0: gone\n SUBSYSTEM=pci\n DEVICE=+pci:0000:5e:00.0\n";
        let expected = Record {
            facility: 0,
            sequence: 812,
            microseconds: 5_140_900,
            escaped: b"nvme 0000:5e:00.0: gone",
            pci_address: Some("0000:5e:00.0"),
        };
        assert_eq!(Record::parsed(about_a_device), Some(expected));
        let of_a_later_kernel = Record::parsed(b"30,1,2,c,caller=T1;systemd[1]: a; b\n DEVICE=b8:0\n").unwrap();
        assert_eq!((of_a_later_kernel.facility, of_a_later_kernel.escaped), (3, &b"systemd[1]: a; b"[..]));
        assert_eq!(of_a_later_kernel.pci_address, None);
    }

    #[test]
    fn what_the_kernel_escapes_is_put_back() {
        let text = |escaped: &'static [u8]| {
            Record { facility: 0, sequence: 0, microseconds: 0, escaped, pci_address: None }.text().into_owned()
        };
        assert_eq!(text(b"NVRM: one\\x0aNVRM: two\\x5c"), b"NVRM: one\nNVRM: two\\");
        assert_eq!(text(b"\\x"), b"\\x");
        assert_eq!(text(b"\\xzz\\x0"), b"\\xzz\\x0");
    }

    #[test]
    fn text_that_is_not_a_record_is_not_parsed() {
        for record in [&b""[..], b"no prefix", b"6,1;too short", b"a,1,2,-;x", b"6,-1,2,-;x", b"\xff,1,2,-;x"] {
            assert_eq!(Record::parsed(record), None);
        }
    }

    proptest! {
        #[test]
        fn no_record_is_too_odd(record: Vec<u8>) {
            prop_assert!(Record::parsed(&record).is_none_or(|parsed| parsed.text().len() <= record.len()));
        }
    }
}
