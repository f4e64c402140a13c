//! Error counters of the ports of an RDMA device: all are metrics, and a warning is given if certain ones rise.
//!
//! `counters/`: <https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband>; `hw_counters/`: by the
//! driver. A virtual function has few counters; the others are absent or contain `N/A (no PMA)`.

use std::collections::BTreeMap;

use super::rdma_port::{CHECK_CABLE, DOCUMENT, Ports, Refusals, Whose, full_counter};
use crate::device::Device;
use crate::health::source::{
    About, Class, Count, Examination, LookContext, Meaning, Observation, Pace, Source, Subject, failed_read,
};
use crate::host::Host;
use crate::host::attribute::AttributeError;

const LINK_ERRORS: &str = "link-errors";

/// An event is over after this many seconds without another one.
const QUIET: u32 = 600;

/// Metric name.
const METRIC: &str = "rdma-errors";

/// The counters that warn have 4 bits (`PORT_PMA_ATTR` of the kernel's `drivers/infiniband/core/sysfs.c`) and stop at
/// their maximum.
const MOST: u64 = 15;

/// Counters below `ports/<port>/`. Long links with many lanes always have symbol errors, and repaired or repeated
/// packets are not a fault: to judge the counters that do not warn, one has to know the network. `rnr_nak_retry_err`, a
/// receiver that is not ready in time, is caused by a program.
const COUNTERS: [Counter; 10] = [
    Counter::counted("counters", "link_downed"),
    Counter::counted("counters", "link_error_recovery"),
    Counter::counted("counters", "symbol_error"),
    Counter::counted("counters", "port_rcv_errors"),
    Counter::counted("counters", "port_xmit_discards"),
    Counter::warning("counters", "excessive_buffer_overrun_errors"),
    Counter::warning("counters", "local_link_integrity_errors"),
    Counter::counted("hw_counters", "rnr_nak_retry_err"),
    Counter::counted("hw_counters", "local_ack_timeout_err"),
    Counter::counted("hw_counters", "roce_slow_restart"),
];

static ABOUT: About = About {
    name: "rdma-errors",
    reads: Class::Firmware,
    pace: Pace::Sixtieth,
    document: DOCUMENT,
    meanings: &[Meaning::warning(
        LINK_ERRORS,
        "excessive_buffer_overrun_errors or local_link_integrity_errors of a port has risen since it was first read",
        CHECK_CABLE,
    )
    .until_quiet_for(QUIET)],
};

/// A counter of the kernel.
#[derive(Debug, Clone, Copy)]
struct Counter {
    directory: &'static str,
    name: &'static str,
    warns: bool,
}

impl Counter {
    const fn counted(directory: &'static str, name: &'static str) -> Self {
        Self { directory, name, warns: false }
    }

    const fn warning(directory: &'static str, name: &'static str) -> Self {
        Self { directory, name, warns: true }
    }
}

/// The source.
#[derive(Debug)]
pub(super) struct RdmaErrors;

impl Source for RdmaErrors {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        let subject = |(file, ports)| {
            let refusals = Refusals::default();
            Subject::new(
                file,
                Errors { ports, refusals, known: BTreeMap::new(), is_there: false, risen: None, events: 0 },
            )
        };
        Ports::of(host, device, Whose::Own).map(subject).into_iter().collect()
    }
}

/// Port, directory and name of a counter.
type Place = (String, &'static str, &'static str);

/// The counters of all ports.
#[derive(Debug)]
struct Errors {
    ports: Ports,
    refusals: Refusals,
    /// Numbers at the last look.
    known: BTreeMap<Place, u64>,
    /// Whether `known` is still current: the ports may have gone since.
    is_there: bool,
    /// The counter that rose last, of the counters that warn.
    risen: Option<Place>,
    /// Events of the counters that warn, seen by this process. Never falls, so that no event is lost together with the
    /// result of a look.
    events: u64,
}

