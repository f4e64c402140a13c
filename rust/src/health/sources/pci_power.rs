//! Whether a PCI function could be brought into the power state that its driver asked for.

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
    meanings: &[Meaning::warning(POWER_STATE, "power_state is `error`; asleep is no finding")],
};

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
        physical.map(|function| subject(function.join("power_state"))).collect()
    }
}

#[derive(Debug)]
struct State(PathBuf);

impl Examination for State {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        match context.read(&self.0) {
            Ok(text) if trimmed(&text) == "error" => {
                let detail = "the kernel could not change the power state of this PCI function; see the kernel log";
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

    #[test]
    fn of_a_virtual_function_it_says_nothing() {
        let tree = Tree::new();
        assert!(tree.watch(&PciPower, &virtual_one(&tree, "rdma")).subjects.is_empty());
    }
}
