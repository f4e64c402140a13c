//! What a scan yields: facts of devices, and problems, as plain data. What follows from facts is made elsewhere.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::health::finding::Finding;

/// A path of the host that belongs to a device, or to what its vendor has installed. A fact: whether a container gets it is
/// decided where edits are made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostPath {
    /// The host's own, without the host root.
    pub path: String,
    /// What it is there for, in the vendor's words: `control`, `library`; empty where all of a device's paths are alike.
    pub role: Cow<'static, str>,
    /// Whether it is a device node, and no file, directory or socket.
    pub is_node: bool,
    /// Major and minor number that the node must have; `None` where any will do.
    pub number: Option<(u32, u32)>,
    /// Whether the device is nothing without it.
    pub is_required: bool,
    /// Where a link points; empty for what is not a link.
    pub target: String,
    /// Who may open the node, where that is a group; `None` where everybody may or nobody but its owner.
    pub access: Option<Access>,
}

/// A group that may open a node that is not for everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Its id.
    pub group: u32,
    /// Permission bits of the node, as of chmod(2).
    pub mode: u32,
}

impl HostPath {
    /// A device node that the device is nothing without.
    pub fn node(path: impl Into<String>, number: Option<(u32, u32)>) -> Self {
        Self { path: path.into(), is_node: true, number, is_required: true, ..Self::default() }
    }

    /// A file, directory or socket that may be there or not.
    pub fn file(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// The same in a role.
    #[must_use]
    pub fn in_role(mut self, role: impl Into<Cow<'static, str>>) -> Self {
        self.role = role.into();
        self
    }

    /// The same, needed or not.
    #[must_use]
    pub fn required(mut self, is_required: bool) -> Self {
        self.is_required = is_required;
        self
    }
}

/// What is known of a device or of what its vendor has installed, and the file of the host that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// What is known.
    pub value: Value,
    /// The file, without the host root; what else says so where it is no file.
    pub source: String,
}

/// The value of a fact, as JSON and rules have it when it is written as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Words, identifiers, lists with commas.
    Text(String),
    /// A number or an amount.
    Integer(u64),
    /// Numbers with dots between, the most important first.
    Version(String),
}

impl Value {
    /// The text of what is text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Version(text) => Some(text),
            Self::Integer(_) => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) | Self::Version(text) => formatter.write_str(text),
            Self::Integer(number) => number.fmt(formatter),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

/// Facts by name, in the vendor's own words.
pub type Attributes = BTreeMap<String, Fact>;

/// A PCI function, as far as health needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciFunction {
    /// Its directory, `/sys/devices/…/0000:3b:00.0`, as the host itself names it.
    pub path: PathBuf,
    /// The driver that was bound to it.
    pub driver: Option<String>,
}

/// One device as its vendor's file found it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Device {
    /// `intel-fpga`, `generic`, `simulated`, …; owned when Python made the device.
    pub vendor: Cow<'static, str>,
    /// What is probed as one and hangs as one: a PCI address, a group's name.
    pub card: String,
    /// The id the kubelet knows it by, unique within its vendor.
    pub id: String,
    /// Full resource name, or `None` while it is unknown (being reprogrammed, unreadable).
    pub resource_name: Option<String>,
    /// The name to use while it is unknown and never was known.
    pub first_sight_resource_name: Option<String>,
    /// What is the matter with it, as far as this scan came across it.
    pub findings: BTreeSet<Finding>,
    /// NUMA nodes it is close to; empty when unknown.
    pub numa_nodes: Vec<u32>,
    /// The file that names them, where no attribute has it for a source.
    pub numa_source: String,
    /// What of the host belongs to it, in the order in which containers get it.
    pub paths: Vec<HostPath>,
    /// What else is known of it.
    pub attributes: Attributes,
    /// How far its card is from others of its vendor, by card: lower is closer, and a card that is not named is farthest.
    /// Its own card is named where devices of one card are close to each other.
    pub distances: BTreeMap<String, u32>,
    /// The PCI functions that it is, or is a part of.
    pub functions: Vec<PciFunction>,
    /// Numbers of its card that say whether all is well.
    pub readings: Vec<Reading>,
}

