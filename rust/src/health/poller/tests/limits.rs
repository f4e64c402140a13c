//! Cards that hang, looks that panic, and how many files stay open.

use super::*;

#[test]
fn a_card_that_hangs_is_overdue_with_the_file_that_hangs_and_costs_no_other() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    let deadline = Duration::from_millis(100);
    poller.fence = Arc::new(Fence::new(deadline));
    tree.write(PORT, "0x0");
    tree.write(ENGINE, "0x1");
    let watched = [
        device("hung", "port.0", vec![fpga_errors::of_port(PORT)]),
        device("hung", "port.1", vec![fpga_errors::of_port(PORT)]),
        device("other", "port.2", vec![fpga_errors::of_engine(ENGINE)]),
    ];
    poller.watch_all(&watched);
    let held = Arc::clone(&poller.cards[0].card.watched[0]);
    let hang = held.lock();
    for _ in 0..2 {
        let looks = polled(&mut poller);
        let expected =
            [("port.0", vec!["probe-timeout"]), ("port.1", vec!["probe-timeout"]), ("port.2", vec!["fme-error"])];
        assert_eq!(reasons(&looks), expected);
        assert_eq!(looks[0].findings, [scan::probe_timeout(deadline, PORT)]);
        assert_eq!(looks[0].not_looked, BTreeMap::from([("", "the card does not answer".to_owned())]));
        assert!(looks[2].not_looked.is_empty());
        // Neither another scan nor the exclusion of a source forgets the hang.
        poller.watch_all(&watched);
        poller.leave_alone(["fpga-errors".to_owned()].into());
        let nothing = PollReason::Events { named: Vec::new(), paths: false };
        assert_eq!(reasons(&poller.poll(&nothing, &|| {})), expected);
        poller.leave_alone(BTreeSet::new());
    }
    drop(hang);
    let start = std::time::Instant::now();
    while polled(&mut poller).len() > 1 {
        assert!(start.elapsed() < Duration::from_secs(10), "the card never came back");
    }
}

#[test]
fn a_card_that_nobody_was_sent_to_and_that_still_hangs_is_overdue_at_once() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    tree.write(PORT, "0x0");
    poller.watch_all(&[device("card", "port.0", vec![fpga_errors::of_port(PORT)])]);
    assert_eq!(polled(&mut poller), []);
    let held = Arc::clone(&poller.cards[0].card.watched[0]);
    let hang = held.lock();
    let deadline = poller.fence.deadline();
    for outcome in [None, Some(Outcome::Done(News::default()))] {
        let looks = poller.cards[0].looks_after(outcome, deadline);
        assert_eq!(looks[0].findings, [scan::probe_timeout(deadline, PORT)]);
    }
    drop(hang);
    assert_eq!(poller.cards[0].looks_after(None, deadline), []);
}

#[test]
fn the_files_of_a_card_that_lost_its_share_of_descriptors_are_closed_at_once() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    let open = |name: &str| {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        targets.filter(|target| *target == tree.path(&format!("{FUNCTION}/{name}"))).count()
    };
    for name in ["aer_dev_fatal", "aer_dev_nonfatal"] {
        tree.set(name, "TOTAL_ERR 0");
    }
    poller.watch_all(&[with_function("card", "gpu.0"), with_function("other", "gpu.1")]);
    polled(&mut poller);
    assert_eq!(open("aer_dev_fatal"), 0, "they could be removed and read for ever: it is no sysfs");
    let most = poller.cards[0].card.most_open(false);
    assert_eq!((most, poller.cards[0].card.most_open(true)), (2, 0), "of both ends, unless the kernel log reports it");
    for (may_be_open, expected) in [(2 * most, 2), (2 * most - 1, 1), (0, 0)] {
        poller.keep_most_open(may_be_open);
        assert!(open("aer_dev_fatal") <= expected);
        polled(&mut poller);
        assert_eq!((open("aer_dev_fatal"), open("aer_dev_nonfatal")), (expected, 0), "{may_be_open}");
    }
}

/// A source whose looks panic or hang, by the id of the device.
#[derive(Debug)]
struct Rigged;

