//! Whether a PCI function could be brought into the power state that its driver asked for, and suspended and resumed.
//!
//! `power/runtime_status` is `error` once a driver's callback has failed: the kernel then neither suspends nor resumes
//! the function any more (`runtime_status_show` in drivers/base/power/sysfs.c of the kernel).

use std::path::PathBuf;

use crate::device::Device;
use crate::health::source::{
    About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject, failed_read,
};
use crate::host::Host;
use crate::host::attribute::trimmed;

const POWER_STATE: &str = "power-state";

static ABOUT: About = About {
    name: "pci-power",
    reads: Class::KernelMemory,
    pace: Pace::Tenth,
    document: "https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci",
    meanings: &[Meaning::warning(
        POWER_STATE,
        "power_state or power/runtime_status is `error`; asleep is no finding",
        "end its pods and bind its driver again, or reboot; if it comes again, ask the \
         card's vendor",
    )],
};

/// Each says `error` after a failure.
const FILES: [&str; 2] = ["power_state", "power/runtime_status"];

/// The source.
#[derive(Debug)]
pub(super) struct PciPower;

impl Source for PciPower {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        let physical = device.functions.iter().filter(|function| function.physical.is_none());
        let physical = physical.map(|function| host.absolute(&function.path));
        let subject = |file: PathBuf| Subject::new(host.own_path(&file).to_string_lossy(), State(file));
        let of_function = |function: PathBuf| FILES.map(|file| subject(function.join(file)));
        physical.flat_map(of_function).collect()
    }
}

#[derive(Debug)]
struct State(PathBuf);

impl Examination for State {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        match context.read(&self.0) {
            Ok(text) if trimmed(&text) == "error" => {
                let detail = if self.0.ends_with("runtime_status") {
                    "the kernel could not suspend or resume this PCI function; see the kernel log, and bind its driver again"
                } else {
                    "the kernel could not change the power state of this PCI function; see the kernel log"
                };
                Observation::Seen(ABOUT.finding(POWER_STATE).at(context.file).reading("error").because(detail))
            }
            Ok(_) => Observation::Fine,
            Err(cause) => failed_read(&cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FUNCTION, Tree, device, virtual_one};
    use super::*;

    #[test]
    fn a_function_whose_state_of_power_cannot_be_changed_is_warned_of_and_one_that_sleeps_is_not() {
        let tree = Tree::new();
        let mut watching = tree.watch(&PciPower, &device("amd", Some("amdgpu")));
        assert_eq!(watching.observation(), Observation::Nothing);
        for state in ["D0\n", "D3cold\n", "unknown\n"] {
            tree.set("power_state", state);
            assert_eq!(watching.observation(), Observation::Fine, "{state}");
        }
        tree.set("power_state", "error\n");
        let finding = watching.finding();
        let file = format!("{FUNCTION}/power_state");
        assert_eq!((&*finding.reason, finding.file, &*finding.value), ("power-state", file, "error"));
    }

    /// Defect: a function whose driver could not resume it was not warned of.
    #[test]
    fn a_function_that_could_not_be_suspended_or_resumed_is_warned_of() {
        let tree = Tree::new();
        let mut watching = tree.watch(&PciPower, &device("amd", Some("amdgpu")));
        for status in ["active\n", "suspended\n", "unsupported\n"] {
            tree.set("power/runtime_status", status);
            assert_eq!(watching.observation(), Observation::Fine, "{status}");
        }
        tree.set("power/runtime_status", "error\n");
        let finding = watching.finding();
        let file = format!("{FUNCTION}/power/runtime_status");
        assert_eq!((&*finding.reason, finding.file, &*finding.value), ("power-state", file, "error"));
    }

    #[test]
    fn of_a_virtual_function_it_says_nothing() {
        let tree = Tree::new();
        assert!(tree.watch(&PciPower, &virtual_one(&tree, "rdma")).subjects.is_empty());
    }
}
