//! Intel FPGA cards, under the OPAE driver or the DFL driver.
//!
//! Every scan looks for both drivers, so a driver that loads late is found; one host can have both. A card is one
//! physical PCI function: its management engine (FME), its ports, and the ports on its virtual functions.
//!
//! ```text
//! locate      class directories ─► cards, each with its entries       (reads links, touches no hardware)
//! card        a card ─► facts: ports, FMEs, PCI functions             (behind the fence)
//! advertise   facts and mode ─► devices and problems                  (reads the number of each node)
//! mod         options, and a device and mode ─► container edits
//! ```

mod advertise;
mod card;
mod locate;

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::Vendor;
use super::card_cache::{CardCache, Located};
use super::per_card::per_card;
use crate::device::{Device, Found, Platform, Problem};
use crate::edits::{Edits, Hook, Way, cdi_name};
use crate::fence::Fence;
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::order::natural;
use advertise::{FME, PORT};

/// The value of `vendor` in JSON, metrics and problems.
pub(super) const VENDOR: &str = "intel-fpga";

/// The located cards, and the devices and problems of each card.
type Cache = CardCache<Vec<Arc<locate::Card>>, locate::Card, (Vec<Arc<Device>>, Vec<Problem>)>;

/// Scans for Intel FPGA cards.
#[derive(Debug)]
pub struct IntelFpga {
    mode: IntelFpgaMode,
    cache: Arc<Cache>,
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
        let cards = self.cache.located(host, || {
            let cards = locate::cards(host, &mut found).into_iter().map(Arc::new).collect();
            (cards, found.problems.is_empty() && found.unseen.is_empty())
        });
        self.cache.forget_others(cards.iter().map(AsRef::as_ref));
        let place = |card: &locate::Card| (card.key.clone(), host.own_path(&card.entries[0].path));
        let cards = cards.into_iter().map(|card| (place(&card), card)).collect();
        let (behind_fence, mode, cache) = (host.clone(), self.mode, Arc::clone(&self.cache));
        let work = move |card: Arc<locate::Card>| {
            let look = |card: &locate::Card| {
                let facts = card::Facts::read(&behind_fence, card);
                let (devices, problems) = advertise::devices(&behind_fence, facts, mode);
                let is_well = problems.is_empty() && devices.iter().all(|device| device.findings.is_empty());
                ((devices.into_iter().map(Arc::new).collect(), problems), is_well)
            };
            let is_current =
                |(devices, _): &(Vec<Arc<Device>>, _)| devices.iter().all(|device| has_loaded(&behind_fence, device));
            cache.examined(&behind_fence, &card, look, is_current)
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

    fn changes_in_silence(&self, found: &[Arc<Device>]) -> bool {
        !found.is_empty()
    }

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, _resource_name: &str) -> Edits {
        container_edits(device, self.mode, way)
    }
}

impl Located for locate::Card {
    fn key(&self) -> &str {
        &self.key
    }
}

/// Whether a port still has the same function: a port can be programmed while its driver stays, without an event.
fn has_loaded(host: &Host, device: &Device) -> bool {
    let Some(known) = device.attributes.get("afu_id") else { return true };
    let loaded = Attribute::read(host.absolute(Path::new(&known.source))).and_then(|attribute| attribute.uuid());
    loaded.is_ok_and(|loaded| known.value.as_text() == Some(&loaded))
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

/// The kind of devices of an Intel FPGA: who may program a card. Both ways follow it, because it is no choice of a front
/// end's: a region that containers program has no accelerator function that another could be promised.
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
/// The vendor's OCI hook. It loads the bitstream that the container requests.
const HOOK: (&str, &str) = ("createRuntime", "/opt/intel/fpga-sw/intel-fpga-crihook");

/// The nodes of the ports. Mode `regiondevel` adds the node of the management engine; mode `region` adds the hook that
/// programs through that node, requested by CDI.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_in_a_port_is_read_each_time() {
        let root = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(root.path().join("afu_id"), text).unwrap();
        let (host, mut device) = (Host::new(root.path()), Device::default());
        let loaded = "d8424dc4a4a3c413f89e433683f9040b";
        device.note("afu_id", loaded, "/afu_id");
        for (text, expected) in [(loaded, true), ("f7df405cbd7acf7222f144b0b93acd18", false), ("garbage", false)] {
            write(text);
            assert_eq!(has_loaded(&host, &device), expected, "{text}");
        }
    }
}