impl Examination for Errors {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        if let Some(asleep) = self.ports.asleep(context.reads) {
            return Observation::NotLooked(asleep);
        }
        let numbers = self.numbers();
        self.is_there = numbers.is_ok();
        match numbers {
            Ok(numbers) => self.take_in(numbers),
            Err(error) => {
                self.refusals.forget();
                if self.events == 0 {
                    return failed_read(&error.cause);
                }
            }
        }
        let Some(place) = &self.risen else { return self.well() };
        let (port, directory, name) = place;
        let number = self.known.get(place).copied().unwrap_or_default();
        let detail = format!(
            "port {port}: {name} counts {number}; errors of the device that were seen by this process: {}",
            self.events
        );
        let finding = ABOUT.finding(LINK_ERRORS).at(format!("{}/{port}/{directory}/{name}", context.file));
        Observation::Seen(finding.reading(&number.to_string()).because(&detail).counted(self.events))
    }

    fn has_counted(&self) -> bool {
        !self.known.is_empty()
    }

    fn is_counting(&self) -> bool {
        true
    }

    fn counts(&self) -> Vec<Count> {
        let (pci_address, ibdev) = self.ports.whose();
        let count = |((port, _, kind), number): (&Place, &u64)| Count {
            pci_address: pci_address.clone(),
            ibdev: ibdev.clone(),
            part: port.clone(),
            name: METRIC,
            kind: (*kind).into(),
            number: *number,
        };
        self.known.iter().filter(|_| self.is_there).map(count).collect()
    }
}

impl Errors {
    /// The observation while no counter that warns has risen.
    fn well(&self) -> Observation {
        let full = self.known.iter().find(|((_, _, name), number)| warns(name) && **number >= MOST);
        match full {
            Some(((port, _, name), _)) => Observation::NotLooked(full_counter(port, name, MOST)),
            None => match self.refusals.why() {
                Some(why) => Observation::NotLooked(why),
                None if self.known.is_empty() => Observation::Nothing,
                None => Observation::Fine,
            },
        }
    }

    /// The numbers of all counters that exist and contain one, except on ports that refuse reads.
    fn numbers(&mut self) -> Result<BTreeMap<Place, u64>, AttributeError> {
        let (directory, ports) = self.ports.open()?;
        let mut numbers = BTreeMap::new();
        for port in ports {
            if self.refusals.stand(&port) {
                continue;
            }
            let (mut is_read, mut failed) = (false, None);
            for counter in COUNTERS {
                match directory.attribute(&format!("{port}/{}/{}", counter.directory, counter.name)) {
                    Ok(attribute) => {
                        is_read = true;
                        let number = attribute.decimal().ok().and_then(|number| number.try_into().ok());
                        let place = (port.clone(), counter.directory, counter.name);
                        numbers.extend(number.map(|number| (place, number)));
                    }
                    Err(error) if error.is_absent() => {}
                    Err(error) => failed = Some(error.cause),
                }
            }
            self.refusals.note(&port, is_read, failed);
        }
        Ok(numbers)
    }

    /// A counter that has fallen was reset: its number is the new base.
    fn take_in(&mut self, numbers: BTreeMap<Place, u64>) {
        for (place, number) in &numbers {
            let news = number.saturating_sub(self.known.get(place).copied().unwrap_or(*number));
            if warns(place.2) && news > 0 {
                self.events = self.events.saturating_add(news);
                self.risen = Some(place.clone());
            }
        }
        self.known = numbers;
    }
}

