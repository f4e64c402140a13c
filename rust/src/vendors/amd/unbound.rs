//! GPUs that lost their driver: the function is still on the bus, without a driver.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{AMD, VENDOR, is_gpu_class};
use crate::device::{Found, NotExamined, Problem};
use crate::health::sources::scan;
use crate::host::Host;
use crate::host::directory;
use crate::vendors::gpus_on_the_bus::gpus_on_the_bus;

const UNBOUND: &str = "no driver is bound to this GPU; bind amdgpu to it again";

/// Functions by address, until they leave the bus or another driver takes them.
#[derive(Debug, Default)]
pub(super) struct BoundBefore(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// What the driver has had.
    bound: BTreeMap<String, PathBuf>,
    /// GPUs that were there when this scan core first looked: an earlier one may have served those without a driver.
    found: BTreeMap<String, PathBuf>,
    has_looked: bool,
}

impl BoundBefore {
    /// Takes in what the driver has now. The devices of those it lost stay, with the reason.
    pub(super) fn renew(&self, host: &Host, bound: Vec<(String, PathBuf)>, found: &mut Found) {
        let bound: BTreeMap<String, PathBuf> = bound.into_iter().collect();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.has_looked {
            known.has_looked = true;
            let there = gpus_on_the_bus(host, AMD.into(), is_gpu_class).into_iter();
            known.found = there.map(|address| (address.clone(), host.sys("bus/pci/devices").join(address))).collect();
        }
        let is_lost = |address: &String, function: &mut PathBuf| !bound.contains_key(address) && is_undriven(function);
        known.bound.retain(is_lost);
        known.found.retain(is_lost);
        for (address, function) in &known.bound {
            found.problems.push(Problem::new(VENDOR, host.own_path(function), UNBOUND).of(address));
        }
        let lost: BTreeMap<&String, &PathBuf> = known.found.iter().chain(&known.bound).collect();
        found.unseen.extend(lost.into_iter().map(|(address, function)| unbound(host, address, function)));
        known.bound.extend(bound);
    }
}

/// Nobody's loss where no device of the card is known.
fn unbound(host: &Host, address: &str, function: &Path) -> NotExamined {
    let finding =
        scan::finding(scan::DRIVER_UNBOUND, host.own_path(function.join("driver")), UNBOUND).reading("absent");
    NotExamined { vendor: VENDOR, card: Some(address.to_owned()), finding: Some(finding) }
}

fn is_undriven(function: &Path) -> bool {
    directory::exists(function) && directory::link(&function.join("driver")).is_err_and(|error| error.is_absent())
}
