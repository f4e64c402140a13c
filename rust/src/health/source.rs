//! What a source of findings is: the reasons that it can give, and what it looks at for a device.
//!
//! A source reports what it sees. The policy decides whether that makes a device Unhealthy, and when that ends; the
//! meanings that a source registers are the defaults.

use std::borrow::Cow;
use std::fmt::Debug;
use std::path::Path;
use std::time::Instant;

use rustix::io::Errno;

use super::kept_file::ReadOnce;
use crate::device::Device;
use crate::finding::Finding;
use crate::host::Host;
use crate::host::attribute::Cause;

/// The kind of read that a source makes: its cost, and whether it can wake or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Variables of the kernel: cheap, never wakes a device, never blocks.
    KernelMemory,
    /// Configuration space of a PCI function: may wake the function, waits while it is being reset.
    ConfigSpace,
    /// Registers of the device, some behind a slow bus.
    DeviceRegisters,
    /// A question to the card's firmware: up to milliseconds each, one after another.
    Firmware,
    /// Nodes and other paths of the host.
    Filesystem,
    /// No read.
    None,
    /// Polls read nothing: a process or module in Python looks. The text tells users how.
    Elsewhere(&'static str),
}

impl Class {
    /// The words that users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KernelMemory => "kernel memory",
            Self::ConfigSpace => "config space",
            Self::DeviceRegisters => "device registers",
            Self::Firmware => "firmware",
            Self::Filesystem => "filesystem",
            Self::None => "none",
            Self::Elsewhere(how) => how,
        }
    }
}

/// How often a source looks at a subject that exists, in rounds of regular polls. An event makes it look at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Each round: a fault that can make a device Unhealthy, in a small file that answers at once.
    Each,
    /// As `Each`, for a fault that the kernel log also reports: each tenth round while the log is read.
    EachUnlessLogged,
    /// Each fifth round: a fault that can make a device Unhealthy and lasts for seconds.
    Fifth,
    /// Each tenth round: a read that may wake a device or wait for it, a fault that only warns or that an event
    /// reports.
    Tenth,
    /// Each thirtieth round: a read that keeps the card's firmware busy.
    Thirtieth,
    /// Each sixtieth round: a read that keeps the firmware busy, for a fault that only warns.
    Sixtieth,
    /// No regular poll.
    Elsewhere,
}

impl Pace {
    /// Rounds from one look to the next.
    pub(super) const fn rounds(self, is_logged: bool) -> u64 {
        match self {
            Self::EachUnlessLogged if is_logged => 10,
            Self::Each | Self::EachUnlessLogged | Self::Elsewhere => 1,
            Self::Fifth => 5,
            Self::Tenth => 10,
            Self::Thirtieth => 30,
            Self::Sixtieth => 60,
        }
    }

    /// The words that users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Each => "each poll",
            Self::EachUnlessLogged => "each poll, or each tenth while the kernel log is read",
            Self::Fifth => "each fifth poll",
            Self::Tenth => "each tenth poll",
            Self::Thirtieth => "each thirtieth poll",
            Self::Sixtieth => "each sixtieth poll",
            Self::Elsewhere => "",
        }
    }
}

/// What a finding does to a device unless the configuration says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The device is Unhealthy.
    Unhealthy,
    /// The device gets a warning.
    Warn,
    /// Nothing; the finding is counted, and shown on request.
    Ignore,
}

impl Action {
    /// The word that users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unhealthy => "unhealthy",
            Self::Warn => "warn",
            Self::Ignore => "ignore",
        }
    }
}

/// Evidence that the cause of an event is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// A driver was bound to the device again.
    Rebound,
    /// The device was gone and is back.
    Readded,
    /// The host was rebooted.
    Rebooted,
    /// The driver asked for a recovery action, and asks for none now.
    RecoveryNone,
    /// A query of the driver's recovery action returns none.
    RecoveryUnasked,
    /// The driver has restarted the device: its counters began again, or it answers again.
    Restarted,
    /// The driver has started the device: NVML opens it, or procfs shows what only a started device tells.
    Started,
    /// The PCI function answers: its configuration space was read.
    Answered,
    /// The source has withdrawn its finding.
    SourceCleared,
    /// An operator has cleared it.
    Operator,
}

