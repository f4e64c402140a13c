//! Cards whose user function was there and is not, while the card is: they are being flashed or reset, or have lost their
//! driver. Nothing is read but names, and whose the functions are.
//!
//! While a shell is written into a card, and until the host has looked for PCI functions again, there is the management
//! function alone, or a function with another device id (<https://xilinx.github.io/XRT/master/html/platforms.html>).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::VENDOR;
use super::locate::{Cards, slot_of};
use crate::device::NotExamined;
use crate::health::sources::scan;
use crate::host::Host;
use crate::host::attribute::Attribute;

/// User functions by address, each with the PCI vendor id of its card's maker, if that could be read.
pub(super) type Known = BTreeMap<String, Option<u64>>;

const WHY: &str = "the card is on the bus without its user function: it is being flashed or reset, or its driver xocl has let go of it";

/// The user functions that were there in earlier scans, by address, and those that a card with a management function may
/// have: it is known from earlier scanners which of them were. What is in a lost card's slot now is that card while it is of
/// the same maker: the device id changes with the shell.
pub(super) fn not_examined(host: &Host, cards: &Cards, known: &mut Known) -> Vec<NotExamined> {
    let bus = super::locate::bus_directory(host);
    let there: BTreeSet<&str> =
        cards.pairs.iter().filter_map(|pair| pair.user.as_ref()).map(|user| user.address.as_str()).collect();
    for address in &there {
        known.entry((*address).to_owned()).or_insert_with(|| maker(&bus, address));
    }
    known.retain(|address, made_by| {
        there.contains(address.as_str())
            || cards
                .slots
                .get(slot_of(address))
                .is_some_and(|now| now.iter().any(|one| made_by.is_none() || maker(&bus, one) == *made_by))
    });
    let managed = cards.pairs.iter().filter(|pair| pair.user.is_none()).filter_map(|pair| pair.management.as_ref());
    let may_have_been = managed.flat_map(|place| [0, 1].map(|number| format!("{}.{number}", slot_of(&place.address))));
    let candidates: BTreeSet<String> = known.keys().cloned().chain(may_have_been).collect();
    let lost = candidates.into_iter().filter(|address| !there.contains(address.as_str()));
    lost.map(|address| NotExamined {
        vendor: VENDOR,
        finding: Some(scan::finding(scan::SHELL_LOST, host.own_path(bus.join(&address)), WHY)),
        card: Some(address),
    })
    .collect()
}

fn maker(bus: &Path, address: &str) -> Option<u64> {
    Attribute::read(bus.join(address).join("vendor")).and_then(|vendor| vendor.hexadecimal()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendors::xilinx_fpga::locate::{Pair, Place};

    fn place(address: &str) -> Place {
        Place { address: address.to_owned(), path: address.into() }
    }

    fn lost(pairs: Vec<Pair>, slots: &[&str], known: &mut Known) -> Vec<String> {
        let slots = slots.iter().map(|slot| ((*slot).to_owned(), vec![format!("{slot}.0")])).collect();
        let cards = Cards { pairs, slots };
        not_examined(&Host::new("/"), &cards, known).into_iter().filter_map(|one| one.card).collect()
    }

    #[test]
    fn a_card_is_lost_while_something_of_it_is_there_and_gone_when_nothing_is() {
        let (whole, mut known) = (|| Pair { user: Some(place("a.1")), management: Some(place("a.0")) }, Known::new());
        assert!(lost(vec![whole()], &["a"], &mut known).is_empty());
        assert_eq!(lost(Vec::new(), &["a"], &mut known), ["a.1"]);
        assert!(lost(vec![whole()], &["a"], &mut known).is_empty());
        assert!(lost(Vec::new(), &["b"], &mut known).is_empty());
        assert!(lost(Vec::new(), &["a"], &mut known).is_empty());
    }

    #[test]
    fn a_management_function_alone_stands_for_either_user_function() {
        let alone = Pair { user: None, management: Some(place("a.0")) };
        assert_eq!(lost(vec![alone], &["a"], &mut Known::new()), ["a.0", "a.1"]);
    }
}
