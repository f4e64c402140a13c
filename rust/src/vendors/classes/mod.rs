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
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::per_card::{Unit, per_unit};
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
    fn class_of(&self, device: &Device) -> Option<&DeviceClass> {
        let name = device.text(CLASS)?;
        self.classes.iter().find(|class| class.name == name)
    }

    /// What became of each entry that a class looked at. Looks at every one, which a scan does not, but for those that
    /// `devices` of a scan were made of.
    #[must_use]
    pub fn explained(&self, host: &Host, fence: &Fence, devices: &[Arc<Device>]) -> Vec<ClassEntry> {
        explanation::explained(host, fence, &self.classes, devices)
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

    fn changes_in_silence(&self, found: &[Arc<Device>]) -> bool {
        found.iter().filter_map(|device| self.class_of(device)).any(DeviceClass::asks_for_attributes)
    }

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, resource_name: &str) -> Edits {
        let edits = self
            .class_of(device)
            .map_or_else(|| Edits::of_nodes(&device.paths, "rw"), |class| class.edits(device, resource_name));
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
    let unit = |entry: &entries::Entry| Unit {
        place: (entry.card().to_owned(), host.own_path(&entry.path)),
        classes: entry
            .classes
            .iter()
            .filter_map(|(class, _)| not_examined(vendor, &classes[*class], None).class)
            .collect(),
    };
    let mut unanswered: HashMap<PathBuf, Vec<usize>> = HashMap::new();
    for entry in entries.iter().filter(|entry| entry.classes.iter().any(|(class, _)| classes[*class].group.is_some())) {
        unanswered.insert(entry.path.clone(), entry.classes.iter().map(|(class, _)| *class).collect());
    }
    let units = entries.into_iter().map(|entry| (unit(&entry), entry)).collect();
    let (behind_fence, of_unit) = (host.clone(), Arc::clone(classes));
    let work = move |entry: entries::Entry| {
        let answer = inspect(&behind_fence, vendor, &of_unit, &entry);
        (entry.card().to_owned(), entry.path, answer)
    };
    let mut made: Vec<Made> = Vec::new();
    for (card, path, answer) in per_unit(vendor, found, fence, units, work) {
        unanswered.remove(&path);
        match answer {
            Answer::NotOurs => {}
            Answer::Made(one) => made.push(*one),
            Answer::NotKnown(one) => {
                found.problems.push(one.problem);
                let unseen = |class: usize| not_examined(vendor, &classes[class], Some(card.clone()));
                found.unseen.extend(one.may_be.into_iter().map(unseen));
                one.group.into_iter().for_each(|group| lacking.add(group));
                lacking.add_any(one.classes);
            }
        }
    }
    lacking.add_any(unanswered.into_values().flatten());
    assembly::add(vendor, classes, made, &lacking, found);
    // Several entries may have one file: that of their driver, or of the function that they are virtual functions of.
    let mut told = HashSet::new();
    found.problems.retain(|problem| told.insert((problem.path.clone(), problem.error.clone(), problem.device.clone())));
}

/// That devices of a class were not looked at: those of a card, or all. Other classes are not concerned; classes of another
/// vendor are its own code.
fn not_examined(vendor: &'static str, class: &DeviceClass, card: Option<String>) -> NotExamined {
    let unseen = NotExamined::new(vendor, card);
    if vendor == VENDOR { unseen.of_class(class.name.clone()) } else { unseen }
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
