//! Repeated scans of the whole host: all vendors, in parallel if one is slow, each isolated from the others.

mod cached_scan;
mod unserved;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bus::numa;
use crate::bus::pci;
use crate::device::{Device, Found, NotExamined, Platform, Problem};
use crate::edits::{Edits, Way};
use crate::fence::{Fence, Outcome};
use crate::finding::Finding;
use crate::health::source::Count;
use crate::health::{Look, Memories, PollReason, Poller};
use crate::host::Host;
use crate::host::attribute::refused_opens;
use crate::settings::Settings;
use crate::vendors::Vendor;
use cached_scan::{Answer, Basis, CachedScan};
use unserved::{Said, Unserved};

/// Deadline of a vendor's scan, in probe deadlines: it waits for its cards, and for what they have in common.
const PROBES: u32 = 3;

const OVERDUE: &str =
    "the vendor's scan does not come back: a directory listing hangs; look for blocked tasks in the kernel log";

const NO_FILES: &str = "not examined: no more files can be opened: raise devherd's limit of open files (`LimitNOFILE=` of its \
    unit, or the container runtime's), or the host's (`sysctl fs.file-max`)";

/// The result of one scan.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// Vendor by vendor, each in natural order of ids.
    pub devices: Vec<Arc<Device>>,
    /// What the devices of a vendor share, for the vendors that looked at it.
    pub platforms: BTreeMap<&'static str, Arc<Platform>>,
    /// What could not be done.
    pub problems: Vec<Problem>,
    /// PCI functions of served vendors without their driver, including those of devices known from earlier scans.
    pub driverless: Vec<Problem>,
    /// Hardware that is not offered, which may be as intended: under drivers for virtual machines, or of makers that
    /// nobody serves. Includes functions of devices known from earlier scans.
    pub not_offered: Vec<Problem>,
    /// Cards and devices that could not be looked at.
    pub unseen: Vec<NotExamined>,
    /// Requests to sources, by name of the source: the text of its request file.
    pub requests: Vec<(&'static str, String)>,
    /// Whether something was changing: a scan sooner than the next regular one finds more.
    pub look_again: bool,
    /// The vendors that were scanned.
    pub vendors: Vec<&'static str>,
    /// Duration of the scan.
    pub duration: Duration,
    /// Whether it differs from the scan before.
    pub changed: bool,
}

/// Scans and polls one host.
pub struct Scanner {
    host: Host,
    settings: Settings,
    fence: Arc<Fence>,
    vendors: Vec<Arc<dyn Vendor>>,
    poller: Poller,
    cached: CachedScan,
    unserved: Unserved,
    last: Option<Arc<Scan>>,
    /// The directories of the nodes that the last scan found.
    node_directories: BTreeSet<PathBuf>,
    /// Devices of earlier scans that the last one could not examine.
    kept: Vec<Arc<Device>>,
}

impl Scanner {
    /// A scanner of `host`. Reads nothing and starts no thread.
    #[must_use]
    pub fn new(host: Host, settings: &Settings) -> Self {
        let fence = Arc::new(Fence::new(settings.probe_timeout));
        let mut poller = Poller::new(host.clone(), Arc::clone(&fence));
        poller.switch_off(&settings.sources_off);
        let vendors = settings.vendors.vendors(&settings.surroundings());
        let settings = settings.clone();
        Self {
            host,
            settings,
            fence,
            vendors,
            poller,
            cached: CachedScan::default(),
            unserved: Unserved::default(),
            last: None,
            node_directories: BTreeSet::new(),
            kept: Vec::new(),
        }
    }

    /// Uses other settings from the next scan on. A vendor with unchanged options keeps its state, for example the
    /// cards that it has seen bound.
    pub fn reconfigure(&mut self, settings: &Settings) {
        self.fence.set_deadline(settings.probe_timeout);
        let mut vendors = settings.vendors.vendors(&settings.surroundings());
        for vendor in &mut vendors {
            let known = self.vendors.iter().find(|known| known.name() == vendor.name());
            match known.filter(|_| settings.agree_on(&self.settings, vendor.name())) {
                Some(known) => *vendor = Arc::clone(known),
                None => self.cached.forget(vendor.name()),
            }
        }
        self.vendors = vendors;
        let has_other_sources = settings.sources_off != self.settings.sources_off;
        self.settings = settings.clone();
        if has_other_sources {
            self.poller.switch_off(&self.settings.sources_off);
            self.watch();
        }
    }

