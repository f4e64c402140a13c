//! Which cards there are: PCI functions that XRT's drivers have marked, paired. Looks for names alone and touches no hardware.
//!
//! <https://xilinx.github.io/XRT/master/html/platforms.html>: a card has a user function and, except in virtual machines,
//! one for management. Which is which has changed over the releases, so the number of the function does not show it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::VENDOR;
use crate::bus::pci;
use crate::device::{Found, NotExamined, Problem};
use crate::host::Host;
use crate::host::attribute::{AttributeError, Cause};
use crate::host::directory::Directory;

/// What there is.
#[derive(Debug, Default)]
pub(super) struct Cards {
    /// Of whatever maker.
    pub(super) pairs: Vec<Pair>,
    /// All PCI functions, of whatever device: addresses without their functions, and whole ones.
    pub(super) slots: BTreeMap<String, Vec<String>>,
}

/// The functions of one device of a card: those with equal domain, bus and device number.
#[derive(Debug, Default)]
pub(super) struct Pair {
    pub(super) user: Option<Place>,
    pub(super) management: Option<Place>,
}

/// One PCI function.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) address: String,
    pub(super) path: PathBuf,
}

impl Pair {
    /// What is probed as one: the function that containers get, or what is there of the pair.
    pub(super) fn place(&self) -> Option<&Place> {
        self.user.as_ref().or(self.management.as_ref())
    }
}

/// `/sys/bus/pci/devices`.
pub(super) fn bus_directory(host: &Host) -> PathBuf {
    host.sys("bus/pci/devices")
}

/// An address without its function.
pub(super) fn slot_of(address: &str) -> &str {
    address.split('.').next().unwrap_or_default()
}

/// Every pair, and where else there is something; `None` where nothing can be looked at.
pub(super) fn cards(host: &Host, found: &mut Found) -> Option<Cards> {
    let bus = bus_directory(host);
    match marked(host, &bus) {
        Ok(cards) => Some(cards),
        // There is no PCI.
        Err(error) if error.cause == Cause::System(Errno::NOENT) => Some(Cards::default()),
        Err(error) => {
            found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause));
            found.unseen.push(NotExamined { vendor: VENDOR, card: None, finding: None });
            None
        }
    }
}

fn marked(host: &Host, bus: &Path) -> Result<Cards, AttributeError> {
    let directory = Directory::open(bus)?;
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut slots: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for address in directory.names()?.into_iter().filter(|name| pci::is_address(name)) {
        let card = slot_of(&address).to_owned();
        slots.entry(card.clone()).or_default().push(address.clone());
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
    Ok(Cards { pairs: pairs.into_values().collect(), slots })
}

/// What an entry of the bus leads to.
fn behind_entry(host: &Host, bus: &Directory, address: &str) -> PathBuf {
    match bus.link(address) {
        Ok(target) => host.behind_link(bus.path(), &target),
        Err(_) => bus.path().join(address),
    }
}
