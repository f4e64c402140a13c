//! Which RDMA devices there are, and which character devices belong to each. Reads links, names and numbers, which touches
//! no hardware.
//!
//! The kernel's documentation: ABI/stable/sysfs-class-infiniband.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::VENDOR;
use crate::bus::pci;
use crate::device::{Found, NotExamined, Problem};
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError, Cause};
use crate::host::directory::{Directory, is_numbered};

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
    /// `uverbsN`.
    pub(super) verbs: Vec<Companion>,
    /// `umadN` and `issmN`, one of each for a port.
    pub(super) mads: Vec<Companion>,
}

/// A character device that speaks for an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Companion {
    pub(super) name: String,
    /// Major and minor number; `None` where the kernel does not say.
    pub(super) number: Option<(u32, u32)>,
}

/// `/sys/class/infiniband`.
pub(super) fn class_directory(host: &Host) -> PathBuf {
    host.sys("class/infiniband")
}

/// Every device of the class that is on PCI. Software-only devices are skipped.
pub(super) fn devices(host: &Host, found: &mut Found) -> Vec<Hca> {
    let (names, mut verbs, mut mads) = match classes(host) {
        Ok(classes) => classes,
        Err(error) => {
            found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause));
            found.unseen.push(NotExamined { vendor: VENDOR, card: None, finding: None });
            return Vec::new();
        }
    };
    let devices = names.into_iter().filter_map(|name| {
        let (verbs, mads) = (verbs.remove(&name).unwrap_or_default(), mads.remove(&name).unwrap_or_default());
        device(host, name, verbs, mads)
    });
    let devices = devices.collect();
    found.unseen.extend(moved(host, &verbs));
    devices
}

/// Character devices, by the RDMA device that each names.
type ByDevice = BTreeMap<String, Vec<Companion>>;

/// The names of all devices, and their character devices.
fn classes(host: &Host) -> Result<(Vec<String>, ByDevice, ByDevice), AttributeError> {
    let class = |name: &str| host.sys("class").join(name);
    Ok((
        names(&class_directory(host))?,
        companions(&class("infiniband_verbs"), &["uverbs"])?,
        companions(&class("infiniband_mad"), &["umad", "issm"])?,
    ))
}

fn device(host: &Host, name: String, verbs: Vec<Companion>, mads: Vec<Companion>) -> Option<Hca> {
    let path = behind_entry(host, &class_directory(host), &name);
    let function = pci::function_of(&path)?.to_path_buf();
    let address = pci::address_of(&function)?.to_owned();
    let device = path.parent().and_then(Path::parent).unwrap_or(&function).to_path_buf();
    Some(Hca { name, path, device, function, address, verbs, mads })
}

/// A device that went into a container's network namespace leaves this class, which shows those of one namespace, and not
/// the class of its character devices, which shows all. What was known of it stays.
fn moved(host: &Host, verbs_left: &ByDevice) -> Vec<NotExamined> {
    let class = host.sys("class/infiniband_verbs");
    let paths = verbs_left.values().flatten().map(|verbs| behind_entry(host, &class, &verbs.name));
    let addresses = paths.filter_map(|path| pci::address_of(pci::function_of(&path)?).map(str::to_owned));
    addresses.map(|address| NotExamined { vendor: VENDOR, card: Some(address), finding: None }).collect()
}

fn companions(class: &Path, prefixes: &[&str]) -> Result<ByDevice, AttributeError> {
    let mut by_device = ByDevice::new();
    for name in names(class)?.into_iter().filter(|name| prefixes.iter().any(|prefix| is_numbered(name, prefix))) {
        let attribute = |attribute: &str| Attribute::read(class.join(&name).join(attribute));
        let Ok(owner) = attribute("ibdev") else { continue };
        let number = attribute("dev").and_then(|dev| dev.device_number()).ok();
        by_device.entry(owner.text().to_owned()).or_default().push(Companion { name, number });
    }
    Ok(by_device)
}

/// Entries of a class directory; empty while its module is not loaded.
fn names(class: &Path) -> Result<Vec<String>, AttributeError> {
    match Directory::open(class).and_then(|directory| directory.names()) {
        Err(error) if error.cause == Cause::System(Errno::NOENT) => Ok(Vec::new()),
        read => read,
    }
}

/// What an entry of a class leads to.
fn behind_entry(host: &Host, class: &Path, name: &str) -> PathBuf {
    let entry = class.join(name);
    match crate::host::directory::link(&entry) {
        Ok(target) => host.behind_link(class, &target),
        Err(_) => entry,
    }
}
