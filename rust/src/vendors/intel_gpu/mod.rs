//! Intel GPUs under i915, xe or any other DRM driver, which names the resource.
//!
//! A card with virtual functions is left out for them: each is a card of its own.
//!
//! ```text
//! locate      /sys/class/drm ─► cards that may be Intel's        (reads links and ids, touches no hardware)
//! card        a card ─► facts: function, nodes, readings           (behind the fence)
//! advertise   facts ─► a device for each share                   (with the links of by_path)
//! monitoring  facts of all cards ─► one device with all nodes
//! edits       a device ─► what a container gets
//! ```
//!
//! Under WSL only Level Zero knows which cards there are, so they are not looked for.

mod advertise;
mod by_path;
mod card;
mod edits;
mod locate;
mod monitoring;
mod options;

use std::sync::Arc;

use super::Vendor;
use super::per_card::per_card;
use crate::device::{Device, Found, NotExamined, Platform, Problem};
use crate::edits::{Edits, Way};
use crate::fence::Fence;
use crate::host::Host;
use crate::order::natural;
use by_path::ByPath;
use card::Facts;
use monitoring::Watched;
pub use options::*;

/// The word in `vendor` of JSON, metrics and problems.
pub(super) const VENDOR: &str = "intel-gpu";
const NAMESPACE: &str = "gpu.intel.com";
const INTEL: u16 = 0x8086;

/// Looks for Intel GPUs.
#[derive(Debug)]
pub struct IntelGpu {
    options: IntelGpuOptions,
}

impl IntelGpu {
    /// Advertises devices by these options.
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
            found.devices.extend(seen.devices.into_iter().map(Arc::new));
            found.problems.extend(seen.problems);
            found.unseen.extend(seen.unseen);
            watched.extend(seen.watched);
        }
        if !found.unseen.is_empty() {
            found.unseen.extend(monitoring::unseen(self.options.monitoring));
        }
        found.devices.extend(monitoring::devices(watched).into_iter().map(Arc::new));
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, _resource_name: &str) -> Edits {
        edits::edits(device, way)
    }
}

/// What one card made of the scan.
#[derive(Debug, Default)]
struct Seen {
    devices: Vec<Device>,
    problems: Vec<Problem>,
    unseen: Option<NotExamined>,
    watched: Option<Watched>,
}

fn look_at(host: &Host, card: locate::Card, options: &IntelGpuOptions, by_path: &ByPath) -> Seen {
    let key = card.key().to_owned();
    match Facts::read(host, card, options) {
        Ok(None) => Seen::default(),
        Ok(Some(facts)) => {
            let (devices, problems) = advertise::devices(host, &facts, by_path, options.shared_devices);
            let watched = monitoring::watched(host, &facts, options.monitoring);
            Seen { devices, problems, unseen: None, watched }
        }
        Err(problem) => {
            let unseen = Some(NotExamined { vendor: VENDOR, card: Some(key), finding: None });
            Seen { problems: vec![problem], unseen, ..Seen::default() }
        }
    }
}
