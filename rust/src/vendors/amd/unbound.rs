//! GPUs that lost their driver: the function is still on the bus, and nobody drives it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{AMD, VENDOR, is_gpu_class};
use crate::device::{Found, Problem, Reason, Unseen};
use crate::directory;
use crate::host::Host;
use crate::vendors::gpus_on_the_bus::gpus_on_the_bus;

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
            let error = "no driver is bound to this GPU; bind amdgpu to it again";
            found.problems.push(Problem::new(VENDOR, host.own_path(function), error).of(address));
        }
        let lost: BTreeSet<&String> = known.bound.keys().chain(known.found.keys()).collect();
        found.unseen.extend(lost.into_iter().map(|address| unbound(address)));
        known.bound.extend(bound);
    }
}

/// Nobody's loss where no device of the card is known.
fn unbound(address: &str) -> Unseen {
    Unseen { vendor: VENDOR, card: Some(address.to_owned()), reason: Some(Reason::DriverUnbound) }
}

fn is_undriven(function: &Path) -> bool {
    directory::exists(function) && directory::link(&function.join("driver")).is_err_and(|error| error.is_absent())
}
