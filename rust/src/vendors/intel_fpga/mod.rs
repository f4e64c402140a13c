//! Intel FPGA cards under the OPAE and the DFL driver.
//!
//! Both drivers are looked for on every scan, so a driver that loads late is seen, and one host can have both. A card is
//! everything of one physical PCI function: its management engine (FME), its ports, and the ports on its virtual functions.
//!
//! ```text
//! locate     class directories ─► cards, each with its entries       (reads links, touches no hardware)
//! card       a card ─► facts: ports, FMEs, PCI functions             (behind the fence)
//! advertise  facts and mode ─► devices and problems                  (reads the number of each node, and stats it)
//! ```

mod advertise;
mod card;
mod driver;
mod locate;
mod name;

use std::path::PathBuf;

use super::Vendor;
use super::each_card::each_card;
use crate::device::Found;
use crate::host::Host;
use crate::order::natural;
use crate::probe::Fence;
use crate::settings::IntelFpgaMode;
use driver::Driver;

/// The word in `vendor` of JSON, metrics and problems.
const VENDOR: &str = "intel-fpga";

/// Looks for Intel FPGA cards.
#[derive(Debug)]
pub struct IntelFpga {
    mode: IntelFpgaMode,
}

impl IntelFpga {
    /// Advertises what the mode says.
    #[must_use]
    pub fn new(mode: IntelFpgaMode) -> Self {
        Self { mode }
    }
}

impl Vendor for IntelFpga {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        let cards = locate::cards(host, &mut found);
        let place = |card: &locate::Card| (card.key.clone(), host.own_path(&card.entries[0].path));
        let cards = cards.into_iter().map(|card| (place(&card), card)).collect();
        let (behind_fence, mode) = (host.clone(), self.mode);
        let work = move |card: locate::Card| {
            let facts = card::Facts::read(&behind_fence, &card);
            advertise::devices(&behind_fence, facts, mode)
        };
        for (devices, problems) in each_card(VENDOR, &mut found, fence, cards, work) {
            found.devices.extend(devices);
            found.problems.extend(problems);
        }
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn watched_directories(&self, host: &Host) -> Vec<PathBuf> {
        Driver::ALL.map(|driver| locate::class_directory(host, driver)).to_vec()
    }
}
