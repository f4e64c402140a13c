//! How often the ports of an RDMA device have lost their link: each rise is an event, counted from the first look on.
//!
//! <https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband>, `counters/link_downed`. It starts
//! again with the driver, with a reset and with `perfquery -x`: a total that has fallen is a new base.

use std::collections::BTreeMap;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use super::rdma_port::{CHECK_CABLE, DOCUMENT, Ports, Refusals, Whose, full_counter};
use crate::device::Device;
use crate::health::source::{
    About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject, failed_read,
};
use crate::host::Host;
use crate::host::attribute::AttributeError;

const LINK_DOWNED: &str = "link-downed";
const LINK_FLAPPING: &str = "link-flapping";

/// An event is over after this many seconds without another one.
const QUIET: u32 = 600;

/// The counter has 8 bits (`PORT_PMA_ATTR` of the kernel's `drivers/infiniband/core/sysfs.c`) and stops at its maximum.
const MOST: u64 = 255;

/// Seconds of an hour, within which a link may go down once or twice.
const HOUR: u64 = 3600;

static DOWNED: About = About {
    name: "rdma-link-downed",
    reads: Class::Firmware,
    pace: Pace::Thirtieth,
    document: DOCUMENT,
    meanings: &[Meaning::warning(
        LINK_DOWNED,
        "counters/link_downed of a port has risen since it was first read",
        CHECK_CABLE,
    )
    .until_quiet_for(QUIET)],
};

static FLAPS: About = About {
    name: "rdma-link-flaps",
    reads: Class::Firmware,
    pace: Pace::Thirtieth,
    document: DOCUMENT,
    meanings: &[Meaning::unhealthy(
        LINK_FLAPPING,
        "counters/link_downed of a port has risen by 3 or more in an hour",
        CHECK_CABLE,
    )
    .until_quiet_for(QUIET)],
};

/// The source for one meaning of the counter.
#[derive(Debug)]
pub(super) struct RdmaLink {
    about: &'static About,
    reason: &'static str,
    /// Number of losses within an hour that make an event.
    least: usize,
}

impl RdmaLink {
    /// A link that went down.
    pub(super) const DOWNED: Self = Self { about: &DOWNED, reason: LINK_DOWNED, least: 1 };
    /// A link that goes down repeatedly.
    pub(super) const FLAPS: Self = Self { about: &FLAPS, reason: LINK_FLAPPING, least: 3 };
}

impl Source for RdmaLink {
    fn about(&self) -> &'static About {
        self.about
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        let subject = |(file, ports)| {
            let Self { about, reason, least } = *self;
            let (known, refusals) = (BTreeMap::new(), Refusals::default());
            Subject::new(file, Links { about, reason, least, ports, refusals, known, lost: None, events: 0 })
        };
        Ports::of(host, device, Whose::Physical).map(subject).into_iter().collect()
    }
}

/// The links of all ports.
#[derive(Debug)]
struct Links {
    about: &'static About,
    reason: &'static str,
    least: usize,
    ports: Ports,
    refusals: Refusals,
    /// By port.
    known: BTreeMap<String, Link>,
    /// The port of the last event.
    lost: Option<String>,
    /// Losses that made an event. Never falls, so that none is lost together with the result of a look.
    events: u64,
}

/// The state of a port's link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Link {
    /// The kernel's count at the last look.
    total: u64,
    /// The `CLOCK_MONOTONIC` seconds of its last losses, at most as many as make an event.
    downs: Vec<u64>,
}

