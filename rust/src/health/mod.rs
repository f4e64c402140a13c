//! Looks again, cheaply, at the devices that the last scan found: files stay open, a card's devices share its looks.

pub mod finding;
mod kept_file;
mod power;
pub mod reading;
pub mod source;
pub mod sources;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::device::Device;
use crate::fence::{FULL, Fence, Outcome};
use crate::host::Host;
use finding::Finding;
use kept_file::Keeping;
use source::{About, Examination, Here, Sight, Source, Subject};
use sources::probe;

/// `SYSFS_MAGIC` of <https://man7.org/linux/man-pages/man2/statfs.2.html>.
const SYSFS: i64 = 0x6265_6572;

/// Descriptors that the rest of the process may need.
const RESERVED_FILES: u64 = 256;

/// What stands for all sources of a device where none looked at it.
pub const EVERY_SOURCE: &str = "";

/// What a poll says of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Of the device.
    pub vendor: String,
    /// Of the device.
    pub card: String,
    /// Of the device.
    pub id: String,
    /// What is the matter with it, in the order of findings.
    pub findings: Vec<Finding>,
    /// Why a source did not look, by the source's name: what it said before still stands. [`EVERY_SOURCE`] where none did.
    pub not_looked: BTreeMap<&'static str, String>,
}

/// The devices looked at, card by card.
#[derive(Debug)]
pub struct Poller {
    host: Host,
    fence: Arc<Fence>,
    sources: &'static [&'static dyn Source],
    cards: Vec<Arc<Card>>,
    /// Subjects of devices that the last scan did not find, whose counts go on when they come back.
    absent: HashMap<Key, Arc<Watched>>,
}

/// What hangs as one and is looked at as one.
#[derive(Debug)]
struct Card {
    /// Its name; the fence knows it by the same in scans, so that one hang is waited for once.
    key: String,
    devices: Vec<Member>,
    keeping: Keeping,
    host: Host,
    /// Each subject once, however many devices share it.
    watched: Vec<Arc<Watched>>,
}

/// A device of a card.
#[derive(Debug)]
struct Member {
    vendor: String,
    id: String,
    /// Places in the card's subjects.
    subjects: Vec<usize>,
}

/// A subject that is looked at again and again.
#[derive(Debug)]
struct Watched {
    source: &'static About,
    file: String,
    variant: String,
    most_open: u64,
    /// Locked while it is looked at: for good, where that hangs.
    examination: Mutex<Box<dyn Examination>>,
}

/// Card, source, file and variant of a subject.
type Key = (String, &'static str, String, String);

impl Poller {
    /// Looks at nothing yet.
    #[must_use]
    pub fn new(host: Host, fence: Arc<Fence>) -> Self {
        Self { host, fence, sources: sources::ALL, cards: Vec::new(), absent: HashMap::new() }
    }

    /// Looks at these devices from now on, and at no others. Files that they go on needing stay open, and counts go on.
    pub fn watch<'d>(&mut self, devices: impl IntoIterator<Item = &'d Device>) {
        let mut known = self.take_known();
        let mut cards: Vec<Card> = Vec::new();
        let keeping = Keeping { open: false, check_links: !self.is_kernel_sysfs() };
        for (key, devices) in by_card(devices) {
            let card = Card::new(key, &devices, (self.sources, &self.host, keeping), &mut known);
            cards.extend((!card.watched.is_empty()).then_some(card));
        }
        let mut left = may_open(cards.iter().map(Card::most_open).sum());
        for card in &mut cards {
            let needed = card.most_open();
            card.keeping.open = needed <= left;
            left -= if card.keeping.open { needed } else { 0 };
        }
        self.cards = cards.into_iter().map(Arc::new).collect();
        known.retain(|_, watched| watched.is_worth_keeping());
        self.absent = known;
    }

    /// Looks at all devices and answers those that there is something to say about. A card that hangs is overdue, and the
    /// others do not wait for it. `beat` is called every half second meanwhile.
    pub fn poll(&mut self, beat: &dyn Fn()) -> Vec<Look> {
        let deadline = self.fence.deadline();
        let (key, look) = (|card: &Arc<Card>| card.key.clone(), |card: Arc<Card>| card.look());
        let outcomes = self.fence.each_within(deadline, self.cards.clone(), key, look, beat);
        let looks = self.cards.iter().zip(outcomes).map(|(card, outcome)| match outcome {
            Outcome::Done(looks) => looks,
            Outcome::Overdue => card.overdue(deadline),
            Outcome::NotStarted => card.not_looked(FULL),
            Outcome::Panicked(message) => card.not_looked(&format!("defect in a look: {message}")),
        });
        looks.flatten().collect()
    }

    /// What was watched so far, what is being looked at included.
    fn take_known(&mut self) -> HashMap<Key, Arc<Watched>> {
        let mut known = std::mem::take(&mut self.absent);
        for card in &self.cards {
            known.extend(card.watched.iter().map(|watched| (watched.key(&card.key), Arc::clone(watched))));
        }
        known
    }

    fn is_kernel_sysfs(&self) -> bool {
        rustix::fs::statfs(self.host.sys("")).is_ok_and(|found| found.f_type == SYSFS)
    }
}

