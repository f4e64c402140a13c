//! Cards whose user function was there and is not, while the card is: they are being flashed or reset, or have lost their
//! driver. Nothing is read but names.
//!
//! While a shell is written into a card, and until the host has looked for PCI functions again, there is the management
//! function alone, or a function with another device id (<https://xilinx.github.io/XRT/master/html/platforms.html>).

use std::collections::BTreeSet;

use super::VENDOR;
use super::locate::{Cards, slot_of};
use crate::device::NotExamined;
use crate::health::sources::scan;
use crate::host::Host;

const WHY: &str = "the card is on the bus without its user function: it is being flashed or reset, or its driver xocl has let go of it";

/// The user functions that were there in earlier scans, by address, and those that a card with a management function may
/// have: it is known from earlier scanners which of them were.
pub(super) fn not_examined(host: &Host, cards: &Cards, known: &mut BTreeSet<String>) -> Vec<NotExamined> {
    let there: BTreeSet<&str> =
        cards.pairs.iter().filter_map(|pair| pair.user.as_ref()).map(|user| user.address.as_str()).collect();
    known.extend(there.iter().map(|address| (*address).to_owned()));
    known.retain(|address| cards.slots.contains(slot_of(address)));
    let managed = cards.pairs.iter().filter(|pair| pair.user.is_none()).filter_map(|pair| pair.management.as_ref());
    let may_have_been = managed.flat_map(|place| [0, 1].map(|number| format!("{}.{number}", slot_of(&place.address))));
    let candidates: BTreeSet<String> = known.iter().cloned().chain(may_have_been).collect();
    let bus = super::locate::bus_directory(host);
    let lost = candidates.into_iter().filter(|address| !there.contains(address.as_str()));
    lost.map(|address| NotExamined {
        vendor: VENDOR,
        finding: Some(scan::finding(scan::SHELL_LOST, host.own_path(bus.join(&address)), WHY)),
        card: Some(address),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendors::xilinx_fpga::locate::{Pair, Place};

    fn place(address: &str) -> Option<Place> {
        Some(Place { address: address.to_owned(), path: address.into() })
    }

    fn lost(pairs: Vec<Pair>, slots: &[&str], known: &mut BTreeSet<String>) -> Vec<String> {
        let slots = slots.iter().map(|slot| (*slot).to_owned()).collect();
        let cards = Cards { pairs, slots };
        not_examined(&Host::new("/"), &cards, known).into_iter().filter_map(|one| one.card).collect()
    }

    #[test]
    fn a_card_is_lost_while_something_of_it_is_there_and_gone_when_nothing_is() {
        let (whole, mut known) = (|| Pair { user: place("a.1"), management: place("a.0") }, BTreeSet::new());
        assert!(lost(vec![whole()], &["a"], &mut known).is_empty());
        assert_eq!(lost(Vec::new(), &["a"], &mut known), ["a.1"]);
        assert!(lost(vec![whole()], &["a"], &mut known).is_empty());
        assert!(lost(Vec::new(), &["b"], &mut known).is_empty());
        assert!(lost(Vec::new(), &["a"], &mut known).is_empty());
    }

    #[test]
    fn a_management_function_alone_stands_for_either_user_function() {
        let alone = Pair { user: None, management: place("a.0") };
        assert_eq!(lost(vec![alone], &["a"], &mut BTreeSet::new()), ["a.0", "a.1"]);
    }
}
