//! What polls report about devices, and when the poller looks.

mod follows;
mod limits;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::device::{HostPath, PciFunction, Reading};
use crate::health::source::{About, Class, Examination, LookContext, Meaning, Observation, Pace, Subject};
use crate::health::sources::testing::{FUNCTION, Tree};
use crate::health::sources::{fpga_errors, fpga_manager, scan, temperature};

/// One moment, for polls of which only the number counts.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

const PORT: &str = "/sys/port";
const ALARM: &str = "/sys/alarm";
const ENGINE: &str = "/sys/engine";

fn poller(tree: &Tree) -> Poller {
    Poller::new(tree.host.clone(), Arc::new(Fence::new(Duration::from_secs(5))))
}

fn device(card: &str, id: &str, readings: Vec<Reading>) -> Device {
    Device { vendor: "test".into(), card: card.into(), id: id.into(), readings, ..Device::default() }
}

fn with_function(card: &str, id: &str) -> Device {
    let functions = vec![PciFunction { path: FUNCTION.into(), driver: None, physical: None }];
    Device { functions, ..device(card, id, Vec::new()) }
}

impl Poller {
    /// Watches copies of these devices.
    fn watch_all(&mut self, devices: &[Device]) {
        self.watch(&devices.iter().cloned().map(Arc::new).collect::<Vec<_>>(), &[]);
    }
}

/// The looks of a poll of everything.
fn polled(poller: &mut Poller) -> Vec<Look> {
    poller.poll(&PollReason::Anything, &|| {})
}

/// Reasons by device.
fn reasons(looks: &[Look]) -> Vec<(&str, Vec<&str>)> {
    let of_look = |look: &Look| look.findings.iter().map(|finding| finding.reason.clone()).collect::<Vec<_>>();
    let word = |reason: std::borrow::Cow<'static, str>| match reason {
        std::borrow::Cow::Borrowed(word) => word,
        std::borrow::Cow::Owned(word) => panic!("{word} is not registered"),
    };
    looks.iter().map(|look| (look.id.as_str(), of_look(look).into_iter().map(word).collect())).collect()
}

#[test]
fn a_finding_comes_and_goes_with_its_cause() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write(PORT, "0x0");
    tree.write(ENGINE, "0x0");
    poller.watch_all(&[device("card", "port.0", vec![fpga_errors::of_port(PORT), fpga_errors::of_engine(ENGINE)])]);
    assert!(polled(&mut poller).is_empty());
    tree.write(ENGINE, "0x4");
    tree.write(PORT, "0x1");
    assert_eq!(reasons(&polled(&mut poller)), [("port.0", vec!["fme-error", "port-error"])]);
    tree.write(ENGINE, "0x0");
    assert_eq!(reasons(&polled(&mut poller)), [("port.0", vec!["port-error"])]);
    tree.write(PORT, "0x0");
    assert!(polled(&mut poller).is_empty());
}

#[test]
fn a_shared_part_is_read_once_and_reported_for_all_that_share_it() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write(ENGINE, "0x0");
    tree.write(PORT, "0x0");
    let shared = || fpga_errors::of_engine(ENGINE);
    poller.watch_all(&[
        device("card", "port.0", vec![shared(), fpga_errors::of_port(PORT)]),
        device("card", "port.1", vec![shared()]),
        device("other", "port.2", Vec::new()),
    ]);
    assert_eq!(poller.cards.len(), 1);
    assert_eq!(poller.cards[0].card.watched.len(), 2);
    tree.write(ENGINE, "0x4");
    let looks = polled(&mut poller);
    assert_eq!(reasons(&looks), [("port.0", vec!["fme-error"]), ("port.1", vec!["fme-error"])]);
    assert_eq!(looks[0].findings, looks[1].findings);
    tree.write(ENGINE, "0x0");
    tree.write(PORT, "0x1");
    assert_eq!(reasons(&polled(&mut poller)), [("port.0", vec!["port-error"])]);
}