impl Card {
    fn new(
        key: String,
        devices: &[&Device],
        (sources, host, keeping): (&[&'static dyn Source], &Host, Keeping),
        known: &mut HashMap<Key, Arc<Watched>>,
    ) -> Self {
        let mut places = HashMap::new();
        let mut watched = Vec::new();
        let mut place = |source: &'static About, subject: Subject| {
            let subject = Watched::new(source, subject);
            *places.entry(subject.key(&key)).or_insert_with_key(|key| {
                watched.push(known.remove(key).unwrap_or_else(|| Arc::new(subject)));
                watched.len() - 1
            })
        };
        let mut member = |device: &&Device| {
            let of_source = |source: &&'static dyn Source| {
                let about = source.about();
                source.subjects(host, device).into_iter().map(move |subject| (about, subject)).collect::<Vec<_>>()
            };
            let subjects = sources.iter().flat_map(of_source).map(|(about, subject)| place(about, subject)).collect();
            Member { vendor: device.vendor.to_string(), id: device.id.clone(), subjects }
        };
        let devices = devices.iter().map(&mut member).collect();
        Self { key, devices, keeping, host: host.clone(), watched }
    }

    /// How many descriptors it keeps open at most.
    fn most_open(&self) -> u64 {
        self.watched.iter().map(|watched| watched.most_open).sum()
    }

    /// Looks at everything once, and answers the devices that there is something to say about.
    fn look(&self) -> Vec<Look> {
        let sights: Vec<Sight> = self.watched.iter().map(|watched| watched.look(&self.host, self.keeping)).collect();
        if sights.iter().all(|sight| *sight == Sight::Fine) {
            return Vec::new();
        }
        let looks = self.devices.iter().map(|member| {
            let mut look = self.nothing_of(member);
            for &place in &member.subjects {
                match &sights[place] {
                    Sight::Fine => {}
                    Sight::Seen(finding) => look.findings.push(finding.clone()),
                    Sight::NotLooked(why) => {
                        look.not_looked.entry(self.watched[place].source.name).or_insert_with(|| why.clone());
                    }
                }
            }
            look.findings.sort_unstable();
            look
        });
        looks.filter(|look| !look.findings.is_empty() || !look.not_looked.is_empty()).collect()
    }

    /// What is said of its devices while a look hangs.
    fn overdue(&self, deadline: Duration) -> Vec<Look> {
        let hanging = self.watched.iter().find(|watched| watched.is_being_looked_at());
        let finding = probe::timeout(deadline, hanging.map_or("", |watched| &watched.file));
        let looks = self.not_looked("the card does not answer").into_iter();
        looks.map(|look| Look { findings: vec![finding.clone()], ..look }).collect()
    }

