//! One look at the whole host after another: every vendor, each kept from costing the others.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::{Device, Found, Problem, Unseen};
use crate::health::{Fault, Poller};
use crate::host::Host;
use crate::probe::{Fence, panic_message};
use crate::settings::Settings;
use crate::vendors::{self, Vendor};

/// What one scan yielded.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// Vendor by vendor, each in natural order of id.
    pub devices: Vec<Device>,
    /// What could not be done.
    pub problems: Vec<Problem>,
    /// Where it could not look.
    pub unseen: Vec<Unseen>,
    /// The vendors asked.
    pub vendors: Vec<&'static str>,
    /// How long it took.
    pub duration: Duration,
    /// Whether it says anything that the scan before did not.
    pub changed: bool,
}

/// Looks at one host, again and again.
pub struct Scanner {
    host: Host,
    settings: Settings,
    fence: Arc<Fence>,
    vendors: Vec<Box<dyn Vendor>>,
    poller: Poller,
    last: Option<Arc<Scan>>,
}

impl Scanner {
    /// A scanner of the host below `host`. Nothing is read yet and no thread started.
    #[must_use]
    pub fn new(host: Host, settings: &Settings) -> Self {
        let fence = Arc::new(Fence::new(settings.patience()));
        let poller = Poller::new(host.clone(), Arc::clone(&fence));
        Self { host, settings: settings.clone(), fence, vendors: vendors::enabled(settings), poller, last: None }
    }

    /// Looks by other settings from the next scan on. A vendor that is told the same goes on with what it knows: cards that
    /// it has seen bound, what NVML has said.
    pub fn reconfigure(&mut self, settings: &Settings) {
        if settings.patience() != self.settings.patience() {
            *self = Self::new(self.host.clone(), settings);
            return;
        }
        let mut standing: Vec<_> = self.vendors.drain(..).collect();
        self.vendors = vendors::enabled(settings);
        for fresh in &mut self.vendors {
            let known = standing.iter_mut().find(|known| known.name() == fresh.name());
            if let Some(known) = known.filter(|known| settings.tell_the_same(&self.settings, known.name())) {
                std::mem::swap(fresh, known);
            }
        }
        self.settings = settings.clone();
    }

    /// Looks at everything. Later polls look at the devices found here.
    pub fn scan(&mut self) -> Arc<Scan> {
        let start = Instant::now();
        let mut scan = Scan::default();
        for vendor in &self.vendors {
            let found = self.found_by(vendor.as_ref());
            scan.vendors.push(vendor.name());
            scan.devices.extend(found.devices);
            scan.problems.extend(found.problems);
            scan.unseen.extend(found.unseen);
        }
        scan.duration = start.elapsed();
        scan.changed = self.last.as_ref().is_none_or(|last| !last.says_the_same(&scan));
        if scan.changed {
            self.poller.watch(&scan.devices);
        }
        let scan = Arc::new(scan);
        self.last = Some(Arc::clone(&scan));
        scan
    }

    /// Carries out the checks of the devices last found; answers those not in order.
    pub fn poll(&mut self) -> Vec<Fault> {
        self.poller.poll()
    }

    /// Existing directories whose entries tell of devices that come and go. Of a directory that is not there yet, as that of
    /// a driver that loads late, the next one above it tells.
    #[must_use]
    pub fn watched_directories(&self) -> Vec<PathBuf> {
        let root = self.host.absolute("/");
        let within = |path: PathBuf| {
            let mut upwards = path.ancestors().take_while(|above| above.starts_with(&root));
            upwards.find(|above| above.is_dir()).map(Path::to_path_buf)
        };
        let named = self.vendors.iter().flat_map(|vendor| vendor.watched_directories(&self.host));
        let all: BTreeSet<PathBuf> = named.chain([self.host.absolute("/dev")]).filter_map(within).collect();
        all.into_iter().collect()
    }

    /// A defect in one vendor's file costs that vendor this scan, and no other vendor anything.
    fn found_by(&self, vendor: &dyn Vendor) -> Found {
        catch_unwind(AssertUnwindSafe(|| vendor.scan(&self.host, &self.fence))).unwrap_or_else(|payload| {
            let error = format!("defect in the scan: {}", panic_message(payload.as_ref()));
            Found {
                devices: Vec::new(),
                problems: vec![Problem::new(vendor.name(), "/", error)],
                unseen: vec![Unseen { vendor: vendor.name(), card: None, reason: None }],
            }
        })
    }
}

impl Scan {
    fn says_the_same(&self, other: &Self) -> bool {
        self.devices == other.devices && self.problems == other.problems && self.unseen == other.unseen
    }
}