fn warns(name: &str) -> bool {
    COUNTERS.iter().any(|counter| counter.warns && counter.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::sources::testing::{FUNCTION, Tree, Watching};

    fn port() -> String {
        format!("{FUNCTION}/infiniband/mlx5_0/ports/1")
    }

    fn watched(tree: &Tree) -> Watching<'_> {
        let mut device = Device { vendor: "rdma".into(), ..Device::default() };
        device.note("port_state", "", format!("{FUNCTION}/infiniband/mlx5_0/ports"));
        tree.watch(&RdmaErrors, &device)
    }

    fn reported(watching: &Watching<'_>) -> Vec<String> {
        let counts = watching.subjects[0].examination.counts().into_iter();
        counts
            .map(|one| format!("{} {} {} {} {}", one.pci_address, one.ibdev, one.part, one.kind, one.number))
            .collect()
    }

    #[test]
    fn each_counter_is_reported_and_only_some_warn() {
        let tree = Tree::new();
        let mut watching = watched(&tree);
        assert_eq!(watching.observation(), Observation::Nothing, "no ports");
        for counter in COUNTERS {
            tree.write(&format!("{}/{}/{}", port(), counter.directory, counter.name), "7\n");
        }
        assert_eq!(watching.observation(), Observation::Fine, "what was counted before is no event");
        let mut expected = 0;
        for counter in COUNTERS {
            let file = format!("{}/{}/{}", port(), counter.directory, counter.name);
            tree.write(&file, "9\n");
            expected += if counter.warns { 2 } else { 0 };
            match watching.observation() {
                Observation::Seen(finding) if counter.warns => {
                    assert_eq!((finding.file, &*finding.value, finding.count), (file, "9", expected));
                }
                Observation::Seen(finding) => assert_eq!(finding.count, expected, "{file}"),
                other => assert_eq!((other, expected), (Observation::Fine, 0), "{file}"),
            }
        }
        assert_eq!(expected, 4);
        assert_eq!(reported(&watching).len(), COUNTERS.len());
        assert!(reported(&watching).contains(&"0000:81:00.0 mlx5_0 1 symbol_error 9".to_owned()));
    }

    #[test]
    fn a_counter_that_falls_is_another_base_and_one_without_a_number_is_not_reported() {
        let tree = Tree::new();
        let mut watching = watched(&tree);
        let file = format!("{}/counters/local_link_integrity_errors", port());
        for (text, expected) in [("5", 0), ("0", 0), ("N/A (no PMA)", 0), ("9", 0), ("10", 1)] {
            tree.write(&file, text);
            let count = if let Observation::Seen(finding) = watching.observation() { finding.count } else { 0 };
            assert_eq!((count, reported(&watching).len()), (expected, usize::from(!text.starts_with('N'))), "{text}");
        }
    }

    #[test]
    fn a_device_that_sleeps_and_one_that_moved_to_a_container_are_left_alone() {
        let tree = Tree::new();
        tree.write(&format!("{}/counters/symbol_error", port()), "1\n");
        let mut watching = watched(&tree);
        tree.set("power/runtime_status", "suspended\n");
        assert_eq!(watching.observation(), Observation::NotLooked("asleep: runtime_status is suspended".to_owned()));
        tree.set("power/runtime_status", "active\n");
        assert_eq!((watching.observation(), reported(&watching).len()), (Observation::Fine, 1));
        std::fs::remove_dir_all(tree.path(&format!("{FUNCTION}/infiniband"))).unwrap();
        assert_eq!((watching.observation(), reported(&watching).len()), (Observation::Nothing, 0));
    }

    #[test]
    fn a_counter_that_can_rise_no_further_is_not_taken_for_a_link_without_errors() {
        let tree = Tree::new();
        let file = format!("{}/counters/local_link_integrity_errors", port());
        tree.write(&file, "15\n");
        let blind = "local_link_integrity_errors of port 1 is at 15 and cannot rise; `perfquery -R` sets it back";
        let mut watching = watched(&tree);
        assert_eq!(watching.observation(), Observation::NotLooked(blind.to_owned()));
        tree.write(&file, "0\n");
        assert_eq!(watching.observation(), Observation::Fine);
        tree.write(&file, "15\n");
        assert_eq!(watching.finding().count, 15);
    }

    #[test]
    fn a_port_that_refuses_each_counter_is_asked_three_times_and_no_more() {
        let tree = Tree::new();
        let counters = format!("{}/counters", port());
        let refuse = || {
            for counter in COUNTERS {
                // A read of a directory fails, as one of a restricted function does, with another error.
                std::fs::create_dir_all(tree.path(&format!("{counters}/{}", counter.name))).unwrap();
            }
        };
        refuse();
        let mut watching = watched(&tree);
        assert_eq!([watching.observation(), watching.observation()], [Observation::Nothing, Observation::Nothing]);
        let why = "the counters of port 1 were refused 3 times (Is a directory (os error 21)) and are not read any more, until the device \
                   has been gone or devherd starts again";
        assert_eq!(watching.observation(), Observation::NotLooked(why.to_owned()));
        std::fs::remove_dir_all(tree.path(&counters)).unwrap();
        tree.write(&format!("{counters}/symbol_error"), "1\n");
        assert_eq!((watching.observation(), reported(&watching).len()), (Observation::NotLooked(why.to_owned()), 0));
        std::fs::remove_dir_all(tree.path(&format!("{FUNCTION}/infiniband"))).unwrap();
        assert_eq!(watching.observation(), Observation::Nothing, "its driver was unloaded");
        tree.write(&format!("{counters}/symbol_error"), "1\n");
        assert_eq!((watching.observation(), reported(&watching).len()), (Observation::Fine, 1));
    }

    #[test]
    fn a_port_that_refuses_some_counters_or_for_a_while_is_asked_on() {
        let tree = Tree::new();
        let counters = format!("{}/counters", port());
        std::fs::create_dir_all(tree.path(&format!("{counters}/symbol_error"))).unwrap();
        let mut watching = watched(&tree);
        for _ in 0..2 {
            assert_eq!(watching.observation(), Observation::Nothing);
        }
        tree.write(&format!("{counters}/link_downed"), "1\n");
        for _ in 0..4 {
            assert_eq!(watching.observation(), Observation::Fine);
        }
        assert_eq!(reported(&watching), ["0000:81:00.0 mlx5_0 1 link_downed 1"]);
    }
}
