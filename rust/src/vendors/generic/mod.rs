//! Devices that the config names by path or USB id, as generic-device-plugin does: the same config, the same ids.

mod edits;
mod glob;
mod id;
mod options;
mod paths;
mod usb_groups;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use crate::bus::numa::{Near, Nears};
use crate::bus::usb;
use crate::device::{Device, Found, NotExamined, Platform, Problem};
use crate::edits::{Edits, Way, cdi_name};
use crate::fence::{FULL, Fence, Outcome};
use crate::health::finding::Finding;
use crate::health::sources::probe;
use crate::host::Host;
use crate::host::attribute::AttributeError;
use crate::host::mounts::Mounts;
use crate::host::sight::Sight;
use crate::order::natural;
use crate::vendors::Vendor;
pub use options::*;

/// The word in `vendor` of JSON, metrics and problems.
pub(super) const VENDOR: &str = "generic";

/// The devices that the config's `generic` asks for.
#[derive(Debug)]
pub struct Generic {
    groups: Vec<Arc<Group>>,
}

/// One group of one resource.
#[derive(Debug)]
struct Group {
    resource_name: String,
    /// Its place among the groups of its resource.
    index: usize,
    /// Resource and place: what is probed as one.
    card: String,
    options: GenericGroup,
}

/// What one fenced look finds of its groups.
#[derive(Debug, Default)]
struct Seen {
    devices: Vec<Device>,
    problems: Vec<Problem>,
    /// A request that nothing on the host matches: resource name, and a pattern or USB id.
    unmatched: Vec<(String, String)>,
    /// Something could not be looked at that another time can: devices not found may be there.
    is_partial: bool,
    /// What sysfs has said already of the way up from a device.
    nears: Nears,
}

impl Generic {
    /// Devices of these resources.
    #[must_use]
    pub fn new(resources: Vec<GenericDevice>) -> Self {
        let mut places = HashMap::new();
        let mut groups = Vec::new();
        for resource in resources {
            let place: &mut usize = places.entry(resource.name.clone()).or_default();
            for options in resource.groups {
                groups.push(Arc::new(Group::new(&resource.name, *place, options)));
                *place += 1;
            }
        }
        Self { groups }
    }

    /// What is looked at as one: a group of paths each, and the USB buses once for all groups that ask for sticks.
    fn looks(&self) -> Vec<(String, Vec<Arc<Group>>)> {
        let (by_usb, by_path): (Vec<_>, Vec<_>) =
            self.groups.iter().cloned().partition(|group| !group.options.usb.is_empty());
        let looks = by_path.into_iter().map(|group| (group.card.clone(), vec![group]));
        looks.chain((!by_usb.is_empty()).then(|| ("usb".to_owned(), by_usb))).collect()
    }
}

impl Vendor for Generic {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let looks = self.looks();
        let behind_fence = host.clone();
        let work = move |(_, groups): (String, Vec<Arc<Group>>)| look(&behind_fence, &groups);
        let outcomes = fence.each(looks.clone(), |(key, _)| key.clone(), work);
        let mut found = Found::default();
        let mut unmatched = Vec::new();
        for ((_, groups), outcome) in looks.iter().zip(outcomes) {
            match outcome {
                Outcome::Done(seen) => unmatched.extend(take_in(seen, groups, &mut found)),
                Outcome::Overdue => {
                    let error = "does not answer: a file system hangs; look for blocked tasks in the kernel log";
                    leave_out(groups, error, Some(&probe::timeout(fence.deadline(), "")), &mut found);
                }
                Outcome::NotStarted => leave_out(groups, FULL, None, &mut found),
                Outcome::Panicked(message) => {
                    leave_out(groups, &format!("defect in the scan: {message}"), None, &mut found);
                }
            }
        }
        found.problems.extend(without_devices(unmatched, &found.devices));
        let problems = drop_collisions(&mut found.devices);
        found.problems.extend(problems);
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn sight(&self, host: &Host, mounts: &Mounts) -> Option<Sight> {
        if self.groups.iter().any(|group| !group.options.usb.is_empty()) {
            return None;
        }
        let mut sight = Sight::default();
        let paths = self.groups.iter().flat_map(|group| &group.options.paths).enumerate();
        for (question, options) in paths {
            glob::glimpse(host, mounts, question, &options.path, &mut sight).ok()?;
        }
        Some(sight)
    }

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, _resource_name: &str) -> Edits {
        let group = self.groups.iter().find(|group| group.card == device.card);
        let edits = group.map(|group| edits::edits(device, &group.options)).unwrap_or_default();
        edits.given(way, || cdi_name(device))
    }

    fn watched_directories(&self, host: &Host) -> Vec<PathBuf> {
        let paths = self.groups.iter().flat_map(|group| &group.options.paths);
        let of_paths = paths.map(|options| paths::watched_directory(host, options));
        let has_usb = self.groups.iter().any(|group| !group.options.usb.is_empty());
        of_paths.chain(has_usb.then(|| usb_groups::watched_directories(host)).into_iter().flatten()).collect()
    }
}

