//! GPUs that the driver no longer lists, or not yet, as PCI shows.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::cards::Card;
use super::{VENDOR, driver};
use crate::device::{Found, NotExamined, Problem};
use crate::health::sources::scan;
use crate::host::Host;
use crate::host::attribute::Cause;
use crate::host::directory;
use crate::vendors::gpus_on_the_bus::gpus_on_the_bus;

const NVIDIA: u64 = 0x10de;

/// The GPUs that were ever seen, by address, and whether the driver kept each from all users.
#[derive(Debug, Default)]
pub(super) struct Seen {
    excluded: BTreeMap<String, bool>,
    has_looked: bool,
}

impl Seen {
    /// Whether the driver keeps a GPU from all users, or did when it could be read.
    pub(super) fn is_excluded(&mut self, card: &Card) -> bool {
        let known = self.excluded.entry(card.address().to_owned()).or_default();
        *known = card.gpu.as_ref().map_or(*known, |gpu| gpu.information.is_excluded);
        *known
    }

    /// Reports the GPUs that the driver does not list; forgets those that have left the bus.
    pub(super) fn report_unlisted(&mut self, host: &Host, listed: &[Card], found: &mut Found) {
        // Once: a scanner that starts while GPUs are without their driver must not take them for removed.
        if !self.has_looked {
            self.has_looked = true;
            let on_the_bus = gpus_on_the_bus(host, NVIDIA, is_gpu)
                .into_iter()
                .filter(|address| !self.excluded.contains_key(address));
            self.excluded.extend(on_the_bus.map(|address| (address, false)).collect::<Vec<_>>());
        }
        self.excluded.retain(|address, _| {
            listed.iter().any(|card| card.address() == address) || is_still_there(host, address, found)
        });
    }
}

/// Whether the GPU is still on the bus; why the driver does not list it becomes a problem or a finding.
fn is_still_there(host: &Host, address: &str, found: &mut Found) -> bool {
    let function = host.sys("bus/pci/devices").join(address);
    if !directory::exists(&function) {
        return false;
    }
    let unseen = |finding| NotExamined { vendor: VENDOR, card: Some(address.to_owned()), finding };
    match directory::link(&function.join("driver")) {
        Ok(driver) if driver.file_name().is_some_and(|name| name == "nvidia") => {
            let proc = host.own_path(driver::gpus_directory(host));
            let error = format!(
                "bound to the driver nvidia, but not listed in {}: check that the host's whole /proc is visible, or look for \
                 NVRM in the kernel log",
                proc.display()
            );
            found.problems.push(Problem::new(VENDOR, host.own_path(function), error).of(address));
            found.unseen.push(unseen(None));
        }
        // For example passed to a virtual machine: it has left on purpose.
        Ok(_) => {}
        Err(error) if error.cause == Cause::System(Errno::NOENT) => {
            let detail = "no driver is bound to this GPU; bind nvidia to it again";
            let link = host.own_path(function.join("driver"));
            found.unseen.push(unseen(Some(scan::finding(scan::DRIVER_UNBOUND, link, detail).reading("absent"))));
        }
        Err(_) => found.unseen.push(unseen(None)),
    }
    true
}

fn is_gpu(class: u64) -> bool {
    matches!(class >> 8, 0x0300 | 0x0302)
}
