//! Intel FPGA cards under the OPAE and the DFL driver.
//!
//! Every scan looks for both drivers, so that a driver that loads late is found; one host can have both. A card is one
//! physical PCI function: its management engine (FME), its ports, and the ports on its virtual functions.
//!
//! ```text
//! locate      class directories ─► cards, each with its entries       (reads links, touches no hardware)
//! card        a card ─► facts: ports, FMEs, PCI functions             (behind the fence)
//! card_cache  healthy cards, reused while no file shows a change
//! advertise   facts and mode ─► devices and problems                  (reads the number of each node)
//! mod         options, and a device and mode ─► container edits
//! ```

mod advertise;
mod card;
mod card_cache;
mod locate;

use std::sync::Arc;

use serde::Deserialize;

use super::Vendor;
use super::per_card::per_card;
use crate::device::{Device, Found, Platform};
use crate::edits::{Edits, Hook, Way, cdi_name};
use crate::fence::Fence;
use crate::host::Host;
use crate::order::natural;
use advertise::{FME, PORT};
use card_cache::CardCache;

/// The word in `vendor` of JSON, metrics and problems.
pub(super) const VENDOR: &str = "intel-fpga";

/// Scans for Intel FPGA cards.
#[derive(Debug)]
pub struct IntelFpga {
    mode: IntelFpgaMode,
    cache: Arc<CardCache>,
}

impl IntelFpga {
    /// A scan in this mode.
    #[must_use]
    pub fn new(mode: IntelFpgaMode) -> Self {
        Self { mode, cache: Arc::default() }
    }
}

impl Vendor for IntelFpga {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        let cards = self.cache.cards(host, &mut found, |found| locate::cards(host, found));
        let place = |card: &locate::Card| (card.key.clone(), host.own_path(&card.entries[0].path));
        let cards = cards.into_iter().map(|card| (place(&card), card)).collect();
        let (behind_fence, mode, cache) = (host.clone(), self.mode, Arc::clone(&self.cache));
        let work = move |card: Arc<locate::Card>| {
            let look =
                |card: &locate::Card| advertise::devices(&behind_fence, card::Facts::read(&behind_fence, card), mode);
            cache.devices(&behind_fence, card, look)
        };
        for (devices, problems) in per_card(VENDOR, &mut found, fence, cards, work) {
            found.devices.extend(devices);
            found.problems.extend(problems);
        }
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn forget(&self) {
        self.cache.forget();
    }

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, _resource_name: &str) -> Edits {
        container_edits(device, self.mode, way)
    }
}

/// Options of the Intel FPGA vendor.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntelFpgaOptions {
    /// Whether to look for Intel FPGA cards.
    pub enabled: bool,
    /// The kind of devices.
    pub mode: IntelFpgaMode,
}

/// The kind of devices of an Intel FPGA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IntelFpgaMode {
    /// Ports, by the accelerator function loaded in them.
    Af,
    /// Regions, which the OCI hook programs.
    Region,
    /// Regions with their management engine's node.
    RegionDevel,
}

const MODE_ANNOTATION: (&str, &str) = ("com.intel.fpga.mode", "fpga.intel.com/region");
const CDI_KIND: &str = "intel.cdi.k8s.io/fpga";
/// The vendor's OCI hook, which loads the bitstream that the container asks for.
const HOOK: (&str, &str) = ("createRuntime", "/opt/intel/fpga-sw/intel-fpga-crihook");

/// The nodes of ports; in mode `regiondevel` also that of the management engine, in mode `region` the hook that
/// programs through it, which is requested by CDI.
fn container_edits(device: &Device, mode: IntelFpgaMode, way: Way) -> Edits {
    let ports = Edits::of_nodes(device.paths_in(PORT), "rw");
    match mode {
        IntelFpgaMode::Af => ports.given(way, || cdi_name(device)),
        IntelFpgaMode::RegionDevel => {
            ports.and(Edits::of_nodes(device.paths_in(FME), "rw")).given(way, || cdi_name(device))
        }
        IntelFpgaMode::Region => programmed(device, ports, way),
    }
}

fn programmed(device: &Device, ports: Edits, way: Way) -> Edits {
    let name = format!("{CDI_KIND}={}", device.id);
    let (key, value) = MODE_ANNOTATION;
    let annotations = [(key.to_owned(), value.to_owned())].into();
    let (when, path) = HOOK;
    let hook = Hook { hook_name: when, path: path.to_owned(), args: Vec::new() };
    let hook = Edits { hooks: vec![hook], annotations, ..Edits::default() };
    match way {
        Way::DevicePlugin => ports.and(hook.by_cdi(name)),
        Way::Cdi => ports.and(hook).by_cdi(name),
    }
}
