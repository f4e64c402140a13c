//! One check carried out again and again: what is read, and what that says about the device.

use std::path::Path;

use rustix::io::Errno;

use super::aer;
use super::kept_file::{Keeping, KeptFile};
use super::link::LinkFiles;
use crate::attribute::{Cause, decimal, hexadecimal, trimmed};
use crate::check::Check;
use crate::device::Reason;
use crate::host::Host;

/// A check, and what it keeps between two polls.
#[derive(Debug)]
pub(super) struct Examination {
    check: Check,
    files: Files,
}

#[derive(Debug)]
enum Files {
    /// Of the checks that ask for a path anew each time.
    None,
    /// Of [`Check::Zero`] and [`Check::Below`].
    Value(KeptFile),
    /// Of [`Check::Link`].
    Link(LinkFiles),
    /// Of [`Check::AerRise`], with the count of the last poll.
    Count(KeptFile, Option<u64>),
}

impl Examination {
    /// Reads nothing yet.
    pub(super) fn new(check: Check) -> Self {
        let files = match &check {
            Check::NodePresent { .. } | Check::PathPresent { .. } => Files::None,
            Check::Zero { attribute, .. } | Check::Below { attribute, .. } => Files::Value(KeptFile::new(attribute)),
            Check::Link { function } => Files::Link(LinkFiles::new(function)),
            Check::AerRise { attribute } => Files::Count(KeptFile::new(attribute), None),
        };
        Self { check, files }
    }

    /// The check that it carries out.
    pub(super) fn check(&self) -> &Check {
        &self.check
    }

    /// What is wrong, if anything.
    pub(super) fn fault(&mut self, keeping: Keeping, host: &Host) -> Option<Reason> {
        match (&self.check, &mut self.files) {
            (Check::NodePresent { path, number }, _) => host.lacks_node(path, *number).then_some(Reason::NodeMissing),
            (Check::PathPresent { path }, _) => is_missing(path).then_some(Reason::NodeMissing),
            (Check::Zero { reason, .. }, Files::Value(file)) => {
                blame(file.read(keeping).map(|(text, _)| value(&text).map(|value| value != 0)), *reason)
            }
            (Check::Below { limit, reason, .. }, Files::Value(file)) => blame(
                file.read(keeping).map(|(text, _)| value(&text).map(|value| value >= i128::from(*limit))),
                *reason,
            ),
            (Check::Link { function }, Files::Link(files)) => {
                blame(files.is_degraded(function, keeping).map(Some), Reason::LinkDegraded)
            }
            (Check::AerRise { .. }, Files::Count(file, last)) => {
                let risen = file.read(keeping).map(|(text, _)| aer::total(&text).map(|total| has_risen(last, total)));
                blame(risen, Reason::PciAer)
            }
            _ => None,
        }
    }
}

/// How many descriptors a check keeps open at most.
pub(super) fn most_open(check: &Check) -> u64 {
    match check {
        Check::NodePresent { .. } | Check::PathPresent { .. } => 0,
        Check::Zero { .. } | Check::Below { .. } | Check::AerRise { .. } => 1,
        Check::Link { .. } => 2,
    }
}

/// Whether nothing is at a path. Who may not look cannot tell.
fn is_missing(path: &Path) -> bool {
    rustix::fs::stat(path).is_err_and(|error| !matches!(error, Errno::ACCESS | Errno::PERM))
}

/// `0x1f` or `31`.
fn value(text: &str) -> Option<i128> {
    let text = trimmed(text);
    if text.starts_with("0x") { hexadecimal(text).map(i128::from) } else { decimal(text).map(i128::from) }
}

fn has_risen(last: &mut Option<u64>, total: u64) -> bool {
    last.replace(total).is_some_and(|last| total > last)
}

/// A fault that was found, or that must be supposed: text that is no number, and reads that failed in the hardware, do
/// not say that all is well. Attributes that are absent, busy or not ours to read say nothing.
fn blame(faulty: Result<Option<bool>, Cause>, reason: Reason) -> Option<Reason> {
    let blamed = faulty.map_or_else(|cause| is_failure(&cause), |faulty| faulty.unwrap_or(true));
    blamed.then_some(reason)
}

