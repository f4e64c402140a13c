//! Looks at one entry: which class it is of, its facts, its nodes. Runs behind the fence; every file is read once.
//!
//! Three answers are never mixed: it is not of a class; something that the device cannot be without is not known; a device,
//! maybe without a fact, which is a problem unless the class calls the fact optional.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use super::COMMON;
use super::definition::{Above, CLASS, DeviceClass, FactRule, Fault, Known, NAME, NODE, NUMBER, SHARE, kind_declared};
use super::entries::Entry;
use super::files::{Files, in_sys};
use super::template::{Parts, Template, fits, plain};
use super::values::{is_resource_name, value_as, value_of};
use crate::bus::numa::NumaNodes;
use crate::bus::pci;
use crate::bus::usb::Port;
use crate::device::{Device, HostPath, Limit, Problem, Value};
use crate::fact_kinds::FactKind;
use crate::health::sources::class_health::{is_number, of_class};
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError, device_number};
use crate::host::directory;
use crate::host::resolve::{Place, in_root, node_at};
use crate::vendors::gpus::{self, IOMMU_GROUP};

/// What an entry is.
#[derive(Debug)]
pub(super) enum Answer {
    /// Of no class here.
    NotOurs,
    /// A device of a class, maybe, that cannot be made: it stays as it was.
    NotKnown(NotKnown),
    /// A device, or a part of one.
    Made(Box<Made>),
}

/// An entry whose device cannot be made.
#[derive(Debug)]
pub(super) struct NotKnown {
    pub(super) problem: Problem,
    /// The places of the classes that it may be of.
    pub(super) may_be: Vec<usize>,
    /// The place of its class, and its group, if they are known.
    pub(super) group: Option<(usize, String)>,
    /// The places of classes of which it may be in any group.
    pub(super) classes: Vec<usize>,
}

/// A node of a device.
#[derive(Debug)]
pub(super) struct OwnNode {
    /// Where it really is, links followed, without the host root.
    pub(super) end: PathBuf,
    /// Whether several devices may have it.
    pub(super) is_common: bool,
}

/// What a class makes of an entry.
#[derive(Debug)]
pub(super) struct Made {
    /// The place of the class in the list.
    pub(super) class: usize,
    /// The entry, without the host root.
    pub(super) path: PathBuf,
    /// The places of other classes that it would be of.
    pub(super) also: Vec<usize>,
    /// Entries of one class with the same one are one device.
    pub(super) group: Option<String>,
    pub(super) device: Device,
    pub(super) nodes: Vec<OwnNode>,
    pub(super) problems: Vec<Problem>,
}

/// Why a fact or path is not known.
#[derive(Debug, Clone, PartialEq)]
struct Unknown {
    /// The file, without the host root.
    path: PathBuf,
    error: String,
    lack: Lack,
}

/// What there is in the place of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// Nothing: the hardware may be without it, and an optional fact is not missed.
    Nothing,
    /// Something else than the class expects.
    Strange,
    /// Nobody knows: it cannot be read.
    Unread,
}

/// A fact of an entry.
type Fact = Result<(Value, PathBuf), Unknown>;

/// Looks at an entry.
pub(super) fn inspect(host: &Host, vendor: &'static str, classes: &[DeviceClass], entry: &Entry) -> Answer {
    let mut files = Files::new(host);
    let mut chosen = None;
    let mut also = Vec::new();
    for (tried, (place, parts)) in entry.classes.iter().enumerate() {
        match is_of(&mut files, &classes[*place], entry, parts) {
            Ok(None) => {}
            Ok(Some(_)) if chosen.is_some() => also.push(*place),
            Ok(Some(found)) => chosen = Some((*place, found)),
            Err(_) if chosen.is_some() => {}
            Err(error) => {
                let problem = Problem::new(vendor, host.own_path(error.path), error.cause);
                let classes: Vec<_> = entry.classes[tried..].iter().map(|(place, _)| *place).collect();
                return Answer::NotKnown(NotKnown { problem, may_be: classes.clone(), group: None, classes });
            }
        }
    }
    let Some((place, (parts, above))) = chosen else { return Answer::NotOurs };
    let device = Device { vendor: vendor.into(), card: entry.card().to_owned(), ..Device::default() };
    let mut inspection = Inspection {
        host,
        class: &classes[place],
        entry,
        files,
        above,
        lacking: BTreeMap::new(),
        node: None,
        device,
        group: None,
        nodes: Vec::new(),
        unknown: Vec::new(),
    };
    let made = inspection.make(parts);
    let Inspection { device, group, nodes, unknown, .. } = inspection;
    if let Err(unknown) = made {
        // What has no such fact, or one that means nothing, is in no group.
        let is_in_none = unknown.lack != Lack::Unread
            || classes[place].group.as_deref().is_none_or(|name| pci::FACTS.contains(&name));
        let any = if group.is_some() || is_in_none { Vec::new() } else { vec![place] };
        let problem = Problem::new(vendor, unknown.path, unknown.error);
        let group = group.map(|group| (place, group));
        return Answer::NotKnown(NotKnown { problem, may_be: vec![place], group, classes: any });
    }
    let problem = |one: Unknown| Problem::new(vendor, one.path, one.error).of(&device.id);
    let problems = unknown.into_iter().map(problem).collect();
    Answer::Made(Box::new(Made {
        class: place,
        path: host.own_path(&entry.path),
        also,
        group,
        device,
        nodes,
        problems,
    }))
}

