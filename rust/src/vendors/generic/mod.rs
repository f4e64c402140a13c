//! Devices that the config lists by path or USB id, as in generic-device-plugin. The configuration keys and ids are the
//! same, so that pods keep their devices when a node moves from generic-device-plugin to devherd.

mod glob;
mod paths;
mod usb_groups;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde::Deserialize;
use sha1::{Digest, Sha1};

use super::Vendor;
use crate::bus::numa::{NumaNode, NumaNodes};
use crate::bus::usb;
use crate::device::{Device, Found, HostPath, NotExamined, Platform, Problem};
use crate::edits::{Edits, Mount, Node, Way, cdi_name};
use crate::fence::{Fence, Outcome};
use crate::finding::Finding;
use crate::health::sources::scan;
use crate::host::Host;
use crate::host::attribute::AttributeError;
use crate::order::natural;

/// The value of `vendor` in JSON, metrics and problems.
pub(crate) const VENDOR: &str = "generic";

/// Facts that tell where a device is plugged in: names that stay when the kernel counts its nodes anew.
const USB_PORT: &str = "usb_port";
const USB_INTERFACE: &str = "usb_interface";
const PCI_FUNCTION: &str = "pci_function";

/// The devices that the section `generic` of the config requests.
#[derive(Debug)]
pub struct Generic {
    groups: Vec<Arc<Group>>,
}

/// One group of one resource.
#[derive(Debug)]
struct Group {
    resource_name: String,
    /// The group's index among the groups of its resource.
    index: usize,
    /// Resource and index: the unit that is examined as one.
    card: String,
    options: GenericGroup,
}

/// The result of one look, which runs behind the fence.
#[derive(Debug, Default)]
struct Seen {
    devices: Vec<Arc<Device>>,
    problems: Vec<Problem>,
    /// Requests that nothing on the host matches: resource name, and a pattern or USB id.
    unmatched: Vec<(String, String)>,
    /// Whether another look may examine something that this one could not: missing devices may exist.
    is_partial: bool,
    /// The NUMA nodes that were read so far.
    numa_nodes: NumaNodes,
}

impl Generic {
    /// The devices of these resources.
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

    /// The units that are examined as one: each group of paths, and the USB buses once for all groups with USB ids.
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
                    leave_out(groups, error, Some(&scan::probe_timeout(fence.deadline(), "")), &mut found);
                }
                Outcome::NotStarted(why) => leave_out(groups, &why, None, &mut found),
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

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, _resource_name: &str) -> Edits {
        let group = self.groups.iter().find(|group| group.card == device.card);
        let edits = group.map(|group| container_edits(device, &group.options)).unwrap_or_default();
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

    /// The part of a device that depends only on its group and the host paths of its members, in order.
    fn device(&self, paths: &[&str]) -> Device {
        let device = Device {
            vendor: VENDOR.into(),
            card: self.card.clone(),
            resource_name: Some(self.resource_name.clone()),
            ..Device::default()
        };
        let mut device = device.shared_as((0..self.options.count).map(|instance| id_of(instance, paths)));
        device.note("path", paths.join(","), "");
        device.note("group", self.index as u64, "");
        device
    }

    fn unseen(&self, finding: Option<Finding>) -> NotExamined {
        NotExamined { vendor: VENDOR, class: None, card: Some(self.card.clone()), finding }
    }
}

