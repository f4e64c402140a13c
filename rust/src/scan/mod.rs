//! One look at the whole host after another: every vendor, side by side where one is slow, each isolated from the others.

mod answer;
mod driverless;
mod standing;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use answer::Answer;
use driverless::Driverless;
use standing::{Seen, Standing};

use crate::device::{Device, Found, NotExamined, Platform, Problem};
use crate::edits::{Edits, Way};
use crate::fence::{Fence, Outcome};
use crate::health::count::Count;
use crate::health::{Look, Memories, Occasion, Poller};
use crate::host::Host;
use crate::settings::Settings;
use crate::vendors::Vendor;

/// A vendor's scan may take so many probes' time: it waits for its cards, and for what all of them have in common.
const PROBES: u32 = 3;

const OVERDUE: &str =
    "the vendor's scan does not come back: a directory listing hangs; look for blocked tasks in the kernel log";

/// What one scan yielded.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// Vendor by vendor, each in natural order of id.
    pub devices: Vec<Arc<Device>>,
    /// What the devices of a vendor have in common, of the vendors for which that was looked at.
    pub platforms: BTreeMap<&'static str, Arc<Platform>>,
    /// What could not be done.
    pub problems: Vec<Problem>,
    /// PCI functions of served vendors that no driver has; those of devices that are known from before are among them.
    pub driverless: Vec<Problem>,
    /// Where it could not look.
    pub unseen: Vec<NotExamined>,
    /// Requests to sources, by the source's name: the text of its request file.
    pub requests: Vec<(&'static str, String)>,
    /// Whether something was changing: a scan before the next regular one tells more.
    pub look_again: bool,
    /// The vendors asked.
    pub vendors: Vec<&'static str>,
    /// How long it took.
    pub duration: Duration,
    /// Whether it differs from the scan before.
    pub changed: bool,
}

/// Looks at one host, again and again.
pub struct Scanner {
    host: Host,
    settings: Settings,
    fence: Arc<Fence>,
    vendors: Vec<Arc<dyn Vendor>>,
    poller: Poller,
    standing: Standing,
    driverless: Driverless,
    last: Option<Arc<Scan>>,
    /// Devices of earlier scans that the last one could not examine.
    kept: Vec<Arc<Device>>,
}

impl Scanner {
    /// A scanner of the host below `host`. Nothing is read yet and no thread started.
    #[must_use]
    pub fn new(host: Host, settings: &Settings) -> Self {
        let fence = Arc::new(Fence::new(settings.patience()));
        let poller = Poller::new(host.clone(), Arc::clone(&fence));
        let vendors = settings.vendors.vendors(&settings.surroundings());
        let settings = settings.clone();
        Self {
            host,
            settings,
            fence,
            vendors,
            poller,
            standing: Standing::default(),
            driverless: Driverless::default(),
            last: None,
            kept: Vec::new(),
        }
    }

    /// Uses other settings from the next scan on. A vendor whose options are the same keeps its state: cards
    /// that it has seen bound.
    pub fn reconfigure(&mut self, settings: &Settings) {
        if settings.patience() != self.settings.patience() {
            let memories = self.poller.memories();
            *self = Self::new(self.host.clone(), settings);
            self.poller.recall(memories);
            return;
        }
        let mut vendors = settings.vendors.vendors(&settings.surroundings());
        for vendor in &mut vendors {
            let known = self.vendors.iter().find(|known| known.name() == vendor.name());
            match known.filter(|_| settings.agree_on(&self.settings, vendor.name())) {
                Some(known) => *vendor = Arc::clone(known),
                None => self.standing.forget(vendor.name()),
            }
        }
        self.vendors = vendors;
        self.settings = settings.clone();
    }

    /// Looks at everything. Later polls look at the devices found here. `beat` is called every half second meanwhile.
    pub fn scan(&mut self, beat: &dyn Fn()) -> Arc<Scan> {
        let start = Instant::now();
        let mut scan = Scan::default();
        for (vendor, answer) in self.answers(beat) {
            scan.vendors.push(vendor);
            scan.devices.extend(answer.devices);
            scan.platforms.extend(answer.platform.map(|platform| (vendor, platform)));
            scan.problems.extend(answer.problems);
            scan.unseen.extend(answer.unseen);
            scan.requests.extend(answer.requests);
            scan.look_again |= answer.look_again;
        }
        scan.driverless = self.driverless.problems(&self.host, &scan.vendors);
        scan.duration = start.elapsed();
        scan.changed = self.last.as_ref().is_none_or(|last| !last.says_the_same(&scan));
        let scan = Arc::new(scan);
        self.last = Some(Arc::clone(&scan));
        if scan.changed {
            self.watch();
        }
        scan
    }

    /// Polls look at these devices, too, until others are given: the last scan could not examine them, and what goes wrong
    /// with them meanwhile must be seen all the same.
    pub fn watch_also(&mut self, kept: Vec<Arc<Device>>) {
        if self.kept != kept {
            self.kept = kept;
            self.watch();
        }
    }

    /// A device that a scan found again is not watched as it was.
    fn watch(&mut self) {
        let found: Vec<&Device> = self.last.iter().flat_map(|scan| &scan.devices).map(AsRef::as_ref).collect();
        let identity = |device: &Device| (device.vendor.clone(), device.card.clone(), device.id.clone());
        let identities: BTreeSet<_> = found.iter().copied().map(identity).collect();
        let kept = self.kept.iter().map(AsRef::as_ref).filter(|&device| !identities.contains(&identity(device)));
        self.poller.watch(found.iter().copied().chain(kept));
    }

