//! Whether the ports of an RDMA device are as fast as before. They are compared with their best rate since boot,
//! because the limits of cable and switch are unknown.
//!
//! <https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband>, `ports/<port>/rate`. The kernel writes
//! `200 Gb/sec (4X HDR)`, and `.5` for halves (`rate_show` of its `drivers/infiniband/core/sysfs.c`).

use std::collections::BTreeMap;

use super::rdma_port::{DOCUMENT, Ports, Whose, is_active};
use crate::device::Device;
use crate::health::source::{
    About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject, failed_read,
};
use crate::host::Host;
use crate::host::attribute::{AttributeError, trimmed};

const LINK_DEGRADED: &str = "link-degraded";

/// A warning: the port still works.
static ABOUT: About = About {
    name: "rdma-rate",
    reads: Class::Firmware,
    pace: Pace::Sixtieth,
    document: DOCUMENT,
    meanings: &[Meaning::warning(
        LINK_DEGRADED,
        "the rate of an active port is below the best that it had since devherd first ran in this boot",
        "check cable, transceiver and switch port; if the rate is right, run devherd clear[ \
         {resource}] {device} link-degraded",
    )
    .relative()],
};

/// The source.
#[derive(Debug)]
pub(super) struct RdmaRate;

impl Source for RdmaRate {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        let subject = |(file, ports)| Subject::new(file, Rates { ports, best: BTreeMap::new() });
        Ports::of(host, device, Whose::Physical).map(subject).into_iter().collect()
    }
}

/// The rates of all ports.
#[derive(Debug)]
struct Rates {
    ports: Ports,
    /// The best rate of each port while it was active, in Mb/s.
    best: BTreeMap<String, u64>,
}

/// An active port, and its `rate` as the kernel writes it.
type Rate = (String, String);

impl Examination for Rates {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        if let Some(asleep) = self.ports.asleep(context.reads) {
            return Observation::NotLooked(asleep);
        }
        let rates = match self.rates() {
            Ok(rates) => rates,
            Err(error) => return failed_read(&error.cause),
        };
        if rates.is_empty() {
            // A slow port that goes down is not faster.
            return Observation::NotLooked("no port is active".to_owned());
        }
        for (port, rate) in &rates {
            if let Some(rate) = megabits(rate) {
                let best = self.best.entry(port.clone()).or_insert(rate);
                *best = rate.max(*best);
            }
        }
        let is_slow = |(port, rate): &&Rate| megabits(rate).is_some_and(|rate| rate < self.best[port]);
        let Some((port, rate)) = rates.iter().find(is_slow) else { return Observation::Fine };
        let finding = ABOUT.finding(LINK_DEGRADED).at(format!("{}/{port}/rate", context.file)).reading(rate);
        let best = gigabits(self.best[port]);
        Observation::Seen(finding.because(&format!("the rate of port {port} is {rate}, it was {best} Gb/sec")))
    }

    /// `1=200000 2=100000`
    fn memory(&self) -> Option<String> {
        let words: Vec<String> = self.best.iter().map(|(port, best)| format!("{port}={best}")).collect();
        Some(words.join(" ")).filter(|words| !words.is_empty())
    }

    fn forget_best(&mut self) {
        self.best.clear();
    }

    fn recall(&mut self, memory: &str) {
        let word =
            |word: &str| word.split_once('=').and_then(|(port, best)| Some((port.to_owned(), best.parse().ok()?)));
        for (port, earlier) in memory.split(' ').filter_map(word) {
            let best = self.best.entry(port).or_insert(earlier);
            *best = earlier.max(*best);
        }
    }
}

impl Rates {
    /// The rates of the active ports; for other ports the number means nothing.
    fn rates(&self) -> Result<Vec<Rate>, AttributeError> {
        let (directory, ports) = self.ports.open()?;
        let text = |port: &str, name: &str| {
            Some(trimmed(directory.attribute(&format!("{port}/{name}")).ok()?.text()).to_owned())
        };
        let rate = |port: String| {
            text(&port, "state").filter(|state| is_active(state))?;
            let rate = text(&port, "rate")?;
            Some((port, rate))
        };
        Ok(ports.into_iter().filter_map(rate).collect())
    }
}

/// `2.5 Gb/sec (1X SDR)` in Mb/s; `None` for another text, and for a rate of zero.
fn megabits(rate: &str) -> Option<u64> {
    let number = rate.split_once(" Gb/sec")?.0;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let (whole, tenths): (u64, u64) = (whole.parse().ok()?, tenths.parse().ok().filter(|tenths| *tenths < 10)?);
    Some(whole.checked_mul(1000)? + tenths * 100).filter(|rate| *rate > 0)
}