    /// Scans everything. Later polls look at the devices found here. `beat` is called every half second meanwhile.
    pub fn scan(&mut self, beat: &dyn Fn()) -> Arc<Scan> {
        let start = Instant::now();
        let mut scan = Scan::default();
        let host = self.host.for_a_scan();
        for (vendor, answer) in self.answers(&host, beat) {
            scan.vendors.push(vendor);
            scan.devices.extend(answer.devices);
            scan.platforms.extend(answer.platform.map(|platform| (vendor, platform)));
            scan.problems.extend(answer.problems);
            scan.unseen.extend(answer.unseen);
            scan.requests.extend(answer.requests);
            scan.look_again |= answer.look_again;
        }
        let refused = refused_opens();
        let Said { driverless, notices } = self.unserved.look(&host, &scan);
        if refused_opens() != refused {
            self.unserved = Unserved::default();
        }
        (scan.driverless, scan.not_offered) = (driverless, notices);
        if let Some(last) = &self.last {
            share(&mut scan.devices, &last.devices);
        }
        scan.duration = start.elapsed();
        scan.changed = self.last.as_ref().is_none_or(|last| !last.says_the_same(&scan));
        let scan = Arc::new(scan);
        self.last = Some(Arc::clone(&scan));
        if scan.changed {
            self.node_directories = node_directories(&scan.devices);
            self.watch();
        }
        scan
    }

    /// Adds devices to those that are polled, until others are given: the last scan could not examine them, and their
    /// faults must still be seen.
    pub fn watch_also(&mut self, kept: Vec<Arc<Device>>) {
        if self.kept != kept {
            self.kept = kept;
            self.watch();
        }
    }

    /// Polls the devices found; a kept device that a scan has found again is not polled in its old form.
    fn watch(&mut self) {
        let found = self.last.iter().flat_map(|scan| &scan.devices);
        let identities: HashSet<_> =
            if self.kept.is_empty() { HashSet::new() } else { found.clone().map(|device| identity(device)).collect() };
        let kept = self.kept.iter().filter(|device| !identities.contains(&identity(device)));
        self.poller.watch(found.chain(kept));
    }

    /// What a container gets for a device, by the vendor's options; `None` if the vendor is switched off. Device and
    /// platform may come from an earlier scan.
    #[must_use]
    pub fn edits(&self, device: &Device, platform: &Platform, way: Way, resource_name: &str) -> Option<Edits> {
        let vendor = self.vendors.iter().find(|vendor| vendor.name() == device.vendor)?;
        Some(vendor.edits(device, platform, way, resource_name))
    }