static RIGGED: About = About {
    name: "rigged",
    reads: Class::None,
    pace: Pace::Each,
    document: "none",
    meanings: &[Meaning::unhealthy("rigged", "always", "do nothing")],
};

static GATE: Mutex<Option<Receiver<()>>> = Mutex::new(None);

impl Source for Rigged {
    fn about(&self) -> &'static About {
        &RIGGED
    }

    fn subjects(&self, _host: &Host, device: &Device) -> Vec<Subject> {
        vec![Subject::new(device.id.as_str(), Rigged)]
    }
}

impl Examination for Rigged {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        match context.file {
            "panics" => panic!("nobody expects this"),
            "fine" => Observation::Fine,
            _ => {
                let gate = GATE.lock().unwrap_or_else(PoisonError::into_inner);
                gate.as_ref().map(Receiver::recv).unwrap().unwrap_or_default();
                Observation::Fine
            }
        }
    }
}

#[test]
fn a_defect_in_a_look_is_reported_and_is_no_fault_of_the_card() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    poller.sources = vec![&Rigged];
    poller.watch_all(&[
        device("a", "panics", Vec::new()),
        device("a", "fine", Vec::new()),
        device("b", "fine", Vec::new()),
    ]);
    for _ in 0..2 {
        let looks = polled(&mut poller);
        let expected = BTreeMap::from([("", "defect in a look: nobody expects this".to_owned())]);
        assert_eq!(looks.iter().map(|look| look.id.as_str()).collect::<Vec<_>>(), ["panics", "fine"]);
        assert!(looks.iter().all(|look| look.findings.is_empty() && look.not_looked == expected), "{looks:?}");
    }
}

#[test]
fn cards_that_no_thread_is_left_for_are_not_looked_at() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    poller.fence = Arc::new(Fence::new(Duration::from_millis(500)));
    poller.sources = vec![&Rigged];
    let (gate, receiver): (Sender<()>, _) = channel();
    *GATE.lock().unwrap() = Some(receiver);
    // More cards hang than there may be threads.
    let devices: Vec<_> = (0..80).map(|card| device(&format!("card{card}"), "hangs", Vec::new())).collect();
    poller.watch_all(&devices);
    let looks = polled(&mut poller);
    assert_eq!(looks.len(), 80);
    let (overdue, not_looked): (Vec<_>, Vec<_>) = looks.iter().partition(|look| !look.findings.is_empty());
    assert!(!overdue.is_empty() && !not_looked.is_empty());
    assert!(not_looked.iter().all(|look| look.not_looked == BTreeMap::from([("", FULL.to_owned())])));
    drop(gate);
}

#[test]
fn the_limit_of_open_files_is_raised_only_as_far_as_allowed() {
    let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    assert!(may_open(10) >= 10);
    assert!(may_open(u64::MAX / 2) <= maximum.saturating_sub(RESERVED_FILES).max(1));
}

#[test]
fn a_listing_of_dumps_that_hangs_is_given_up_at_the_deadline_and_costs_no_card() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    let deadline = Duration::from_millis(100);
    poller.fence = Arc::new(Fence::new(deadline));
    tree.write(PORT, "0x0");
    poller.watch_all(&[device("card", "port.0", vec![fpga_errors::of_port(PORT)])]);
    assert_eq!(poller.device_dumps(&|| {}), Ok(Vec::new()));
    let hang = Arc::new(std::sync::Mutex::new(()));
    let held = hang.lock().unwrap();
    let hanging = Arc::clone(&hang);
    let read = move |()| drop(hanging.lock());
    assert_eq!(poller.fence.each(vec![()], |()| DUMPS.to_owned(), read), [Outcome::Overdue]);
    let expected =
        "/sys/class/devcoredump: a read has not come back within 0.1 s; look for blocked tasks in the kernel log";
    assert_eq!(poller.device_dumps(&|| {}), Err(expected.to_owned()));
    assert_eq!(polled(&mut poller), []);
    drop(held);
    let start = std::time::Instant::now();
    while poller.device_dumps(&|| {}).is_err() {
        assert!(start.elapsed() < Duration::from_secs(10), "the listing never came back");
    }
}
