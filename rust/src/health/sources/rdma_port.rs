//! Whether an RDMA device that had a link still has one.
//!
//! <https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband>, `ports/<port>/state`. A port without a cable
//! is nothing unusual: only one that was active counts, and a device has failed when none of those is.

use std::collections::BTreeSet;

use super::rdma_ports::{DOCUMENT, Ports, Whose};
use crate::device::Device;
use crate::health::finding::quoted;
use crate::health::source::{About, Class, Examination, Here, Meaning, Sight, Source, Subject, no_statement};
use crate::host::Host;
use crate::host::attribute::{AttributeError, trimmed};

const PORT_DOWN: &str = "port-down";

/// A switch that is restarted, or a cable that is moved, takes less.
const AFTER: u32 = 30;

static ABOUT: About = About {
    name: "rdma-port",
    reads: Class::Firmware,
    document: DOCUMENT,
    meanings: &[Meaning::unhealthy(
        PORT_DOWN,
        "none of the device's ports whose state was ACTIVE since devherd first ran in this boot is active",
    )
    .after(AFTER)],
};

/// The source.
#[derive(Debug)]
pub(super) struct RdmaPort;

impl Source for RdmaPort {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        let subject = |(file, ports)| Subject::new(file, States { ports, were_active: BTreeSet::new() });
        Ports::of(host, device, Whose::Own).map(subject).into_iter().collect()
    }
}

/// The states of all ports.
#[derive(Debug)]
struct States {
    ports: Ports,
    /// The names of those that were active at a look.
    were_active: BTreeSet<String>,
}

/// A port and what its state says: `4: ACTIVE`.
type State = (String, String);

impl Examination for States {
    fn look(&mut self, here: Here<'_>) -> Sight {
        if let Some(asleep) = self.ports.asleep(here.keeping) {
            return Sight::NotLooked(asleep);
        }
        let states = match self.states() {
            Ok(states) => states,
            Err(error) => return no_statement(&error.cause),
        };
        let (active, others): (Vec<State>, Vec<State>) = states.into_iter().partition(|(_, state)| is_active(state));
        if !active.is_empty() {
            self.were_active.extend(active.into_iter().map(|(port, _)| port));
            return Sight::Fine;
        }
        let Some((port, state)) = others.iter().find(|(port, _)| self.were_active.contains(port)) else {
            return Sight::NotLooked("no port has been active since devherd first ran in this boot".to_owned());
        };
        let finding = ABOUT.finding(PORT_DOWN).at(format!("{}/{port}/state", here.file)).reading(state);
        let physical = self.physical_state(port).map(|state| format!(", its physical state is {state}"));
        let physical = physical.unwrap_or_default();
        let detail = format!("port {port} was active and is not{physical}; no other port of the device is active");
        Sight::Seen(finding.because(&detail))
    }

    fn memory(&self) -> Option<String> {
        let ports: Vec<&str> = self.were_active.iter().map(String::as_str).collect();
        Some(ports.join(" ")).filter(|ports| !ports.is_empty())
    }

    fn recall(&mut self, memory: &str) {
        self.were_active.extend(memory.split(' ').map(str::to_owned));
    }
}

impl States {
    /// A port that says nothing is left out.
    fn states(&self) -> Result<Vec<State>, AttributeError> {
        let (directory, ports) = self.ports.open()?;
        let state = |port: String| {
            let state = trimmed(directory.attribute(&format!("{port}/state")).ok()?.text()).to_owned();
            Some((port, state))
        };
        Ok(ports.into_iter().filter_map(state).collect())
    }

    /// `Polling` where there is no cable, `Disabled`, `LinkErrorRecovery`; `None` for a port that does not say.
    fn physical_state(&self, port: &str) -> Option<String> {
        let (directory, _) = self.ports.open().ok()?;
        let state = directory.attribute(&format!("{port}/phys_state")).ok()?;
        Some(quoted(trimmed(state.text()).split_once(": ")?.1))
    }
}

