//! One look at the whole host after another: every vendor, side by side where one is slow, each isolated from the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::{Device, Found, NotExamined, Platform, Problem};
use crate::edits::{Edits, Way};
use crate::fence::{FULL, Fence, Outcome};
use crate::health::{Look, Occasion, Poller};
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
        Self { host, settings: settings.clone(), fence, vendors, poller, last: None, kept: Vec::new() }
    }

    /// Uses other settings from the next scan on. A vendor whose options are the same keeps its state: cards
    /// that it has seen bound.
    pub fn reconfigure(&mut self, settings: &Settings) {
        if settings.patience() != self.settings.patience() {
            *self = Self::new(self.host.clone(), settings);
            return;
        }
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

    /// Looks at everything. Later polls look at the devices found here. `beat` is called every half second meanwhile.
    pub fn scan(&mut self, beat: &dyn Fn()) -> Arc<Scan> {
        let start = Instant::now();
        let mut scan = Scan::default();
        for (vendor, found) in self.vendors.iter().zip(self.found(beat)) {
            scan.vendors.push(vendor.name());
            scan.devices.extend(found.devices.into_iter().map(Arc::new));
            scan.platforms.extend(found.platform.map(|platform| (vendor.name(), Arc::new(platform))));
            scan.problems.extend(found.problems);
            scan.unseen.extend(found.unseen);
            scan.requests.extend(found.requests);
            scan.look_again |= found.look_again;
        }
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
        self.poller.poll(occasion, beat)
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

    /// What each vendor finds. A panic in one, or a directory that hangs, loses this scan of that vendor only.
    fn found(&self, beat: &dyn Fn()) -> Vec<Found> {
        let (host, fence) = (self.host.clone(), Arc::clone(&self.fence));
        let key = |vendor: &Arc<dyn Vendor>| format!("vendor {}", vendor.name());
        let look = move |vendor: Arc<dyn Vendor>| vendor.scan(&host, &fence);
        let outcomes = self.fence.each_within(self.fence.deadline() * PROBES, self.vendors.clone(), key, look, beat);
        self.vendors.iter().zip(outcomes).map(|(vendor, outcome)| settled(vendor.name(), outcome)).collect()
    }
}

fn settled(vendor: &'static str, outcome: Outcome<Found>) -> Found {
    let error = match outcome {
        Outcome::Done(found) => return found,
        Outcome::Overdue => OVERDUE.to_owned(),
        Outcome::NotStarted => FULL.to_owned(),
        Outcome::Panicked(message) => format!("defect in the scan: {message}"),
    };
    Found {
        problems: vec![Problem::new(vendor, "/", error)],
        unseen: vec![NotExamined { vendor, card: None, finding: None }],
        ..Found::default()
    }
}

impl Scan {
    fn says_the_same(&self, other: &Self) -> bool {
        self.devices == other.devices
            && self.platforms == other.platforms
            && self.problems == other.problems
            && self.unseen == other.unseen
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::health::sources::probe;

    const TIMEOUT: Duration = Duration::from_secs(1);

    /// What a vendor of these tests does at its first look: cards that hang until the gate opens, or something worse.
    enum Does {
        CardsHang(usize),
        ListingHangs,
        Panics,
        Works,
    }

    struct Rigged {
        name: &'static str,
        does: Does,
        gate: Arc<Mutex<Receiver<()>>>,
    }

    fn wait(gate: &Mutex<Receiver<()>>) {
        let _ = gate.lock().unwrap_or_else(PoisonError::into_inner).recv();
    }

    impl Vendor for Rigged {
        fn name(&self) -> &'static str {
            self.name
        }

        fn scan(&self, _host: &Host, fence: &Fence) -> Found {
            let mut found = Found::default();
            match self.does {
                Does::CardsHang(cards) => {
                    let (gate, name) = (Arc::clone(&self.gate), self.name);
                    let cards: Vec<_> = (0..cards).map(|card| format!("{name}.{card}")).collect();
                    for (card, outcome) in
                        cards.iter().zip(fence.each(cards.clone(), String::clone, move |_| wait(&gate)))
                    {
                        assert_eq!(outcome, Outcome::Overdue);
                        let finding = Some(probe::timeout(TIMEOUT, card));
                        found.unseen.push(NotExamined { vendor: name, card: Some(card.clone()), finding });
                    }
                }
                Does::ListingHangs => wait(&self.gate),
                Does::Panics => panic!("nobody expects this"),
                Does::Works => {}
            }
            found.devices.push(Device { vendor: self.name.into(), id: self.name.to_owned(), ..Device::default() });
            found
        }
    }

    fn scanner(rigged: Vec<(&'static str, Does)>) -> (Scanner, Sender<()>) {
        let (sender, receiver) = channel();
        let gate = Arc::new(Mutex::new(receiver));
        let settings = Settings { probe_timeout: TIMEOUT.as_secs_f64(), ..Settings::default() };
        let mut scanner = Scanner::new(Host::new("/nonexistent"), &settings);
        let vendor = |(name, does)| -> Arc<dyn Vendor> { Arc::new(Rigged { name, does, gate: Arc::clone(&gate) }) };
        scanner.vendors = rigged.into_iter().map(vendor).collect();
        (scanner, sender)
    }

    #[test]
    fn hung_cards_of_several_vendors_are_waited_for_together_and_the_heart_beats_meanwhile() {
        let names = ["one", "two", "three", "four", "five", "six"];
        let mut rigged: Vec<_> = names.iter().map(|&name| (name, Does::CardsHang(2))).collect();
        rigged.push(("well", Does::Works));
        let (mut scanner, gate) = scanner(rigged);
        let beats = Cell::new(0);
        let scan = scanner.scan(&|| beats.set(beats.get() + 1));
        assert!(scan.duration < TIMEOUT * 4, "one after another they take {:?}: {:?}", TIMEOUT * 6, scan.duration);
        assert!(beats.get() >= 1);
        assert_eq!(scan.unseen.len(), 12);
        assert_eq!(scan.devices.iter().map(|device| device.id.as_str()).collect::<Vec<_>>(), scan.vendors);
        let again = scanner.scan(&|| {});
        assert!(again.duration < TIMEOUT, "waited again for what is known to hang: {:?}", again.duration);
        assert!(!again.changed);
        drop(gate);
    }

    #[test]
    fn a_vendor_that_breaks_or_hangs_as_a_whole_costs_no_other_anything() {
        let (mut scanner, gate) =
            scanner(vec![("hangs", Does::ListingHangs), ("breaks", Does::Panics), ("well", Does::Works)]);
        let scan = scanner.scan(&|| {});
        assert_eq!(scan.devices.iter().map(|device| device.id.as_str()).collect::<Vec<_>>(), ["well"]);
        let unseen = |vendor| NotExamined { vendor, card: None, finding: None };
        assert_eq!(scan.unseen, [unseen("hangs"), unseen("breaks")]);
        assert_eq!(scan.problems[0].error, OVERDUE);
        assert!(scan.problems[1].error.contains("nobody expects this"));
        drop(gate);
    }
}
