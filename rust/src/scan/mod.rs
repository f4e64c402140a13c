//! Repeated scans of the whole host: all vendors, in parallel if one is slow, each isolated from the others.

mod claimed;
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
use crate::health::Poller;
use crate::host::Host;
use crate::host::attribute::refused_opens;
use crate::host::resolve::in_root;
use crate::settings::Settings;
use crate::vendors::classes::{ClassEntry, Classes};
use crate::vendors::{LeftOut, Vendor};
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
    /// Each vendor's platform, which its devices share, if the vendor has looked at it.
    pub platforms: BTreeMap<&'static str, Arc<Platform>>,
    /// The problems of the scan.
    pub problems: Vec<Problem>,
    /// PCI functions of served vendors without their driver, including those of devices known from earlier scans.
    pub driverless: Vec<Problem>,
    /// Hardware that is not offered, which may be as intended: under drivers for virtual machines, or of makers that
    /// nobody serves. Includes functions of devices known from earlier scans. Also the vendors' notes.
    pub not_offered: Vec<Problem>,
    /// Cards and devices that could not be looked at.
    pub unseen: Vec<NotExamined>,
    /// Requests to sources, by name of the source: the text of its request file.
    pub requests: Vec<(&'static str, String)>,
    /// Whether something was changing: an early scan, before the next regular one, finds more.
    pub look_again: bool,
    /// Whether some device can be replaced by another without an event.
    pub changes_in_silence: bool,
    /// The vendors that were scanned.
    pub vendors: Vec<&'static str>,
    /// Duration of the scan.
    pub duration: Duration,
    /// Whether it differs from the scan before.
    pub changed: bool,
}

/// Scans one host.
pub struct Scanner {
    host: Host,
    settings: Settings,
    fence: Arc<Fence>,
    vendors: Vec<Arc<dyn Vendor>>,
    unserved: Unserved,
    last: Option<Arc<Scan>>,
    /// The directories of the nodes that the last scan found.
    node_directories: BTreeSet<PathBuf>,
}

impl Scanner {
    /// A scanner of `host`. Reads nothing and starts no thread.
    #[must_use]
    pub fn new(host: Host, settings: &Settings) -> Self {
        let fence = Arc::new(Fence::new(settings.probe_timeout));
        let vendors = settings.vendors.vendors(&settings.surroundings());
        let settings = settings.clone();
        Self {
            host,
            settings,
            fence,
            vendors,
            unserved: Unserved::default(),
            last: None,
            node_directories: BTreeSet::new(),
        }
    }

    /// Uses other settings from the next scan on. A vendor with unchanged options keeps its state, for example the
    /// cards that it has seen bound.
    pub fn reconfigure(&mut self, settings: &Settings) {
        self.fence.set_deadline(settings.probe_timeout);
        let mut vendors = settings.vendors.vendors(&settings.surroundings());
        for vendor in &mut vendors {
            let known = self.vendors.iter().find(|known| known.name() == vendor.name());
            if let Some(known) = known.filter(|_| settings.agree_on(&self.settings, vendor.name())) {
                *vendor = Arc::clone(known);
            }
        }
        self.vendors = vendors;
        self.settings = settings.clone();
    }

    /// Scans everything. `beat` is called every half second meanwhile.
    pub fn scan(&mut self, beat: &dyn Fn()) -> Arc<Scan> {
        let start = Instant::now();
        let mut scan = Scan::default();
        let host = self.host.for_a_scan();
        let names = self.vendors.iter().map(|vendor| vendor.name());
        let mut all: Vec<_> = names.zip(self.found(&host, beat)).collect();
        claimed::leave_to_vendors(&host, &mut all, self.last.as_deref());
        for (vendor, (name, found)) in self.vendors.iter().zip(all) {
            scan.vendors.push(name);
            scan.changes_in_silence |= vendor.changes_in_silence(&found.devices);
            scan.devices.extend(found.devices);
            scan.platforms.extend(found.platform.map(|platform| (name, Arc::new(platform))));
            scan.problems.extend(found.problems);
            scan.not_offered.extend(found.notices);
            scan.unseen.extend(found.unseen);
            scan.requests.extend(found.requests);
            scan.look_again |= found.look_again;
        }
        let refused = refused_opens();
        let Said { driverless, notices } = self.unserved.look(&host, &scan, &self.settings.vendors.classes);
        if refused_opens() != refused {
            self.unserved = Unserved::default();
        }
        scan.driverless = driverless;
        scan.not_offered.extend(notices);
        if let Some(last) = &self.last {
            share(&mut scan.devices, &last.devices);
        }
        scan.duration = start.elapsed();
        scan.changed = self.last.as_ref().is_none_or(|last| !last.says_the_same(&scan));
        let scan = Arc::new(scan);
        self.last = Some(Arc::clone(&scan));
        if scan.changed {
            self.node_directories = node_directories(&scan.devices);
        }
        scan
    }