    /// Why the vendor's options keep a device out of the offers; `None` if it is offered, or the vendor is switched off.
    #[must_use]
    pub fn left_out(&self, device: &Device) -> Option<&'static str> {
        self.vendors.iter().find(|vendor| vendor.name() == device.vendor)?.left_out(device)
    }

    /// Whether each of these devices, which the last scan could not examine, is gone all the same: its PCI function has
    /// left the bus, or its vendor knows. They may come from an earlier process.
    #[must_use]
    pub fn are_gone(&self, devices: Vec<Arc<Device>>) -> Vec<bool> {
        let (host, vendors) = (self.host.clone(), self.vendors.clone());
        let is_gone = move |device: Arc<Device>| {
            let function = device.attributes.get("pci_address").map(|fact| host.absolute(&fact.source));
            let vendor = || vendors.iter().find(|vendor| vendor.name() == device.vendor);
            function.is_some_and(|function| pci::has_left(&host, &function))
                || vendor().is_some_and(|vendor| vendor.is_gone(&host, &device))
        };
        let outcomes = self.fence.each(devices, |device| device.card.clone(), is_gone);
        outcomes.into_iter().map(|outcome| matches!(outcome, Outcome::Done(true))).collect()
    }

    /// Whether each device is as the last scan has found it, where no event would report another: see
    /// [`Vendor::is_as_found`]. A card that hangs or is busy says nothing. `beat` is called every half second meanwhile.
    #[must_use]
    pub fn are_as_found(&self, beat: &dyn Fn()) -> bool {
        let looks: HashMap<_, _> =
            self.vendors.iter().filter_map(|vendor| Some((vendor.name(), vendor.is_as_found()?))).collect();
        let devices = self.last.iter().flat_map(|scan| &scan.devices);
        let mut cards: BTreeMap<&str, Vec<Arc<Device>>> = BTreeMap::new();
        for device in devices.filter(|device| looks.contains_key(&*device.vendor)) {
            cards.entry(&device.card).or_default().push(Arc::clone(device));
        }
        let host = self.host.clone();
        let look = move |devices: Vec<Arc<Device>>| {
            devices.iter().all(|device| looks.get(&*device.vendor).is_none_or(|is_as_found| is_as_found(&host, device)))
        };
        let key = |devices: &Vec<Arc<Device>>| devices[0].card.clone();
        let cards = cards.into_values().collect();
        let outcomes = self.fence.each_within(self.fence.deadline(), cards, key, look, beat);
        !outcomes.iter().any(|outcome| matches!(outcome, Outcome::Done(false)))
    }

    /// Seconds until a regular poll has something to look at: see [`Poller::pause`].
    #[must_use]
    pub fn pause(&self) -> u64 {
        self.poller.pause()
    }

    /// Polls the devices found and those kept. Returns those with findings or sources that did not look. `beat` is
    /// called every half second meanwhile.
    pub fn poll(&mut self, reason: &PollReason, beat: &dyn Fn()) -> Vec<Look> {
        if reason.is_change() {
            self.vendors.iter().for_each(|vendor| vendor.forget());
        }
        self.poller.poll(reason, beat)
    }

    /// The dumps of drivers, for all devices, or why they cannot be listed: see [`Poller::device_dumps`].
    ///
    /// # Errors
    /// The reason, for people.
    pub fn device_dumps(&self, beat: &dyn Fn()) -> Result<Vec<(String, Finding)>, String> {
        self.poller.device_dumps(beat)
    }

    /// Excludes sources from polls until others are given; their last observations stay.
    pub fn leave_alone(&mut self, sources: BTreeSet<String>) {
        self.poller.leave_alone(sources);
    }

    /// See [`Poller::reads_kernel_log`].
    pub fn reads_kernel_log(&mut self, is_logged: bool) {
        self.poller.reads_kernel_log(is_logged);
    }

    /// What a later process must know about this boot; `None` if unchanged since the last call.
    pub fn new_memories(&mut self) -> Option<Memories> {
        self.poller.new_memories()
    }

    /// Numbers that sources have read and that are not findings; `None` if unchanged since the last call.
    pub fn new_counts(&mut self) -> Option<Vec<Count>> {
        self.poller.new_counts()
    }

    /// See [`Poller::forget_best`].
    pub fn forget_best(&mut self, card: &str, reason: &str) {
        self.poller.forget_best(card, reason);
    }

    /// Takes over what an earlier process knew.
    pub fn recall(&mut self, memories: Memories) {
        self.poller.recall(memories);
    }

    /// Whether the host is a simulated node.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.host.is_simulated()
    }

    /// The NUMA nodes of the host that have processors; empty if the kernel does not list them.
    #[must_use]
    pub fn processor_nodes(&self) -> Vec<u32> {
        numa::processor_nodes(&self.host)
    }

    /// Existing directories whose entries come and go with devices: /dev, the directories of the nodes found last, and
    /// those that vendors name. For a directory that does not exist yet (the driver loads late) the next existing one
    /// above it. None in sysfs or procfs, where inotify reports nothing.
    #[must_use]
    pub fn watched_directories(&self) -> Vec<PathBuf> {
        let root = self.host.absolute("/");
        let silent = [self.host.sys(""), self.host.proc("")];
        let existing = |path: PathBuf| {
            let mut upwards = path.ancestors().take_while(|above| above.starts_with(&root));
            upwards.find(|above| above.is_dir()).map(Path::to_path_buf)
        };
        let of_nodes = self.node_directories.iter().map(|directory| self.host.absolute(directory));
        let named = self.vendors.iter().flat_map(|vendor| vendor.watched_directories(&self.host));
        let all: BTreeSet<PathBuf> = [self.host.absolute("/dev")].into_iter().chain(of_nodes).chain(named).collect();
        let loud = all.into_iter().filter(|path| !silent.iter().any(|silent| path.starts_with(silent)));
        loud.filter_map(existing).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The answer of each vendor. A panic or a hanging directory loses this scan of that vendor only; if files could not
    /// be opened for lack of descriptors, which looks like absent hardware, nobody's answer counts. A vendor whose last
    /// answer is still valid is not asked.
    fn answers(&mut self, host: &Host, beat: &dyn Fn()) -> Vec<(&'static str, Answer)> {
        let seen = self.cached.look(host, &self.vendors);
        let last = |(vendor, seen): (&Arc<dyn Vendor>, &Option<Basis>)| {
            self.cached.answer(vendor.name(), seen.as_ref()).cloned()
        };
        let cached: Vec<Option<Answer>> = self.vendors.iter().zip(&seen).map(last).collect();
        let asked = self.vendors.iter().zip(&cached).filter(|(_, answer)| answer.is_none());
        let refused = refused_opens();
        let mut outcomes = self.ask(host, asked.map(|(vendor, _)| Arc::clone(vendor)).collect(), beat).into_iter();
        let is_blind = refused_opens() != refused;
        if is_blind {
            self.vendors.iter().for_each(|vendor| vendor.forget());
        }
        let mut answers = Vec::with_capacity(cached.len());
        for ((vendor, seen), answer) in self.vendors.iter().zip(seen).zip(cached) {
            let name = vendor.name();
            let answer = answer.unwrap_or_else(|| {
                let outcome = outcomes.next().unwrap_or(Outcome::NotStarted);
                let answer = if is_blind { Answer::not_examined(name, NO_FILES) } else { Answer::of(name, outcome) };
                self.cached.keep(name, seen, &answer);
                answer
            });
            answers.push((name, answer));
        }
        answers
    }

    fn ask(&self, host: &Host, vendors: Vec<Arc<dyn Vendor>>, beat: &dyn Fn()) -> Vec<Outcome<Found>> {
        let (host, fence) = (host.clone(), Arc::clone(&self.fence));
        let key = |vendor: &Arc<dyn Vendor>| format!("vendor {}", vendor.name());
        let look = move |vendor: Arc<dyn Vendor>| vendor.scan(&host, &fence);
        self.fence.each_within(self.fence.deadline() * PROBES, vendors, key, look, beat)
    }
}

