//! Devices of classes that another vendor also has: it keeps them. Its code knows more, and `generic` was told the node.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Scan, nodes_of, with_end};
use crate::device::{Device, Found, Problem};
use crate::host::Host;
use crate::vendors::classes::{COMMON, VENDOR};
use crate::vendors::generic;

/// What the devices of the other vendors consist of, and their vendors.
#[derive(Default)]
struct Claimed {
    functions: HashMap<PathBuf, String>,
    nodes: HashMap<PathBuf, String>,
}

/// Takes from the devices of classes those that have a node of another vendor's device, and those for virtual machines that
/// have its PCI function, with a notice for each. Other nodes of the function are other devices: the clock of a NIC. What
/// another vendor could not examine is still its own: `last` tells what it was.
pub(super) fn leave_to_vendors(host: &Host, found: &mut [(&'static str, Found)], last: Option<&Scan>) {
    let (of_classes, of_vendors): (Vec<_>, Vec<_>) = found.iter_mut().partition(|(vendor, _)| *vendor == VENDOR);
    let mut claimed = Claimed::default();
    if of_classes.iter().all(|(_, found)| found.devices.is_empty()) {
        return;
    }
    for (vendor, found) in of_vendors {
        found.devices.iter().for_each(|device| claimed.add(host, device));
        for part in &found.unseen {
            let is_of_it = |device: &&Arc<Device>| {
                part.card.as_ref().is_none_or(|card| [&device.card, &device.id].contains(&card))
            };
            let before = last.map(|last| last.devices.as_slice()).unwrap_or_default();
            let before = before.iter().filter(|device| device.vendor == *vendor).filter(is_of_it);
            before.for_each(|device| claimed.add(host, device));
        }
    }
    for (_, found) in of_classes {
        let Found { devices, notices, .. } = found;
        devices.retain(|device| match claimed.owner(host, device) {
            None => true,
            Some((path, owner)) => {
                let class = device.text("class").unwrap_or_default();
                let why = if owner == generic::VENDOR {
                    "generic offers its node".to_owned()
                } else {
                    format!("{owner} has it, whose code knows more of it")
                };
                let error = format!("left out of class `{class}`: {why}");
                notices.push(Problem::new(VENDOR, path, error).of(&device.id));
                false
            }
        });
    }
}

impl Claimed {
    fn add(&mut self, host: &Host, device: &Device) {
        let functions = device.functions.iter().map(|function| (function.path.clone(), device.vendor.to_string()));
        self.functions.extend(functions);
        self.nodes.extend(nodes_of(host, device).map(|node| (node, device.vendor.to_string())));
    }

    /// The vendor that has a part of the device, and the part.
    fn owner(&self, host: &Host, device: &Device) -> Option<(PathBuf, &str)> {
        // A virtual machine gets the function as a whole.
        let is_whole = device.paths.iter().any(|node| Path::new(&node.path).starts_with("/dev/vfio"));
        let functions = device.functions.iter().filter(|_| is_whole);
        let function = functions.map(|one| &one.path).find_map(|path| self.functions.get_key_value(path));
        let nodes = device.paths.iter().filter(|path| path.role != COMMON);
        let mut ends = nodes.flat_map(|node| with_end(host, Path::new(&node.path)));
        let node = || ends.find_map(|path| self.nodes.get_key_value(&path));
        function.or_else(node).map(|(path, owner)| (path.clone(), owner.as_str()))
    }
}
