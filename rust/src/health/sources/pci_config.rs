//! Whether a PCI function still answers: its configuration space reads as all ones if it does not.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::CWD;
use rustix::io::{pread, retry_on_intr};

use crate::device::{Device, PciFunction};
use crate::health::kept_file::ReadOnce;
use crate::health::power::Power;
use crate::health::source::{
    About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject, failed_read, is_failure,
};
use crate::host::Host;
use crate::host::attribute::{Cause, open};

/// The reason of a function that answers nothing; the kernel log reports it, too.
pub(in crate::health) const OFF_BUS: &str = "off-bus";

/// For a function that does not answer: whether the card is broken shows after a new start.
pub(in crate::health) const CHECK_CARD: &str =
    "drain and reboot the node; if it comes again, have the card[ {place}] checked or replaced";

static ABOUT: About = About {
    name: "pci-config",
    reads: Class::ConfigSpace,
    pace: Pace::Tenth,
    document: "https://docs.kernel.org/PCI/sysfs-pci.html",
    meanings: &[Meaning::unhealthy(
        OFF_BUS,
        "the first four bytes of configuration space (vendor and device) are all ones twice, at least a second apart; not read \
         while the function is asleep or its power state is unknown (D3cold is no sleep unless runtime_status says so); for \
         a virtual function the physical one is read",
        CHECK_CARD,
    )],
};

/// The driver that gives whole functions to virtual machines.
const PASSTHROUGH: &str = "vfio-pci";

/// The source.
#[derive(Debug)]
pub(super) struct PciConfig;

impl Source for PciConfig {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        // A device that is offered to virtual machines is still looked at.
        let is_offered = device.attributes.contains_key("iommu_group");
        let is_ours = |function: &&PciFunction| is_offered || function.driver.as_deref() != Some(PASSTHROUGH);
        device.functions.iter().filter(is_ours).map(|function| subject(host, function)).collect()
    }
}

/// The physical function is looked at in place of a virtual one, whose identity always reads as all ones:
/// <https://docs.kernel.org/PCI/pci-iov-howto.html>.
fn subject(host: &Host, function: &PciFunction) -> Subject {
    let path = host.absolute(function.physical.as_ref().unwrap_or(&function.path));
    let config = path.join("config");
    let examined = Identity { power: Power::of(&path), config, silent_since: None };
    Subject::new(host.own_path(&examined.config).to_string_lossy(), examined)
}

#[derive(Debug)]
struct Identity {
    power: Power,
    config: PathBuf,
    /// When it first read as all ones; `None` after any other content.
    silent_since: Option<Instant>,
}

/// What a function reads as that does not answer.
const NO_ANSWER: [u8; 4] = [0xff; 4];

/// Whether the function with this directory, which includes the host root, is awake and answers. A virtual function
/// never does: ask the physical one.
#[must_use]
pub fn answers(function: &Path) -> bool {
    let is_awake = Power::of(function).asleep(&ReadOnce::default()).is_none();
    is_awake && matches!(vendor_and_device(&function.join("config")), Ok(Some(read)) if read != NO_ANSWER)
}

/// A function that is being reset also reads as all ones for a moment.
const SECOND_LOOK_AFTER: Duration = Duration::from_secs(1);

impl Examination for Identity {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        let silent_since = self.silent_since.take();
        if let Some(asleep) = self.power.asleep(context.reads) {
            return Observation::NotLooked(asleep);
        }
        let (value, detail) = match vendor_and_device(&self.config) {
            Ok(Some(NO_ANSWER)) => {
                let since = *self.silent_since.insert(silent_since.unwrap_or(context.now));
                if context.now.saturating_duration_since(since) < SECOND_LOOK_AFTER {
                    return Observation::Unsure("reads as all ones: it may be in the middle of a reset".to_owned());
                }
                ("ff ff ff ff", "nothing answers at this PCI address: vendor and device read as all ones".to_owned())
            }
            Ok(_) => return Observation::Fine,
            Err(cause) if is_failure(&cause) => ("", format!("configuration space cannot be read: {cause}")),
            Err(cause) => return failed_read(&cause),
        };
        Observation::Seen(ABOUT.finding(OFF_BUS).at(context.file).reading(value).because(&detail))
    }
}