impl Evidence {
    /// All kinds of evidence.
    pub const ALL: [Self; 10] = [
        Self::Rebound,
        Self::Readded,
        Self::Rebooted,
        Self::RecoveryNone,
        Self::RecoveryUnasked,
        Self::Restarted,
        Self::Started,
        Self::Answered,
        Self::SourceCleared,
        Self::Operator,
    ];

    /// The word that users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rebound => "rebound",
            Self::Readded => "readded",
            Self::Rebooted => "rebooted",
            Self::RecoveryNone => "recovery-none",
            Self::RecoveryUnasked => "recovery-unasked",
            Self::Restarted => "restarted",
            Self::Started => "started",
            Self::Answered => "answered",
            Self::SourceCleared => "source-cleared",
            Self::Operator => "operator",
        }
    }
}

/// How a finding ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clears {
    /// It lasts as long as it is seen.
    Level,
    /// It is a counted event, and ends after this many seconds without another one.
    Quiet(u32),
    /// It is an event, and ends when one of these is seen after it.
    Until(&'static [Evidence]),
    /// It is an event, and ends only when its source or an operator clears it.
    Never,
}

impl Clears {
    /// The word for the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Level => "level",
            Self::Quiet(_) => "quiet",
            Self::Until(_) => "until",
            Self::Never => "never",
        }
    }
}

/// A reason that a source can give, and its default meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meaning {
    /// The word that users see: `link-degraded`.
    pub reason: &'static str,
    /// The default action.
    pub action: Action,
    /// How it ends.
    pub clears: Clears,
    /// Whether a finding that is present at the first look is only a warning: nobody saw it appear, and the device may
    /// have worked with it since the last boot.
    pub only_when_new: bool,
    /// Whether it means worse than the best state seen in this boot: an operator may declare the present state right.
    pub is_relative: bool,
    /// Seconds that it must last before it counts.
    pub after: u32,
    /// Whether frequent coming and going is itself a fault: the finding is then held longer.
    pub is_damped: bool,
    /// The condition for the finding, as text for users.
    pub threshold: &'static str,
    /// What a person does about it, in the imperative, on one line. `{slot}` stands for a fact of the device, `{place}`
    /// for its slot and address; facts that may be unknown are in brackets, `[ {place}]`: the first alternative that
    /// is known, or nothing. The names: `to_do` in `python/devherd/reasons/registry.py`.
    pub to_do: &'static str,
    /// The same for certain values of the finding.
    pub to_do_by_value: &'static [(&'static str, &'static str)],
    /// Separate meanings for certain values of the finding; a finding is held separately for each of these values.
    pub by_value: &'static [(&'static str, Meaning)],
}

impl Meaning {
    /// A reason that makes a device Unhealthy as long as it is seen.
    #[must_use]
    pub const fn unhealthy(reason: &'static str, threshold: &'static str, to_do: &'static str) -> Self {
        Self {
            reason,
            action: Action::Unhealthy,
            clears: Clears::Level,
            only_when_new: false,
            is_relative: false,
            after: 0,
            is_damped: true,
            threshold,
            to_do,
            to_do_by_value: &[],
            by_value: &[],
        }
    }

    /// A reason that is a warning as long as it is seen.
    #[must_use]
    pub const fn warning(reason: &'static str, threshold: &'static str, to_do: &'static str) -> Self {
        Self { action: Action::Warn, ..Self::unhealthy(reason, threshold, to_do) }
    }

