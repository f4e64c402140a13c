//! PCI functions of served vendors that no driver has: a scan cannot find a device there, and nobody else says why.
//!
//! Identifiers are read once for each address and name; which driver a function has is looked at in each scan. All are
//! variables of the kernel, so nothing here can hang.

use std::collections::HashMap;
use std::path::Path;

use crate::bus::pci;
use crate::device::Problem;
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::host::directory::{self, Directory};
use crate::vendors::table::{Hardware, ROWS};

/// What is known of the host's functions, by address.
#[derive(Debug, Default)]
pub(super) struct Driverless {
    functions: HashMap<String, Option<Candidate>>,
}

/// A function that a vendor's devices are made of, if it has a driver.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    vendor: &'static str,
    id: (u16, u16),
    driver: &'static str,
}

impl Driverless {
    /// A problem for each function without a driver whose vendor is one of these. A virtual function may be meant for a
    /// virtual machine, so it is left out.
    pub(super) fn problems(&mut self, host: &Host, vendors: &[&'static str]) -> Vec<Problem> {
        let Ok(bus) = Directory::open(host.sys("bus/pci/devices")) else {
            self.functions.clear();
            return Vec::new();
        };
        let mut addresses = bus.names().unwrap_or_default();
        addresses.sort_unstable();
        self.functions.retain(|address, _| addresses.binary_search(address).is_ok());
        let mut problems = Vec::new();
        for address in addresses.iter().filter(|address| pci::is_address(address)) {
            let function = || bus.path().join(address);
            let known = match self.functions.get(address) {
                Some(known) => *known,
                None => *self.functions.entry(address.clone()).or_insert(candidate(&function())),
            };
            let asked = known.filter(|candidate| vendors.contains(&candidate.vendor) && lacks_a_driver(&bus, address));
            problems.extend(asked.map(|candidate| candidate.problem(host, &function(), address)));
        }
        problems
    }
}

impl Candidate {
    fn problem(self, host: &Host, function: &Path, address: &str) -> Problem {
        let (maker, device) = self.id;
        let error = format!("the PCI function ({maker:04x}:{device:04x}) has no driver: load {}", self.driver);
        Problem { device: Some(address.to_owned()), ..Problem::new(self.vendor, host.own_path(function), error) }
    }
}

fn lacks_a_driver(bus: &Directory, address: &str) -> bool {
    bus.link(&format!("{address}/driver")).is_err_and(|error| error.is_absent()) && bus.has(address)
}

fn candidate(function: &Path) -> Option<Candidate> {
    if directory::link(&function.join("physfn")).is_ok() {
        return None;
    }
    let number = |name: &str| Attribute::read(function.join(name)).ok()?.hexadecimal().ok();
    let id = (u16::try_from(number("vendor")?).ok()?, u16::try_from(number("device")?).ok()?);
    let class = u16::try_from(number("class")? >> 8).ok()?;
    let hardware = ROWS.iter().flat_map(|row| row.hardware.iter().map(|hardware| (row.name, hardware)));
    let (vendor, hardware) = hardware.into_iter().find(|(_, hardware)| hardware.is(id, class))?;
    Some(Candidate { vendor, id, driver: hardware.driver })
}

impl Hardware {
    fn is(&self, (maker, device): (u16, u16), class: u16) -> bool {
        let is_device = self.devices.iter().any(|&(first, last)| (first..=last).contains(&device));
        self.maker == maker && self.classes.contains(&class) && is_device
    }
}
