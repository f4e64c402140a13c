//! Entries that were looked at ─► devices: those of one group together, no node and no id twice.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use super::definition::{CLASS, DeviceClass, NAME};
use super::inspection::{Made, OwnNode};
use super::not_examined;
use crate::device::{Device, Found, Problem, Value};

/// The fact with the address of the PCI function.
const PCI_ADDRESS: &str = "pci_address";

/// A group of a class: its place in the list, and the value of its fact.
type Group = (usize, String);

/// Groups of which an entry is lacking.
#[derive(Debug, Default)]
pub(super) struct Lacking {
    groups: HashSet<Group>,
    /// Classes with an entry whose group is not known: it may be of any.
    classes: HashSet<usize>,
}

impl Lacking {
    /// Adds an entry of a known group.
    pub(super) fn add(&mut self, group: Group) {
        self.groups.insert(group);
    }

    /// Adds an entry that may be of any group of these classes.
    pub(super) fn add_any(&mut self, classes: impl IntoIterator<Item = usize>) {
        self.classes.extend(classes);
    }

    fn has(&self, group: &Group) -> bool {
        self.classes.contains(&group.0) || self.groups.contains(group)
    }
}

/// Adds the devices that these entries are. Where two would have one node or one id, the first in the order of the classes
/// has it. A group of which an entry is `lacking` stays as it was: half a device is none.
pub(super) fn add(
    vendor: &'static str,
    classes: &[DeviceClass],
    mut made: Vec<Made>,
    lacking: &Lacking,
    found: &mut Found,
) {
    made.sort_by_key(|one| one.class);
    let mut groups: HashMap<Group, usize> = HashMap::new();
    let mut whole: Vec<Whole> = Vec::with_capacity(made.len());
    for mut one in made {
        for &other in &one.also {
            let what =
                format!("also fits class `{}`; class `{}` is before it", classes[other].name, classes[one.class].name);
            found.notices.push(Problem::new(vendor, &one.path, what).of(&one.device.id));
        }
        let group = one.group.take().map(|group| (one.class, group));
        if group.as_ref().is_some_and(|group| lacking.has(group)) {
            found.problems.append(&mut one.problems);
            found.unseen.push(not_examined(vendor, &classes[one.class], Some(one.device.card)));
            continue;
        }
        let place = group.map(|group| *groups.entry(group).or_insert(whole.len()));
        match place.and_then(|place| whole.get_mut(place)) {
            Some(first) => first.take(one),
            None => whole.push(Whole { device: one.device, nodes: one.nodes, path: one.path, problems: one.problems }),
        }
    }
    for one in &mut whole {
        found.problems.append(&mut one.problems);
    }
    let mut taken = Taken::default();
    for one in whole {
        match taken.refusal(&one) {
            None => taken.take(one),
            Some((path, why)) => {
                let error = format!("left out of class `{}`: {why}", class_of(&one.device));
                found.notices.push(Problem::new(vendor, path, error).of(&one.device.id));
            }
        }
    }
    found.devices.extend(taken.devices.into_iter().map(Arc::new));
}

/// A device with all its entries.
struct Whole {
    device: Device,
    nodes: Vec<OwnNode>,
    /// Its first entry, without the host root.
    path: PathBuf,
    problems: Vec<Problem>,
}

impl Whole {
    /// Adds another entry of the group. Facts are those of the first entry, but for the two that name it.
    fn take(&mut self, Made { device: other, nodes, problems, .. }: Made) {
        let own = &mut self.device;
        self.problems.extend(problems.into_iter().map(|problem| problem.of(&own.id)));
        for name in [NAME, PCI_ADDRESS] {
            let more = other.text(name);
            if let Some((fact, more)) = own.attributes.get_mut(name).zip(more) {
                let known = fact.value.to_string();
                if !known.split(',').any(|known| known == more) {
                    fact.value = Value::Text(format!("{known},{more}"));
                }
            }
        }
        for path in other.paths {
            if !own.paths.iter().any(|known| known.path == path.path) {
                own.paths.push(path);
            }
        }
        own.numa_nodes.extend(other.numa_nodes);
        own.numa_nodes.sort_unstable();
        own.numa_nodes.dedup();
        other.functions.into_iter().for_each(|function| own.belongs_to(function));
        own.readings.extend(other.readings);
        self.nodes.extend(nodes);
    }
}

/// The devices, with their nodes and ids.
#[derive(Default)]
struct Taken {
    devices: Vec<Device>,
    /// Places of devices, by node; whether it is common to several devices.
    nodes: HashMap<OsString, (usize, bool)>,
    /// Places of devices, by resource and id.
    ids: HashMap<(String, String), usize>,
    /// Places of devices, by card and id, which is how the rest of the program tells them apart.
    keys: HashMap<(String, String), usize>,
}

impl Taken {
    /// Why a device cannot be beside the others, and the path concerned.
    fn refusal(&self, one: &Whole) -> Option<(PathBuf, String)> {
        for node in &one.nodes {
            if let Some((place, _)) =
                self.nodes.get(node.end.as_os_str()).filter(|(_, is_common)| !(*is_common && node.is_common))
            {
                let owner = &self.devices[*place];
                let why = format!("{} of class `{}` has the same node", owner.id, class_of(owner));
                return Some((node.end.clone(), why));
            }
        }
        let same_id = ids(&one.device).find_map(|id| self.ids.get(&id));
        let owner = same_id.or_else(|| self.keys.get(&key(&one.device))).map(|place| &self.devices[*place]);
        owner.map(|owner| {
            let name = owner.text(NAME).unwrap_or_default();
            (one.path.clone(), format!("{name} of class `{}` has the same id, {}", class_of(owner), one.device.id))
        })
    }

    fn take(&mut self, one: Whole) {
        let place = self.devices.len();
        for node in one.nodes {
            self.nodes.insert(node.end.into_os_string(), (place, node.is_common));
        }
        self.ids.extend(ids(&one.device).map(|id| (id, place)));
        self.keys.insert(key(&one.device), place);
        self.devices.push(one.device);
    }
}

fn ids(device: &Device) -> impl Iterator<Item = (String, String)> {
    let resource = device.resource_name.clone().unwrap_or_default();
    device.ids().iter().map(move |id| (resource.clone(), id.clone()))
}

fn key(device: &Device) -> (String, String) {
    (device.card.clone(), device.id.clone())
}

fn class_of(device: &Device) -> String {
    device.text(CLASS).unwrap_or_default()
}
