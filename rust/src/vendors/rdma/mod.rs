//! RDMA devices: InfiniBand, RoCE and iWARP cards on PCI, physical and virtual functions alike.
//!
//! ```text
//! locate          classes infiniband, infiniband_verbs, infiniband_mad ─► devices with their companions
//! companion       the character devices
//! required_nodes  which of them a device is nothing without
//! card            a device ─► facts: function, ports, firmware, interfaces   (behind the fence)
//! origin          a virtual function ─► the physical one, and which of its virtual ones it is
//! advertise       facts ─► a device, or one for each share, or one for each PCI function
//! pool            facts of all devices ─► the ids of pools
//! edits           a device ─► what a container gets
//! ```

mod advertise;
mod card;
mod companion;
mod edits;
mod locate;
mod options;
mod origin;
mod pool;
mod required_nodes;

use std::sync::Arc;

use super::Vendor;
use super::per_card::per_card;
use crate::device::{Device, Found, Platform};
use crate::edits::{Edits, Way};
use crate::fence::Fence;
use crate::host::Host;
use crate::order::natural;
use card::Facts;
pub use options::*;

/// The word in `vendor` of JSON, metrics and problems.
pub(super) const VENDOR: &str = "rdma";
/// Network controllers: what is on PCI and no other kind of card.
const NETWORK: u32 = 0x02;

/// Looks for RDMA devices.
#[derive(Debug)]
pub struct Rdma {
    options: RdmaOptions,
}

impl Rdma {
    /// Advertises devices by these options.
    #[must_use]
    pub fn new(options: RdmaOptions) -> Self {
        Self { options }
    }
}

impl Vendor for Rdma {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        let cards = self.cards(host, fence, &mut found);
        match self.options.mode {
            RdmaMode::Device => {
                let devices =
                    cards.iter().flat_map(|facts| advertise::devices(host, facts, self.options.shared_devices));
                found.devices.extend(devices.map(Arc::new));
            }
            RdmaMode::Shared => pool::add(host, &self.options.pools, &cards, &mut found),
            RdmaMode::Sriov => found.devices.extend(advertise::functions(host, &cards).into_iter().map(Arc::new)),
        }
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, resource_name: &str) -> Edits {
        edits::edits(device, self.options.mode, way, resource_name)
    }
}

impl Rdma {
    /// The network cards that have all nodes that they need, in the order of their names.
    fn cards(&self, host: &Host, fence: &Fence, found: &mut Found) -> Vec<Facts> {
        let hcas = locate::devices(host, found);
        let cards = hcas.into_iter().map(|hca| ((hca.address.clone(), host.own_path(&hca.path)), hca)).collect();
        let behind_fence = host.clone();
        let mut cards = per_card(VENDOR, found, fence, cards, move |hca| Facts::read(&behind_fence, hca));
        cards.retain(|facts| {
            let is_network = facts.function.class.as_ref().is_none_or(|(class, _)| class >> 16 == NETWORK);
            let lack = is_network.then(|| required_nodes::lack(host, self.options.mode, facts)).flatten();
            let is_complete = lack.is_none();
            found.problems.extend(lack);
            is_network && is_complete
        });
        cards.sort_by(|left, right| natural(&left.hca.name, &right.hca.name));
        cards
    }
}
