//! Looks again, cheaply, at the devices that the last scan found: files stay open, a card's devices share its reads.

mod aer;
mod examination;
mod kept_file;
mod link;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::check::Check;
use crate::device::{Device, Reason};
use crate::host::Host;
use crate::probe::{Fence, Outcome};

use examination::{Examination, most_open};
use kept_file::Keeping;

/// `SYSFS_MAGIC` of <https://man7.org/linux/man-pages/man2/statfs.2.html>.
const SYSFS: i64 = 0x6265_6572;

/// Descriptors that the rest of the process may need.
const RESERVED_FILES: u64 = 256;

/// A device that is not in order: vendor, card, id and what is wrong with it.
pub type Fault = (String, String, String, BTreeSet<Reason>);

/// The devices looked at, card by card.
#[derive(Debug)]
pub struct Poller {
    host: Host,
    fence: Arc<Fence>,
    cards: Vec<Arc<Card>>,
}

/// What hangs as one and is read as one.
#[derive(Debug)]
struct Card {
    /// Its name; the fence knows it by the same in scans, so that one hang is waited for once.
    key: String,
    devices: Vec<Member>,
    keeping: Keeping,
    host: Host,
    /// Each check once, however many devices share it. Locked for good while a read of this card hangs.
    examinations: Mutex<Vec<Examination>>,
}

/// A device of a card.
#[derive(Debug)]
struct Member {
    vendor: String,
    id: String,
    /// Places in the card's examinations.
    checks: Vec<usize>,
}

impl Poller {
    /// Looks at nothing yet.
    #[must_use]
    pub fn new(host: Host, fence: Arc<Fence>) -> Self {
        Self { host, fence, cards: Vec::new() }
    }

    /// Looks at these devices from now on, and at no others. Files that they go on needing stay open.
    pub fn watch(&mut self, devices: &[Device]) {
        let mut known = self.take_examinations();
        let by_card = by_card(devices);
        let needs: Vec<u64> = by_card.iter().map(|(_, devices)| descriptors(devices)).collect();
        let mut left = may_open(needs.iter().sum());
        let may_be_replaced = !self.is_kernel_sysfs();
        self.cards.clear();
        for ((key, devices), needed) in by_card.into_iter().zip(needs) {
            let keeping = Keeping { open: needed <= left, check_links: may_be_replaced };
            left -= if keeping.open { needed } else { 0 };
            let card = Card::new(key, &devices, keeping, &self.host, &mut known);
            self.cards.push(Arc::new(card));
        }
    }

    /// Carries out all checks and answers the devices that are not in order. Those of a card that hangs are overdue, and
    /// the others do not wait for it.
    pub fn poll(&mut self) -> Vec<Fault> {
        let outcomes = self.fence.each(self.cards.clone(), |card| card.key.clone(), |card: Arc<Card>| card.poll());
        let faults = self.cards.iter().zip(outcomes).flat_map(|(card, outcome)| match outcome {
            Outcome::Done(faults) => faults,
            Outcome::Overdue | Outcome::Panicked(_) => card.all_overdue(),
        });
        faults.collect()
    }