/// The first bytes of a configuration space; `None` if it is shorter.
fn vendor_and_device(config: &Path) -> Result<Option<[u8; 4]>, Cause> {
    let file = open(CWD, config)?;
    let mut bytes = [0_u8; 4];
    let length = retry_on_intr(|| pread(&file, &mut bytes[..], 0)).map_err(Cause::System)?;
    Ok((length == bytes.len()).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{FUNCTION, PHYSICAL, Tree, device, virtual_one};
    use super::*;

    const NOTHING: [u8; 64] = [0xff; 64];
    const IDENTITY: [u8; 4] = [0xde, 0x10, 0x35, 0x23];

    #[test]
    fn a_function_whose_configuration_is_all_ones_is_off_the_bus() {
        let tree = Tree::new();
        let mut watching = tree.watch(&PciConfig, &device("nvidia", Some("nvidia")));
        assert_eq!(watching.observation(), Observation::Nothing, "nothing says so");
        tree.set("config", IDENTITY);
        assert_eq!(watching.observation(), Observation::Fine);
        tree.set("config", NOTHING);
        watching.observation();
        watching.wait(1.0);
        let finding = watching.finding();
        let file = format!("{FUNCTION}/config");
        assert_eq!((&*finding.reason, finding.file, &*finding.value), ("off-bus", file, "ff ff ff ff"));
        tree.set("config", [0xff; 3]);
        assert_eq!(watching.observation(), Observation::Fine, "too short to say so");
    }

    #[test]
    fn all_ones_for_a_moment_are_a_reset_and_no_loss() {
        let tree = Tree::new();
        let mut watching = tree.watch(&PciConfig, &device("nvidia", Some("nvidia")));
        let unsure = Observation::Unsure("reads as all ones: it may be in the middle of a reset".to_owned());
        for _ in 0..2 {
            tree.set("config", NOTHING);
            assert_eq!(watching.observation(), unsure);
            watching.wait(0.9);
            assert_eq!(watching.observation(), unsure);
            tree.set("config", IDENTITY);
            watching.wait(0.2);
            assert_eq!(watching.observation(), Observation::Fine);
        }
        tree.set("config", NOTHING);
        assert_eq!(watching.observation(), unsure);
        tree.set("power/runtime_status", "suspended\n");
        watching.wait(2.0);
        assert!(matches!(watching.observation(), Observation::NotLooked(_)));
        tree.set("power/runtime_status", "active\n");
        assert_eq!(watching.observation(), unsure, "two looks in a row");
        watching.wait(1.0);
        assert_eq!(watching.finding().reason, "off-bus");
    }

    #[test]
    fn a_function_that_sleeps_is_left_asleep() {
        let tree = Tree::new();
        tree.set("config", NOTHING);
        let mut watching = tree.watch(&PciConfig, &device("nvidia", Some("nvidia")));
        tree.set("power/runtime_status", "suspended\n");
        assert_eq!(watching.observation(), Observation::NotLooked("asleep: runtime_status is suspended".to_owned()));
        tree.set("power/runtime_status", "active\n");
        tree.set("power_state", "D3hot\n");
        assert_eq!(watching.observation(), Observation::NotLooked("asleep: power_state is D3hot".to_owned()));
        tree.set("power_state", "error\n");
        assert_eq!(
            watching.observation(),
            Observation::NotLooked("may be asleep: power_state is \"error\"".to_owned())
        );
        tree.set("power_state", "D0\n");
        watching.observation();
        watching.wait(1.0);
        assert_eq!(watching.finding().reason, "off-bus");
    }

    /// Defect: a function that did not come back from D3cold counted as asleep for ever. The kernel sets D3cold where
    /// a function does not answer (`pci_power_up` in drivers/pci/pci.c).
    #[test]
    fn a_function_in_d3cold_that_is_not_suspended_is_read() {
        let tree = Tree::new();
        let mut watching = tree.watch(&PciConfig, &device("nvidia", Some("nvidia")));
        tree.set("power_state", "D3cold\n");
        for status in ["active\n", "error\n", "unsupported\n"] {
            tree.set("power/runtime_status", status);
            tree.set("config", IDENTITY);
            assert_eq!(watching.observation(), Observation::Fine, "{status}");
            tree.set("config", NOTHING);
            assert!(matches!(watching.observation(), Observation::Unsure(_)), "{status}");
            watching.wait(1.0);
            assert_eq!(watching.finding().reason, "off-bus", "{status}");
        }
        tree.set("power/runtime_status", "suspended\n");
        assert_eq!(watching.observation(), Observation::NotLooked("asleep: runtime_status is suspended".to_owned()));
    }

    const STATUSES: [&str; 7] = ["active", "suspended", "suspending", "resuming", "unsupported", "error", "?"];
    const STATES: [&str; 8] = ["D0", "D1", "D2", "D3hot", "D3cold", "unknown", "error", "?"];

    proptest! {
        /// Whatever it was before, look by look, a second apart.
        #[test]
        fn what_is_dead_is_off_the_bus_and_what_sleeps_or_answers_never_is(
            history in prop::collection::vec(
                (prop::sample::select(&STATUSES[..]), prop::sample::select(&STATES[..]), any::<bool>()), 1..12,
            ),
        ) {
            let tree = Tree::new();
            let mut watching = tree.watch(&PciConfig, &device("amd", Some("amdgpu")));
            let mut was_dead = false;
            for (status, state, is_dead) in history {
                tree.set("power/runtime_status", status);
                tree.set("power_state", state);
                tree.set("config", if is_dead { &NOTHING[..] } else { &IDENTITY[..] });
                let never_sleeps = matches!(status, "active" | "unsupported" | "error");
                let is_awake = never_sleeps && matches!(state, "D0" | "unknown" | "D3cold");
                match watching.observation() {
                    Observation::NotLooked(_) => prop_assert!(!is_awake),
                    Observation::Fine => prop_assert!(is_awake && !is_dead),
                    Observation::Unsure(_) => prop_assert!(is_awake && is_dead && !was_dead),
                    Observation::Seen(finding) => {
                        prop_assert_eq!(finding.reason, "off-bus");
                        prop_assert!(is_awake && is_dead && was_dead);
                    }
                    Observation::Nothing => prop_assert!(false, "there is something"),
                }
                was_dead = is_awake && is_dead;
                watching.wait(1.0);
            }
        }
    }

    #[test]
    fn a_function_answers_if_it_is_awake_and_reads_as_anything_but_ones() {
        let tree = Tree::new();
        let function = tree.path(FUNCTION);
        assert!(!answers(&function), "there is none");
        for (status, config, expected) in [
            ("active\n", &IDENTITY[..], true),
            ("active\n", &NOTHING[..], false),
            ("active\n", &IDENTITY[..3], false),
            ("suspended\n", &IDENTITY[..], false),
        ] {
            tree.set("power/runtime_status", status);
            tree.set("config", config);
            assert_eq!(answers(&function), expected, "{status} {config:?}");
        }
    }

    #[test]
    fn of_a_virtual_function_the_physical_one_is_looked_at() {
        let tree = Tree::new();
        tree.set("config", NOTHING);
        tree.write(&format!("{PHYSICAL}/config"), IDENTITY);
        let mut watching = tree.watch(&PciConfig, &virtual_one(&tree, "amd"));
        assert_eq!(watching.observation(), Observation::Fine);
        tree.write(&format!("{PHYSICAL}/config"), NOTHING);
        watching.observation();
        watching.wait(1.0);
        assert_eq!(watching.finding().file, format!("{PHYSICAL}/config"));
    }

    #[test]
    fn a_function_of_a_guest_is_looked_at_only_where_it_is_offered_to_guests() {
        let tree = Tree::new();
        let mut device = device("amd", Some("vfio-pci"));
        assert!(tree.watch(&PciConfig, &device).subjects.is_empty());
        device.note("iommu_group", "7", "");
        assert_eq!(tree.watch(&PciConfig, &device).subjects.len(), 1);
    }

    #[test]
    fn a_configuration_that_is_no_file_says_nothing() {
        let tree = Tree::new();
        tree.set("config/below", "");
        assert_eq!(tree.watch(&PciConfig, &device("amd", Some("amdgpu"))).observation(), Observation::Nothing);
    }
}
