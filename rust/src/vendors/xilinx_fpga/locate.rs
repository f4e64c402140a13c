//! Finds the cards of a host: PCI functions with the marks of XRT's drivers, in pairs. Looks only at names and touches
//! no hardware.
//!
//! <https://xilinx.github.io/XRT/master/html/platforms.html>: a card has a user function and, except in virtual
//! machines, a management function. Releases number them differently, so the function's number does not tell which is
//! which.
//!
//! A card that lost its user function is being flashed or reset, or has lost its driver. While a shell is being
//! written, and until the host rescans PCI, the card shows only the management function, or a function with another
//! device id.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::VENDOR;
use crate::bus::functions::Functions;
use crate::bus::pci;
use crate::device::{Found, NotExamined, Problem};
use crate::health::sources::scan;
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError, Cause};
use crate::host::directory::Directory;
use crate::vendors::card_cache::Located;

/// The drivers of XRT.
const DRIVERS: [&str; 2] = ["xocl", "xclmgmt"];

/// The PCI functions of a host.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Cards {
    /// The pairs, of any maker.
    pub(super) pairs: Vec<Arc<Pair>>,
    /// The full addresses of all PCI functions of any device, by address without the function.
    slots: BTreeMap<String, Vec<String>>,
}

/// The functions of one device of a card, with equal domain, bus and device number.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Pair {
    pub(super) user: Option<Place>,
    pub(super) management: Option<Place>,
}

/// One PCI function.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub(super) address: String,
    pub(super) path: PathBuf,
}

impl Located for Pair {
    fn key(&self) -> &str {
        self.place().map(|place| place.address.as_str()).unwrap_or_default()
    }
}

impl Pair {
    /// The unit that is examined as one: the function that containers get; if there is none, the management function.
    pub(super) fn place(&self) -> Option<&Place> {
        self.user.as_ref().or(self.management.as_ref())
    }
}

/// The directory `/sys/bus/pci/devices`.
fn bus_directory(host: &Host) -> PathBuf {
    host.sys("bus/pci/devices")
}

/// The address without the function number.
fn slot_of(address: &str) -> &str {
    address.split('.').next().unwrap_or_default()
}

/// Every pair; `None` if the bus cannot be read.
pub(super) fn cards(host: &Host, found: &mut Found) -> Option<Cards> {
    let bus = bus_directory(host);
    match marked(host, &bus) {
        Ok(cards) => Some(cards),
        // The host has no PCI.
        Err(error) if error.cause == Cause::System(Errno::NOENT) => Some(Cards::default()),
        Err(error) => {
            found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause));
            found.unseen.push(NotExamined::new(VENDOR, None));
            None
        }
    }
}

fn marked(host: &Host, bus: &Path) -> Result<Cards, AttributeError> {
    let directory = Directory::open(bus)?;
    let functions = Functions::of(host);
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut slots: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for address in directory.names_of_links()?.into_iter().filter(|name| pci::is_address(name)) {
        let card = slot_of(&address).to_owned();
        slots.entry(card.clone()).or_default().push(address.clone());
        // Only XRT's drivers make the marks.
        if functions.as_ref().is_some_and(|functions| functions.is_of_others(&address, &DRIVERS)) {
            continue;
        }
        let is_user = directory.has(&format!("{address}/user_pf"));
        if !is_user && !directory.has(&format!("{address}/mgmt_pf")) {
            continue;
        }
        let pair = pairs.entry(card).or_default();
        let path = behind_entry(host, &directory, &address);
        let place = Some(Place { address, path });
        if is_user {
            pair.user = place;
        } else {
            pair.management = place;
        }
    }
    Ok(Cards { pairs: pairs.into_values().map(Arc::new).collect(), slots })
}

/// The target of an entry of the bus.
fn behind_entry(host: &Host, bus: &Directory, address: &str) -> PathBuf {
    match bus.link(address) {
        Ok(target) => host.behind_link(bus.path(), &target),
        Err(_) => bus.path().join(address),
    }
}

/// User functions by address, with the PCI vendor id of the card's maker, if it was readable.
pub(super) type KnownFunctions = BTreeMap<String, Option<u64>>;

const WHY: &str = "the card is on the bus without its user function: it is being flashed or reset, or its driver xocl has let go of it";

/// The user functions that are missing now. These are functions of earlier scans, and functions that cards with only a
/// management function may have; the devices of earlier scanners tell which of the latter existed. A function in a lost
/// card's slot counts as that card if it has the same maker: the device id changes with the shell.
pub(super) fn lost_cards(host: &Host, cards: &Cards, known: &mut KnownFunctions) -> Vec<NotExamined> {
    let bus = bus_directory(host);
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
        class: None,
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

    fn place(address: &str) -> Place {
        Place { address: address.to_owned(), path: address.into() }
    }

    fn lost(pairs: Vec<Pair>, slots: &[&str], known: &mut KnownFunctions) -> Vec<String> {
        let slots = slots.iter().map(|slot| ((*slot).to_owned(), vec![format!("{slot}.0")])).collect();
        let cards = Cards { pairs: pairs.into_iter().map(Arc::new).collect(), slots };
        lost_cards(&Host::new("/"), &cards, known).into_iter().filter_map(|one| one.card).collect()
    }

    #[test]
    fn a_card_is_lost_while_something_of_it_is_there_and_gone_when_nothing_is() {
        let (whole, mut known) =
            (|| Pair { user: Some(place("a.1")), management: Some(place("a.0")) }, KnownFunctions::new());
        assert!(lost(vec![whole()], &["a"], &mut known).is_empty());
        assert_eq!(lost(Vec::new(), &["a"], &mut known), ["a.1"]);
        assert!(lost(vec![whole()], &["a"], &mut known).is_empty());
        assert!(lost(Vec::new(), &["b"], &mut known).is_empty());
        assert!(lost(Vec::new(), &["a"], &mut known).is_empty());
    }

    #[test]
    fn a_management_function_alone_stands_for_either_user_function() {
        let alone = Pair { user: None, management: Some(place("a.0")) };
        assert_eq!(lost(vec![alone], &["a"], &mut KnownFunctions::new()), ["a.0", "a.1"]);
    }
}
