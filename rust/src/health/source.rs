//! What a source of findings is: what it can say, and what it looks at for a device.
//!
//! A source says what it sees. Whether that makes a device Unhealthy, and when that is taken back, is decided elsewhere; the
//! meanings that a source registers are the defaults for that.

use std::fmt::Debug;
use std::time::Instant;

use rustix::io::Errno;

use super::count::Count;
use super::finding::Finding;
use super::kept_file::Keeping;
use crate::device::Device;
use crate::host::Host;
use crate::host::attribute::Cause;

/// What kind of read a source makes: what that costs, and whether it can wake or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Variables of the kernel: cheap, never wakes a device, never blocks.
    KernelMemory,
    /// Configuration space of a PCI function: may wake it, waits while the function is being reset.
    ConfigSpace,
    /// Registers of the device, some behind a slow bus.
    DeviceRegisters,
    /// A question to the card's firmware: up to milliseconds each, one after another.
    Firmware,
    /// Nodes and other paths of the host.
    Filesystem,
    /// It makes none of its own.
    None,
}

impl Class {
    /// The words users meet.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KernelMemory => "kernel memory",
            Self::ConfigSpace => "config space",
            Self::DeviceRegisters => "device registers",
            Self::Firmware => "firmware",
            Self::Filesystem => "filesystem",
            Self::None => "none",
        }
    }
}

/// What a finding does to a device unless the configuration says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The device is Unhealthy.
    Unhealthy,
    /// A warning stands beside the device's health.
    Warn,
    /// Nothing: it is counted and shown where somebody asks for it.
    Ignore,
}

impl Action {
    /// The word users meet.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unhealthy => "unhealthy",
            Self::Warn => "warn",
            Self::Ignore => "ignore",
        }
    }
}

/// What shows that the cause of an event is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// A driver has been bound to the device anew.
    Rebound,
    /// The device was gone and is there again.
    Readded,
    /// The host has booted since.
    Rebooted,
    /// The driver wanted something done to the device, and does no more.
    RecoveryNone,
    /// The driver, asked after it, has nothing done to the device.
    RecoveryUnasked,
    /// The source takes its word back.
    SourceCleared,
    /// An operator says so.
    Operator,
}

impl Evidence {
    /// The word users meet.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rebound => "rebound",
            Self::Readded => "readded",
            Self::Rebooted => "rebooted",
            Self::RecoveryNone => "recovery-none",
            Self::RecoveryUnasked => "recovery-unasked",
            Self::SourceCleared => "source-cleared",
            Self::Operator => "operator",
        }
    }
}

/// How a finding is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clears {
    /// It holds as long as it is seen.
    Level,
    /// It is an event that was counted, and is over after this many seconds without a further one.
    Quiet(u32),
    /// It is an event, and is over when one of these is seen after it.
    Until(&'static [Evidence]),
    /// It is an event that only its source or an operator can take back.
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

/// A reason that a source may give, and what it means by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meaning {
    /// The word users meet: `link-degraded`.
    pub reason: &'static str,
    /// What it does.
    pub action: Action,
    /// How it goes.
    pub clears: Clears,
    /// Whether what stands at the first look at a device is a warning only: nobody saw it come, and the device may have
    /// worked with it since the last boot.
    pub only_when_new: bool,
    /// For how many seconds it must stand before it counts.
    pub after: u32,
    /// Whether coming and going is a fault of its own, so that it is held for longer when it comes often.
    pub is_damped: bool,
    /// What it takes for the source to say it, for people.
    pub threshold: &'static str,
}

impl Meaning {
    /// A reason that makes a device Unhealthy as long as it is seen.
    #[must_use]
    pub const fn unhealthy(reason: &'static str, threshold: &'static str) -> Self {
        Self {
            reason,
            action: Action::Unhealthy,
            clears: Clears::Level,
            only_when_new: false,
            after: 0,
            is_damped: true,
            threshold,
        }
    }

    /// A reason that stands beside a device's health as a warning for as long as it is seen.
    #[must_use]
    pub const fn warning(reason: &'static str, threshold: &'static str) -> Self {
        Self { action: Action::Warn, ..Self::unhealthy(reason, threshold) }
    }

    /// A reason that does nothing to a device unless the configuration says otherwise.
    #[must_use]
    pub const fn ignored(reason: &'static str, threshold: &'static str) -> Self {
        Self { action: Action::Ignore, ..Self::unhealthy(reason, threshold) }
    }

    /// The same, for what a device may have had before anybody looked.
    #[must_use]
    pub const fn only_when_new(self) -> Self {
        Self { only_when_new: true, ..self }
    }

    /// The same, for an event that is over after this many seconds without a further one.
    #[must_use]
    pub const fn until_quiet_for(self, seconds: u32) -> Self {
        Self { clears: Clears::Quiet(seconds), ..self }
    }

    /// The same, for an event that is over when one of these is seen after it.
    #[must_use]
    pub const fn until(self, evidence: &'static [Evidence]) -> Self {
        Self { clears: Clears::Until(evidence), ..self }
    }

