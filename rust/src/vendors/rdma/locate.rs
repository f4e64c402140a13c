//! Which RDMA devices there are, and which character devices belong to each. Reads links, names and numbers, which touches
//! no hardware.
//!
//! The kernel's documentation: ABI/stable/sysfs-class-infiniband.

use std::path::{Path, PathBuf};

use super::VENDOR;
use super::companion::{ByDevice, Companion, connection_manager, names, of_class};
use crate::bus::pci;
use crate::device::{Found, NotExamined, Problem};
use crate::host::Host;
use crate::host::attribute::AttributeError;

/// One RDMA device.
#[derive(Debug)]
pub(super) struct Hca {
    /// `mlx5_0`.
    pub(super) name: String,
    /// Its directory of the class `infiniband`.
    pub(super) path: PathBuf,
    /// The directory of the device it belongs to: a PCI function or a part of one.
    pub(super) device: PathBuf,
    /// The PCI function, and its address.
    pub(super) function: PathBuf,
    pub(super) address: String,
    /// Its character devices: `uverbsN`, `umadN` and `issmN` for each port, and the connection manager of all devices.
    pub(super) companions: Vec<Companion>,
}

/// `/sys/class/infiniband`.
pub(super) fn class_directory(host: &Host) -> PathBuf {
    host.sys("class/infiniband")
}

/// Every device of the class that is on PCI. Software-only devices are skipped.
pub(super) fn devices(host: &Host, found: &mut Found) -> Vec<Hca> {
    let (names, mut verbs, mut mads) = match classes(host, &mut found.problems) {
        Ok(classes) => classes,
        Err(error) => {
            found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause));
            found.unseen.push(NotExamined { vendor: VENDOR, card: None, finding: None });
            return Vec::new();
        }
    };
    let connection_manager = connection_manager(host);
    let devices = names.into_iter().filter_map(|name| {
        let mut companions = verbs.remove(&name).unwrap_or_default();
        companions.extend(mads.remove(&name).unwrap_or_default());
        companions.extend(connection_manager.clone());
        device(host, name, companions)
    });
    let devices = devices.collect();
    found.unseen.extend(moved(host, &verbs));
    devices
}

/// The names of all devices, and their character devices.
fn classes(host: &Host, problems: &mut Vec<Problem>) -> Result<(Vec<String>, ByDevice, ByDevice), AttributeError> {
    let class = |name: &str| host.sys("class").join(name);
    Ok((
        names(&class_directory(host))?,
        of_class(host, &class("infiniband_verbs"), &["uverbs"], problems)?,
        of_class(host, &class("infiniband_mad"), &["umad", "issm"], problems)?,
    ))
}

fn device(host: &Host, name: String, companions: Vec<Companion>) -> Option<Hca> {
    let path = behind_entry(host, &class_directory(host), &name);
    let function = pci::function_of(&path)?.to_path_buf();
    let address = pci::address_of(&function)?.to_owned();
    let device = path.parent().and_then(Path::parent).unwrap_or(&function).to_path_buf();
    Some(Hca { name, path, device, function, address, companions })
}

/// A device that went into a container's network namespace leaves this class, which shows those of one namespace, and not
/// the class of its character devices, which shows all. What was known of it stays.
fn moved(host: &Host, verbs_left: &ByDevice) -> Vec<NotExamined> {
    let class = host.sys("class/infiniband_verbs");
    let paths = verbs_left.values().flatten().map(|verbs| behind_entry(host, &class, &verbs.name));
    let addresses = paths.filter_map(|path| pci::address_of(pci::function_of(&path)?).map(str::to_owned));
    addresses.map(|address| NotExamined { vendor: VENDOR, card: Some(address), finding: None }).collect()
}

/// What an entry of a class leads to.
fn behind_entry(host: &Host, class: &Path, name: &str) -> PathBuf {
    let entry = class.join(name);
    match crate::host::directory::link(&entry) {
        Ok(target) => host.behind_link(class, &target),
        Err(_) => entry,
    }
}
