//! Whether a PCI function is asleep. Reading its configuration space would wake it; reading these two attributes does
//! not.
//!
//! `power/runtime_status`: <https://docs.kernel.org/power/runtime_pm.html>; `power_state`:
//! <https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci>.
//!
//! `D3cold` has two meanings: the kernel also sets it for a function that did not answer when it was to be powered up
//! (`pci_power_up` in drivers/pci/pci.c). Such a function is not suspended, so nothing can wake it: reading it does no
//! harm, and shows whether it answers (`pci_config_pm_runtime_get` in drivers/pci/pci.c resumes only what is
//! suspended, and `rpm_resume` in drivers/base/power/runtime.c nothing after an error).

use std::path::{Path, PathBuf};

use super::kept_file::ReadOnce;
use crate::finding::quoted;
use crate::host::attribute::trimmed;

/// What `runtime_status` says of a function that nothing can wake: it is not suspended, its suspension has failed
/// for good, or it is never suspended.
const NEVER_WOKEN: [&str; 3] = ["active", "error", "unsupported"];

/// The power attributes of one function.
#[derive(Debug)]
pub(super) struct Power {
    runtime_status: PathBuf,
    power_state: PathBuf,
}

impl Power {
    /// The attributes of the PCI function with this directory, which includes the host root.
    pub(super) fn of(function: &Path) -> Self {
        Self { runtime_status: function.join("power/runtime_status"), power_state: function.join("power_state") }
    }

    /// Why the function must not be read; `None` if it is awake or its attributes do not tell.
    pub(super) fn asleep(&self, reads: &ReadOnce) -> Option<String> {
        match reads.read(&self.runtime_status) {
            Ok(text) => match trimmed(&text) {
                status if NEVER_WOKEN.contains(&status) => {}
                status @ ("suspended" | "suspending" | "resuming") => {
                    return Some(format!("asleep: runtime_status is {status}"));
                }
                other => return Some(format!("may be asleep: runtime_status is {:?}", quoted(other))),
            },
            // A file that is open already could still be read, and that would wake the function.
            Err(cause) if cause.is_beyond_limits() => {
                return Some(format!("may be asleep: runtime_status cannot be read: {cause}"));
            }
            Err(_) => {}
        }
        let state = match reads.read(&self.power_state) {
            Ok(text) => text,
            Err(cause) if cause.is_beyond_limits() => {
                return Some(format!("may be asleep: power_state cannot be read: {cause}"));
            }
            // Kernels before 5.11 have no such file.
            Err(_) => return None,
        };
        match trimmed(&state) {
            "D0" | "unknown" => None,
            "D3cold" if self.cannot_be_woken() => None,
            state @ ("D1" | "D2" | "D3hot" | "D3cold") => Some(format!("asleep: power_state is {state}")),
            other => Some(format!("may be asleep: power_state is {:?}", quoted(other))),
        }
    }

    /// Whether the function is not suspended, read now: it may have been suspended since the last read.
    fn cannot_be_woken(&self) -> bool {
        ReadOnce::default().read(&self.runtime_status).is_ok_and(|status| NEVER_WOKEN.contains(&trimmed(&status)))
    }
}

/// Whether the PCI function with this directory is awake; true if its attributes do not tell.
#[must_use]
pub fn is_awake(function: &Path) -> bool {
    Power::of(function).asleep(&ReadOnce::default()).is_none()
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, write};

    use rustix::io::Errno;

    use super::*;
    use crate::host::attribute::Cause;

    #[test]
    fn a_function_is_left_alone_unless_it_is_awake_or_nothing_is_known() {
        let function = tempfile::tempdir().unwrap();
        let power = Power::of(function.path());
        assert_eq!(power.asleep(&ReadOnce::default()), None, "nothing is known");
        create_dir(function.path().join("power")).unwrap();
        for (status, state, expected) in [
            ("active\n", "D0\n", None),
            ("unsupported\n", "D0\n", None),
            ("active\n", "unknown\n", None),
            ("suspended\n", "D0\n", Some("asleep: runtime_status is suspended")),
            ("suspending\n", "D0\n", Some("asleep: runtime_status is suspending")),
            ("error\n", "D0\n", None),
            ("error\n", "D3hot\n", Some("asleep: power_state is D3hot")),
            ("error\n", "D3cold\n", None),
            ("active\n", "D3cold\n", None),
            ("suspended\n", "D3cold\n", Some("asleep: runtime_status is suspended")),
            ("suspending\n", "D3cold\n", Some("asleep: runtime_status is suspending")),
            ("resuming\n", "D3cold\n", Some("asleep: runtime_status is resuming")),
            ("", "D0\n", Some("may be asleep: runtime_status is \"\"")),
            ("active\n", "D3hot\n", Some("asleep: power_state is D3hot")),
            ("unsupported\n", "D3cold\n", None),
            ("unsupported\n", "D1\n", Some("asleep: power_state is D1")),
            ("active\n", "error\n", Some("may be asleep: power_state is \"error\"")),
        ] {
            write(function.path().join("power/runtime_status"), status).unwrap();
            write(function.path().join("power_state"), state).unwrap();
            assert_eq!(power.asleep(&ReadOnce::default()).as_deref(), expected, "{status:?} {state:?}");
        }
    }

    /// Between the two reads of one look it was suspended.
    #[test]
    fn a_function_that_falls_asleep_during_the_look_is_left_asleep() {
        let function = tempfile::tempdir().unwrap();
        create_dir(function.path().join("power")).unwrap();
        write(function.path().join("power/runtime_status"), "suspended\n").unwrap();
        write(function.path().join("power_state"), "D3cold\n").unwrap();
        let reads = ReadOnce::default();
        reads.keep(&function.path().join("power/runtime_status"), Ok("active\n".to_owned()));
        let asleep = Power::of(function.path()).asleep(&reads);
        assert_eq!(asleep.as_deref(), Some("asleep: power_state is D3cold"));
    }

    /// Of a kernel without runtime power management nothing says what D3cold is.
    #[test]
    fn a_function_in_d3cold_of_which_nothing_else_is_known_is_left_asleep() {
        let function = tempfile::tempdir().unwrap();
        write(function.path().join("power_state"), "D3cold\n").unwrap();
        let asleep = Power::of(function.path()).asleep(&ReadOnce::default());
        assert_eq!(asleep.as_deref(), Some("asleep: power_state is D3cold"));
    }

    #[test]
    fn a_function_that_nobody_can_ask_without_descriptors_is_left_alone() {
        let function = tempfile::tempdir().unwrap();
        create_dir(function.path().join("power")).unwrap();
        write(function.path().join("power/runtime_status"), "active\n").unwrap();
        let power = Power::of(function.path());
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            for name in ["power/runtime_status", "power_state"] {
                let read_once = ReadOnce::default();
                read_once.keep(&function.path().join(name), Err(Cause::System(errno)));
                let name = name.trim_start_matches("power/");
                let expected = format!("may be asleep: {name} cannot be read: {errno}");
                assert_eq!(power.asleep(&read_once), Some(expected));
            }
        }
    }
}
