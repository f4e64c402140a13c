//! Whether an RDMA device that had a link still has one; and the ports of RDMA devices, for the other sources.
//!
//! <https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband>, `ports/<port>/state`. A port without a
//! cable is common: only ports that were active count, and a device has failed if none of them is active. Many
//! attributes of ports are read from the firmware.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::bus::pci;
use crate::device::Device;
use crate::finding::quoted;
use crate::health::kept_file::ReadOnce;
use crate::health::power::Power;
use crate::health::source::{
    About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject, failed_read,
};
use crate::host::Host;
use crate::host::attribute::{AttributeError, Cause, trimmed};
use crate::host::directory::Directory;

pub(super) const DOCUMENT: &str = "https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband";

/// Which ports belong to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The device's own.
    Own,
    /// For a virtual function the ports of its physical one, which has the cable; its own if the physical one is not on
    /// this host.
    Physical,
}

/// All ports of a device.
#[derive(Debug)]
pub(super) struct Ports {
    directory: PathBuf,
    power: Option<Power>,
}

impl Ports {
    /// The ports of an RDMA device, and their directory without the host root; `None` for any other device.
    pub(super) fn of(host: &Host, device: &Device, whose: Whose) -> Option<(String, Self)> {
        let ports = (device.vendor == "rdma").then(|| device.attributes.get("port_state"))??;
        let own = host.absolute(&ports.source);
        let physical = || physical_ports(host, &own);
        let directory = (whose == Whose::Physical).then(physical).flatten().unwrap_or(own);
        let power = pci::function_of(&directory).map(Power::of);
        let source = host.own_path(&directory).to_string_lossy().into_owned();
        Some((source, Self { directory, power }))
    }

    /// Why they must not be read; `None` if they can be.
    pub(super) fn asleep(&self, reads: &ReadOnce) -> Option<String> {
        self.power.as_ref()?.asleep(reads)
    }

    /// Their directory and their names.
    ///
    /// # Errors
    /// The kernel's error, with the path: a device that was moved to a container's network namespace has no ports here.
    pub(super) fn open(&self) -> Result<(Directory, Vec<String>), AttributeError> {
        let directory = Directory::open(&self.directory)?;
        let names = directory.names()?;
        Ok((directory, names))
    }

    /// The address of the PCI function and the name of the RDMA device; the address is empty if it is not on PCI.
    pub(super) fn whose(&self) -> (String, String) {
        let address = pci::function_of(&self.directory).and_then(pci::address_of).unwrap_or_default();
        let ibdev = self.directory.parent().and_then(Path::file_name).unwrap_or_default();
        (address.to_owned(), ibdev.to_string_lossy().into_owned())
    }
}

/// After this many looks with all counters of a port refused, they are not read any more.
const PATIENCE: u32 = 3;

/// Ports whose counters the card refuses to report, as for a restricted function: each read would only make the kernel
/// log a line (`mlx5_cmd_out_err`).
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<String, Refusal>);

#[derive(Debug, Default)]
struct Refusal {
    /// Looks in a row at which no counter could be read.
    times: u32,
    cause: String,
}

impl Refusals {
    /// Whether the counters of this port are not read any more.
    pub(super) fn stand(&self, port: &str) -> bool {
        self.0.get(port).is_some_and(|refusal| refusal.times >= PATIENCE)
    }

    /// Records the result of a look at the counters of a port: whether one was read, and the last error.
    pub(super) fn note(&mut self, port: &str, is_read: bool, failed: Option<Cause>) {
        match failed.filter(|cause| !is_read && !cause.is_absent() && !cause.is_busy()) {
            Some(cause) => {
                let refusal = self.0.entry(port.to_owned()).or_default();
                refusal.times += 1;
                refusal.cause = cause.to_string();
            }
            None => _ = self.0.remove(port),
        }
    }

    /// Reads everything again: the ports were gone, and their driver starts anew.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// Why counters are not read any more; `None` if all are read.
    pub(super) fn why(&self) -> Option<String> {
        let (port, refusal) = self.0.iter().find(|(_, refusal)| refusal.times >= PATIENCE)?;
        let cause = &refusal.cause;
        Some(format!(
            "the counters of port {port} were refused {PATIENCE} times ({cause}) and are not read any more, until the \
             device has been gone or devherd starts again"
        ))
    }
}

/// Message for a counter that has reached its maximum.
pub(super) fn full_counter(port: &str, name: &str, most: u64) -> String {
    format!("{name} of port {port} is at {most} and cannot rise; `perfquery -R` sets it back")
}

fn physical_ports(host: &Host, own: &Path) -> Option<PathBuf> {
    let physical = pci::physical_function(host, pci::function_of(own)?)?;
    let devices = physical.join("infiniband");
    let name = Directory::open(&devices).ok()?.names().ok()?.into_iter().next()?;
    Some(devices.join(name).join("ports"))
}

const PORT_DOWN: &str = "port-down";

/// Seconds: longer than restarting a switch or moving a cable takes.
const AFTER: u32 = 30;

/// For a link that is down, slow or faulty: nothing on the host tells which end is at fault.
pub(super) const CHECK_CABLE: &str =
    "check the cable, the transceiver and the switch port; if that is no help, ask the card's vendor";

