//! Devices of any kind, each kind described by a class of the configuration: where its entries are, which facts they have,
//! which nodes a container gets, and under which names.
//!
//! ```text
//! definition  a class of the settings, checked
//!   template    texts with places: templates, patterns of names
//! entries     names in /sys/class and /sys/bus, PCI functions ─► entries that may be devices   (touches no hardware)
//! inspection  an entry ─► which class, facts, nodes                              (behind the fence, entry by entry)
//!   values      texts ─► values
//!   files       its files, each read once, none outside of /sys and /proc/driver
//! explanation why an entry is no device, for people
//! assembly    entries ─► devices: groups, no node twice
//! ```
//!
//! Other vendors use classes for kinds of devices that need no code: [`find`].

mod assembly;
mod definition;
mod entries;
mod explanation;
mod files;
mod inspection;
mod template;
#[cfg(test)]
mod tests;
mod values;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::per_card::per_card;
use super::{LeftOut, Vendor, gpus};
use crate::device::{Device, Found, NotExamined, Platform};
use crate::edits::{Edits, Way, cdi_name};
use crate::fence::Fence;
use crate::host::Host;
use crate::order::natural;
use assembly::Lacking;
pub use definition::DeviceClass;
use definition::{CLASS, NODE, NUMBER};
pub use explanation::ClassEntry;
use inspection::{Answer, Made, inspect};

/// The value of `vendor` in JSON, metrics and problems.
pub(crate) const VENDOR: &str = "classes";

/// The role of nodes that several devices may have: `/dev/vfio/vfio`.
pub(crate) const COMMON: &str = "common";

/// The devices of the classes that are switched on.
#[derive(Debug)]
pub struct Classes {
    classes: Arc<[DeviceClass]>,
}

impl Classes {
    /// The devices of these classes; the first of two that fit an entry has it.
    #[must_use]
    pub fn new(classes: Vec<DeviceClass>) -> Self {
        Self { classes: classes.into() }
    }
}

impl Classes {
    /// What became of each entry that a class looked at. Looks at every one, which a scan does not.
    #[must_use]
    pub fn explained(&self, host: &Host, fence: &Fence) -> Vec<ClassEntry> {
        explanation::explained(host, fence, &self.classes)
    }
}

impl Vendor for Classes {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        find(host, fence, VENDOR, &self.classes, &mut found);
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, resource_name: &str) -> Edits {
        let name = device.text(CLASS).unwrap_or_default();
        let class = self.classes.iter().find(|class| class.name == name);
        let edits =
            class.map_or_else(|| Edits::of_nodes(&device.paths, "rw"), |class| class.edits(device, resource_name));
        edits.given(way, || cdi_name(device))
    }

    fn left_out(&self, device: &Device, way: Way) -> Option<LeftOut> {
        gpus::left_to_virtual_machines(device, way).map(LeftOut::because)
    }
}

/// Adds the devices of these classes, as devices of a vendor.
pub(super) fn find(host: &Host, fence: &Fence, vendor: &'static str, classes: &Arc<[DeviceClass]>, found: &mut Found) {
    let mut lacking = Lacking::default();
    let entries = entries::entries(host, vendor, classes, found, &mut lacking);
    let place = |entry: &entries::Entry| (entry.card().to_owned(), host.own_path(&entry.path));
    let mut unanswered: HashMap<PathBuf, Vec<usize>> = HashMap::new();
    for entry in entries.iter().filter(|entry| entry.classes.iter().any(|(class, _)| classes[*class].group.is_some())) {
        unanswered.insert(entry.path.clone(), entry.classes.iter().map(|(class, _)| *class).collect());
    }
    let units = entries.into_iter().map(|entry| (place(&entry), entry)).collect();
    let (behind_fence, of_unit) = (host.clone(), Arc::clone(classes));
    let work = move |entry: entries::Entry| {
        let answer = inspect(&behind_fence, vendor, &of_unit, &entry);
        (entry.card().to_owned(), entry.path, answer)
    };
    let mut made: Vec<Made> = Vec::new();
    for (card, path, answer) in per_card(vendor, found, fence, units, work) {
        unanswered.remove(&path);
        match answer {
            Answer::NotOurs => {}
            Answer::Made(one) => made.push(*one),
            Answer::NotKnown(one) => {
                found.problems.push(one.problem);
                found.unseen.push(NotExamined { vendor, card: Some(card), finding: None });
                one.group.into_iter().for_each(|group| lacking.add(group));
                lacking.add_any(one.classes);
            }
        }
    }
    lacking.add_any(unanswered.into_values().flatten());
    assembly::add(vendor, classes, made, &lacking, found);
}

impl DeviceClass {
    /// What a container gets for a device of this class.
    fn edits(&self, device: &Device, resource_name: &str) -> Edits {
        let for_machine = gpus::for_virtual_machine(device, resource_name).filter(|_| self.is_for_machines);
        let mut edits = for_machine.unwrap_or_else(|| Edits::of_nodes(&device.paths, &self.permissions));
        let first = device.paths.first();
        let value = |name: &str| match (device.text(name), name) {
            (Some(text), _) => Some(text),
            (None, NODE) => Some(first?.path.strip_prefix("/dev/")?.to_owned()),
            (None, NUMBER) => first?.number.map(|(major, minor)| format!("{major}:{minor}")),
            _ => None,
        };
        // A variable of a fact that the device does not have is left out.
        let filled = self.env.iter().filter_map(|(name, text)| {
            Some((name.clone(), text.filled(|place| value(place).map(Cow::Owned).ok_or(())).ok()?))
        });
        edits.joined_envs.extend(filled);
        edits
    }
}