    /// What the present cards have open and counted, to go on with; a card that hangs keeps its own.
    fn take_examinations(&self) -> HashMap<(String, Check), Examination> {
        let mut known = HashMap::new();
        for card in &self.cards {
            if let Ok(mut examinations) = card.examinations.try_lock() {
                let own = std::mem::take(&mut *examinations).into_iter();
                known.extend(own.map(|examination| ((card.key.clone(), examination.check().clone()), examination)));
            }
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
        keeping: Keeping,
        host: &Host,
        known: &mut HashMap<(String, Check), Examination>,
    ) -> Self {
        let mut places = HashMap::new();
        let mut examinations = Vec::new();
        let mut place = |check: &Check| {
            *places.entry(check.clone()).or_insert_with_key(|check| {
                let known = known.remove(&(key.clone(), check.clone()));
                examinations.push(known.unwrap_or_else(|| Examination::new(check.clone())));
                examinations.len() - 1
            })
        };
        let member = |device: &&Device| Member {
            vendor: device.vendor.to_string(),
            id: device.id.clone(),
            checks: device.checks.iter().map(&mut place).collect(),
        };
        let devices = devices.iter().map(member).collect();
        Self { key, devices, keeping, host: host.clone(), examinations: Mutex::new(examinations) }
    }

    /// The devices that are not in order.
    fn poll(&self) -> Vec<Fault> {
        let mut examinations = self.examinations.lock().unwrap_or_else(PoisonError::into_inner);
        let found: Vec<_> =
            examinations.iter_mut().map(|examination| examination.fault(self.keeping, &self.host)).collect();
        if found.iter().all(Option::is_none) {
            return Vec::new();
        }
        let reasons = |member: &Member| member.checks.iter().filter_map(|&place| found[place]).collect();
        self.faults(reasons)
    }

    fn all_overdue(&self) -> Vec<Fault> {
        self.faults(|_| BTreeSet::from([Reason::ProbeTimeout]))
    }

    fn faults(&self, reasons: impl Fn(&Member) -> BTreeSet<Reason>) -> Vec<Fault> {
        let fault = |member: &Member| (member.vendor.clone(), self.key.clone(), member.id.clone(), reasons(member));
        self.devices.iter().map(fault).filter(|(_, _, _, reasons)| !reasons.is_empty()).collect()
    }
}

/// The devices that have something to be looked at, by card, in their own order.
fn by_card(devices: &[Device]) -> Vec<(String, Vec<&Device>)> {
    let mut places = HashMap::new();
    let mut cards: Vec<(String, Vec<&Device>)> = Vec::new();
    for device in devices.iter().filter(|device| !device.checks.is_empty()) {
        let place = *places.entry(&device.card).or_insert_with(|| {
            cards.push((device.card.clone(), Vec::new()));
            cards.len() - 1
        });
        cards[place].1.push(device);
    }
    cards
}

/// How many descriptors the checks of these devices keep open.
fn descriptors(devices: &[&Device]) -> u64 {
    let checks: HashSet<&Check> = devices.iter().flat_map(|device| &device.checks).collect();
    checks.into_iter().map(most_open).sum()
}

/// How many descriptors the checks may keep open, when this many are wanted: the soft limit is raised as far as needed.
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
    use std::fs::{create_dir_all, remove_file, write};
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::*;

    struct Tree {
        root: tempfile::TempDir,
        poller: Poller,
    }

    fn tree() -> Tree {
        let root = tempfile::tempdir().unwrap();
        create_dir_all(root.path().join("sys")).unwrap();
        let fence = Arc::new(Fence::new(Duration::from_secs(5)));
        let poller = Poller::new(Host::new(root.path()), fence);
        Tree { root, poller }
    }

    impl Tree {
        fn attribute(&self, name: &str, text: &str) -> PathBuf {
            let path = self.root.path().join("sys").join(name);
            write(&path, text).unwrap();
            path
        }

        fn faults(&mut self) -> Vec<(String, Vec<Reason>)> {
            self.poller.poll().into_iter().map(|(_, _, id, reasons)| (id, reasons.into_iter().collect())).collect()
        }
    }

    fn zero(attribute: &Path, reason: Reason) -> Check {
        Check::Zero { attribute: attribute.into(), reason }
    }

    fn device(card: &str, id: &str, checks: Vec<Check>) -> Device {
        Device { vendor: "test".into(), card: card.into(), id: id.into(), checks, ..Device::default() }
    }

    #[test]
    fn a_fault_comes_and_goes_with_its_cause() {
        let mut tree = tree();
        let (port, fme) = (tree.attribute("port", "0x0"), tree.attribute("fme", "0x0"));
        let checks = || vec![zero(&port, Reason::PortError), zero(&fme, Reason::FmeError)];
        tree.poller.watch(&[device("card", "port.0", checks())]);
        assert_eq!(tree.faults(), []);
        tree.attribute("fme", "0x4");
        tree.attribute("port", "0x1");
        assert_eq!(tree.faults(), [("port.0".into(), vec![Reason::PortError, Reason::FmeError])]);
        tree.attribute("fme", "0x0");
        assert_eq!(tree.faults(), [("port.0".into(), vec![Reason::PortError])]);
        tree.attribute("port", "0x0");
        assert_eq!(tree.faults(), []);
    }