#[test]
fn a_source_that_leaves_a_sleeping_card_alone_says_so() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.set("config", [0xff; 64]);
    tree.set("power/runtime_status", "suspended\n");
    poller.watch_all(&[with_function("card", "gpu.0")]);
    let looks = polled(&mut poller);
    let asleep = "asleep: runtime_status is suspended".to_owned();
    assert_eq!(looks.len(), 1);
    assert_eq!(looks[0].findings, []);
    let expected = BTreeMap::from([("pci-config", asleep.clone()), ("pci-link", asleep)]);
    assert_eq!(looks[0].not_looked, expected);
}

fn events(poller: &mut Poller) -> u64 {
    polled(poller).iter().flat_map(|look| &look.findings).map(|finding| finding.count).sum()
}

#[test]
fn counts_go_on_whatever_happens_to_the_devices_between() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.set("aer_dev_fatal", "TOTAL_ERR_FATAL 1");
    let device = with_function("card", "gpu.0");
    poller.watch_all(std::slice::from_ref(&device));
    assert_eq!(events(&mut poller), 0);
    tree.set("aer_dev_fatal", "TOTAL_ERR_FATAL 2");
    // While a scan does not find the device, nobody looks; what happened in the meantime is counted when it is found
    // again.
    poller.watch_all(&[]);
    assert_eq!(events(&mut poller), 0);
    poller.watch_all(&[with_function("other", "gpu.9")]);
    poller.watch_all(&[device.clone(), with_function("card", "gpu.1")]);
    assert_eq!(events(&mut poller), 2, "one event, and two devices have it");
    poller.watch_all(&[device]);
    assert_eq!(events(&mut poller), 1);
}

/// Looks of a regular poll, with these sources of port 0 of card `card` awaited.
fn regular(poller: &mut Poller, awaited: &[&str]) -> Vec<Look> {
    let sources = awaited.iter().map(|&name| name.to_owned()).collect();
    let device = Awaited { vendor: "test".to_owned(), id: "port.0".to_owned(), sources };
    let reason = PollReason::Regular(HashMap::from([("card".to_owned(), vec![device])]));
    // All in the same moment: only the number of polls counts.
    poller.poll_at(*BEGAN, &reason, &|| {})
}

#[test]
fn a_source_that_is_left_alone_looks_at_nothing_and_goes_on_afterwards() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write(PORT, "0x0");
    tree.write(ENGINE, "0x0");
    tree.set("aer_dev_fatal", "TOTAL_ERR_FATAL 0");
    poller.watch_all(&[Device { readings: vec![fpga_errors::of_port(PORT)], ..with_function("card", "port.0") }]);
    assert!(polled(&mut poller).is_empty());
    poller.leave_alone(["fpga-errors".to_owned()].into());
    tree.write(PORT, "0x1");
    tree.set("aer_dev_fatal", "TOTAL_ERR_FATAL 1");
    assert_eq!(reasons(&polled(&mut poller)), [("port.0", vec!["pci-aer"])]);
    poller.leave_alone(BTreeSet::new());
    assert_eq!(reasons(&polled(&mut poller)), [("port.0", vec!["port-error", "pci-aer"])]);
}

#[test]
fn an_error_register_of_an_fpga_is_read_each_poll_and_a_sensor_each_tenth() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write(PORT, "0x0");
    tree.write(ALARM, "0");
    let readings = vec![fpga_errors::of_port(PORT), temperature::alarm(ALARM)];
    poller.watch_all(&[device("card", "port.0", readings)]);
    assert_eq!(regular(&mut poller, &[]), []);
    tree.write(PORT, "0x1");
    tree.write(ALARM, "1");
    for _ in 0..9 {
        assert_eq!(reasons(&regular(&mut poller, &[])), [("port.0", vec!["port-error"])]);
    }
    assert_eq!(reasons(&regular(&mut poller, &[])), [("port.0", vec!["port-error", "temperature"])]);
}

