//! Intel FPGA cards under the OPAE and the DFL driver.
//!
//! Both drivers are looked for on every scan, so a driver that loads late is seen, and one host can have both. A card is
//! everything of one physical PCI function: its management engine (FME), its ports, and the ports on its virtual functions.
//!
//! ```text
//! locate     class directories ─► cards, each with its entries       (reads links, touches no hardware)
//! card       a card ─► facts: ports, FMEs, PCI functions             (behind the fence)
//! remembered what a card was found to be, while nothing shows otherwise
//! advertise  facts and mode ─► devices and problems                  (reads the number of each node)
//! edits      a device and mode ─► what a container gets
//! ```

mod advertise;
mod card;
mod driver;
mod edits;
mod locate;
mod name;
mod options;
mod remembered;

use std::sync::Arc;

use remembered::Remembered;

use super::Vendor;
use super::per_card::per_card;
use crate::device::{Device, Found, Platform};
use crate::edits::{Edits, Way};
use crate::fence::Fence;
use crate::host::Host;
use crate::order::natural;
pub use options::*;

/// The word in `vendor` of JSON, metrics and problems.
pub(super) const VENDOR: &str = "intel-fpga";

/// Looks for Intel FPGA cards.
#[derive(Debug)]
pub struct IntelFpga {
    mode: IntelFpgaMode,
    remembered: Arc<Remembered>,
}

impl IntelFpga {
    /// Advertises devices by this mode.
    #[must_use]
    pub fn new(mode: IntelFpgaMode) -> Self {
        Self { mode, remembered: Arc::default() }
    }
}

impl Vendor for IntelFpga {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        let cards = self.remembered.cards(host, &mut found, |found| locate::cards(host, found));
        let place = |card: &locate::Card| (card.key.clone(), host.own_path(&card.entries[0].path));
        let cards = cards.into_iter().map(|card| (place(&card), card)).collect();
        let (behind_fence, mode, remembered) = (host.clone(), self.mode, Arc::clone(&self.remembered));
        let work = move |card: Arc<locate::Card>| {
            let look =
                |card: &locate::Card| advertise::devices(&behind_fence, card::Facts::read(&behind_fence, card), mode);
            remembered.devices(&behind_fence, card, look)
        };
        for (devices, problems) in per_card(VENDOR, &mut found, fence, cards, work) {
            found.devices.extend(devices);
            found.problems.extend(problems);
        }
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn forget(&self) {
        self.remembered.forget();
    }

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, _resource_name: &str) -> Edits {
        edits::edits(device, self.mode, way)
    }
}