    #[test]
    fn a_fault_of_what_is_shared_is_that_of_all_who_share_it() {
        let mut tree = tree();
        let (fme, own) = (tree.attribute("fme", "0x0"), tree.attribute("own", "0x0"));
        let shared = || zero(&fme, Reason::FmeError);
        tree.poller.watch(&[
            device("card", "port.0", vec![shared(), zero(&own, Reason::PortError)]),
            device("card", "port.1", vec![shared()]),
            device("other", "port.2", Vec::new()),
        ]);
        assert_eq!(tree.poller.cards.len(), 1);
        assert_eq!(tree.poller.cards[0].examinations.lock().unwrap().len(), 2);
        tree.attribute("fme", "0x4");
        assert_eq!(
            tree.faults(),
            [("port.0", vec![Reason::FmeError]), ("port.1", vec![Reason::FmeError])].map(|(id, r)| (id.into(), r))
        );
        tree.attribute("fme", "0x0");
        tree.attribute("own", "0x1");
        assert_eq!(tree.faults(), [("port.0".into(), vec![Reason::PortError])]);
    }

    #[test]
    fn counts_survive_a_change_of_the_devices_watched() {
        let mut tree = tree();
        let count = tree.attribute("aer_dev_fatal", "TOTAL_ERR_FATAL 1");
        let first = device("card", "port.0", vec![Check::AerRise { attribute: count }]);
        tree.poller.watch(std::slice::from_ref(&first));
        assert_eq!(tree.faults(), []);
        tree.poller.watch(&[first, device("card", "port.1", Vec::new())]);
        tree.attribute("aer_dev_fatal", "TOTAL_ERR_FATAL 2");
        assert_eq!(tree.faults(), [("port.0".into(), vec![Reason::PciAer])]);
    }

    #[test]
    fn devices_watched_no_more_are_told_no_more() {
        let mut tree = tree();
        let port = tree.attribute("port", "0x1");
        tree.poller.watch(&[device("card", "port.0", vec![zero(&port, Reason::PortError)])]);
        assert_eq!(tree.faults().len(), 1);
        tree.poller.watch(&[]);
        assert_eq!(tree.faults(), []);
    }

    #[test]
    fn a_card_that_hangs_is_overdue_and_costs_no_other() {
        let mut tree = tree();
        tree.poller.fence = Arc::new(Fence::new(Duration::from_millis(100)));
        let (well, ill) = (tree.attribute("well", "0x0"), tree.attribute("ill", "0x1"));
        let watched = [
            device("hung", "port.0", vec![zero(&well, Reason::PortError)]),
            device("hung", "port.1", vec![zero(&well, Reason::PortError)]),
            device("other", "port.2", vec![zero(&ill, Reason::PortError)]),
        ];
        tree.poller.watch(&watched);
        let expected = [
            ("port.0".into(), vec![Reason::ProbeTimeout]),
            ("port.1".into(), vec![Reason::ProbeTimeout]),
            ("port.2".into(), vec![Reason::PortError]),
        ];
        let card = Arc::clone(&tree.poller.cards[0]);
        let hang = card.examinations.lock().unwrap();
        assert_eq!(tree.faults(), expected);
        tree.poller.watch(&watched);
        assert_eq!(tree.faults(), expected);
        drop(hang);
        let start = std::time::Instant::now();
        while tree.faults().len() > 1 {
            assert!(start.elapsed() < Duration::from_secs(10), "the card never came back");
        }
    }

    #[test]
    fn a_node_removed_is_missing_and_back_when_made_again() {
        let mut tree = tree();
        tree.attribute("../.devherd-simulated-node", "");
        tree.poller.host = Host::new(tree.root.path());
        let path = tree.attribute("node", "");
        tree.poller.watch(&[device("card", "port.0", vec![Check::NodePresent { path: path.clone(), number: None }])]);
        assert_eq!(tree.faults(), []);
        remove_file(&path).unwrap();
        assert_eq!(tree.faults(), [("port.0".into(), vec![Reason::NodeMissing])]);
        tree.attribute("node", "");
        assert_eq!(tree.faults(), []);
    }

    #[test]
    fn the_limit_of_open_files_is_raised_only_as_far_as_allowed() {
        let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert!(may_open(10) >= 10);
        assert!(may_open(u64::MAX / 2) <= maximum.saturating_sub(RESERVED_FILES).max(1));
    }
}