#[test]
fn fatal_pci_errors_are_read_each_poll_or_each_tenth_while_the_kernel_log_is_read() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    poller.watch_all(&[with_function("card", "port.0")]);
    let mut errors = 0;
    let mut polls_until_seen = |poller: &mut Poller| {
        tree.set("aer_dev_fatal", format!("TOTAL_ERR_FATAL {errors}"));
        polled(poller);
        let known = poller.poll_at(*BEGAN, &PollReason::Regular(HashMap::new()), &|| {});
        errors += 1;
        tree.set("aer_dev_fatal", format!("TOTAL_ERR_FATAL {errors}"));
        1 + (0..).take_while(|_| regular(poller, &[]) == known).take(100).count()
    };
    assert_eq!(polls_until_seen(&mut poller), 1);
    poller.reads_kernel_log(true);
    let sometimes = polls_until_seen(&mut poller);
    assert!((2..=10).contains(&sometimes), "{sometimes}");
    poller.reads_kernel_log(false);
    assert_eq!(polls_until_seen(&mut poller), 1);
}

#[test]
fn what_is_not_looked_at_is_as_it_was_and_good_looks_that_are_awaited_are_taken_at_each_poll() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write(ALARM, "1");
    tree.write(ENGINE, "0");
    poller.watch_all(&[device("card", "port.0", vec![temperature::alarm(ALARM), temperature::alarm(ENGINE)])]);
    let is_found = [("port.0", vec!["temperature"])];
    assert_eq!(reasons(&regular(&mut poller, &[])), is_found);
    tree.write(ALARM, "0");
    for _ in 0..9 {
        assert_eq!(reasons(&regular(&mut poller, &["temperature"])), is_found, "it is not looked at yet");
    }
    assert_eq!(regular(&mut poller, &["temperature"]), []);
    // After one good look each poll looks again, so that good looks can be counted, and no look is counted that was not
    // made.
    tree.write(ALARM, "1");
    assert_eq!(regular(&mut poller, &["fpga-errors"]), []);
    assert_eq!(reasons(&regular(&mut poller, &["temperature"])), is_found);
}

#[test]
fn an_event_has_the_card_that_it_names_looked_at_and_no_other() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    let other = "/sys/other";
    for register in [PORT, other] {
        tree.write(register, "0x0");
    }
    let port = |register| vec![fpga_errors::of_port(register)];
    poller.watch_all(&[
        Device { readings: port(PORT), ..with_function("card", "port.0") },
        Device { readings: port(other), ..device("other", "port.1", Vec::new()) },
    ]);
    assert_eq!(regular(&mut poller, &[]), []);
    for register in [PORT, other] {
        tree.write(register, "0x1");
    }
    let bridge = FUNCTION.rsplit_once('/').unwrap().0;
    for (named, expected) in [
        ("/sys/devices/pci0000:00", vec![]),
        (bridge, vec![("port.0", vec!["port-error"])]),
        (&format!("{FUNCTION}/drm/card0"), vec![("port.0", vec!["port-error"])]),
    ] {
        tree.write(PORT, "0x1");
        let events = PollReason::Events { named: vec![named.into()], paths: false };
        assert_eq!(reasons(&poller.poll_at(*BEGAN, &events, &|| {})), expected, "{named}");
        tree.write(PORT, "0x0");
        poller.poll(&PollReason::Events { named: vec![FUNCTION.into()], paths: false }, &|| {});
    }
}

#[test]
fn where_nodes_come_or_go_all_nodes_are_looked_at() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write("/run/file", "");
    let paths = vec![HostPath::file("/run/file").required(true)];
    poller.watch_all(&[Device { paths, ..device("card", "port.0", Vec::new()) }]);
    assert_eq!(regular(&mut poller, &[]), []);
    tree.remove("/run/file");
    let mut after = |paths| {
        let reason = PollReason::Events { named: Vec::new(), paths };
        poller.poll_at(*BEGAN, &reason, &|| {}).len()
    };
    assert_eq!([after(false), after(true)], [0, 1]);
}