/// `4: ACTIVE`; `5: ACTIVE_DEFER` still carries traffic.
fn is_active(state: &str) -> bool {
    state.split_once(": ").is_some_and(|(_, word)| word.starts_with("ACTIVE"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FUNCTION, Tree, Watching};
    use super::*;

    fn ports() -> String {
        format!("{FUNCTION}/infiniband/mlx5_0/ports")
    }

    /// A device whose two ports have these states.
    fn watched<'t>(tree: &'t Tree, first: &str, second: &str) -> Watching<'t> {
        set(tree, first, second);
        let mut device = Device { vendor: "rdma".into(), ..Device::default() };
        device.note("port_state", "", ports());
        tree.watch(&RdmaPort, &device)
    }

    fn set(tree: &Tree, first: &str, second: &str) {
        for (port, state) in [("1", first), ("2", second)] {
            tree.write(&format!("{}/{port}/state", ports()), state);
        }
    }

    #[test]
    fn a_device_is_down_when_no_port_is_active_that_was() {
        let tree = Tree::new();
        let mut watching = watched(&tree, "4: ACTIVE\n", "1: DOWN\n");
        assert_eq!(watching.sight(), Sight::Fine, "the second has no cable");
        set(&tree, "2: INIT\n", "1: DOWN\n");
        let finding = watching.finding();
        let file = format!("{}/1/state", ports());
        assert_eq!((&*finding.reason, finding.file, &*finding.value), ("port-down", file, "2: INIT"));
        assert_eq!(finding.detail, "port 1 was active and is not; no other port of the device is active");
        tree.write(&format!("{}/1/phys_state", ports()), "2: Polling\n");
        assert!(watching.finding().detail.contains("is not, its physical state is Polling;"));
        for (first, second) in [("5: ACTIVE_DEFER\n", "1: DOWN\n"), ("1: DOWN\n", "4: ACTIVE\n")] {
            set(&tree, first, second);
            assert_eq!(watching.sight(), Sight::Fine, "{first} {second}");
        }
        set(&tree, "1: DOWN\n", "1: DOWN\n");
        assert_eq!(watching.finding().value, "1: DOWN");
        assert_eq!(ABOUT.meanings[0].after, 30);
    }

    #[test]
    fn another_process_is_told_which_ports_were_active() {
        let tree = Tree::new();
        let mut before = watched(&tree, "4: ACTIVE\n", "1: DOWN\n");
        assert_eq!(before.subjects[0].examination.memory(), None);
        assert_eq!(before.sight(), Sight::Fine);
        let memory = before.subjects[0].examination.memory().unwrap();
        let mut after = watched(&tree, "1: DOWN\n", "1: DOWN\n");
        after.subjects[0].examination.recall(&memory);
        assert_eq!(after.finding().value, "1: DOWN");
    }

    #[test]
    fn of_ports_that_nobody_saw_active_nothing_is_said() {
        let tree = Tree::new();
        let mut watching = watched(&tree, "1: DOWN\n", "3: ARMED\n");
        assert!(matches!(watching.sight(), Sight::NotLooked(_)), "what was said before still stands");
    }

    #[test]
    fn a_port_that_cannot_be_read_and_a_device_that_moved_to_a_container_are_no_fault() {
        let tree = Tree::new();
        let mut watching = watched(&tree, "4: ACTIVE", "4: ACTIVE");
        assert_eq!(watching.sight(), Sight::Fine);
        for port in ["1", "2"] {
            tree.remove(&format!("{}/{port}/state", ports()));
        }
        assert!(matches!(watching.sight(), Sight::NotLooked(_)));
        std::fs::remove_dir_all(tree.path(&ports())).unwrap();
        assert_eq!(watching.sight(), Sight::Nothing);
    }

    #[test]
    fn a_device_that_sleeps_and_one_of_another_vendor_are_left_alone() {
        let tree = Tree::new();
        let mut watching = watched(&tree, "4: ACTIVE", "1: DOWN");
        tree.set("power/runtime_status", "suspended\n");
        assert_eq!(watching.sight(), Sight::NotLooked("asleep: runtime_status is suspended".to_owned()));
        assert!(tree.watch(&RdmaPort, &Device { vendor: "amd".into(), ..Device::default() }).subjects.is_empty());
    }
}
