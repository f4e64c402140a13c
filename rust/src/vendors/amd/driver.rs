//! The driver of the GPUs, for containers or virtual machines, and GPUs that lost it: they are still on the bus, but
//! without a driver.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{AMD, AmdDriverType, VENDOR, is_gpu_class, locate};
use crate::device::{Found, NotExamined, Problem};
use crate::health::sources::scan;
use crate::host::{Host, directory};
use crate::vendors::gpus::on_pci_bus;

/// The use of the GPUs, which depends on their driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// amdgpu.
    Container,
    /// gim: virtual functions for virtual machines.
    VirtualFunctions,
    /// vfio-pci: whole GPUs for virtual machines.
    WholeFunctions,
}

impl Mode {
    /// All modes, in the order in which their drivers are looked for.
    const ALL: [Self; 3] = [Self::Container, Self::VirtualFunctions, Self::WholeFunctions];

    /// The mode of the option; for `auto`, the mode of the first driver that is loaded.
    pub(super) fn of(driver_type: AmdDriverType, host: &Host) -> Option<Self> {
        match driver_type {
            AmdDriverType::Container => Some(Self::Container),
            AmdDriverType::VfPassthrough => Some(Self::VirtualFunctions),
            AmdDriverType::PfPassthrough => Some(Self::WholeFunctions),
            AmdDriverType::Auto => {
                let present = Self::ALL.into_iter().find(|mode| mode.directory(host).is_dir());
                // amdgpu without KFD: it will be for containers once KFD is there.
                present.or_else(|| locate::driver_directory(host).is_dir().then_some(Self::Container))
            }
        }
    }

    /// The directory that exists while the mode's driver is loaded.
    pub(super) fn directory(self, host: &Host) -> PathBuf {
        match self {
            Self::Container => host.sys("class/kfd"),
            Self::VirtualFunctions => host.sys("bus/pci/drivers/gim"),
            Self::WholeFunctions => host.sys("bus/pci/drivers/vfio-pci"),
        }
    }
}

const UNBOUND: &str = "no driver is bound to this GPU; bind amdgpu to it again";

/// Functions that the driver had earlier, kept until they leave the bus or another driver binds to them.
#[derive(Debug, Default)]
pub(super) struct BoundBefore(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Functions that the driver had in earlier scans, by address.
    bound: BTreeMap<String, PathBuf>,
    /// GPUs on the bus at the first scan: an earlier scan core may have offered those without a driver.
    found: BTreeMap<String, PathBuf>,
    has_looked: bool,
}

impl BoundBefore {
    /// Updates the functions that the driver has now. Devices of functions that the driver lost stay, with a finding.
    pub(super) fn renew(&self, host: &Host, bound: Vec<(String, PathBuf)>, found: &mut Found) {
        let bound: BTreeMap<String, PathBuf> = bound.into_iter().collect();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.has_looked {
            known.has_looked = true;
            let there = on_pci_bus(host, AMD.into(), &["amdgpu"], is_gpu_class).into_iter();
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

/// Keeps the card, with a finding; has no effect if no device of the card is known.
fn unbound(host: &Host, address: &str, function: &Path) -> NotExamined {
    let finding =
        scan::finding(scan::DRIVER_UNBOUND, host.own_path(function.join("driver")), UNBOUND).reading("absent");
    NotExamined { vendor: VENDOR, class: None, card: Some(address.to_owned()), finding: Some(finding) }
}

fn is_undriven(function: &Path) -> bool {
    directory::exists(function) && directory::link(&function.join("driver")).is_err_and(|error| error.is_absent())
}
