//! NVIDIA GPUs and their MIG devices.
//!
//! The driver's procfs lists the GPUs, PCI locates them; what only NVML knows is added when it has answered.
//!
//! ```text
//! cards, driver      the GPUs that the driver lists
//! gpu                one GPU ─► information, mig                         (behind the fence)
//! lost               GPUs that it no longer lists                        (reads links, touches no hardware)
//! nvml_query, _facts the request to NVML, and its answer                  (reads and requests by files)
//! advertise          GPUs, facts and strategy ─► devices and problems    (with profile, topology)
//! installation       what the driver has installed for all of them       (with nodes, libraries, ld_cache, driver_files,
//!                                                                         graphics)
//! edits, cdi         a device and the installation ─► what a container gets
//! roles              what the paths of devices and installation are for      (words that the scan and the edits share)
//! tegra, wsl         the two platforms that have one device and no procfs   (with tegra_lists)
//! ```
//!
//! A GPU that the driver excludes is not advertised, and this is not a problem: the operator excluded it. The attribute
//! `excluded_gpus` of the other GPUs lists it.

mod advertise;
mod cards;
mod cdi;
mod describe;
mod driver;
mod driver_files;
mod edits;
mod gpu;
mod graphics;
mod information;
mod installation;
mod ld_cache;
mod libraries;
mod lost;
mod mig;
mod nodes;
mod nvml_facts;
mod nvml_query;
mod options;
mod profile;
mod roles;
mod tegra;
mod tegra_lists;
mod topology;
mod wsl;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Vendor;
use crate::device::{Device, Found, Platform};
use crate::edits::{Edits, Way};
use crate::fence::Fence;
use crate::host::Host;
use crate::nvml::NvmlSettings;
use crate::order::natural;
use advertise::Advertiser;
use cards::Card;
use installation::Installation;
use libraries::Libraries;
use lost::Seen;
use nodes::DevRoot;
use nvml_facts::NvmlFacts;
use nvml_query::NvmlQuery;
pub use options::*;

/// The word in `vendor` of JSON, metrics and problems.
pub(super) const VENDOR: &str = "nvidia";

/// Looks for NVIDIA GPUs.
#[derive(Debug)]
pub struct Nvidia {
    options: NvidiaOptions,
    nvml: NvmlQuery,
    seen: Mutex<Seen>,
    libraries: Libraries,
}

impl Nvidia {
    /// Advertises devices by these options. NVML counts as slow when it does not answer within `patience`.
    #[must_use]
    pub fn new(options: NvidiaOptions, nvml: NvmlSettings, patience: Duration) -> Self {
        Self { options, nvml: NvmlQuery::new(nvml, patience), seen: Mutex::default(), libraries: Libraries::default() }
    }

    fn nvml_facts(&self, host: &Host, cards: &[Card], found: &mut Found) -> NvmlFacts {
        let is_asked = match self.options.device_discovery_strategy {
            DeviceDiscoveryStrategy::Procfs | DeviceDiscoveryStrategy::Tegra => false,
            _ => !cards.is_empty() || wsl::is_here(host, &self.options),
        };
        if !is_asked {
            return NvmlFacts::default();
        }
        self.nvml.facts(host, &self.options, cards, found)
    }

    fn advertise(&self, host: &Host, cards: &[Card], seen: &mut Seen, found: &mut Found) {
        let nvml_facts = self.nvml_facts(host, cards, found);
        let mut installation = Installation::read(host, &self.options, &self.libraries);
        let models = cards.iter().filter_map(|card| card.gpu.as_ref()?.information.model.as_deref());
        if wsl::is_here(host, &self.options) {
            wsl::add_driver_store(host, &mut installation.platform);
            found.devices.push(wsl::device(host, &self.options, &installation, &nvml_facts).into());
        } else if tegra::is_here(host, &self.options, models) {
            if self.options.asks_for_cdi() {
                found.problems.extend(tegra::add_listed(host, &mut installation.platform));
            }
            found.devices.push(tegra::device(host).into());
        } else {
            let mut advertiser =
                Advertiser::new(host, &self.options, &installation, &nvml_facts, self.nvml.is_needed(), cards);
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
            found.problems.append(&mut installation.problems);
        }
        found.platform = Some(installation.platform);
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
            seen.report_unlisted(host, &cards, &mut found);
        } else {
            found.requests.extend(self.nvml.last_request());
        }
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn edits(&self, device: &Device, platform: &Platform, way: Way, _resource_name: &str) -> Edits {
        edits::edits(device, platform, way, &self.options)
    }

    fn watched_directories(&self, host: &Host) -> Vec<PathBuf> {
        let dev = DevRoot::of(host, &self.options).directory(host);
        // nvidia-modprobe makes these nodes, without an event of the kernel.
        vec![dev.join("nvidia-caps"), dev.join("nvidia-caps-imex-channels"), dev.join("dri"), dev]
    }
}