#[test]
fn a_path_that_an_event_names_is_looked_at_and_no_other() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    let files = ["/run/a", "/run/b"];
    let paths = files.map(|file| HostPath::file(file).required(true)).to_vec();
    for file in files {
        tree.write(file, "");
    }
    poller.watch_all(&[Device { paths, ..device("card", "port.0", Vec::new()) }]);
    assert_eq!(regular(&mut poller, &[]), []);
    for file in files {
        tree.remove(file);
    }
    let mut after = |named: &str| {
        let reason = PollReason::Events { named: vec![named.into()], paths: false };
        let looks = poller.poll_at(*BEGAN, &reason, &|| {});
        looks.into_iter().flat_map(|look| look.findings).map(|finding| finding.file).collect::<Vec<_>>()
    };
    assert!(after("/run/c").is_empty() && after("/run").is_empty());
    assert_eq!(after("/run/b"), ["/run/b"]);
    assert_eq!(after("/run/a"), files);
}

#[test]
fn a_card_whose_read_hung_is_looked_at_each_poll_until_that_is_over() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write(PORT, "0x0");
    poller.watch_all(&[device("card", "port.0", vec![fpga_errors::of_port(PORT)])]);
    assert_eq!(regular(&mut poller, &[]), []);
    tree.write(PORT, "0x1");
    assert_eq!(reasons(&regular(&mut poller, &["probe"])), [("port.0", vec!["port-error"])]);
}

/// What may happen to a file.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// It shows a fault: the same file, or another one in its place.
    Bad {
        is_other_file: bool,
    },
    /// It shows no fault.
    Good {
        is_other_file: bool,
    },
    Gone,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        any::<bool>().prop_map(|is_other_file| Change::Bad { is_other_file }),
        any::<bool>().prop_map(|is_other_file| Change::Good { is_other_file }),
        Just(Change::Gone),
    ]
}