/// The directories of the nodes of devices.
fn node_directories(devices: &[Arc<Device>]) -> BTreeSet<PathBuf> {
    let nodes = devices.iter().flat_map(|device| &device.paths).filter(|path| path.is_node);
    let directories: HashSet<&str> = nodes.filter_map(|node| Some(node.path.rsplit_once('/')?.0)).collect();
    let directory = |directory: &str| PathBuf::from(if directory.is_empty() { "/" } else { directory });
    directories.into_iter().map(directory).collect()
}

/// Makes each device that is as it was in the last scan the same object: ten thousand need not be compared again.
fn share(devices: &mut [Arc<Device>], last: &[Arc<Device>]) {
    let same: HashSet<_> = last.iter().map(Arc::as_ptr).collect();
    let mut others = devices.iter_mut().filter(|device| !same.contains(&Arc::as_ptr(device))).peekable();
    if others.peek().is_none() {
        return;
    }
    let known: HashMap<_, _> = last.iter().map(|last| (identity(last), last)).collect();
    for device in others {
        if let Some(&last) = known.get(&identity(device)).filter(|&&last| last == device) {
            *device = Arc::clone(last);
        }
    }
}

/// Vendor, card and id.
fn identity(device: &Device) -> (&str, &str, &str) {
    (&device.vendor, &device.card, &device.id)
}

impl Scan {
    fn says_the_same(&self, other: &Self) -> bool {
        self.devices == other.devices
            && self.platforms == other.platforms
            && self.problems == other.problems
            && self.driverless == other.driverless
            && self.not_offered == other.not_offered
            && self.unseen == other.unseen
    }
}

#[cfg(test)]
mod tests;