    /// A reason that does nothing unless the configuration says otherwise.
    #[must_use]
    pub const fn ignored(reason: &'static str, threshold: &'static str, to_do: &'static str) -> Self {
        Self { action: Action::Ignore, ..Self::unhealthy(reason, threshold, to_do) }
    }

    /// Makes it a warning if it is present at the first look at a device.
    #[must_use]
    pub const fn only_when_new(self) -> Self {
        Self { only_when_new: true, ..self }
    }

    /// Makes it relative to the best state in this boot.
    #[must_use]
    pub const fn relative(self) -> Self {
        Self { is_relative: true, ..self }
    }

    /// Makes it an event that ends after this many seconds without another one.
    #[must_use]
    pub const fn until_quiet_for(self, seconds: u32) -> Self {
        Self { clears: Clears::Quiet(seconds), ..self }
    }

    /// Makes it an event that ends when one of these is seen after it.
    #[must_use]
    pub const fn until(self, evidence: &'static [Evidence]) -> Self {
        Self { clears: Clears::Until(evidence), ..self }
    }

    /// Makes it an event that only its source or an operator can clear.
    #[must_use]
    pub const fn for_good(self) -> Self {
        Self { clears: Clears::Never, ..self }
    }

    /// Makes it count only after it has lasted for this many seconds.
    #[must_use]
    pub const fn after(self, seconds: u32) -> Self {
        Self { after: seconds, ..self }
    }

    /// Turns damping off, for a finding that comes and goes in normal use or by an operator's action.
    #[must_use]
    pub const fn undamped(self) -> Self {
        Self { is_damped: false, ..self }
    }

    /// Says what to do for certain values of the finding.
    #[must_use]
    pub const fn to_do_by_value(self, to_do_by_value: &'static [(&'static str, &'static str)]) -> Self {
        Self { to_do_by_value, ..self }
    }

    /// Gives certain values of the finding meanings of their own.
    #[must_use]
    pub const fn by_value(self, by_value: &'static [(&'static str, Meaning)]) -> Self {
        Self { by_value, ..self }
    }
}

/// The description of a source, independent of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// The word that users see: `pci-link`.
    pub name: &'static str,
    /// The kind of read it makes.
    pub reads: Class,
    /// How often it looks.
    pub pace: Pace,
    /// Where the data that it reads is documented.
    pub document: &'static str,
    /// Every reason that it can give.
    pub meanings: &'static [Meaning],
}

impl About {
    /// A finding of this source, for one of its registered reasons.
    #[must_use]
    pub fn finding(&'static self, reason: &'static str) -> Finding {
        debug_assert!(self.meanings.iter().any(|meaning| meaning.reason == reason), "{} of {}", reason, self.name);
        Finding::new(self.name, reason)
    }
}

/// One source of findings. To add one: a file in `sources`, and its line in the registry there.
pub trait Source: Debug + Sync {
    /// The description of the source.
    fn about(&self) -> &'static About;

    /// What it looks at for this device; empty if it has no subject there. Must not read anything that could hang.
    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject>;
}

/// Something that is looked at again and again. Devices of a card share equal subjects.
#[derive(Debug)]
pub struct Subject {
    /// The file, without the host root.
    pub file: String,
    /// Distinguishes subjects of this source with the same file.
    pub variant: String,
    /// How it is looked at.
    pub examination: Box<dyn Examination>,
}

impl Subject {
    /// The only subject of its source with this file.
    pub fn new(file: impl Into<String>, examination: impl Examination + 'static) -> Self {
        Self { file: file.into(), variant: String::new(), examination: Box::new(examination) }
    }

    /// Sets the variant, if several subjects have the same file.
    #[must_use]
    pub fn variant(mut self, variant: impl Into<String>) -> Self {
        self.variant = variant.into();
        self
    }
}