fn make(tree: &Tree, file: &str, (good, bad): (&str, &str), change: Change) {
    let (text, is_other_file) = match change {
        Change::Bad { is_other_file } => (bad, is_other_file),
        Change::Good { is_other_file } => (good, is_other_file),
        Change::Gone => return std::fs::remove_file(tree.path(file)).unwrap_or_default(),
    };
    if is_other_file {
        let beside = format!("{file}.new");
        tree.write(&beside, text);
        std::fs::rename(tree.path(&beside), tree.path(file)).unwrap();
    } else {
        tree.write(file, text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Compared with a new poller that looks at everything; for every position of the card.
    #[test]
    fn whatever_happens_is_found_within_as_many_polls_as_its_reads_are_worth(
        first in [change(), change(), change()],
        before_it in 0_u64..32,
        changes in prop::collection::vec((0_usize..3, change(), 0_u64..70, any::<bool>()), 1..8),
    ) {
        let tree = Tree::new();
        // What is read in each poll, in every fifth and in every tenth.
        let manager = format!("{FUNCTION}/fpga_region/region0/dfl-fme.0/dfl-fme-mgr.0/fpga_manager/fpga0/state");
        let register = format!("{FUNCTION}/fpga_region/region0/dfl-fme.0/errors/nonfatal_errors");
        let files = [
            (register.as_str(), ("0x0", "0x1"), "fme-error", 1),
            (manager.as_str(), ("operating", "write error"), "unprogrammed", 5),
            (ALARM, ("0", "1"), "temperature", 10),
        ];
        for (file, ..) in &files {
            tree.write(&format!("{file}.beside"), "");
        }
        for ((file, texts, ..), change) in files.iter().zip(first) {
            make(&tree, file, *texts, change);
        }
        let is_there_at_first = first.map(|change| !matches!(change, Change::Gone));
        let of_an_fpga = |card, id| Device { vendor: "intel-fpga".into(), ..with_function(card, id) };
        let readings = vec![fpga_errors::of_engine(&register), fpga_manager::of_manager(&manager), temperature::alarm(ALARM)];
        let with_register = Device { readings, ..of_an_fpga("card", "port.0") };
        let others = (0..before_it).map(|number| device(&format!("before{number}"), "port", vec![fpga_errors::of_port(ENGINE)]));
        let devices: Vec<_> = others.chain([with_register, of_an_fpga("other", "port.1")]).collect();
        let mut cheap = poller(&tree);
        cheap.watch_all(&devices);
        regular(&mut cheap, &[]);
        let mut was_gone = [false; 3];
        for (which, change, polls, is_told) in changes {
            let (file, texts, ..) = files[which];
            make(&tree, file, texts, change);
            let mut found = Vec::new();
            for _ in 0..polls {
                found = regular(&mut cheap, &[]);
            }
            if is_told {
                let events = PollReason::Events { named: vec![FUNCTION.into()], paths: false };
                found = cheap.poll_at(*BEGAN, &events, &|| {});
            }
            let mut naive = poller(&tree);
            naive.watch_all(&devices);
            let expected = polled(&mut naive);
            let known = is_there_at_first.into_iter().zip(was_gone);
            for ((_, _, reason, period), (was_there, was_gone)) in files.iter().zip(known) {
                let is_said = |looks: &[Look]| {
                    let has = |look: &&Look| look.findings.iter().any(|finding| finding.reason == *reason);
                    looks.iter().filter(has).map(|look| look.id.clone()).collect::<Vec<_>>()
                };
                // A file that is gone is looked for in every tenth poll, one that never existed in every sixtieth.
                let within = if !was_there { 60 } else if was_gone { 10 } else { *period };
                if is_told || polls >= within {
                    prop_assert_eq!(is_said(&found), is_said(&expected), "{} after {} polls", reason, polls);
                }
            }
            was_gone[which] |= matches!(change, Change::Gone);
        }
    }
}

#[test]
fn cards_take_turns_at_what_is_looked_at_seldom_so_that_no_poll_looks_at_all() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    let register = |card: usize| format!("/sys/card{card}/temp1_alarm");
    let device = |card| device(&format!("card{card}"), "port", vec![temperature::alarm(register(card))]);
    (0..100).for_each(|card| tree.write(&register(card), "0"));
    poller.watch_all(&(0..100).map(device).collect::<Vec<_>>());
    assert_eq!(regular(&mut poller, &[]), []);
    // After an event, which looks at everything at once, each card keeps its turn.
    polled(&mut poller);
    (0..100).for_each(|card| tree.write(&register(card), "1"));
    let found: Vec<_> = (0..10).map(|_| regular(&mut poller, &[]).len()).collect();
    assert_eq!(found, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
}

#[test]
fn few_cards_look_together_so_that_polls_between_can_be_left_out() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    let register = |card: usize| format!("/sys/card{card}/temp1_alarm");
    let device = |card| device(&format!("card{card}"), "port", vec![temperature::alarm(register(card))]);
    (0..8).for_each(|card| tree.write(&register(card), "0"));
    poller.watch_all(&(0..8).map(device).collect::<Vec<_>>());
    assert_eq!(poller.pause(), 1, "nobody has looked yet");
    regular(&mut poller, &[]);
    (0..8).for_each(|card| tree.write(&register(card), "1"));
    let polls: Vec<_> = (0..10).map(|_| (poller.pause(), regular(&mut poller, &[]).len())).collect();
    let expected = [(5, 0), (4, 0), (3, 0), (2, 0), (1, 4), (5, 4), (4, 4), (3, 4), (2, 4), (1, 8)];
    assert_eq!(polls, expected);
}

#[test]
fn no_poll_is_left_out_while_a_source_looks_in_each() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write(PORT, "0x0");
    poller.watch_all(&[device("card", "port", vec![fpga_errors::of_port(PORT)])]);
    regular(&mut poller, &[]);
    assert_eq!(poller.pause(), 1);
}

#[test]
fn an_attribute_that_was_never_there_is_looked_for_at_each_sixtieth_poll_or_when_an_event_names_its_card() {
    let tree = Tree::new();
    tree.set("vendor", "0x8086");
    let mut poller = poller(&tree);
    poller.watch_all(&[with_function("card", "port.0")]);
    assert_eq!(regular(&mut poller, &[]), []);
    tree.set("power_state", "error");
    let polls = (0..).take_while(|_| regular(&mut poller, &[]).is_empty()).take(100).count();
    assert_eq!(polls, 59);
    let again = with_function("other", "port.1");
    tree.remove(&format!("{FUNCTION}/power_state"));
    poller.watch_all(&[again]);
    assert_eq!(regular(&mut poller, &[]), []);
    tree.set("power_state", "error");
    let events = PollReason::Events { named: vec![FUNCTION.into()], paths: false };
    assert_eq!(reasons(&poller.poll_at(*BEGAN, &events, &|| {})), [("port.1", vec!["power-state"])]);
}

