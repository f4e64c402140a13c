//! GPUs that lost their driver: the function is still on the bus, and nobody drives it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::VENDOR;
use crate::device::{Found, Problem, Reason, Unseen};
use crate::directory;
use crate::host::Host;

/// The functions that the driver has had, by address, until they leave the bus or another driver takes them.
#[derive(Debug, Default)]
pub(super) struct BoundBefore(Mutex<BTreeMap<String, PathBuf>>);

impl BoundBefore {
    /// Takes in what the driver has now. The devices of those it lost stay, with the reason.
    pub(super) fn renew(&self, host: &Host, bound: Vec<(String, PathBuf)>, found: &mut Found) {
        let bound: BTreeMap<String, PathBuf> = bound.into_iter().collect();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|address, function| !bound.contains_key(address) && is_undriven(function));
        for (address, function) in known.iter() {
            let error = "no driver is bound to this GPU; bind amdgpu to it again";
            found.problems.push(Problem::new(VENDOR, host.own_path(function), error).of(address));
            let reason = Some(Reason::DriverUnbound);
            found.unseen.push(Unseen { vendor: VENDOR, card: Some(address.clone()), reason });
        }
        known.extend(bound);
    }
}

fn is_undriven(function: &Path) -> bool {
    directory::exists(function) && directory::link(&function.join("driver")).is_err_and(|error| error.is_absent())
}
