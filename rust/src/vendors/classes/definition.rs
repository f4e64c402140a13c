//! What a class says: as the settings have it, checked and parsed. The meaning of each key for users: `docs/classes.md`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::template::{NamePattern, Template, is_fact_name};
use crate::bus::pci;
use crate::fact_kinds::{DECLARED, FactKind};
use crate::host::attribute::hexadecimal;
use crate::vendors::gpus::IOMMU_GROUP;

/// Facts that every device of a class has or may have, beside those of its PCI function.
pub(super) const CLASS: &str = "class";
pub(super) const NAME: &str = "name";
/// Places of templates that are no facts: the kernel's node below /dev, its number, and the number of a share.
pub(super) const NODE: &str = "node";
pub(super) const NUMBER: &str = "number";
pub(super) const SHARE: &str = "share";

/// Attributes that a USB device has as long as it is plugged in.
const STEADY: [&str; 3] = ["idVendor", "idProduct", "serial"];

/// The most shares of a device.
const MOST_SHARES: u32 = 10_000;

/// One class of `classes`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Described")]
pub struct DeviceClass {
    pub(super) name: String,
    pub(super) find: Find,
    pub(super) function: Option<Template>,
    pub(super) facts: Vec<FactRule>,
    pub(super) nodes: Vec<NodeRule>,
    pub(super) permissions: String,
    pub(super) group: Option<String>,
    pub(super) health: Vec<HealthRule>,
    pub(super) resource: Template,
    pub(super) id: Template,
    pub(super) shares: u32,
    pub(super) env: BTreeMap<String, Template>,
    pub(super) is_for_machines: bool,
    /// The facts of `facts` without which there is no device.
    pub(super) needed: BTreeSet<String>,
}

/// Where the devices are.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Find {
    pub(super) within: Within,
    pub(super) name: Option<NamePattern>,
    /// Drivers of the PCI function; any if empty.
    pub(super) drivers: Vec<String>,
    /// `vendor` of the PCI function; any if empty.
    pub(super) makers: Vec<u64>,
    /// `device` of the PCI function; any if empty.
    pub(super) models: Vec<u64>,
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) above: Option<Above>,
}

/// The directory with an entry for each device.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Within {
    /// A directory below /sys/class.
    Class(String),
    /// A directory below /sys/bus.
    Bus(String),
}

impl Within {
    /// The directory of the kind, without the host root: below /sys/class the kernel counts names, on a bus they are places.
    pub(super) fn path(&self) -> String {
        match self {
            Self::Class(class) => format!("/sys/class/{class}"),
            Self::Bus(bus) => format!("/sys/bus/{bus}"),
        }
    }
}

/// The nearest directory above an entry that has such a name and such attributes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Above {
    pub(super) name: Option<NamePattern>,
    pub(super) attributes: BTreeMap<String, String>,
}

/// A fact and how it is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FactRule {
    pub(super) name: String,
    pub(super) way: Known,
    /// A line of the text: the one that begins with this word.
    pub(super) key: Option<String>,
    pub(super) map: BTreeMap<String, String>,
    pub(super) otherwise: Option<String>,
    pub(super) kind: FactKind,
    pub(super) is_optional: bool,
}

/// How a fact is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Known {
    /// The text of a file below the entry.
    Read(Template),
    /// The text of a file below the directory that `find.above` has found.
    Above(String),
    /// The last name of a link's target.
    Link(Template),
    /// The first name below the entry that fits: directory, and name with `*`.
    Entry(String, String),
    /// This text.
    Is(String),
}

/// A node of the device.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeRule {
    /// Below /dev.
    pub(super) path: Template,
    pub(super) is_optional: bool,
    pub(super) is_common: bool,
}

/// A fault that a file shows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HealthRule {
    pub(super) read: Template,
    pub(super) fault: Fault,
    pub(super) reason: String,
}

/// What a file shows if there is a fault.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fault {
    Equals(String),
    Absent,
    Beyond(i64),
}