static ABOUT: About = About {
    name: "rdma-port",
    reads: Class::Firmware,
    pace: Pace::Thirtieth,
    document: DOCUMENT,
    meanings: &[Meaning::unhealthy(
        PORT_DOWN,
        "none of the device's ports whose state was ACTIVE since devherd first ran in this boot is active",
        CHECK_CABLE,
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
    /// Names of the ports that were active at a look.
    were_active: BTreeSet<String>,
}

/// A port and its state: `4: ACTIVE`.
type State = (String, String);

impl Examination for States {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        if let Some(asleep) = self.ports.asleep(context.reads) {
            return Observation::NotLooked(asleep);
        }
        let states = match self.states() {
            Ok(states) => states,
            Err(error) => return failed_read(&error.cause),
        };
        let (active, others): (Vec<State>, Vec<State>) = states.into_iter().partition(|(_, state)| is_active(state));
        if !active.is_empty() {
            self.were_active.extend(active.into_iter().map(|(port, _)| port));
            return Observation::Fine;
        }
        let Some((port, state)) = others.iter().find(|(port, _)| self.were_active.contains(port)) else {
            return Observation::NotLooked("no port has been active since devherd first ran in this boot".to_owned());
        };
        let finding = ABOUT.finding(PORT_DOWN).at(format!("{}/{port}/state", context.file)).reading(state);
        let physical = self.physical_state(port).map(|state| format!(", its physical state is {state}"));
        let physical = physical.unwrap_or_default();
        let detail = format!("port {port} was active and is not{physical}; no other port of the device is active");
        Observation::Seen(finding.because(&detail))
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
    /// The states of all ports; a port without a readable state is left out.
    fn states(&self) -> Result<Vec<State>, AttributeError> {
        let (directory, ports) = self.ports.open()?;
        let state = |port: String| {
            let state = trimmed(directory.attribute(&format!("{port}/state")).ok()?.text()).to_owned();
            Some((port, state))
        };
        Ok(ports.into_iter().filter_map(state).collect())
    }

    /// `Polling` without a cable, `Disabled`, `LinkErrorRecovery`; `None` if it cannot be read.
    fn physical_state(&self, port: &str) -> Option<String> {
        let (directory, _) = self.ports.open().ok()?;
        let state = directory.attribute(&format!("{port}/phys_state")).ok()?;
        Some(quoted(trimmed(state.text()).split_once(": ")?.1))
    }
}

/// `4: ACTIVE`; `5: ACTIVE_DEFER` still carries traffic.
pub(super) fn is_active(state: &str) -> bool {
    state.split_once(": ").is_some_and(|(_, word)| word.starts_with("ACTIVE"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::sources::testing::{FUNCTION, Tree, Watching};

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
        assert_eq!(watching.observation(), Observation::Fine, "the second has no cable");
        set(&tree, "2: INIT\n", "1: DOWN\n");
        let finding = watching.finding();
        let file = format!("{}/1/state", ports());
        assert_eq!((&*finding.reason, finding.file, &*finding.value), ("port-down", file, "2: INIT"));
        assert_eq!(finding.detail, "port 1 was active and is not; no other port of the device is active");
        tree.write(&format!("{}/1/phys_state", ports()), "2: Polling\n");
        assert!(watching.finding().detail.contains("is not, its physical state is Polling;"));
        for (first, second) in [("5: ACTIVE_DEFER\n", "1: DOWN\n"), ("1: DOWN\n", "4: ACTIVE\n")] {
            set(&tree, first, second);
            assert_eq!(watching.observation(), Observation::Fine, "{first} {second}");
        }
        set(&tree, "1: DOWN\n", "1: DOWN\n");
        assert_eq!(watching.finding().value, "1: DOWN");
        assert_eq!(ABOUT.meanings[0].after, 30);
    }

    #[test]
    fn another_process_learns_which_ports_were_active() {
        let tree = Tree::new();
        let mut before = watched(&tree, "4: ACTIVE\n", "1: DOWN\n");
        assert_eq!(before.subjects[0].examination.memory(), None);
        assert_eq!(before.observation(), Observation::Fine);
        let memory = before.subjects[0].examination.memory().unwrap();
        let mut after = watched(&tree, "1: DOWN\n", "1: DOWN\n");
        after.subjects[0].examination.recall(&memory);
        assert_eq!(after.finding().value, "1: DOWN");
    }

    #[test]
    fn ports_that_were_never_active_are_not_reported() {
        let tree = Tree::new();
        let mut watching = watched(&tree, "1: DOWN\n", "3: ARMED\n");
        assert!(matches!(watching.observation(), Observation::NotLooked(_)), "the earlier result stays");
    }

    #[test]
    fn a_port_that_cannot_be_read_and_a_device_that_moved_to_a_container_are_no_fault() {
        let tree = Tree::new();
        let mut watching = watched(&tree, "4: ACTIVE", "4: ACTIVE");
        assert_eq!(watching.observation(), Observation::Fine);
        for port in ["1", "2"] {
            tree.remove(&format!("{}/{port}/state", ports()));
        }
        assert!(matches!(watching.observation(), Observation::NotLooked(_)));
        std::fs::remove_dir_all(tree.path(&ports())).unwrap();
        assert_eq!(watching.observation(), Observation::Nothing);
    }

    #[test]
    fn a_device_that_sleeps_and_one_of_another_vendor_are_left_alone() {
        let tree = Tree::new();
        let mut watching = watched(&tree, "4: ACTIVE", "1: DOWN");
        tree.set("power/runtime_status", "suspended\n");
        assert_eq!(watching.observation(), Observation::NotLooked("asleep: runtime_status is suspended".to_owned()));
        assert!(tree.watch(&RdmaPort, &Device { vendor: "amd".into(), ..Device::default() }).subjects.is_empty());
    }
}
