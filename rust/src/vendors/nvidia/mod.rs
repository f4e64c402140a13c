//! NVIDIA GPUs and their MIG devices.
//!
//! The driver's procfs says what is there, PCI where it is; what only NVML knows is added where it has been told.
//!
//! ```text
//! cards, driver      the GPUs that the driver lists
//! gpu                one GPU ─► information, mig                         (behind the fence)
//! lost               what became of the GPUs that it does not list       (reads links, touches no hardware)
//! inquiry, told      what NVML tells                                     (asked once the GPUs are known)
//! advertise          GPUs, facts and strategy ─► devices and problems    (with profile, topology)
//! answer, nodes      what Allocate answers for a device                  (stats its nodes)
//! runtime, cdi       what container runtimes are told to do for it       (with libraries, driver_files)
//! tegra, wsl         the two platforms that have one device and no procfs   (with tegra_lists)
//! ```
//!
//! A GPU that the driver excludes is not advertised and no problem: the operator wants it so. The attribute
//! `excluded_gpus` of its siblings tells. The PCI link is not polled: a GPU at rest lowers its speed.

mod advertise;
mod answer;
mod cards;
mod cdi;
mod describe;
mod driver;
mod driver_files;
mod gpu;
mod information;
mod inquiry;
mod libraries;
mod lost;
mod mig;
mod nodes;
mod options;
mod profile;
mod runtime;
mod tegra;
mod tegra_lists;
mod told;
mod topology;
mod wsl;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Vendor;
use crate::device::Found;
use crate::host::Host;
use crate::order::natural;
use crate::probe::Fence;
use advertise::Advertiser;
use answer::Answers;
use cards::Card;
use inquiry::Inquiry;
use libraries::Libraries;
use lost::Seen;
use nodes::DevRoot;
pub use options::*;
use told::Told;

/// The word in `vendor` of JSON, metrics and problems.
const VENDOR: &str = "nvidia";

/// Looks for NVIDIA GPUs.
#[derive(Debug)]
pub struct Nvidia {
    options: NvidiaOptions,
    inquiry: Inquiry,
    seen: Mutex<Seen>,
    libraries: Libraries,
}

impl Nvidia {
    /// Advertises what the options say; a scan waits `patience` for NVML at most.
    #[must_use]
    pub fn new(options: NvidiaOptions, patience: Duration) -> Self {
        Self { options, inquiry: Inquiry::new(patience), seen: Mutex::default(), libraries: Libraries::default() }
    }

    fn told(&self, host: &Host, cards: &[Card], found: &mut Found) -> Told {
        let is_asked = match self.options.device_discovery_strategy {
            DeviceDiscoveryStrategy::Procfs | DeviceDiscoveryStrategy::Tegra => false,
            _ => !cards.is_empty() || wsl::is_here(host, &self.options),
        };
        if !is_asked {
            return Told::default();
        }
        Told::simulated(host).unwrap_or_else(|| self.inquiry.answer(host, &self.options, cards, found).into())
    }

    fn advertise(&self, host: &Host, cards: &[Card], seen: &mut Seen, found: &mut Found) {
        let told = self.told(host, cards, found);
        let answers = Answers::new(host, &self.options, &self.libraries);
        let models = cards.iter().filter_map(|card| card.gpu.as_ref()?.information.model.as_deref());
        if wsl::is_here(host, &self.options) {
            found.devices.push(wsl::device(host, &self.options, &answers, &told));
        } else if tegra::is_here(host, &self.options, models) {
            let device = tegra::device(host, &answers);
            found.problems.extend(answers.by_cdi().then(|| tegra::problem(&device)).flatten());
            found.devices.push(device);
        } else {
            let mut advertiser = Advertiser::new(host, &self.options, &answers, &told, cards);
            let usable = cards.iter().filter(|card| !seen.is_excluded(card));
            // NVML counts the GPUs in PCI order, without those that the driver excludes.
            for (rank, card) in (0..).zip(usable) {
                advertiser.add(card, rank);
            }
            let made = advertiser.finish();
            found.devices = made.devices;
            found.problems.extend(made.problems);
            found.unseen.extend(made.unseen);
        }
        if !found.devices.is_empty() {
            found.problems.extend(answers.problems());
        }
    }
}

impl Vendor for Nvidia {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cards) = cards::read(host, fence, &mut found) {
            self.advertise(host, &cards, &mut seen, &mut found);
            seen.account_for(host, &cards, &mut found);
        }
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn watched_directories(&self, host: &Host) -> Vec<PathBuf> {
        let dev = DevRoot::of(host, &self.options).directory(host);
        // procfs tells nobody of MIG devices, but somebody makes nodes for them.
        vec![driver::bus_directory(host), dev.join("nvidia-caps"), dev.join("nvidia-caps-imex-channels"), dev]
    }
}