/// The parts of names, and the directory above, of an entry that is of a class.
type Found = (Parts, Option<PathBuf>);

fn is_of(
    files: &mut Files<'_>,
    class: &DeviceClass,
    entry: &Entry,
    parts: &Parts,
) -> Result<Option<Found>, AttributeError> {
    if !has(files, &entry.path, &class.find.attributes)? {
        return Ok(None);
    }
    let Some(above) = &class.find.above else { return Ok(Some((parts.clone(), None))) };
    for directory in entry.path.ancestors().skip(1) {
        // No device is above the host's /sys/devices/…
        if !files.is_device(directory) {
            return Ok(None);
        }
        if let Some(more) = fits_above(files, above, directory, parts)? {
            return Ok(Some(([parts.clone(), more].concat(), Some(directory.to_path_buf()))));
        }
    }
    Ok(None)
}

fn fits_above(
    files: &mut Files<'_>,
    above: &Above,
    directory: &Path,
    known: &Parts,
) -> Result<Option<Parts>, AttributeError> {
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let parts = above.name.as_ref().map_or(Some(Parts::new()), |pattern| pattern.parts(name, known));
    Ok(if has(files, directory, &above.attributes)? { parts } else { None })
}

/// Whether all these files have these texts; a file that is absent has none.
fn has(files: &mut Files<'_>, directory: &Path, attributes: &BTreeMap<String, String>) -> Result<bool, AttributeError> {
    for (name, text) in attributes {
        match files.read(directory, name) {
            Ok(attribute) if attribute.text() == text => {}
            Ok(_) => return Ok(false),
            Err(error) if error.is_absent() => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// The kernel's node of an entry.
#[derive(Debug, Clone)]
struct KernelNode {
    /// Below /dev.
    path: Result<String, Unknown>,
    number: Option<(u32, u32)>,
}

/// The look at an entry of a class.
struct Inspection<'i> {
    host: &'i Host,
    class: &'i DeviceClass,
    entry: &'i Entry,
    files: Files<'i>,
    /// The directory that `find.above` has found.
    above: Option<PathBuf>,
    /// Facts that it does not have, and why.
    lacking: BTreeMap<String, Unknown>,
    node: Option<KernelNode>,
    device: Device,
    group: Option<String>,
    nodes: Vec<OwnNode>,
    /// What is a problem although there is a device.
    unknown: Vec<Unknown>,
}

impl Inspection<'_> {
    /// Completes the device.
    fn make(&mut self, parts: Parts) -> Result<(), Unknown> {
        self.add_facts(parts);
        let function = self.add_function();
        let class = self.class;
        if let Some(group) = class.group.as_deref() {
            match self.value(group) {
                Ok(group) => self.group = Some(group.into_owned()),
                Err(unknown) => return Err(function.err().unwrap_or(unknown)),
            }
        }
        function?;
        self.add_nodes()?;
        let resource = self.filled(&class.resource)?;
        if !is_resource_name(&resource) {
            return Err(self.unknown(format!("`{resource}` is not a resource name: example.com/widget")));
        }
        self.device.resource_name = Some(resource);
        let ids = (0..class.shares).map(|share| self.id(share)).collect::<Result<Vec<_>, _>>()?;
        self.device = std::mem::take(&mut self.device).shared_as(ids);
        if self.device.id.is_empty() {
            return Err(self.unknown("`id` is empty".to_owned()));
        }
        self.add_readings();
        Ok(())
    }

    fn add_facts(&mut self, parts: Parts) {
        let own = self.host.own_path(&self.entry.path);
        self.device.note(CLASS, self.class.name.as_str(), self.class.find.within.path());
        self.device.note(NAME, plain(&self.entry.name), &own);
        for (name, digits) in parts {
            let kind = kind_declared(&name).unwrap_or(FactKind::Number);
            self.device.note(&name, kind.parse(&digits).unwrap_or(Value::Text(digits)), &own);
        }
        for rule in &self.class.facts {
            match self.fact(rule) {
                Ok((value, source)) => self.device.note(&rule.name, value, self.host.own_path(source)),
                Err(unknown) => {
                    if !(rule.is_optional && unknown.lack == Lack::Nothing) {
                        self.tell(unknown.clone());
                    }
                    self.lacking.insert(rule.name.clone(), unknown);
                }
            }
        }
    }

    /// Adds a problem, once: of one file that cannot be read many facts may be.
    fn tell(&mut self, unknown: Unknown) {
        if !self.unknown.contains(&unknown) {
            self.unknown.push(unknown);
        }
    }

    /// The value of a fact, and the file that has it.
    fn fact(&mut self, rule: &FactRule) -> Fact {
        let directory = &self.entry.path;
        let (mut text, source) = match &rule.way {
            Known::Is(text) => (text.clone(), directory.clone()),
            Known::Read(template) => {
                let name = self.path(template)?;
                text_of(self.host, self.files.read(directory, &name))?
            }
            Known::Above(name) => {
                let above = self.above.as_deref().unwrap_or(directory);
                text_of(self.host, self.files.read(above, name))?
            }
            Known::Link(template) => {
                let name = self.path(template)?;
                self.files.end_of_link(directory, &name).map_err(|error| unread(self.host, &error))?
            }
            Known::Entry(below, pattern) => {
                let (names, place) = self.files.names(directory, below).map_err(|error| unread(self.host, &error))?;
                match names.into_iter().find(|name| fits(name, pattern)) {
                    Some(name) => (name, place),
                    None => return Err(self.lacks(&place, Lack::Nothing, format!("no entry `{pattern}`"))),
                }
            }
        };
        if let Some(key) = &rule.key {
            let line = value_of(&text, key).map(str::to_owned);
            text = line.ok_or_else(|| self.lacks(&source, Lack::Nothing, format!("no line `{key}`")))?;
        }
        if let Some(mapped) = rule.map.get(&text).or(rule.otherwise.as_ref()) {
            text.clone_from(mapped);
        } else if text.contains('\n') {
            let cure = if matches!(rule.way, Known::Read(_)) {
                "add `key`, the word before `=` or `:` in the line that counts"
            } else {
                "a fact is one line"
            };
            return Err(self.lacks(&source, Lack::Strange, format!("several lines: {cure}")));
        } else if !rule.map.is_empty() && !text.is_empty() {
            let error = format!("{} is not in `map` of `{}`", shortened(&text), rule.name);
            return Err(self.lacks(&source, Lack::Strange, error));
        }
        if text.is_empty() {
            return Err(self.lacks(&source, Lack::Nothing, "empty".to_owned()));
        }
        let wrong = || format!("{} where {} should be", shortened(&text), form_of(rule.kind));
        let value = value_as(rule.kind, &text).ok_or_else(|| self.lacks(&source, Lack::Strange, wrong()))?;
        Ok((value, source))
    }

    /// That a file has not what a fact is made of.
    fn lacks(&self, file: &Path, lack: Lack, error: String) -> Unknown {
        Unknown { path: self.host.own_path(file), error, lack }
    }

    fn unknown(&self, error: String) -> Unknown {
        self.lacks(&self.entry.path, Lack::Unread, error)
    }

    /// What stands in the place of a template.
    fn value(&mut self, name: &str) -> Result<Cow<'static, str>, Unknown> {
        if let Some(text) = self.device.text(name) {
            return Ok(text.into());
        }
        if let Some(unknown) = self.lacking.get(name) {
            return Err(unknown.clone());
        }
        match name {
            NODE => self.kernel_node().path.map(Into::into),
            NUMBER => match self.kernel_node().number {
                Some((major, minor)) => Ok(format!("{major}:{minor}").into()),
                None => Err(self.unknown("the kernel names no device number".to_owned())),
            },
            _ => Err(self.unknown(format!("`{name}` is not known of it"))),
        }
    }

    fn filled(&mut self, template: &Template) -> Result<String, Unknown> {
        template.filled(|place| self.value(place))
    }

    /// A path below a directory.
    fn path(&mut self, template: &Template) -> Result<String, Unknown> {
        let path = self.filled(template)?;
        if path.strip_prefix('/').unwrap_or(&path).split('/').any(|name| ["", ".", ".."].contains(&name)) {
            let error = format!("{} is not a path below it", shortened(&path));
            return Err(self.lacks(&self.entry.path, Lack::Strange, error));
        }
        Ok(path)
    }

    fn id(&mut self, share: u32) -> Result<String, Unknown> {
        let class = self.class;
        class.id.filled(|place| if place == SHARE { Ok(share.to_string().into()) } else { self.value(place) })
    }

    /// The PCI function with its facts; without one the NUMA node and the USB port.
    fn add_function(&mut self) -> Result<(), Unknown> {
        let by_address = match (&self.entry.function, &self.class.function) {
            (None, Some(template)) => self.filled(template).ok(),
            _ => None,
        };
        let by_address = by_address.filter(|address| pci::is_address(address)).and_then(|address| {
            let bus = self.host.sys("bus/pci/devices");
            Some(self.host.behind_link(&bus, &directory::link(&bus.join(address)).ok()?))
        });
        let by_address = by_address.and_then(|path| in_sys(self.host, &self.host.own_path(path)).ok());
        // Above the entry no link is left.
        let Some(path) = self.entry.function.clone().or(by_address) else {
            self.add_place();
            return Ok(());
        };
        let function = pci::Function::read(&path);
        self.device.numa_nodes.extend(function.numa_node.iter().map(|(node, _)| *node));
        function.describe(self.host, &mut self.device);
        if self.class.is_for_machines {
            let (group, link) = self.files.end_of_link(&path, IOMMU_GROUP).map_err(|error| {
                let unknown = unread(self.host, &error);
                if error.is_absent() { Unknown { error: gpus::NO_IOMMU_GROUP.to_owned(), ..unknown } } else { unknown }
            })?;
            self.device.note(IOMMU_GROUP, group, self.host.own_path(link));
        }
        Ok(())
    }

    fn add_place(&mut self) {
        let place = in_sys(self.host, &self.host.own_path(&self.entry.path));
        match place.and_then(|place| NumaNodes::default().at(self.host, &place)) {
            Ok(near) => {
                self.device.numa_nodes.extend(near.iter().map(|near| near.node));
                let source = near.map(|near| self.host.own_path(near.source).display().to_string());
                self.device.numa_source = source.unwrap_or_default();
            }
            Err(error) => self.tell(unread(self.host, &error)),
        }
        if let Some(port) = Port::of(&self.entry.path) {
            let path = self.host.own_path(&self.entry.path);
            self.device.note("usb_port", port.name, &path);
            if let Some(interface) = port.interface {
                self.device.note("usb_interface", interface, path);
            }
        }
    }

    fn add_nodes(&mut self) -> Result<(), Unknown> {
        let class = self.class;
        if class.is_for_machines {
            let group = self.value(IOMMU_GROUP)?;
            self.add_node(HostPath::node("/dev/vfio/vfio", None), true)?;
            self.add_node(HostPath::node(format!("/dev/vfio/{group}"), None), false)?;
        } else if class.nodes.is_empty() {
            let KernelNode { path, number } = self.kernel_node();
            self.add_node(HostPath::node(format!("/dev/{}", path?), number), false)?;
        }
        for rule in &class.nodes {
            let is_the_kernels = rule.path.places().any(|place| [NODE, NUMBER].contains(&place));
            let number = if is_the_kernels { self.kernel_node().number } else { None };
            let path = match self.path(&rule.path) {
                Ok(path) => format!("/dev/{path}"),
                Err(_) if rule.is_optional => continue,
                Err(unknown) => return Err(unknown),
            };
            if rule.is_optional && matches!(node_at(self.host, Path::new(&path), number), Place::Other(_)) {
                continue;
            }
            self.add_node(HostPath::node(path, number).required(!rule.is_optional), rule.is_common)?;
        }
        Ok(())
    }

    /// Adds a node, unless it leads out of /dev.
    fn add_node(&mut self, node: HostPath, is_common: bool) -> Result<(), Unknown> {
        let unknown = |error: String| Unknown { path: (&node.path).into(), error, lack: Lack::Unread };
        let place = self.host.absolute(&node.path);
        // The parent of most nodes is /dev itself.
        let is_flat = node.path.matches('/').count() == 2;
        let is_link = |found: Stat| FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
        let end = if is_flat && !rustix::fs::lstat(&place).is_ok_and(is_link) {
            PathBuf::from(&node.path)
        } else {
            let end = in_root(self.host, Path::new(&node.path)).map_err(|errno| unknown(errno.to_string()))?;
            self.host.own_path(end)
        };
        if !end.starts_with("/dev") || end == Path::new("/dev") {
            return Err(unknown(format!("leads to {}, which is not below /dev", end.display())));
        }
        self.nodes.push(OwnNode { end, is_common });
        if !self.device.paths.iter().any(|known| known.path == node.path) {
            self.device.paths.push(if is_common { node.in_role(COMMON) } else { node });
        }
        Ok(())
    }

    fn kernel_node(&mut self) -> KernelNode {
        if let Some(known) = &self.node {
            return known.clone();
        }
        let node = self.read_node();
        self.node = Some(node.clone());
        node
    }

    /// `DEVNAME` of `uevent`, and the number of `dev`: <https://docs.kernel.org/core-api/kobject.html>.
    fn read_node(&mut self) -> KernelNode {
        let directory = &self.entry.path;
        let own_number = |files: &mut Files<'_>| files.read(directory, "dev").and_then(|dev| dev.device_number()).ok();
        match self.files.read(directory, "uevent") {
            Ok(uevent) => {
                let value =
                    |key: &str| uevent.text().lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
                let number = value("MAJOR")
                    .zip(value("MINOR"))
                    .and_then(|(major, minor)| device_number(&format!("{major}:{minor}")));
                let path = value("DEVNAME").map(str::to_owned);
                let number = number.or_else(|| own_number(&mut self.files));
                let is_path = |path: &String| !path.split('/').any(|name| ["", ".", ".."].contains(&name));
                let path = path.filter(is_path).ok_or_else(|| Unknown {
                    path: self.host.own_path(uevent.path()),
                    error: "the kernel names no node (DEVNAME): `nodes` of the class can name others".to_owned(),
                    lack: Lack::Unread,
                });
                KernelNode { path, number }
            }
            Err(error) if error.is_absent() => {
                KernelNode { path: Ok(plain(&self.entry.name)), number: own_number(&mut self.files) }
            }
            Err(error) => KernelNode { path: Err(unread(self.host, &error)), number: None },
        }
    }

    /// The files that show a fault.
    fn add_readings(&mut self) {
        for rule in &self.class.health {
            let place = self
                .path(&rule.read)
                .and_then(|name| self.files.place(&self.entry.path, &name).map_err(|error| unread(self.host, &error)));
            match place {
                Ok(place) => {
                    let limit = match &rule.fault {
                        Fault::Equals(text) => Limit::Other(text.clone()),
                        Fault::Absent => Limit::Present,
                        Fault::Beyond(number) => {
                            // Polls read the file; here it is known only if a fact is of it.
                            if let Some(text) = self.files.known(&place).filter(|text| !is_number(text)) {
                                let error = format!("{} where `beyond` needs a number", shortened(text));
                                self.tell(self.lacks(&place, Lack::Strange, error));
                            }
                            Limit::AtMost(*number)
                        }
                    };
                    self.device.readings.push(of_class(self.host.own_path(place), limit, rule.reason.clone()));
                }
                Err(unknown) if unknown.lack == Lack::Nothing => {}
                Err(unknown) => self.tell(unknown),
            }
        }
    }
}

fn text_of(host: &Host, read: Result<Attribute, AttributeError>) -> Result<(String, PathBuf), Unknown> {
    let attribute = read.map_err(|error| unread(host, &error))?;
    Ok((attribute.text().to_owned(), attribute.path().to_path_buf()))
}

fn unread(host: &Host, error: &AttributeError) -> Unknown {
    let lack = if error.is_absent() { Lack::Nothing } else { Lack::Unread };
    Unknown { path: host.own_path(&error.path), error: error.cause.to_string(), lack }
}

/// What a text must be like, in words.
fn form_of(kind: FactKind) -> &'static str {
    match kind {
        FactKind::Text => "a text",
        FactKind::Number => "a number",
        FactKind::Boolean => "a boolean (0 or 1, y or n, on or off, true or false)",
        FactKind::Version => "a version (1.2.3)",
    }
}

fn shortened(text: &str) -> String {
    format!("{:?}", text.chars().take(64).collect::<String>())
}
