//! Intel GPUs under i915, xe or any other DRM driver; the driver's name is part of the resource name.
//!
//! A card with virtual functions is left out of the offers, because each virtual function is a card of its own. WSL is
//! not supported: there, only Level Zero knows the cards.
//!
//! ```text
//! locate      /sys/class/drm ─► cards that may be Intel's        (reads links and ids, touches no hardware)
//! card        a card ─► facts: function, nodes, readings         (behind the fence)
//! advertise   facts ─► a device with its shares                  (with the links of /dev/dri/by-path)
//!             facts of all cards ─► one monitoring device with all nodes
//! mod         options, and a device ─► container edits
//! ```

mod advertise;
mod card;
mod locate;
mod models;

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;

use super::per_card::per_card;
use super::{LeftOut, Vendor, virtual_functions_instead};
use crate::device::{Device, Found, NotExamined, Platform, Problem};
use crate::edits::{Edits, Mount, Way, cdi_name};
use crate::fence::Fence;
use crate::host::Host;
use crate::order::natural;
use advertise::{ByPath, Monitored, Said};
use card::Facts;

/// The value of `vendor` in JSON, metrics and problems.
pub(super) const VENDOR: &str = "intel-gpu";
const NAMESPACE: &str = "gpu.intel.com";
const INTEL: u16 = 0x8086;

/// Scans for Intel GPUs.
#[derive(Debug)]
pub struct IntelGpu {
    options: IntelGpuOptions,
}

impl IntelGpu {
    /// A scan with these options.
    #[must_use]
    pub fn new(options: IntelGpuOptions) -> Self {
        Self { options }
    }
}

impl Vendor for IntelGpu {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        let cards = locate::cards(host, &mut found).into_iter();
        let cards = cards.map(|card| ((card.key().to_owned(), host.own_path(&card.device)), card)).collect();
        let (behind_fence, options) = (host.clone(), self.options.clone());
        let by_path = ByPath::read(host, options.bypath);
        let work = move |card| look_at(&behind_fence, card, &options, &by_path);
        let mut watched = Vec::new();
        for seen in per_card(VENDOR, &mut found, fence, cards, work) {
            found.devices.extend(seen.device.map(Arc::new));
            found.problems.extend(seen.problems);
            found.notices.extend(seen.notice);
            found.unseen.extend(seen.unseen);
            watched.extend(seen.watched);
        }
        if !found.unseen.is_empty() {
            found.unseen.extend(advertise::unseen_monitoring(self.options.monitoring));
        }
        found.devices.extend(advertise::monitoring_devices(watched).into_iter().map(Arc::new));
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, _resource_name: &str) -> Edits {
        container_edits(device, way)
    }

    fn watched_directories(&self, host: &Host) -> Vec<PathBuf> {
        let is_wanted = self.options.bypath == IntelGpuByPath::Single;
        is_wanted.then(|| host.absolute(advertise::DIRECTORY)).into_iter().collect()
    }

    /// Leaves out cards with virtual functions, as Intel's plugin does, and by both ways: Intel's DRA driver offers them
    /// beside these, which gives the same hardware twice.
    fn left_out(&self, device: &Device, way: Way) -> Option<LeftOut> {
        let is_card = device.attributes.contains_key(CARD);
        let cards_instead = (way == Way::Cdi && !is_card).then(|| LeftOut::because(CARDS_INSTEAD));
        cards_instead.or_else(|| virtual_functions_instead(device))
    }
}

/// The result of one card.
#[derive(Debug, Default)]
struct Seen {
    device: Option<Device>,
    problems: Vec<Problem>,
    notice: Option<Problem>,
    unseen: Option<NotExamined>,
    watched: Option<Monitored>,
}

fn look_at(host: &Host, card: locate::Card, options: &IntelGpuOptions, by_path: &ByPath) -> Seen {
    let key = card.key().to_owned();
    match Facts::read(host, card, options) {
        Ok(None) => Seen::default(),
        Ok(Some(facts)) => {
            let Said { device, problems, notice } = advertise::device(host, &facts, by_path, options.shared_devices);
            let watched = advertise::monitored(host, &facts, options.monitoring);
            Seen { device: Some(device), problems, notice, unseen: None, watched }
        }
        Err(problem) => {
            let unseen = Some(NotExamined::new(VENDOR, Some(key)));
            Seen { problems: vec![problem], unseen, ..Seen::default() }
        }
    }
}

/// Options of Intel's GPU plugin, under the plugin's names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntelGpuOptions {
    /// Whether to look for Intel GPUs.
    pub enabled: bool,
    /// Number of ids of each card, for sharing.
    pub shared_devices: u32,
    /// Whether and how a resource with the nodes of every card is advertised.
    pub monitoring: IntelGpuMonitoring,
    /// PCI device ids to advertise, `0x56c0`; all when empty.
    pub allow_ids: Vec<String>,
    /// PCI device ids to leave out.
    pub deny_ids: Vec<String>,
    /// The links of /dev/dri/by-path that containers get.
    pub bypath: IntelGpuByPath,
}

/// The resource that has the nodes of every card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntelGpuMonitoring {
    /// No such resource.
    Off,
    /// `gpu.intel.com/monitoring`.
    Single,
    /// One resource per driver: `gpu.intel.com/i915_monitoring`.
    Split,
}

/// The links of /dev/dri/by-path that containers get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntelGpuByPath {
    /// The links of the card.
    Single,
    /// No links.
    None,
    /// The whole directory.
    All,
}

const CDI_KIND: &str = "intel.cdi.k8s.io/gpu";
/// The attribute that every card has, and no monitoring device.
const CARD: &str = "card";
const CARDS_INSTEAD: &str = "the cards whose nodes it has are offered instead";

/// The card's nodes and links. The answer contains both device plugin edits and CDI names, as in Intel's plugin;
/// monitoring devices have only nodes.
fn container_edits(device: &Device, way: Way) -> Edits {
    let nodes = Edits::of_nodes(&device.paths, "rw");
    let Some(card) = device.text(CARD) else { return nodes.given(way, || cdi_name(device)) };
    let links = device.paths.iter().filter(|path| !path.is_node).map(|path| Mount::same(&path.path));
    let edits = Edits { mounts: links.collect(), ..nodes };
    let by_cdi = edits.clone().by_cdi(format!("{CDI_KIND}={card}"));
    match way {
        Way::DevicePlugin => edits.and(by_cdi),
        Way::Cdi => by_cdi,
    }
}