/// How a subject is looked at, and the state kept between two looks.
pub trait Examination: Debug + Send {
    /// Looks once. Runs behind the fence, so it may hang.
    fn look(&mut self, context: LookContext<'_>) -> Observation;

    /// Whether it has counted something, so that it must be kept while nobody looks.
    fn has_counted(&self) -> bool {
        self.memory().is_some()
    }

    /// What a later process must know about this boot; `None` if nothing.
    fn memory(&self) -> Option<String> {
        None
    }

    /// Takes over what an earlier process knew, in addition to its own state.
    fn recall(&mut self, _memory: &str) {}

    /// Forgets the best state so far: later looks are compared with the next one.
    fn forget_best(&mut self) {}

    /// Whether it can have `counts`.
    fn is_counting(&self) -> bool {
        false
    }

    /// Numbers that it has read and that are not findings, as of the last look.
    fn counts(&self) -> Vec<Count> {
        Vec::new()
    }

    /// Closes its file; the next look opens it again.
    fn close(&mut self) {}
}

/// The context of a look.
#[derive(Debug, Clone, Copy)]
pub struct LookContext<'a> {
    /// The host.
    pub host: &'a Host,
    /// The subject's file, without the host root.
    pub file: &'a str,
    /// Whether the file may stay open until the next look.
    pub stays_open: bool,
    /// What was read during this look at the card.
    pub reads: &'a ReadOnce,
    /// The current time.
    pub now: Instant,
}

impl LookContext<'_> {
    /// The content of an attribute during this look at the card.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn read(&self, path: &Path) -> Result<String, Cause> {
        self.reads.read(path)
    }
}

/// The result of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// No fault.
    Fine,
    /// There was nothing to look at.
    Nothing,
    /// A finding.
    Seen(Finding),
    /// It did not look, or could not; the reason.
    NotLooked(String),
    /// It must look again soon before it can tell; the reason.
    Unsure(String),
}

/// Whether a failed read is itself a sign that the hardware fails.
pub(super) fn is_failure(cause: &Cause) -> bool {
    matches!(cause, Cause::System(Errno::IO | Errno::REMOTEIO | Errno::TIMEDOUT))
}

/// The observation for a failed read that is not a sign of failing hardware: nothing, if the file is absent or does not
/// apply; not looked, if it is busy, forbidden (also by a driver whose device is asleep) or beyond this process's
/// limits.
pub(super) fn failed_read(cause: &Cause) -> Observation {
    match cause {
        Cause::System(
            Errno::ACCESS | Errno::PERM | Errno::BUSY | Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM,
        ) => Observation::NotLooked(format!("cannot be read: {cause}")),
        _ => Observation::Nothing,
    }
}

/// A number for metrics, read by a source for the devices at a PCI address; not a finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    /// Address of the PCI function; if a source leaves it empty, the address of each device with the subject.
    pub pci_address: String,
    /// The RDMA device, `mlx5_0`, if several have that address. Empty: all devices there.
    pub ibdev: String,
    /// The part: a port, a block. Empty if the device is counted as a whole.
    pub part: String,
    /// Name of the metric: `rdma-errors`.
    pub name: &'static str,
    /// Kind of the things counted.
    pub kind: Cow<'static, str>,
    /// The number.
    pub number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failing_hardware_is_blamed_for_a_failing_read() {
        for errno in [Errno::IO, Errno::REMOTEIO, Errno::TIMEDOUT] {
            assert!(is_failure(&Cause::System(errno)), "{errno}");
        }
        for errno in [Errno::NOENT, Errno::NODEV, Errno::NODATA, Errno::OPNOTSUPP, Errno::INVAL, Errno::ISDIR] {
            let cause = Cause::System(errno);
            assert_eq!((is_failure(&cause), failed_read(&cause)), (false, Observation::Nothing), "{errno}");
        }
        for errno in [Errno::BUSY, Errno::AGAIN, Errno::ACCESS, Errno::PERM, Errno::MFILE] {
            let cause = Cause::System(errno);
            assert!(!is_failure(&cause) && matches!(failed_read(&cause), Observation::NotLooked(_)), "{errno}");
        }
    }
}
