//! AMD GPUs, under amdgpu for containers, under gim or vfio-pci for virtual machines.
//!
//! The driver is looked for on every scan, so one that loads late is seen. A card is everything of one GPU: its PCI function,
//! which stands for its first partition, and the platform devices of its further partitions.
//!
//! ```text
//! mode         GPUs for containers or for virtual machines
//! container    for containers:
//!   settled      KFD's nodes, once they are the same twice:                    (behind the fence, all as one)
//!     topology     its nodes; links: how they are linked, when that changed
//!   locate       functions and partitions ─► cards                             (touches no hardware)
//!   card         a card ─► facts                                               (behind the fence, card by card)
//!   advertise    facts of all cards ─► devices and problems
//! passthrough  for virtual machines
//! edits        a device ─► what a container gets
//! ```

mod advertise;
mod card;
mod container;
mod distance;
mod driver_type;
mod drm;
mod edits;
mod links;
mod locate;
mod options;
mod partition_mode;
mod passthrough;
mod pci_slot;
mod properties;
mod settled;
mod topology;
mod unbound;

use std::sync::Arc;

use super::Vendor;
use super::per_card::per_card;
use crate::device::{Device, Found, Platform};
use crate::edits::{Edits, Way};
use crate::fence::Fence;
use crate::host::Host;
use crate::order::natural;
use driver_type::Mode;
pub use options::*;
use settled::Settled;
use unbound::BoundBefore;

/// The word in `vendor` of JSON, metrics and problems.
pub(super) const VENDOR: &str = "amd";
/// `vendor` of PCI.
const AMD: u16 = 0x1002;

/// Looks for AMD GPUs.
#[derive(Debug)]
pub struct Amd {
    options: AmdOptions,
    settled: Arc<Settled>,
    bound: BoundBefore,
}

impl Amd {
    /// Advertises devices by these options.
    #[must_use]
    pub fn new(options: AmdOptions) -> Self {
        Self { options, settled: Arc::default(), bound: BoundBefore::default() }
    }

    fn for_virtual_machines(&self, host: &Host, fence: &Fence, mode: Mode, found: &mut Found) {
        if !mode.directory(host).is_dir() {
            found.problems.extend(container::awaited(host, &mode.directory(host), self.options.required));
            return;
        }
        let cards = passthrough::cards(host, mode, found);
        let placed = |card: passthrough::Card| ((card.key.clone(), host.own_path(&card.path)), card);
        let cards = cards.into_iter().map(placed).collect();
        let behind_fence = host.clone();
        let work = move |card| passthrough::read(&behind_fence, &card);
        let mut given = Vec::new();
        for (functions, problems) in per_card(VENDOR, found, fence, cards, work) {
            given.extend(functions);
            found.problems.extend(problems);
        }
        let devices = passthrough::devices(host, given, mode, self.options.naming);
        found.devices = devices.into_iter().map(Arc::new).collect();
    }
}

impl Vendor for Amd {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        let bound = match Mode::of(self.options.driver_type, host).unwrap_or(Mode::Container) {
            Mode::Container => container::scan(host, fence, &self.options, &self.settled, &mut found),
            mode => {
                self.for_virtual_machines(host, fence, mode, &mut found);
                Some(Vec::new())
            }
        };
        if let Some(bound) = bound {
            self.bound.renew(host, bound, &mut found);
        }
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, resource_name: &str) -> Edits {
        edits::edits(device, way, resource_name)
    }
}

/// Base classes of the PCI code and ID assignment specification: display controllers, processing accelerators.
fn is_gpu_class(class: u64) -> bool {
    matches!(class >> 16, 0x03 | 0x12)
}