impl Group {
    fn new(resource_name: &str, index: usize, options: GenericGroup) -> Self {
        let card = format!("{resource_name} group {index}");
        Self { resource_name: resource_name.to_owned(), index, card, options }
    }

    /// The part of a device that follows from its group and the host paths of its members, in order.
    fn device(&self, instance: u32, paths: &[&str]) -> Device {
        let mut device = Device {
            vendor: VENDOR.into(),
            card: self.card.clone(),
            id: id::of(instance, paths),
            resource_name: Some(self.resource_name.clone()),
            ..Device::default()
        };
        device.note("path", paths.join(","), "");
        device.note("group", self.index as u64, "");
        device
    }

    fn unseen(&self, finding: Option<Finding>) -> NotExamined {
        NotExamined { vendor: VENDOR, card: Some(self.card.clone()), finding }
    }
}

impl Seen {
    /// Where the hardware behind an entry of /sys/dev/* or /sys/bus/*/devices is.
    fn near(&mut self, host: &Host, directory: &str, link: &str) -> Option<Near> {
        self.nears.of(host, &host.sys(directory), link).unwrap_or_else(|error| {
            self.blame(host, &error);
            None
        })
    }

    fn blame(&mut self, host: &Host, error: &AttributeError) {
        self.problems.push(Problem::new(VENDOR, host.own_path(&error.path), &error.cause));
    }
}

fn look(host: &Host, groups: &[Arc<Group>]) -> Seen {
    let mut seen = Seen::default();
    let needs_usb = groups.iter().any(|group| !group.options.usb.is_empty());
    let bus = if needs_usb { usb::read(host) } else { Ok(usb::Bus::default()) };
    let bus = bus.unwrap_or_else(|error| {
        seen.is_partial = true;
        usb::Bus { devices: Vec::new(), errors: vec![error] }
    });
    for error in &bus.errors {
        seen.blame(host, error);
    }
    for group in groups {
        usb_groups::add(host, group, &bus.devices, &mut seen);
        paths::add(host, group, &mut seen);
    }
    seen
}

/// Returns the requests that nothing matched.
fn take_in(seen: Seen, groups: &[Arc<Group>], found: &mut Found) -> Vec<(String, String)> {
    found.devices.extend(seen.devices.into_iter().map(Arc::new));
    found.problems.extend(seen.problems);
    if seen.is_partial {
        found.unseen.extend(groups.iter().map(|group| group.unseen(None)));
    }
    seen.unmatched
}

/// A problem for each resource without any device because nothing matches: it would not be visible otherwise.
fn without_devices(unmatched: Vec<(String, String)>, devices: &[Arc<Device>]) -> Vec<Problem> {
    let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (resource_name, what) in unmatched {
        let all = wanted.entry(resource_name).or_default();
        if !all.contains(&what) {
            all.push(what);
        }
    }
    let has_device = |name: &String| devices.iter().any(|device| device.resource_name.as_ref() == Some(name));
    let lacking = wanted.into_iter().filter(|(name, _)| !has_device(name));
    let problem = |(name, what): (String, Vec<String>)| {
        Problem::new(VENDOR, what.join(","), format!("no device matches; {name} is not advertised"))
    };
    lacking.map(problem).collect()
}

/// The devices of these groups stay as they were last seen.
fn leave_out(groups: &[Arc<Group>], error: &str, finding: Option<&Finding>, found: &mut Found) {
    for group in groups {
        found.problems.push(Problem::new(VENDOR, &group.card, error));
        found.unseen.push(group.unseen(finding.cloned()));
    }
}

/// Adds what is known of where the device's members are.
fn place<'a>(host: &Host, device: &mut Device, nears: impl Iterator<Item = &'a Near>) {
    for near in nears {
        device.numa_nodes.push(near.node);
        device.numa_source = host.own_path(&near.source).display().to_string();
    }
    device.numa_nodes.sort_unstable();
    device.numa_nodes.dedup();
}

/// Keeps the first device of each id in a resource: the id is derived from the paths alone, and the kubelet must not see one
/// twice. Two resources may have the same paths, as while a cluster moves from one name to another.
fn drop_collisions(devices: &mut Vec<Arc<Device>>) -> Vec<Problem> {
    let mut owners = HashMap::new();
    let mut problems: Vec<Problem> = Vec::new();
    devices.retain(|device| {
        let key = (device.resource_name.clone(), device.id.clone());
        let Some(owner) = owners.get(&key) else {
            owners.insert(key, device.card.clone());
            return true;
        };
        let path = device.text("path").unwrap_or_default();
        let error = format!("left out of {}: the same paths, and so the same id, are in {owner}", device.card);
        if problems.last().is_none_or(|last| last.error != error) {
            problems.push(Problem::new(VENDOR, path, error).of(&device.id));
        }
        false
    });
    problems
}

#[cfg(test)]
mod tests;