fn is_failure(cause: &Cause) -> bool {
    match cause {
        Cause::System(errno) => matches!(*errno, Errno::IO | Errno::REMOTEIO | Errno::TIMEDOUT),
        Cause::TooLarge | Cause::Unexpected { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, write};
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    const KEPT: Keeping = Keeping { open: true, check_links: true };

    fn fault(check: Check, simulated: bool) -> Option<Reason> {
        let root = tempfile::tempdir().unwrap();
        if simulated {
            write(root.path().join(".devherd-simulated-node"), "").unwrap();
        }
        Examination::new(check).fault(KEPT, &Host::new(root.path()))
    }

    fn node(path: impl AsRef<Path>, number: Option<(u32, u32)>, simulated: bool) -> Option<Reason> {
        fault(Check::NodePresent { path: path.as_ref().into(), number }, simulated)
    }

    #[test]
    fn a_node_is_a_device_of_its_number() {
        assert_eq!(node("/dev/null", None, false), None);
        assert_eq!(node("/dev/null", Some((1, 3)), false), None);
        assert_eq!(node("/dev/null", Some((1, 5)), false), Some(Reason::NodeMissing));
        assert_eq!(node("/dev/missing", None, false), Some(Reason::NodeMissing));
        assert_eq!(node("/dev/null/below", None, false), Some(Reason::NodeMissing));
        assert_eq!(node("/dev", None, false), Some(Reason::NodeMissing));
        assert_eq!(node("/dev", None, true), Some(Reason::NodeMissing));
    }

    #[test]
    fn a_plain_file_is_a_node_on_a_simulated_host_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dfl-port.0");
        write(&path, "").unwrap();
        assert_eq!(node(&path, Some((245, 0)), false), Some(Reason::NodeMissing));
        assert_eq!(node(&path, Some((245, 0)), true), None);
    }

    #[test]
    fn a_link_is_what_it_leads_to() {
        let directory = tempfile::tempdir().unwrap();
        let missing = Some(Reason::NodeMissing);
        for (name, target, expected) in
            [("by-id", "/dev/null", None), ("dangling", "nowhere", missing), ("loop", "loop", missing)]
        {
            symlink(target, directory.path().join(name)).unwrap();
            assert_eq!(node(directory.path().join(name), None, false), expected, "{name}");
        }
    }

    #[test]
    fn any_kind_of_path_is_present_or_not() {
        let present = |path: &str| fault(Check::PathPresent { path: path.into() }, false);
        assert_eq!(
            (present("/dev"), present("/dev/null"), present("/missing")),
            (None, None, Some(Reason::NodeMissing))
        );
    }

    /// The faults of attributes with these texts, one after the other; `None` makes it absent.
    fn faults(check: impl Fn(&Path) -> Check, texts: &[Option<&str>]) -> Vec<Option<Reason>> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("attribute");
        let mut examination = Examination::new(check(&path));
        let mut faults = Vec::new();
        for text in texts {
            match text {
                Some(text) => write(&path, text).unwrap(),
                None => std::fs::remove_file(&path).unwrap_or_default(),
            }
            faults.push(examination.fault(KEPT, &Host::new("/")));
        }
        faults
    }

    #[test]
    fn a_mask_must_be_zero() {
        let check = |path: &Path| Check::Zero { attribute: path.into(), reason: Reason::PortError };
        let bad = Some(Reason::PortError);
        let texts =
            [None, Some("0x0\n"), Some("0x20\n"), Some("0"), None, Some("7"), Some("0xffffffffffffffff"), Some("-1")];
        assert_eq!(faults(check, &texts), [None, None, bad, None, None, bad, bad, bad]);
        assert_eq!(faults(check, &[Some("garbage"), Some(""), Some("0x0\0\n")]), [bad, bad, None]);
    }

    #[test]
    fn a_reading_must_stay_below_its_limit() {
        let check = |path: &Path| Check::Below { attribute: path.into(), limit: 90_000, reason: Reason::Temperature };
        let hot = Some(Reason::Temperature);
        assert_eq!(
            faults(check, &[Some("-5000"), Some("89999\n"), Some("90000"), Some("20")]),
            [None, None, hot, None]
        );
    }

    #[test]
    fn a_count_of_errors_must_not_rise() {
        let check = |path: &Path| Check::AerRise { attribute: path.into() };
        let rise = Some(Reason::PciAer);
        let texts =
            ["DLP 1\nTOTAL_ERR_FATAL 1", "TOTAL_ERR_FATAL 1", "TOTAL_ERR_FATAL 2", "TOTAL_ERR_FATAL 2"].map(Some);
        assert_eq!(faults(check, &texts), [None, None, rise, None]);
        let reset = ["TOTAL_ERR_FATAL 5", "TOTAL_ERR_FATAL 0", "TOTAL_ERR_FATAL 1"].map(Some);
        assert_eq!(faults(check, &reset), [None, None, rise]);
    }

    #[test]
    fn only_a_failing_device_is_blamed_for_a_failing_read() {
        let outcome = |errno| blame(Err(Cause::System(errno)), Reason::FmeError);
        for errno in [Errno::IO, Errno::REMOTEIO, Errno::TIMEDOUT] {
            assert_eq!(outcome(errno), Some(Reason::FmeError), "{errno}");
        }
        for errno in [Errno::NOENT, Errno::NODEV, Errno::BUSY, Errno::AGAIN, Errno::ACCESS, Errno::PERM, Errno::MFILE] {
            assert_eq!(outcome(errno), None, "{errno}");
        }
    }

    #[test]
    fn a_directory_in_place_of_an_attribute_is_no_fault_and_no_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("attribute");
        create_dir(&path).unwrap();
        assert_eq!(fault(Check::Zero { attribute: path, reason: Reason::FmeError }, false), None);
    }

    proptest! {
        #[test]
        fn any_text_can_be_a_value(text: String) {
            value(&text);
        }

        #[test]
        fn hexadecimal_and_decimal_mean_the_same(number: u32) {
            prop_assert_eq!(value(&format!("{number:#x}\n")), Some(i128::from(number)));
            prop_assert_eq!(value(&format!("{number}\n")), Some(i128::from(number)));
        }
    }
}