/// A class as the settings have it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    name: String,
    find: DescribedFind,
    function: Option<String>,
    facts: Vec<DescribedFact>,
    nodes: Vec<DescribedNode>,
    permissions: String,
    group: Option<String>,
    health: Vec<DescribedHealth>,
    resource: String,
    id: String,
    shares: u32,
    env: BTreeMap<String, String>,
    vm: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedFind {
    class: Option<String>,
    bus: Option<String>,
    name: Option<String>,
    driver: Vec<String>,
    vendor: Vec<String>,
    device: Vec<String>,
    attr: BTreeMap<String, String>,
    above: Option<DescribedAbove>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedAbove {
    name: Option<String>,
    attr: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedFact {
    name: String,
    read: Option<String>,
    above: Option<String>,
    link: Option<String>,
    entry: Option<String>,
    is: Option<String>,
    key: Option<String>,
    map: BTreeMap<String, String>,
    otherwise: Option<String>,
    r#type: String,
    optional: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedNode {
    path: String,
    optional: bool,
    common: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribedHealth {
    read: String,
    equals: Option<String>,
    absent: bool,
    beyond: Option<i64>,
    reason: String,
}

impl TryFrom<Described> for DeviceClass {
    type Error = String;

    fn try_from(described: Described) -> Result<Self, String> {
        let name = described.name.clone();
        parsed(described).map_err(|error| format!("class `{name}`: {error}"))
    }
}

fn parsed(described: Described) -> Result<DeviceClass, String> {
    let find = Find::parsed(described.find).map_err(|error| format!("find: {error}"))?;
    let function = described.function.as_deref().map(Template::parse).transpose()?;
    let facts: Vec<FactRule> = described.facts.into_iter().map(FactRule::parsed).collect::<Result<_, _>>()?;
    let nodes = described.nodes.iter().map(NodeRule::parsed).collect::<Result<Vec<_>, String>>()?;
    let health = described.health.into_iter().map(HealthRule::parsed).collect::<Result<_, _>>()?;
    let env = described.env.into_iter().map(|(name, value)| Ok((name, Template::parse(&value)?)));
    let env = env.collect::<Result<_, String>>()?;
    let mut class = DeviceClass {
        name: described.name,
        find,
        function,
        facts,
        nodes,
        permissions: described.permissions,
        group: described.group.or_else(|| described.vm.then(|| IOMMU_GROUP.to_owned())),
        health,
        resource: Template::parse(&described.resource)?,
        id: Template::parse(&described.id)?,
        shares: described.shares,
        env,
        is_for_machines: described.vm,
        needed: BTreeSet::new(),
    };
    class.check()?;
    class.needed = class.needed()?;
    Ok(class)
}

impl DeviceClass {
    /// The name of the class.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is meant for an accelerator with these ids, or without known ones, whether or not it makes a device of it.
    #[must_use]
    pub fn is_for(&self, id: Option<(u16, u16)>, driver: Option<&str>, is_in_accel: bool) -> bool {
        let Find { within, drivers, makers, models, .. } = &self.find;
        let is_named = !drivers.is_empty() && driver.is_some_and(|driver| drivers.iter().any(|known| known == driver));
        let is_of_accel = is_in_accel && drivers.is_empty() && *within == Within::Class("accel".to_owned());
        let is_of_maker = |maker: u16| makers.is_empty() || makers.contains(&maker.into());
        match id {
            Some((maker, model)) if models.contains(&model.into()) => is_of_maker(maker),
            Some((maker, _)) => models.is_empty() && is_of_maker(maker) && (is_named || is_of_accel),
            None => models.is_empty() && (is_named || is_of_accel),
        }
    }

    /// Whether an entry stops being a device when a file's text changes, of which no event tells.
    pub(super) fn asks_for_attributes(&self) -> bool {
        let above = self.find.above.iter().flat_map(|above| above.attributes.keys());
        self.find.attributes.keys().chain(above).any(|name| !STEADY.contains(&name.as_str()))
    }

    /// Whether each place is filled by something, and each name has one meaning.
    fn check(&self) -> Result<(), String> {
        let mut known: BTreeSet<&str> = BTreeSet::from([CLASS, NAME, NODE, NUMBER]);
        let parts: BTreeSet<&str> = self.find.parts().collect();
        for part in parts {
            declare(&mut known, part, None)?;
        }
        for fact in &self.facts {
            if matches!(fact.way, Known::Above(_)) && self.find.above.is_none() {
                return Err(format!("fact `{}`: `above` reads below the directory that `find.above` finds", fact.name));
            }
            if let Known::Read(template) | Known::Link(template) = &fact.way {
                filled_by(&format!("fact `{}`", fact.name), template, &known)?;
            }
            declare(&mut known, &fact.name, Some(fact.kind))?;
        }
        if let Some(function) = &self.function {
            filled_by("function", function, &known)?;
        }
        known.extend(pci::FACTS);
        if self.is_for_machines {
            known.insert(IOMMU_GROUP);
        }
        if let Some(group) = self.group.as_deref().filter(|group| !known.contains(group)) {
            return Err(format!("group: no fact is called `{group}`"));
        }
        let read = self.health.iter().map(|rule| ("health", &rule.read));
        let env = self.env.values().map(|value| ("env", value));
        let nodes = self.nodes.iter().map(|rule| ("nodes", &rule.path));
        for (key, template) in nodes.chain(read).chain(env).chain([("resource", &self.resource)]) {
            filled_by(key, template, &known)?;
        }
        known.insert(SHARE);
        filled_by("id", &self.id, &known)?;
        if self.shares == 0 {
            return Err("shares: 0 is less than 1".to_owned());
        }
        if self.shares > MOST_SHARES {
            return Err(format!("shares: {} is more than {MOST_SHARES}", self.shares));
        }
        if self.shares > 1 && !self.id.places().any(|place| place == SHARE) {
            return Err("id: `{share}` is missing, by which the shares of a device differ".to_owned());
        }
        if self.permissions.is_empty() || !self.permissions.bytes().all(|letter| b"rwm".contains(&letter)) {
            return Err(format!("permissions: `{}` is not made of r, w and m", self.permissions));
        }
        Ok(())
    }

    /// The facts that the resource, the id, the nodes and the group need, and those that these are read by.
    fn needed(&self) -> Result<BTreeSet<String>, String> {
        let of_nodes = self.nodes.iter().filter(|rule| !rule.is_optional).flat_map(|rule| rule.path.places());
        let places = self.resource.places().chain(self.id.places()).chain(of_nodes).chain(self.group.as_deref());
        let mut needed: BTreeSet<String> = places.map(str::to_owned).collect();
        // A fact is read by earlier ones.
        for fact in self.facts.iter().rev() {
            if !needed.contains(&fact.name) {
                continue;
            }
            if fact.is_optional {
                return Err(format!("fact `{}` is optional, but resource, id, nodes or group need it", fact.name));
            }
            if let Known::Read(template) | Known::Link(template) = &fact.way {
                needed.extend(template.places().map(str::to_owned));
            }
        }
        Ok(needed)
    }
}

/// Adds the name of a fact; refuses one that means something else for other devices.
fn declare<'n>(known: &mut BTreeSet<&'n str>, name: &'n str, kind: Option<FactKind>) -> Result<(), String> {
    if known.contains(name) || [SHARE, IOMMU_GROUP].contains(&name) || pci::FACTS.contains(&name) {
        return Err(format!("fact `{name}`: the name is taken"));
    }
    if let (Some(own), Some(of_all)) = (kind, kind_declared(name)) {
        if own != of_all {
            return Err(format!("fact `{name}`: type is {}, for all devices {}", own.as_str(), of_all.as_str()));
        }
    }
    known.insert(name);
    Ok(())
}

/// The kind of a fact that other devices have, too.
pub(super) fn kind_declared(name: &str) -> Option<FactKind> {
    let place = DECLARED.binary_search_by(|fact| fact.name.cmp(name)).ok()?;
    Some(DECLARED[place].kind)
}

fn filled_by(key: &str, template: &Template, known: &BTreeSet<&str>) -> Result<(), String> {
    match template.places().find(|place| !known.contains(place)) {
        Some(place) => Err(format!("{key}: no fact is called `{place}`")),
        None => Ok(()),
    }
}

impl Find {
    fn parsed(described: DescribedFind) -> Result<Self, String> {
        let within = match (described.class, described.bus) {
            (Some(class), None) => Within::Class(class),
            (None, Some(bus)) => Within::Bus(bus),
            _ => return Err("either `class` or `bus`".to_owned()),
        };
        let (Within::Class(directory) | Within::Bus(directory)) = &within;
        if directory.is_empty() || directory.starts_with('.') || directory.contains('/') {
            return Err(format!("`{directory}` is not the name of a directory"));
        }
        let ids = |texts: Vec<String>| {
            let id = |text: String| {
                hexadecimal(&text).ok_or_else(|| format!("`{text}` is not the id of a PCI function: 0x8086"))
            };
            texts.into_iter().map(id).collect::<Result<Vec<_>, _>>()
        };
        let above = |above: DescribedAbove| {
            let name = above.name.as_deref().map(NamePattern::parse).transpose()?;
            if name.is_none() && above.attr.is_empty() {
                return Err("above: `name` or `attr`".to_owned());
            }
            Ok(Above { name, attributes: files(above.attr)? })
        };
        Ok(Self {
            within,
            name: described.name.as_deref().map(NamePattern::parse).transpose()?,
            drivers: drivers(described.driver)?,
            makers: ids(described.vendor)?,
            models: ids(described.device)?,
            attributes: files(described.attr)?,
            above: described.above.map(above).transpose()?,
        })
    }

    /// The facts that names consist of.
    pub(super) fn parts(&self) -> impl Iterator<Item = &str> {
        let above = self.above.as_ref().and_then(|above| above.name.as_ref());
        self.name.iter().chain(above).flat_map(NamePattern::places)
    }

    /// Whether the PCI function matters.
    pub(super) fn is_of_function(&self) -> bool {
        !(self.drivers.is_empty() && self.makers.is_empty() && self.models.is_empty())
    }
}

fn drivers(names: Vec<String>) -> Result<Vec<String>, String> {
    match names.iter().find(|name| name.is_empty() || name.starts_with('.') || name.contains('/')) {
        Some(name) => Err(format!("driver: `{name}` is not the name of a driver")),
        None => Ok(names),
    }
}

fn files(attributes: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    attributes.keys().try_for_each(|file| is_below(file))?;
    Ok(attributes)
}

/// Refuses a path that is not below another: `mode`, `physfn/qat/cfg_services`.
fn is_below(path: &str) -> Result<(), String> {
    if path.split('/').any(|name| name.is_empty() || name == "." || name == "..") {
        return Err(format!("`{path}` is not a path below the entry"));
    }
    Ok(())
}

/// A template of a path below the entry, or of one in /sys or /proc/driver.
fn readable(path: &str) -> Result<Template, String> {
    let rest = ["/sys/", "/proc/driver/"].into_iter().find_map(|root| path.strip_prefix(root));
    is_below(rest.unwrap_or(path))?;
    Template::parse(path)
}

impl FactRule {
    fn parsed(described: DescribedFact) -> Result<Self, String> {
        let name = described.name.clone();
        Self::checked(described).map_err(|error| format!("fact `{name}`: {error}"))
    }

    fn checked(described: DescribedFact) -> Result<Self, String> {
        if !is_fact_name(&described.name) {
            return Err("a name is made of lower case letters, digits and `_`".to_owned());
        }
        let DescribedFact { read, above, link, entry, is, .. } = described;
        let way = match (read, above, link, entry, is) {
            (Some(path), None, None, None, None) => Known::Read(readable(&path)?),
            (None, Some(path), None, None, None) => is_below(&path).map(|()| Known::Above(path))?,
            (None, None, Some(path), None, None) => Known::Link(readable(&path)?),
            (None, None, None, Some(path), None) => {
                is_below(&path)?;
                let (directory, name) = path.rsplit_once('/').unwrap_or(("", &path));
                Known::Entry(directory.to_owned(), name.to_owned())
            }
            (None, None, None, None, Some(text)) => Known::Is(text),
            _ => return Err("one of `read`, `above`, `link`, `entry` and `is`".to_owned()),
        };
        let kind = FactKind::named(&described.r#type)
            .ok_or_else(|| format!("type: `{}` is none of text, number, boolean, version", described.r#type))?;
        Ok(Self {
            name: described.name,
            way,
            key: described.key,
            map: described.map,
            otherwise: described.otherwise,
            kind,
            is_optional: described.optional,
        })
    }
}

impl NodeRule {
    fn parsed(described: &DescribedNode) -> Result<Self, String> {
        let path = described.path.strip_prefix("/dev/").unwrap_or(&described.path);
        is_below(path).map_err(|_| format!("nodes: `{}` is not a path below /dev", described.path))?;
        Ok(Self { path: Template::parse(path)?, is_optional: described.optional, is_common: described.common })
    }
}

impl HealthRule {
    fn parsed(described: DescribedHealth) -> Result<Self, String> {
        let fault = match (described.equals, described.absent, described.beyond) {
            (Some(text), false, None) => Fault::Equals(text),
            (None, true, None) => Fault::Absent,
            (None, false, Some(number)) => Fault::Beyond(number),
            _ => return Err("health: one of `equals`, `absent` and `beyond`".to_owned()),
        };
        let is_word = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
        if described.reason.is_empty() || !described.reason.bytes().all(is_word) {
            return Err(format!(
                "health: reason `{}` is not made of lower case letters, digits and `-`",
                described.reason
            ));
        }
        Ok(Self {
            read: readable(&described.read).map_err(|error| format!("health: {error}"))?,
            fault,
            reason: described.reason,
        })
    }
}