impl Device {
    /// Notes a fact and the file of the host that says so.
    pub fn note(&mut self, name: &str, value: impl Into<Value>, source: impl AsRef<Path>) {
        let source = source.as_ref().to_string_lossy().into_owned();
        self.attributes.insert(name.to_owned(), Fact { value: value.into(), source });
    }

    /// A fact as text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        self.attributes.get(name).map(|fact| fact.value.to_string())
    }

    /// Notes that it is this PCI function, or a part of it.
    pub fn belongs_to(&mut self, function: PciFunction) {
        if !self.functions.iter().any(|known| known.path == function.path) {
            self.functions.push(function);
        }
    }

    /// Its paths in a role.
    pub fn paths_in<'d>(&'d self, role: &'d str) -> impl Iterator<Item = &'d HostPath> {
        self.paths.iter().filter(move |path| path.role == role)
    }
}

/// What all devices of a vendor have in common on a host: where its driver is, and what it has installed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Platform {
    /// What is known of it.
    pub attributes: Attributes,
    /// What of the host belongs to it.
    pub paths: Vec<HostPath>,
}

impl Platform {
    /// Notes a fact and the file of the host that says so; empty where it is no file.
    pub fn note(&mut self, name: &str, value: impl Into<Value>, source: &str) {
        self.attributes.insert(name.to_owned(), Fact { value: value.into(), source: source.to_owned() });
    }

    /// A fact as text; empty where it is not known.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        self.attributes.get(name).map(|fact| fact.value.to_string()).unwrap_or_default()
    }

    /// Its paths in a role.
    pub fn paths_in<'p>(&'p self, role: &'p str) -> impl Iterator<Item = &'p HostPath> {
        self.paths.iter().filter(move |path| path.role == role)
    }
}

/// A number that a vendor found on a card, and which source looks at it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reading {
    /// The source's name.
    pub source: &'static str,
    /// What a number beyond its limit means.
    pub reason: &'static str,
    /// The attribute, as the host itself names it.
    pub attribute: PathBuf,
    /// What the number must keep to.
    pub limit: Limit,
}

/// What a number must keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// A bit mask or flag that is zero when all is well.
    Zero,
    /// In the attribute's own unit.
    Below {
        /// The first value that is too much.
        limit: i64,
        /// What was too much has to fall below this to be all right again.
        well_below: i64,
    },
}

/// Something a scan could not do. It is counted and shown, and never ends a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The vendor whose file met it.
    pub vendor: &'static str,
    /// The file or directory concerned.
    pub path: PathBuf,
    /// What went wrong, and the cure where one is known.
    pub error: String,
    /// The device it concerns, when it concerns one.
    pub device: Option<String>,
}

impl Problem {
    /// A problem of no single device.
    #[must_use]
    pub fn new(vendor: &'static str, path: impl AsRef<Path>, error: impl fmt::Display) -> Self {
        Self { vendor, path: path.as_ref().to_path_buf(), error: error.to_string(), device: None }
    }

    /// The same problem, attributed to one device.
    #[must_use]
    pub fn of(mut self, device: impl Into<String>) -> Self {
        self.device = Some(device.into());
        self
    }
}

/// A part of the host that a scan could not look at: its devices stay as they were last seen, and are polled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotExamined {
    /// The vendor concerned.
    pub vendor: &'static str,
    /// The card, or a device whose card is not known; `None` for all devices of the vendor.
    pub card: Option<String>,
    /// What is the matter with its devices meanwhile; `None` where nothing can be said of them.
    pub finding: Option<Finding>,
}

/// What one vendor found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// In natural order of id. Those of a card that is as it was are the same as before, and not copied.
    pub devices: Vec<Arc<Device>>,
    /// In the order met.
    pub problems: Vec<Problem>,
    /// Where it could not look.
    pub unseen: Vec<NotExamined>,
    /// What its devices have in common; `None` where that was not looked at.
    pub platform: Option<Platform>,
    /// What a source is to be asked, by the source's name: the text of its request file. A source that has none here is not
    /// needed on this host.
    pub requests: Vec<(&'static str, String)>,
    /// Whether something was changing: a look before the next regular one tells more.
    pub look_again: bool,
}