#[test]
fn facts_for_a_later_process_are_reported_once_until_they_change() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.set("current_link_width", "8");
    poller.watch_all(&[with_function("card", "port.0")]);
    regular(&mut poller, &[]);
    let best = |memories: Option<Memories>| memories.map(|known| known.into_values().collect::<Vec<_>>());
    assert_eq!(best(poller.new_memories()), Some(vec!["8 0 GT/s".to_owned()]));
    tree.set("current_link_width", "16");
    for _ in 0..9 {
        regular(&mut poller, &[]);
        assert_eq!(poller.new_memories(), None);
    }
    regular(&mut poller, &[]);
    assert_eq!(best(poller.new_memories()), Some(vec!["16 0 GT/s".to_owned()]));
    assert_eq!(poller.new_memories(), None);
    poller.watch_all(&[with_function("card", "port.0")]);
    assert_eq!(poller.new_memories(), None, "another scan is nothing new");
    poller.recall(poller.memories.clone().into_keys().map(|place| (place, "32 0 GT/s".to_owned())).collect());
    regular(&mut poller, &[]);
    poller.new_memories();
    assert_eq!(best(Some(poller.memories.clone())), Some(vec!["32 0 GT/s".to_owned()]));
}

#[test]
fn pci_errors_are_reported_for_each_device_with_those_of_all_its_functions_and_of_the_port_that_it_shares() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    let port = FUNCTION.rsplit_once('/').unwrap().0;
    let function = |number: u8| format!("{port}/0000:81:00.{number}");
    for (place, errors) in [(port.to_owned(), 9), (function(0), 1), (function(1), 2), (function(2), 4)] {
        tree.write(&format!("{place}/aer_dev_fatal"), format!("TOTAL_ERR_FATAL {errors}"));
    }
    let on = |id: &str, functions: &[u8]| {
        let function = |&number: &u8| PciFunction { path: function(number).into(), driver: None, physical: None };
        let functions = functions.iter().map(function).collect();
        let mut device = Device { functions, ..device("card", id, Vec::new()) };
        device.note("pci_address", id, "");
        device
    };
    poller.watch_all(&[on("0000:81:00.0", &[0, 1]), on("0000:81:00.2", &[2]), on("0000:81:00.2", &[2])]);
    polled(&mut poller);
    let counts = |poller: &mut Poller| {
        let of_one = |one: Count| (one.pci_address, one.part, one.kind.into_owned(), one.number);
        poller.new_counts().map(|counts| counts.into_iter().map(of_one).collect::<Vec<_>>())
    };
    let expected = |own: u64| {
        let rows = [("0000:81:00.0", "device", own), ("0000:81:00.0", "port", 9), ("0000:81:00.2", "device", 4)];
        let rows = rows.into_iter().chain([("0000:81:00.2", "port", 9)]);
        let row = |(address, end, number): (&str, &str, u64)| (address.into(), end.into(), "fatal".into(), number);
        Some(rows.map(row).collect::<Vec<_>>())
    };
    assert_eq!(counts(&mut poller), expected(3));
    polled(&mut poller);
    assert_eq!(counts(&mut poller), None, "nothing else was counted");
    tree.write(&format!("{}/aer_dev_fatal", function(1)), "TOTAL_ERR_FATAL 3");
    polled(&mut poller);
    assert_eq!(counts(&mut poller), expected(4));
}

#[test]
fn devices_that_are_watched_no_more_are_not_spoken_of() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write(PORT, "0x1");
    poller.watch_all(&[device("card", "port.0", vec![fpga_errors::of_port(PORT)])]);
    assert_eq!(polled(&mut poller).len(), 1);
    poller.watch_all(&[]);
    assert!(polled(&mut poller).is_empty());
    assert!(poller.absent.is_empty(), "what counts nothing is not kept");
}