    /// The same, for an event that only its source or an operator can take back.
    #[must_use]
    pub const fn for_good(self) -> Self {
        Self { clears: Clears::Never, ..self }
    }

    /// The same, counting only when it has stood for this many seconds.
    #[must_use]
    pub const fn after(self, seconds: u32) -> Self {
        Self { after: seconds, ..self }
    }

    /// The same, for what comes and goes in use, or as an operator wants it.
    #[must_use]
    pub const fn undamped(self) -> Self {
        Self { is_damped: false, ..self }
    }
}

/// What is known of a source without looking at a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// The word users meet: `pci-link`.
    pub name: &'static str,
    /// What kind of read it makes.
    pub reads: Class,
    /// Where what it reads is documented.
    pub document: &'static str,
    /// Every reason that it may give.
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
    /// What is known of it.
    fn about(&self) -> &'static About;

    /// What it looks at for this device; nothing for a device that it has nothing to say of. Reads nothing that could hang.
    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject>;
}

/// Something to be looked at again and again. Devices of a card with equal subjects share one.
#[derive(Debug)]
pub struct Subject {
    /// The file, as the host itself names it.
    pub file: String,
    /// What makes it another subject than others of this source with the same file.
    pub variant: String,
    /// How it is looked at.
    pub examination: Box<dyn Examination>,
}

impl Subject {
    /// The only subject of its source with this file.
    pub fn new(file: impl Into<String>, examination: impl Examination + 'static) -> Self {
        Self { file: file.into(), variant: String::new(), examination: Box::new(examination) }
    }

    /// The same, as one of several with the same file.
    #[must_use]
    pub fn variant(mut self, variant: impl Into<String>) -> Self {
        self.variant = variant.into();
        self
    }
}

/// How a subject is looked at, and what is kept between two looks.
pub trait Examination: Debug + Send {
    /// Looks once. Runs behind the fence, so it may hang.
    fn look(&mut self, here: Here<'_>) -> Sight;

    /// How many descriptors it keeps open at most.
    fn most_open(&self) -> u64 {
        0
    }

    /// Whether what it finds is worth a look with each poll, where the class of its reads allows that.
    fn is_urgent(&self) -> bool {
        true
    }

    /// Whether it has counted something, so that it must be kept while nobody looks.
    fn has_counted(&self) -> bool {
        self.memory().is_some()
    }

    /// What it saw in this boot that a later process has to know; `None` where that is nothing.
    fn memory(&self) -> Option<String> {
        None
    }

    /// Takes in what an earlier process knew, beside what it knows itself.
    fn recall(&mut self, _memory: &str) {}

    /// Whether it ever has `counts`.
    fn is_counting(&self) -> bool {
        false
    }

    /// Whether that may be other numbers than when this was asked last.
    fn takes_other_counts(&mut self) -> bool {
        true
    }

    /// What it has read on its way that is no finding, as it was last.
    fn counts(&self) -> Vec<Count> {
        Vec::new()
    }

    /// Closes its files, which are opened again when it looks next.
    fn close(&mut self) {}
}

/// Where a look is taken.
#[derive(Debug, Clone, Copy)]
pub struct Here<'a> {
    /// The host.
    pub host: &'a Host,
    /// The subject's file, as the host itself names it.
    pub file: &'a str,
    /// Whether files stay open.
    pub keeping: Keeping<'a>,
    /// This moment.
    pub now: Instant,
}

/// What a look came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// All is well.
    Fine,
    /// Nothing is there that could say otherwise.
    Nothing,
    /// Something is the matter.
    Seen(Finding),
    /// It did not look, or could not; why.
    NotLooked(String),
    /// It looked, and has to look once more, soon, before it can say anything; why.
    Unsure(String),
}

/// Whether a failed read is itself a sign that the hardware fails.
pub(super) fn is_failure(cause: &Cause) -> bool {
    matches!(cause, Cause::System(Errno::IO | Errno::REMOTEIO | Errno::TIMEDOUT))
}

/// What a failed read says where it is no sign of failing hardware. What is absent or does not apply says nothing; what is
/// busy, forbidden (also by a driver whose device is asleep) or beyond this process's limits was not looked at.
pub(super) fn no_statement(cause: &Cause) -> Sight {
    match cause {
        Cause::System(
            Errno::ACCESS | Errno::PERM | Errno::BUSY | Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM,
        ) => Sight::NotLooked(format!("cannot be read: {cause}")),
        _ => Sight::Nothing,
    }
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
            assert_eq!((is_failure(&cause), no_statement(&cause)), (false, Sight::Nothing), "{errno}");
        }
        for errno in [Errno::BUSY, Errno::AGAIN, Errno::ACCESS, Errno::PERM, Errno::MFILE] {
            let cause = Cause::System(errno);
            assert!(!is_failure(&cause) && matches!(no_statement(&cause), Sight::NotLooked(_)), "{errno}");
        }
    }
}