impl Seen {
    /// The NUMA node of the hardware behind an entry of /sys/dev/* or /sys/bus/*/devices.
    fn near(&mut self, host: &Host, directory: &str, link: &str) -> Option<NumaNode> {
        self.numa_nodes.of(host, &host.sys(directory), link).unwrap_or_else(|error| {
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

/// Adds the result of a look to `found`; returns the requests without a match.
fn take_in(seen: Seen, groups: &[Arc<Group>], found: &mut Found) -> Vec<(String, String)> {
    found.devices.extend(seen.devices);
    found.problems.extend(seen.problems);
    if seen.is_partial {
        found.unseen.extend(groups.iter().map(|group| group.unseen(None)));
    }
    seen.unmatched
}

/// A problem for each resource without a device: nothing on the host matches it, and without the problem nobody would
/// notice.
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

/// Keeps the devices of these groups as they were last seen.
fn leave_out(groups: &[Arc<Group>], error: &str, finding: Option<&Finding>, found: &mut Found) {
    for group in groups {
        found.problems.push(Problem::new(VENDOR, &group.card, error));
        found.unseen.push(group.unseen(finding.cloned()));
    }
}

/// Adds the NUMA nodes of the device's members.
fn place<'a>(host: &Host, device: &mut Device, numa_nodes: impl Iterator<Item = &'a NumaNode>) {
    for near in numa_nodes {
        device.numa_nodes.push(near.node);
        device.numa_source = host.own_path(&near.source).display().to_string();
    }
    device.numa_nodes.sort_unstable();
    device.numa_nodes.dedup();
}

/// Keeps each id of a resource for the first device that has it: an id is derived from the paths alone, and the kubelet
/// must not see the same id twice. Two resources may have the same paths, for example while a cluster changes a
/// resource's name.
fn drop_collisions(devices: &mut Vec<Arc<Device>>) -> Vec<Problem> {
    let mut owners: HashMap<_, &str> = HashMap::with_capacity(devices.len());
    let mut problems: Vec<Problem> = Vec::new();
    let mut kept = Vec::with_capacity(devices.len());
    for device in &*devices {
        let resource_name = device.resource_name.as_deref();
        let key = |id| (resource_name, id);
        let ids = device.ids().iter().map(String::as_str);
        let (taken, free): (Vec<&str>, Vec<&str>) = ids.partition(|&id| owners.contains_key(&key(id)));
        if let Some(owner) = taken.first().and_then(|&id| owners.get(&key(id))) {
            let path = device.text("path").unwrap_or_default();
            let error = format!("left out of {}: the same paths, and so the same id, are in {owner}", device.card);
            if problems.last().is_none_or(|last| last.error != error) {
                problems.push(Problem::new(VENDOR, path, error).of(taken[0]));
            }
        }
        owners.extend(free.iter().map(|&id| (key(id), &*device.card)));
        match (taken.is_empty(), free.is_empty()) {
            (true, _) => kept.push(Arc::clone(device)),
            (false, true) => {}
            (false, false) => kept.push(Arc::new(Device::clone(device).shared_as(free.into_iter().map(str::to_owned)))),
        }
    }
    *devices = kept;
    problems
}

/// One device of generic-device-plugin's config: alternatives under one resource name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenericDevice {
    /// Full resource name.
    pub name: String,
    /// Alternatives, all advertised.
    pub groups: Vec<GenericGroup>,
}

/// Paths or USB devices that go into a container together.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenericGroup {
    /// How often the group may be allocated at the same time.
    pub count: u32,
    /// Members by path.
    pub paths: Vec<GenericPath>,
    /// Members by USB id.
    pub usb: Vec<GenericUsb>,
    /// Whether each USB device is a device of its own.
    pub separate: bool,
}

/// A member by path.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GenericPath {
    /// Glob pattern for host paths.
    pub path: String,
    /// Path in the container. If it ends with a slash, the host path's base name is appended. If empty, the host path
    /// is used.
    pub mount_path: String,
    /// Whether the container gets a device node or a bind mount.
    #[serde(rename = "type")]
    pub kind: GenericKind,
    /// Permissions of a device node.
    pub permissions: String,
    /// Whether a mount is read-only.
    pub read_only: bool,
    /// How often each match may be used within the group.
    pub limit: u32,
    /// Whether the group still exists if nothing matches this member.
    pub optional: bool,
}

/// How the container gets a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum GenericKind {
    /// As a device node.
    Device,
    /// As a bind mount.
    Mount,
}

/// A member by USB id; both ids have four hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenericUsb {
    /// `idVendor`.
    pub vendor: String,
    /// `idProduct`.
    pub product: String,
    /// `serial`; any serial matches if absent or empty.
    pub serial: Option<String>,
}

/// The edits of a device: its members, with the paths and permissions of its group. USB devices get their own path with
/// `rw`, as in generic-device-plugin.
fn container_edits(device: &Device, group: &GenericGroup) -> Edits {
    let mut edits = Edits::default();
    let mut members = group.paths.iter();
    for path in &device.paths {
        if path.role.is_empty() {
            edits.nodes.push(Node::same(&path.path, "rw"));
        } else if let Some(member) = members.find(|member| member.path == path.role) {
            give(&mut edits, member, path);
        }
    }
    edits
}

fn give(edits: &mut Edits, member: &GenericPath, path: &HostPath) {
    let (host_path, container_path) = (path.path.clone(), container_path(&member.mount_path, &path.path));
    match member.kind {
        GenericKind::Device => {
            edits.nodes.push(Node { host_path, container_path, permissions: member.permissions.clone(), access: None });
        }
        GenericKind::Mount => {
            edits.mounts.push(Mount { host_path, container_path, read_only: member.read_only, ..Mount::default() });
        }
    }
}

fn container_path(mount_path: &str, host_path: &str) -> String {
    match mount_path {
        "" => host_path.to_owned(),
        directory if directory.ends_with('/') => {
            format!("{directory}{}", host_path.trim_end_matches('/').rsplit('/').next().unwrap_or_default())
        }
        path => path.to_owned(),
    }
}

/// The id of one instance of a group: SHA-1 of its number and the host paths of its members, in order.
///
/// The parts are joined without a separator, so different paths can have the same id (`/a`, `/b` and `/a/b`).
fn id_of(instance: u32, paths: &[&str]) -> String {
    let mut hash = Sha1::new_with_prefix(instance.to_string());
    for path in paths {
        hash.update(path);
    }
    HEXLOWER.encode(&hash.finalize())
}

#[cfg(test)]
mod tests;