impl Examination for Links {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        if let Some(asleep) = self.ports.asleep(context.reads) {
            return Observation::NotLooked(asleep);
        }
        match self.totals() {
            Ok(totals) => totals.into_iter().for_each(|(port, total)| self.take_in(port, total, seconds(context.now))),
            Err(error) => {
                self.refusals.forget();
                if self.events == 0 {
                    return failed_read(&error.cause);
                }
            }
        }
        let Some((port, link)) = self.lost.as_ref().and_then(|port| self.known.get_key_value(port)) else {
            return self.well();
        };
        let news = if self.least > 1 {
            format!("it rose by {} or more within an hour", self.least)
        } else {
            format!("links that the device was seen to lose by this process: {}", self.events)
        };
        let detail = format!("port {port}: link_downed counts {}; {news}", link.total);
        let finding = self.about.finding(self.reason).at(format!("{}/{port}/counters/link_downed", context.file));
        Observation::Seen(finding.reading(&link.total.to_string()).because(&detail).counted(self.events))
    }

    /// `1=7@120,300 2=0@`: port, total, and seconds of the losses.
    fn memory(&self) -> Option<String> {
        let word = |(port, link): (&String, &Link)| {
            let downs: Vec<String> = link.downs.iter().map(u64::to_string).collect();
            format!("{port}={}@{}", link.total, downs.join(","))
        };
        let words: Vec<String> = self.known.iter().map(word).collect();
        Some(words.join(" ")).filter(|words| !words.is_empty())
    }

    fn recall(&mut self, memory: &str) {
        for (port, link) in memory.split(' ').filter_map(link_of) {
            self.known.entry(port).or_insert(link);
        }
    }
}

impl Links {
    /// The observation while no link has gone down.
    fn well(&self) -> Observation {
        let full = self.known.iter().find(|(_, link)| link.total >= MOST);
        match full {
            Some((port, _)) => Observation::NotLooked(full_counter(port, "link_downed", MOST)),
            None => match self.refusals.why() {
                Some(why) => Observation::NotLooked(why),
                None if self.known.is_empty() => Observation::Nothing,
                None => Observation::Fine,
            },
        }
    }

    /// Port and total of each port that has the counter, except ports that refuse reads.
    fn totals(&mut self) -> Result<Vec<(String, u64)>, AttributeError> {
        let (directory, ports) = self.ports.open()?;
        let mut totals = Vec::new();
        for port in ports {
            if self.refusals.stand(&port) {
                continue;
            }
            let counter = directory.attribute(&format!("{port}/counters/link_downed"));
            self.refusals.note(&port, counter.is_ok(), counter.as_ref().err().map(|error| error.cause.clone()));
            let total = counter.ok().and_then(|counter| counter.decimal().ok()?.try_into().ok());
            totals.extend(total.map(|total| (port, total)));
        }
        Ok(totals)
    }

    fn take_in(&mut self, port: String, total: u64, now: u64) {
        let link = self.known.entry(port.clone()).or_insert_with(|| Link { total, downs: Vec::new() });
        let news = total.saturating_sub(link.total);
        link.total = total;
        if news == 0 {
            return;
        }
        let most = usize::try_from(news).unwrap_or(usize::MAX).min(self.least);
        link.downs.extend(std::iter::repeat_n(now, most));
        link.downs.retain(|down| now.saturating_sub(*down) < HOUR);
        link.downs.drain(..link.downs.len().saturating_sub(self.least));
        if link.downs.len() == self.least {
            self.events = self.events.saturating_add(news);
            self.lost = Some(port);
        }
    }
}

/// `1=7@120,300`; `None` for any other format.
fn link_of(word: &str) -> Option<(String, Link)> {
    let (port, link) = word.split_once('=')?;
    let (total, downs) = link.split_once('@')?;
    let downs = downs.split(',').filter(|down| !down.is_empty()).map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((port.to_owned(), Link { total: total.parse().ok()?, downs }))
}