    /// What a container gets for a device, by the vendor's options; `None` for a device of a vendor that is switched off.
    /// Neither device nor platform need be of the last scan.
    #[must_use]
    pub fn edits(&self, device: &Device, platform: &Platform, way: Way, resource_name: &str) -> Option<Edits> {
        let vendor = self.vendors.iter().find(|vendor| vendor.name() == device.vendor)?;
        Some(vendor.edits(device, platform, way, resource_name))
    }

    /// Looks again at the devices last found, and at those kept; answers those that there is something to say about. `beat` is
    /// called every half second meanwhile.
    pub fn poll(&mut self, occasion: &Occasion, beat: &dyn Fn()) -> Vec<Look> {
        if occasion.tells_of_a_change() {
            self.vendors.iter().for_each(|vendor| vendor.forget());
        }
        self.poller.poll(occasion, beat)
    }

    /// Looks at nothing for these sources until others are given: what they last said stays.
    pub fn leave_alone(&mut self, sources: BTreeSet<String>) {
        self.poller.leave_alone(sources);
    }

    /// What a later process has to know of what was seen in this boot; `None` where that is as when it was asked last.
    pub fn new_memories(&mut self) -> Option<Memories> {
        self.poller.new_memories()
    }

    /// The numbers that sources have read that are no findings; `None` where none was read since this was asked last.
    pub fn new_counts(&mut self) -> Option<Vec<Count>> {
        self.poller.new_counts()
    }

    /// Takes in what an earlier process knew.
    pub fn recall(&mut self, memories: Memories) {
        self.poller.recall(memories);
    }

    /// Whether the host is a simulated node.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.host.is_simulated()
    }

    /// Existing directories whose entries come and go with devices: /dev, those of the nodes found last, and what vendors
    /// name. Instead of a directory that does not exist yet (a driver loads late), the next one above it is named; never
    /// one in sysfs or procfs, where inotify reports nothing.
    #[must_use]
    pub fn watched_directories(&self) -> Vec<PathBuf> {
        let root = self.host.absolute("/");
        let silent = [self.host.sys(""), self.host.proc("")];
        let existing = |path: PathBuf| {
            let mut upwards = path.ancestors().take_while(|above| above.starts_with(&root));
            upwards.find(|above| above.is_dir()).map(Path::to_path_buf)
        };
        let paths = self.last.iter().flat_map(|scan| &scan.devices).flat_map(|device| &device.paths);
        let nodes = paths.filter(|path| path.is_node);
        let of_nodes = nodes.filter_map(|node| Some(self.host.absolute(Path::new(&node.path).parent()?)));
        let named = self.vendors.iter().flat_map(|vendor| vendor.watched_directories(&self.host));
        let all: BTreeSet<PathBuf> = [self.host.absolute("/dev")].into_iter().chain(of_nodes).chain(named).collect();
        let loud = all.into_iter().filter(|path| !silent.iter().any(|silent| path.starts_with(silent)));
        loud.filter_map(existing).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// What each vendor finds. A panic in one, or a directory that hangs, loses this scan of that vendor only. One whose last
    /// answer still stands is not asked.
    fn answers(&mut self, beat: &dyn Fn()) -> Vec<(&'static str, Answer)> {
        let seen = self.standing.look(&self.host, &self.vendors);
        let last = |(vendor, seen): (&Arc<dyn Vendor>, &Option<Seen>)| {
            self.standing.answer(vendor.name(), seen.as_ref()).cloned()
        };
        let standing: Vec<Option<Answer>> = self.vendors.iter().zip(&seen).map(last).collect();
        let asked = self.vendors.iter().zip(&standing).filter(|(_, answer)| answer.is_none());
        let mut outcomes = self.ask(asked.map(|(vendor, _)| Arc::clone(vendor)).collect(), beat).into_iter();
        let mut answers = Vec::with_capacity(standing.len());
        for ((vendor, seen), answer) in self.vendors.iter().zip(seen).zip(standing) {
            let name = vendor.name();
            let answer = answer.unwrap_or_else(|| {
                let answer = Answer::of(name, outcomes.next().unwrap_or(Outcome::NotStarted));
                self.standing.keep(name, seen, &answer);
                answer
            });
            answers.push((name, answer));
        }
        answers
    }

    fn ask(&self, vendors: Vec<Arc<dyn Vendor>>, beat: &dyn Fn()) -> Vec<Outcome<Found>> {
        let (host, fence) = (self.host.clone(), Arc::clone(&self.fence));
        let key = |vendor: &Arc<dyn Vendor>| format!("vendor {}", vendor.name());
        let look = move |vendor: Arc<dyn Vendor>| vendor.scan(&host, &fence);
        self.fence.each_within(self.fence.deadline() * PROBES, vendors, key, look, beat)
    }
}

impl Scan {
    fn says_the_same(&self, other: &Self) -> bool {
        self.devices == other.devices
            && self.platforms == other.platforms
            && self.problems == other.problems
            && self.driverless == other.driverless
            && self.unseen == other.unseen
    }
}

#[cfg(test)]
mod tests;