/// Mb/s as the kernel writes Gb/s.
fn gigabits(rate: u64) -> String {
    let tenths = rate % 1000 / 100;
    if tenths == 0 { format!("{}", rate / 1000) } else { format!("{}.{tenths}", rate / 1000) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::health::sources::testing::{FUNCTION, Tree, Watching};

    fn ports() -> String {
        format!("{FUNCTION}/infiniband/mlx5_0/ports")
    }

    fn set(tree: &Tree, port: &str, state: &str, rate: &str) {
        tree.write(&format!("{}/{port}/state", ports()), state);
        tree.write(&format!("{}/{port}/rate", ports()), rate);
    }

    fn watched(tree: &Tree) -> Watching<'_> {
        let mut device = Device { vendor: "rdma".into(), ..Device::default() };
        device.note("port_state", "", ports());
        tree.watch(&RdmaRate, &device)
    }

    #[test]
    fn a_port_that_is_slower_than_it_was_is_a_warning_until_it_is_as_fast_again() {
        let tree = Tree::new();
        set(&tree, "1", "4: ACTIVE\n", "200 Gb/sec (4X HDR)\n");
        let mut watching = watched(&tree);
        assert_eq!(watching.observation(), Observation::Fine);
        set(&tree, "1", "4: ACTIVE\n", "2.5 Gb/sec (1X SDR)\n");
        let expected = ABOUT.finding("link-degraded").at(format!("{}/1/rate", ports())).reading("2.5 Gb/sec (1X SDR)");
        let detail = "the rate of port 1 is 2.5 Gb/sec (1X SDR), it was 200 Gb/sec";
        assert_eq!(watching.finding(), expected.because(detail));
        set(&tree, "1", "4: ACTIVE\n", "400 Gb/sec (4X NDR)\n");
        assert_eq!(watching.observation(), Observation::Fine);
        set(&tree, "1", "4: ACTIVE\n", "200 Gb/sec (4X HDR)\n");
        assert_eq!(watching.finding().detail, "the rate of port 1 is 200 Gb/sec (4X HDR), it was 400 Gb/sec");
    }

    #[test]
    fn a_port_that_is_down_and_one_that_was_never_faster_are_no_fault() {
        let tree = Tree::new();
        set(&tree, "1", "4: ACTIVE\n", "100 Gb/sec (4X EDR)\n");
        set(&tree, "2", "1: DOWN\n", "10 Gb/sec (4X SDR)\n");
        let mut watching = watched(&tree);
        assert_eq!(watching.observation(), Observation::Fine);
        set(&tree, "1", "1: DOWN\n", "2.5 Gb/sec (1X SDR)\n");
        assert_eq!(watching.observation(), Observation::NotLooked("no port is active".to_owned()));
        set(&tree, "2", "4: ACTIVE\n", "10 Gb/sec (4X SDR)\n");
        assert_eq!(watching.observation(), Observation::Fine, "port 2 never had more");
        std::fs::remove_dir_all(tree.path(&ports())).unwrap();
        assert_eq!(watching.observation(), Observation::Nothing, "it is in a container");
    }

    #[test]
    fn another_process_learns_how_fast_the_ports_were() {
        let tree = Tree::new();
        set(&tree, "1", "4: ACTIVE\n", "200 Gb/sec (4X HDR)\n");
        let mut before = watched(&tree);
        assert_eq!((before.subjects[0].examination.memory(), before.observation()), (None, Observation::Fine));
        let memory = before.subjects[0].examination.memory().unwrap();
        set(&tree, "1", "5: ACTIVE_DEFER\n", "100 Gb/sec (2X HDR)\n");
        for memory in [memory.as_str(), "", "garbage", "1=x 2", "=", "1=1"] {
            let mut after = watched(&tree);
            after.subjects[0].examination.recall(memory);
            assert_eq!(matches!(after.observation(), Observation::Seen(_)), memory == "1=200000", "{memory}");
        }
    }

    #[test]
    fn a_device_that_sleeps_and_one_of_another_vendor_are_left_alone() {
        let tree = Tree::new();
        set(&tree, "1", "4: ACTIVE", "200 Gb/sec (4X HDR)");
        let mut watching = watched(&tree);
        tree.set("power/runtime_status", "suspended\n");
        assert_eq!(watching.observation(), Observation::NotLooked("asleep: runtime_status is suspended".to_owned()));
        assert!(tree.watch(&RdmaRate, &Device { vendor: "amd".into(), ..Device::default() }).subjects.is_empty());
    }

    #[test]
    fn the_kernels_texts_are_rates_and_others_are_none() {
        for (text, expected) in [
            ("2.5 Gb/sec (1X SDR)", Some(2_500)),
            ("10 Gb/sec (4X)", Some(10_000)),
            ("1600 Gb/sec (8X XDR)", Some(1_600_000)),
            ("0 Gb/sec (4X SDR)", None),
            ("-1 Gb/sec", None),
            ("2.55 Gb/sec", None),
            ("N/A", None),
            ("", None),
        ] {
            assert_eq!(megabits(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_a_rate(text: String, rate in 1_u64..20_000) {
            megabits(&text);
            prop_assert_eq!(megabits(&format!("{} Gb/sec (4X)", gigabits(rate * 100))), Some(rate * 100));
        }
    }
}