/// A moment in seconds of `CLOCK_MONOTONIC`, which is the same in another process.
fn seconds(moment: Instant) -> u64 {
    let (now, clock) = (Instant::now(), clock_gettime(ClockId::Monotonic));
    let clock = u64::try_from(clock.tv_sec).unwrap_or_default();
    clock
        .saturating_add(moment.saturating_duration_since(now).as_secs())
        .saturating_sub(now.saturating_duration_since(moment).as_secs())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::health::sources::testing::{FUNCTION, Tree, Watching};

    fn counter(port: u32) -> String {
        format!("{FUNCTION}/infiniband/mlx5_0/ports/{port}/counters/link_downed")
    }

    fn rdma(function: &str) -> Device {
        let mut device = Device { vendor: "rdma".into(), ..Device::default() };
        device.note("port_state", "", format!("{function}/infiniband/mlx5_0/ports"));
        device
    }

    /// A device whose two ports have lost their links this often.
    fn watched<'t>(tree: &'t Tree, source: &RdmaLink, first: &str, second: &str) -> Watching<'t> {
        tree.write(&counter(1), first);
        tree.write(&counter(2), second);
        tree.watch(source, &rdma(FUNCTION))
    }

    #[test]
    fn a_link_that_went_down_since_the_first_look_is_an_event_and_earlier_losses_are_not() {
        let tree = Tree::new();
        let mut watching = watched(&tree, &RdmaLink::DOWNED, "250\n", "0\n");
        assert_eq!(watching.observation(), Observation::Fine, "a card that has worked for a year");
        tree.write(&counter(2), "1\n");
        let finding = watching.finding();
        assert_eq!((finding.file.as_str(), &*finding.value, finding.count), (counter(2).as_str(), "1", 1));
        let news = "links that the device was seen to lose by this process: 1";
        assert_eq!(finding.detail, format!("port 2: link_downed counts 1; {news}"));
        tree.write(&counter(1), "252\n");
        assert_eq!((watching.finding().file, watching.finding().count), (counter(1), 3));
    }

    #[test]
    fn three_times_within_an_hour_on_one_port_is_a_link_that_flaps() {
        let tree = Tree::new();
        let mut watching = watched(&tree, &RdmaLink::FLAPS, "7\n", "7\n");
        assert_eq!(watching.observation(), Observation::Fine);
        for (minutes, first, second, expected) in [
            (0, 8, 7, 0),
            (10, 8, 8, 0), // the other port's
            (10, 9, 8, 0),
            (45, 10, 8, 0), // the first is more than an hour ago
            (10, 11, 8, 3), // the last three are within 55 minutes
            (10, 11, 8, 3),
        ] {
            watching.wait(60.0 * f64::from(minutes));
            tree.write(&counter(1), format!("{first}\n"));
            tree.write(&counter(2), format!("{second}\n"));
            let count = if let Observation::Seen(finding) = watching.observation() { finding.count } else { 0 };
            assert_eq!(count > 0, expected > 0, "{minutes} {first} {second}");
        }
        let mut at_once = watched(&tree, &RdmaLink::FLAPS, "7\n", "7\n");
        assert_eq!(at_once.observation(), Observation::Fine);
        tree.write(&counter(1), "10\n");
        assert_eq!((&*at_once.finding().reason, at_once.finding().count), ("link-flapping", 3));
        assert_eq!(at_once.finding().detail, "port 1: link_downed counts 10; it rose by 3 or more within an hour");
    }

    #[test]
    fn a_counter_that_can_rise_no_further_is_not_taken_for_a_link_that_stays() {
        let tree = Tree::new();
        let mut watching = watched(&tree, &RdmaLink::DOWNED, "255\n", "7\n");
        let blind = "link_downed of port 1 is at 255 and cannot rise; `perfquery -R` sets it back";
        assert_eq!(watching.observation(), Observation::NotLooked(blind.to_owned()));
        tree.write(&counter(2), "8\n");
        assert_eq!(watching.finding().file, counter(2), "the other port's still counts");
        let mut last = watched(&tree, &RdmaLink::DOWNED, "254\n", "7\n");
        assert_eq!(last.observation(), Observation::Fine);
        tree.write(&counter(1), "255\n");
        assert_eq!(last.finding().count, 1);
    }

    #[test]
    fn a_count_that_falls_or_is_not_there_is_another_base() {
        let tree = Tree::new();
        let mut watching = watched(&tree, &RdmaLink::DOWNED, "7\n", "N/A (no PMA)\n");
        for (total, expected) in [("7\n", 0), ("0\n", 0), ("1\n", 1), ("N/A (no PMA)\n", 1), ("2\n", 2)] {
            tree.write(&counter(1), total);
            let count = if let Observation::Seen(finding) = watching.observation() { finding.count } else { 0 };
            assert_eq!(count, expected, "{total}");
        }
        tree.write(&counter(2), "3\n");
        assert_eq!(watching.finding().count, 2, "a port whose counter comes with a driver");
    }

    #[test]
    fn another_process_goes_on_with_the_base_and_with_the_hour() {
        let tree = Tree::new();
        let mut before = watched(&tree, &RdmaLink::FLAPS, "0\n", "0\n");
        assert_eq!(before.observation(), Observation::Fine);
        tree.write(&counter(1), "2\n");
        assert_eq!(before.observation(), Observation::Fine);
        let memory = before.subjects[0].examination.memory().unwrap();
        let mut after = watched(&tree, &RdmaLink::FLAPS, "3\n", "0\n");
        after.subjects[0].examination.recall("of another version");
        after.subjects[0].examination.recall(&memory);
        assert_eq!(after.finding().count, 1);
        assert_eq!(memory.split(' ').nth(1), Some("2=0@"));
    }

    #[test]
    fn a_virtual_function_has_the_link_of_its_physical_one() {
        let tree = Tree::new();
        let virtual_one = FUNCTION.replace("00.0", "00.1");
        let own = format!("{virtual_one}/infiniband/mlx5_0/ports");
        tree.write(&format!("{own}/1/counters/link_downed"), "0\n");
        let subjects = |tree: &Tree| tree.watch(&RdmaLink::DOWNED, &rdma(&virtual_one)).subjects.remove(0).file;
        tree.link(&format!("{virtual_one}/physfn"), "../0000:81:00.0");
        assert_eq!(subjects(&tree), own, "its physical function is elsewhere, or has no RDMA device");
        tree.write(&counter(1), "4\n");
        assert_eq!(subjects(&tree), format!("{FUNCTION}/infiniband/mlx5_0/ports"));
        let mut watching = tree.watch(&RdmaLink::DOWNED, &rdma(&virtual_one));
        assert_eq!(watching.observation(), Observation::Fine);
        tree.write(&counter(1), "5\n");
        assert_eq!(watching.finding().file, counter(1));
    }

    #[test]
    fn a_device_that_sleeps_is_left_alone_and_one_without_counters_says_nothing() {
        let tree = Tree::new();
        let mut watching = watched(&tree, &RdmaLink::DOWNED, "N/A (no PMA)\n", "N/A (no PMA)\n");
        assert_eq!((watching.observation(), watching.subjects[0].examination.memory()), (Observation::Nothing, None));
        tree.set("power/runtime_status", "suspended\n");
        assert_eq!(watching.observation(), Observation::NotLooked("asleep: runtime_status is suspended".to_owned()));
    }

    proptest! {
        #[test]
        fn any_memory_can_be_recalled(memory: String) {
            memory.split(' ').for_each(|word| drop(link_of(word)));
        }

        #[test]
        fn what_was_remembered_is_known(port in "[0-9]{1,3}", total: u64, downs: Vec<u64>) {
            let tree = Tree::new();
            let mut watching = tree.watch(&RdmaLink::FLAPS, &rdma(FUNCTION));
            let numbers: Vec<String> = downs.iter().map(u64::to_string).collect();
            let memory = format!("{port}={total}@{}", numbers.join(","));
            watching.subjects[0].examination.recall(&memory);
            prop_assert_eq!(watching.subjects[0].examination.memory(), Some(memory.clone()));
            prop_assert_eq!(link_of(&memory), Some((port, Link { total, downs })));
        }
    }
}