    fn not_looked(&self, why: &str) -> Vec<Look> {
        let not_looked = || BTreeMap::from([(EVERY_SOURCE, why.to_owned())]);
        self.devices.iter().map(|member| Look { not_looked: not_looked(), ..self.nothing_of(member) }).collect()
    }

    fn nothing_of(&self, member: &Member) -> Look {
        Look {
            vendor: member.vendor.clone(),
            card: self.key.clone(),
            id: member.id.clone(),
            findings: Vec::new(),
            not_looked: BTreeMap::new(),
        }
    }
}

impl Watched {
    fn new(source: &'static About, subject: Subject) -> Self {
        let most_open = subject.examination.most_open();
        let Subject { file, variant, examination } = subject;
        Self { source, file, variant, most_open, examination: Mutex::new(examination) }
    }

    fn key(&self, card: &str) -> Key {
        (card.to_owned(), self.source.name, self.file.clone(), self.variant.clone())
    }

    fn look(&self, host: &Host, keeping: Keeping) -> Sight {
        self.lock().look(Here { host, file: &self.file, keeping })
    }

    fn is_being_looked_at(&self) -> bool {
        matches!(self.examination.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Whether it has a count to go on with. Its files are closed; those of one that hangs stay.
    fn is_worth_keeping(&self) -> bool {
        let mut examination = match self.examination.try_lock() {
            Ok(examination) => examination,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return true,
        };
        examination.close();
        examination.has_counted()
    }

    /// A look that panicked has left nothing half done that the next one would not read anew.
    fn lock(&self) -> MutexGuard<'_, Box<dyn Examination>> {
        self.examination.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Devices by card, in their own order.
fn by_card<'d>(devices: impl IntoIterator<Item = &'d Device>) -> Vec<(String, Vec<&'d Device>)> {
    let mut places = HashMap::new();
    let mut cards: Vec<(String, Vec<&Device>)> = Vec::new();
    for device in devices {
        let place = *places.entry(&device.card).or_insert_with(|| {
            cards.push((device.card.clone(), Vec::new()));
            cards.len() - 1
        });
        cards[place].1.push(device);
    }
    cards
}

/// How many descriptors may be kept open, when this many are wanted: the soft limit is raised as far as needed.
fn may_open(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let present = limit.current.unwrap_or(u64::MAX);
    let needed = (wanted + RESERVED_FILES).min(limit.maximum.unwrap_or(u64::MAX));
    let raised = Rlimit { current: Some(needed), ..limit };
    let open = if needed > present && setrlimit(Resource::Nofile, raised).is_ok() { needed } else { present };
    open.saturating_sub(RESERVED_FILES)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::device::PciFunction;
    use crate::device::Reading;
    use crate::health::source::{Class, Meaning};
    use crate::health::sources::fpga_errors;
    use crate::health::sources::testing::{FUNCTION, Tree};

    const PORT: &str = "/sys/port";
    const ENGINE: &str = "/sys/engine";

    fn poller(tree: &Tree) -> Poller {
        Poller::new(tree.host.clone(), Arc::new(Fence::new(Duration::from_secs(5))))
    }

    fn device(card: &str, id: &str, readings: Vec<Reading>) -> Device {
        Device { vendor: "test".into(), card: card.into(), id: id.into(), readings, ..Device::default() }
    }

    fn with_function(card: &str, id: &str) -> Device {
        let functions = vec![PciFunction { path: FUNCTION.into(), driver: None }];
        Device { functions, ..device(card, id, Vec::new()) }
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
        poller.watch(&[device("card", "port.0", vec![fpga_errors::of_port(PORT), fpga_errors::of_engine(ENGINE)])]);
        assert_eq!(poller.poll(&|| {}), []);
        tree.write(ENGINE, "0x4");
        tree.write(PORT, "0x1");
        assert_eq!(reasons(&poller.poll(&|| {})), [("port.0", vec!["fme-error", "port-error"])]);
        tree.write(ENGINE, "0x0");
        assert_eq!(reasons(&poller.poll(&|| {})), [("port.0", vec!["port-error"])]);
        tree.write(PORT, "0x0");
        assert_eq!(poller.poll(&|| {}), []);
    }

    #[test]
    fn what_is_shared_is_looked_at_once_and_said_of_all_who_share_it() {
        let tree = Tree::new();
        let mut poller = poller(&tree);
        tree.write(ENGINE, "0x0");
        tree.write(PORT, "0x0");
        let shared = || fpga_errors::of_engine(ENGINE);
        poller.watch(&[
            device("card", "port.0", vec![shared(), fpga_errors::of_port(PORT)]),
            device("card", "port.1", vec![shared()]),
            device("other", "port.2", Vec::new()),
        ]);
        assert_eq!(poller.cards.len(), 1);
        assert_eq!(poller.cards[0].watched.len(), 2);
        tree.write(ENGINE, "0x4");
        let looks = poller.poll(&|| {});
        assert_eq!(reasons(&looks), [("port.0", vec!["fme-error"]), ("port.1", vec!["fme-error"])]);
        assert_eq!(looks[0].findings, looks[1].findings);
        tree.write(ENGINE, "0x0");
        tree.write(PORT, "0x1");
        assert_eq!(reasons(&poller.poll(&|| {})), [("port.0", vec!["port-error"])]);
    }

    #[test]
    fn a_source_that_leaves_a_sleeping_card_alone_says_so() {
        let tree = Tree::new();
        let mut poller = poller(&tree);
        tree.set("config", [0xff; 64]);
        tree.set("power/runtime_status", "suspended\n");
        poller.watch(&[with_function("card", "gpu.0")]);
        let looks = poller.poll(&|| {});
        let asleep = "asleep: runtime_status is suspended".to_owned();
        assert_eq!(looks.len(), 1);
        assert_eq!(looks[0].findings, []);
        let expected = BTreeMap::from([("pci-config", asleep.clone()), ("pci-link", asleep)]);
        assert_eq!(looks[0].not_looked, expected);
    }

    fn events(poller: &mut Poller) -> u64 {
        let looks = poller.poll(&|| {});
        looks.iter().flat_map(|look| &look.findings).map(|finding| finding.count).sum()
    }

    #[test]
    fn counts_go_on_whatever_happens_to_the_devices_between() {
        let tree = Tree::new();
        let mut poller = poller(&tree);
        tree.set("aer_dev_fatal", "TOTAL_ERR_FATAL 1");
        let device = with_function("card", "gpu.0");
        poller.watch(std::slice::from_ref(&device));
        assert_eq!(events(&mut poller), 0);
        tree.set("aer_dev_fatal", "TOTAL_ERR_FATAL 2");
        // Nobody looks while a scan cannot find the device; what happened meanwhile is counted when it can again.
        poller.watch(&[]);
        assert_eq!(events(&mut poller), 0);
        poller.watch(&[with_function("other", "gpu.9")]);
        poller.watch(&[device.clone(), with_function("card", "gpu.1")]);
        assert_eq!(events(&mut poller), 2, "one event, and two devices have it");
        poller.watch(&[device]);
        assert_eq!(events(&mut poller), 1);
    }

    #[test]
    fn devices_that_are_watched_no_more_are_not_spoken_of() {
        let tree = Tree::new();
        let mut poller = poller(&tree);
        tree.write(PORT, "0x1");
        poller.watch(&[device("card", "port.0", vec![fpga_errors::of_port(PORT)])]);
        assert_eq!(poller.poll(&|| {}).len(), 1);
        poller.watch(&[]);
        assert_eq!(poller.poll(&|| {}), []);
        assert!(poller.absent.is_empty(), "what counts nothing is not kept");
    }

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
        poller.watch(&watched);
        let held = Arc::clone(&poller.cards[0].watched[0]);
        let hang = held.examination.lock().unwrap();
        for _ in 0..2 {
            let looks = poller.poll(&|| {});
            let expected =
                [("port.0", vec!["probe-timeout"]), ("port.1", vec!["probe-timeout"]), ("port.2", vec!["fme-error"])];
            assert_eq!(reasons(&looks), expected);
            assert_eq!(looks[0].findings, [probe::timeout(deadline, PORT)]);
            assert_eq!(looks[0].not_looked, BTreeMap::from([("", "the card does not answer".to_owned())]));
            assert!(looks[2].not_looked.is_empty());
            // Another scan while it hangs forgets nothing of that.
            poller.watch(&watched);
        }
        drop(hang);
        let start = std::time::Instant::now();
        while poller.poll(&|| {}).len() > 1 {
            assert!(start.elapsed() < Duration::from_secs(10), "the card never came back");
        }
    }

    /// A source whose looks panic or hang, by the device's id.
    #[derive(Debug)]
    struct Rigged;

    static RIGGED: About = About {
        name: "rigged",
        reads: Class::None,
        document: "none",
        meanings: &[Meaning::unhealthy("rigged", "always")],
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
        fn look(&mut self, here: Here<'_>) -> Sight {
            match here.file {
                "panics" => panic!("nobody expects this"),
                "fine" => Sight::Fine,
                _ => {
                    let gate = GATE.lock().unwrap_or_else(PoisonError::into_inner);
                    gate.as_ref().map(Receiver::recv).unwrap().unwrap_or_default();
                    Sight::Fine
                }
            }
        }
    }

    #[test]
    fn a_defect_in_a_look_is_reported_and_is_no_fault_of_the_card() {
        let tree = Tree::new();
        let mut poller = poller(&tree);
        poller.sources = &[&Rigged];
        poller.watch(&[
            device("a", "panics", Vec::new()),
            device("a", "fine", Vec::new()),
            device("b", "fine", Vec::new()),
        ]);
        for _ in 0..2 {
            let looks = poller.poll(&|| {});
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
        poller.sources = &[&Rigged];
        let (gate, receiver): (Sender<()>, _) = channel();
        *GATE.lock().unwrap() = Some(receiver);
        // More cards hang than there may be threads.
        let devices: Vec<_> = (0..80).map(|card| device(&format!("card{card}"), "hangs", Vec::new())).collect();
        poller.watch(&devices);
        let looks = poller.poll(&|| {});
        assert_eq!(looks.len(), 80);
        let (overdue, not_looked): (Vec<_>, Vec<_>) = looks.iter().partition(|look| !look.findings.is_empty());
        assert!(!overdue.is_empty() && !not_looked.is_empty());
        assert!(not_looked.iter().all(|look| look.not_looked == BTreeMap::from([("", FULL.to_owned())])));
        drop(gate);
    }

    #[test]
    fn files_stay_open_only_as_far_as_the_limit_allows() {
        let tree = Tree::new();
        let mut poller = poller(&tree);
        poller.watch(&[with_function("card", "gpu.0"), device("other", "port.0", vec![fpga_errors::of_port(PORT)])]);
        let most: Vec<u64> = poller.cards.iter().map(|card| card.most_open()).collect();
        // Two counters, configuration space and the width of the link, the last two with two power attributes each.
        assert_eq!(most, [8, 1]);
        assert!(poller.cards.iter().all(|card| card.keeping.open));
    }

    #[test]
    fn the_limit_of_open_files_is_raised_only_as_far_as_allowed() {
        let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert!(may_open(10) >= 10);
        assert!(may_open(u64::MAX / 2) <= maximum.saturating_sub(RESERVED_FILES).max(1));
    }
}
