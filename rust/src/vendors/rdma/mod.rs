//! RDMA devices: InfiniBand, RoCE and iWARP cards on PCI, physical and virtual functions alike.
//!
//! ```text
//! locate      classes infiniband, infiniband_verbs, infiniband_mad ─► devices with their character devices
//! card        a device ─► facts: function, ports, firmware, interfaces        (behind the fence)
//! advertise   facts ─► a device, or one for each share                        (only with a complete set of nodes)
//! ```

mod advertise;
mod card;
mod companion;
mod locate;
mod options;

use super::Vendor;
use super::per_card::per_card;
use crate::device::Found;
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
        let hcas = locate::devices(host, &mut found);
        if hcas.is_empty() {
            return found;
        }
        let connection_manager = companion::connection_manager(host);
        let (behind_fence, shares) = (host.clone(), self.options.shared_devices);
        let cards = hcas.into_iter().map(|hca| ((hca.address.clone(), host.own_path(&hca.path)), hca)).collect();
        let work = move |hca| {
            let facts = Facts::read(&behind_fence, hca);
            let is_network = facts.function.class.as_ref().is_none_or(|(class, _)| class >> 16 == NETWORK);
            is_network.then(|| advertise::devices(&behind_fence, &facts, connection_manager.as_ref(), shares))
        };
        for answer in per_card(VENDOR, &mut found, fence, cards, work).into_iter().flatten() {
            match answer {
                Ok(devices) => found.devices.extend(devices),
                Err(problem) => found.problems.push(problem),
            }
        }
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }
}