    /// The container edits of a device, by the vendor's options; `None` if the vendor is switched off. `mps_root`: the
    /// directory of MPS, if containers share the device through it. Device and platform may come from an earlier scan.
    #[must_use]
    pub fn edits(
        &self,
        device: &Device,
        platform: &Platform,
        way: Way,
        resource_name: &str,
        mps_root: Option<&str>,
    ) -> Option<Edits> {
        let vendor = self.vendors.iter().find(|vendor| vendor.name() == device.vendor)?;
        let edits = vendor.edits(device, platform, way, resource_name);
        Some(match mps_root {
            Some(root) => edits.and(vendor.mps(root, resource_name)),
            None => edits,
        })
    }

    /// Why a device is not offered by this way; `None` if it is offered, or the vendor is switched off.
    #[must_use]
    pub fn left_out(&self, device: &Device, way: Way) -> Option<LeftOut> {
        self.vendors.iter().find(|vendor| vendor.name() == device.vendor)?.left_out(device, way)
    }

    /// For each of these devices, which the last scan could not examine: whether it is gone, because its PCI function
    /// has left the bus or its vendor knows. The devices may come from an earlier process.
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

    /// What became of each entry that a class of the settings looked at.
    #[must_use]
    pub fn class_entries(&self) -> Vec<ClassEntry> {
        let devices = self.last.as_ref().map_or(&[][..], |last| &last.devices);
        Classes::new(self.settings.vendors.classes.clone()).explained(&self.host.for_a_scan(), &self.fence, devices)
    }

    /// Drops what the vendors remember of earlier scans: something has happened on the host.
    pub fn forget(&self) {
        self.vendors.iter().for_each(|vendor| vendor.forget());
    }

    /// A poller of this host, behind the same fence: a card that hangs costs one thread.
    #[must_use]
    pub fn poller(&self) -> Poller {
        Poller::new(self.host.clone(), Arc::clone(&self.fence))
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

    /// The result of each vendor. A panic or a hanging directory costs only that vendor's result. If files could not be
    /// opened for lack of descriptors, which looks like absent hardware, no vendor's result counts.
    fn found(&self, host: &Host, beat: &dyn Fn()) -> Vec<Found> {
        let refused = refused_opens();
        let (behind_fence, fence) = (host.clone(), Arc::clone(&self.fence));
        let key = |vendor: &Arc<dyn Vendor>| format!("vendor {}", vendor.name());
        let look = move |vendor: Arc<dyn Vendor>| vendor.scan(&behind_fence, &fence);
        let outcomes = self.fence.each_within(self.fence.deadline() * PROBES, self.vendors.clone(), key, look, beat);
        let is_blind = refused_opens() != refused;
        if is_blind {
            self.forget();
        }
        let found = |(vendor, outcome): (&Arc<dyn Vendor>, Outcome<Found>)| {
            let error = match outcome {
                _ if is_blind => NO_FILES.to_owned(),
                Outcome::Done(found) => return found,
                Outcome::Overdue => OVERDUE.to_owned(),
                Outcome::NotStarted(why) => why,
                Outcome::Panicked(message) => format!("defect in the scan: {message}"),
            };
            not_examined(vendor.name(), error)
        };
        self.vendors.iter().zip(outcomes).map(found).collect()
    }
}

/// The result of a vendor whose scan has failed: its devices stay as they were.
fn not_examined(vendor: &'static str, error: String) -> Found {
    Found {
        problems: vec![Problem::new(vendor, "/", error)],
        unseen: vec![NotExamined::new(vendor, None)],
        ..Found::default()
    }
}

/// The directories of the nodes of devices.
fn node_directories(devices: &[Arc<Device>]) -> BTreeSet<PathBuf> {
    let nodes = devices.iter().flat_map(|device| &device.paths).filter(|path| path.is_node);
    let directories: HashSet<&str> = nodes.filter_map(|node| Some(node.path.rsplit_once('/')?.0)).collect();
    let directory = |directory: &str| PathBuf::from(if directory.is_empty() { "/" } else { directory });
    directories.into_iter().map(directory).collect()
}

/// The paths below /dev of a device, and where they lead: a generic device may have a link, such as those of /dev/serial.
fn nodes_of(host: &Host, device: &Device) -> impl Iterator<Item = PathBuf> {
    let paths = device.paths.iter().map(|path| Path::new(&path.path)).filter(|path| path.starts_with("/dev"));
    paths.flat_map(|path| with_end(host, path))
}

/// Where a path leads, if that is elsewhere, and the path.
fn with_end(host: &Host, path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let end = in_root(host, path).map(|end| host.own_path(end)).ok().filter(|end| end != path);
    end.into_iter().chain([path.to_path_buf()])
}

/// Replaces each device that has not changed since the last scan by that scan's object: ten thousand need not be
/// compared again.
fn share(devices: &mut [Arc<Device>], last: &[Arc<Device>]) {
    let same: HashSet<_> = last.iter().map(Arc::as_ptr).collect();
    let mut others = devices.iter_mut().filter(|device| !same.contains(&Arc::as_ptr(device))).peekable();
    if others.peek().is_none() {
        return;
    }
    let known: HashMap<_, _> = last.iter().map(|last| (last.key(), last)).collect();
    for device in others {
        if let Some(&last) = known.get(&device.key()).filter(|&&last| last == device) {
            *device = Arc::clone(last);
        }
    }
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
