//! Plain data that a scan returns: devices with their facts, and problems. Other modules draw conclusions from facts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::finding::Finding;

/// A host path that belongs to a device or to its vendor's installation. It is a fact: the code that makes edits
/// decides whether containers get it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostPath {
    /// Path on the host, without the host root.
    pub path: String,
    /// Purpose, in the vendor's words: `control`, `library`; empty if all paths of the device serve the same purpose.
    pub role: Cow<'static, str>,
    /// True for a device node; false for a file, directory or socket.
    pub is_node: bool,
    /// Major and minor number that the node must have; `None` if any number is valid.
    pub number: Option<(u32, u32)>,
    /// Whether the device is unusable without this path.
    pub is_required: bool,
    /// Target of a link; empty if the path is not a link.
    pub target: String,
    /// The group that may open the node; `None` if everybody may open it, or only its owner.
    pub access: Option<Access>,
}

/// The group that may open a node which is not open to everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Group id.
    pub group: u32,
    /// Permission bits of the node, as in chmod(2).
    pub mode: u32,
}

impl HostPath {
    /// A device node without which the device is unusable.
    pub fn node(path: impl Into<String>, number: Option<(u32, u32)>) -> Self {
        Self { path: path.into(), is_node: true, number, is_required: true, ..Self::default() }
    }

    /// A file, directory or socket; not required.
    pub fn file(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// Sets the role.
    #[must_use]
    pub fn in_role(mut self, role: impl Into<Cow<'static, str>>) -> Self {
        self.role = role.into();
        self
    }

    /// Sets whether the path is required.
    #[must_use]
    pub fn required(mut self, is_required: bool) -> Self {
        self.is_required = is_required;
        self
    }
}

/// A fact about a device or a vendor's installation, and the host file that it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The value.
    pub value: Value,
    /// The file, without the host root; another name if the source is not a file.
    pub source: String,
}

/// The value of a fact. `Display` writes it in the form that JSON and rules use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Words, identifiers, comma-separated lists.
    Text(String),
    /// A number or an amount.
    Number(i64),
    /// Yes or no.
    Boolean(bool),
    /// Numbers separated by dots, the most significant first.
    Version(String),
}

impl Value {
    /// The text of a text or version value; `None` for others.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Version(text) => Some(text),
            Self::Number(_) | Self::Boolean(_) => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) | Self::Version(text) => formatter.write_str(text),
            Self::Number(number) => number.fmt(formatter),
            Self::Boolean(is_so) => is_so.fmt(formatter),
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
    /// Amounts above 2⁶³, which no device has, become the largest number.
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(is_so: bool) -> Self {
        Self::Boolean(is_so)
    }
}

/// Facts by name. Names follow the vendor's own terms.
pub type Attributes = BTreeMap<String, Fact>;

/// A PCI function, with the details that health sources need.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PciFunction {
    /// Directory of the function, `/sys/devices/…/0000:3b:00.0`, without the host root.
    pub path: PathBuf,
    /// The driver that was bound to the function at the scan.
    pub driver: Option<String>,
    /// Directory of the physical function, without the host root; `None` if this function is not virtual.
    pub physical: Option<PathBuf>,
}

/// One device, as its vendor's code found it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Device {
    /// Name of the vendor: `intel-fpga`, `generic`, `simulated`, …; owned if Python made the device.
    pub vendor: Cow<'static, str>,
    /// The unit that is probed together and hangs together: a PCI address, or a group's name.
    pub card: String,
    /// The id that the kubelet sees, unique within its vendor.
    pub id: String,
    /// The ids under which containers share the device, numbered like in the vendor's plugin; the first is the device's
    /// own id. Empty if the device is not shared.
    pub shares: Vec<String>,
    /// Full resource name; `None` while it is unknown (being reprogrammed, unreadable).
    pub resource_name: Option<String>,
    /// The resource name to use as long as the real one is unknown and no scan has ever found it.
    pub first_sight_resource_name: Option<String>,
    /// Faults that the scan itself found.
    pub findings: BTreeSet<Finding>,
    /// NUMA nodes close to the device; empty if unknown.
    pub numa_nodes: Vec<u32>,
    /// The file that `numa_nodes` were read from, if it is not already the source of an attribute.
    pub numa_source: String,
    /// Host paths that belong to the device, in the order in which containers get them.
    pub paths: Vec<HostPath>,
    /// All other facts.
    pub attributes: Attributes,
    /// Names of facts whose source has not answered yet. A fact that is neither here nor in `attributes` cannot be known
    /// on this host.
    pub awaited: BTreeSet<String>,
    /// Distance of the device's card to other cards of its vendor, by card: lower is closer, and a card that is not
    /// listed is farthest. The device's own card is listed if devices of one card are close to each other.
    pub distances: BTreeMap<String, u32>,
    /// The PCI functions that the device consists of or belongs to.
    pub functions: Vec<PciFunction>,
    /// Values of the card that health sources compare with a limit.
    pub readings: Vec<Reading>,
}

impl Device {
    /// Adds a fact and the host file that it was read from.
    pub fn note(&mut self, name: &str, value: impl Into<Value>, source: impl AsRef<Path>) {
        let source = source.as_ref().to_string_lossy().into_owned();
        self.attributes.insert(name.to_owned(), Fact { value: value.into(), source });
    }

    /// Adds those of these facts that the device lacks to the awaited ones.
    pub fn awaits<'n>(&mut self, names: impl IntoIterator<Item = &'n &'n str>) {
        let lacking = names.into_iter().filter(|name| !self.attributes.contains_key(**name));
        self.awaited.extend(lacking.map(|name| (*name).to_owned()));
    }

    /// A fact as text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        self.attributes.get(name).map(|fact| fact.value.to_string())
    }

    /// Vendor, card and id.
    #[must_use]
    pub fn key(&self) -> (&str, &str, &str) {
        (&self.vendor, &self.card, &self.id)
    }

    /// All ids that the kubelet sees.
    #[must_use]
    pub fn ids(&self) -> &[String] {
        if self.shares.is_empty() { std::slice::from_ref(&self.id) } else { &self.shares }
    }

    /// Returns the device as shared under these ids; a single id means that it is not shared.
    #[must_use]
    pub fn shared_as(mut self, ids: impl IntoIterator<Item = String>) -> Self {
        let ids: Vec<String> = ids.into_iter().collect();
        if let Some(first) = ids.first() {
            self.id.clone_from(first);
        }
        self.shares = if ids.len() > 1 { ids } else { Vec::new() };
        self
    }

    /// Adds a PCI function that the device consists of or belongs to, unless the device already has it.
    pub fn belongs_to(&mut self, function: PciFunction) {
        if !self.functions.iter().any(|known| known.path == function.path) {
            self.functions.push(function);
        }
    }

    /// The paths with this role.
    pub fn paths_in<'d>(&'d self, role: &'d str) -> impl Iterator<Item = &'d HostPath> {
        self.paths.iter().filter(move |path| path.role == role)
    }
}

/// Data that all devices of a vendor on this host have in common: driver facts and installed files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Platform {
    /// Facts.
    pub attributes: Attributes,
    /// Host paths.
    pub paths: Vec<HostPath>,
}

impl Platform {
    /// Adds a fact and the host file that it was read from; the source is empty if it is not a file.
    pub fn note(&mut self, name: &str, value: impl Into<Value>, source: &str) {
        self.attributes.insert(name.to_owned(), Fact { value: value.into(), source: source.to_owned() });
    }

    /// A fact as text; empty if unknown.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        self.attributes.get(name).map(|fact| fact.value.to_string()).unwrap_or_default()
    }

    /// The paths with this role.
    pub fn paths_in<'p>(&'p self, role: &'p str) -> impl Iterator<Item = &'p HostPath> {
        self.paths.iter().filter(move |path| path.role == role)
    }
}

/// A number or word that a vendor found on a card, and the health source that reads it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reading {
    /// Name of the health source.
    pub source: &'static str,
    /// Reason of the finding if the reading exceeds its limit; owned if the configuration names it.
    pub reason: Cow<'static, str>,
    /// The attribute, without the host root.
    pub attribute: PathBuf,
    /// The limit.
    pub limit: Limit,
}

/// The limit of a reading.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Limit {
    /// A bit mask or flag that must be zero.
    Zero,
    /// A maximum, in the attribute's own unit.
    Below {
        /// The first value that is too high.
        limit: i64,
        /// A value that was too high counts as normal again once it is below this value.
        well_below: i64,
    },
    /// A word, which the health source itself judges.
    Word,
    /// Any text but this one.
    Other(String),
    /// The file must be there.
    Present,
    /// A maximum, without a margin.
    AtMost(i64),
}

/// The value of `vendor` in statements about hardware that no vendor serves.
pub const VENDOR_OF_NONE: &str = "none";

/// A step that failed during a scan. Problems are counted and shown, and never end the scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The vendor whose code reports it.
    pub vendor: &'static str,
    /// The file or directory concerned.
    pub path: PathBuf,
    /// What went wrong, and the cure if known.
    pub error: String,
    /// The device concerned, if it is a single one.
    pub device: Option<String>,
    /// What a driver alone can explain; `None` for every other problem.
    pub refusal: Option<Refusal>,
}

/// A driver that does not make a device of a function, which only its own words in the kernel log can explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What went wrong, without the cure: the driver's words stand in its place.
    pub what: String,
    /// Whether the driver is bound to the function.
    pub is_bound: bool,
}

impl Problem {
    /// A problem that concerns no single device.
    #[must_use]
    pub fn new(vendor: &'static str, path: impl AsRef<Path>, error: impl fmt::Display) -> Self {
        Self { vendor, path: path.as_ref().to_path_buf(), error: error.to_string(), device: None, refusal: None }
    }

    /// A function of which its driver makes no device; `cure` is what to do if the kernel log does not say why.
    #[must_use]
    pub fn refused(vendor: &'static str, path: impl AsRef<Path>, refusal: Refusal, cure: &str) -> Self {
        let error = format!("{}: {cure}", refusal.what);
        Self { refusal: Some(refusal), ..Self::new(vendor, path, error) }
    }

    /// The same problem, attributed to a device.
    #[must_use]
    pub fn of(mut self, device: impl Into<String>) -> Self {
        self.device = Some(device.into());
        self
    }
}

/// A part of the host that a scan could not examine: its devices stay as they were last seen, and are still polled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotExamined {
    /// The vendor.
    pub vendor: &'static str,
    /// The class whose devices alone it is about; `None` for those of all classes, and for other vendors.
    pub class: Option<String>,
    /// The card, or a device id if the card is unknown; `None` for all devices of the vendor.
    pub card: Option<String>,
    /// The finding for its devices in the meantime; `None` if nothing is known about them.
    pub finding: Option<Finding>,
}

impl NotExamined {
    /// A part of the host of which nothing is known: a card or device, or everything of the vendor.
    #[must_use]
    pub fn new(vendor: &'static str, card: Option<String>) -> Self {
        Self { vendor, class: None, card, finding: None }
    }

    /// The same of one class.
    #[must_use]
    pub fn of_class(self, class: String) -> Self {
        Self { class: Some(class), ..self }
    }
}

/// What one vendor's scan returns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Devices in natural order of their ids. Devices of an unchanged card are shared with the previous scan, not
    /// copied.
    pub devices: Vec<Arc<Device>>,
    /// Problems in the order in which the scan met them.
    pub problems: Vec<Problem>,
    /// What users may want to know and what may be as they want it.
    pub notices: Vec<Problem>,
    /// Cards or devices that could not be examined.
    pub unseen: Vec<NotExamined>,
    /// Data that the vendor's devices have in common; `None` if the scan did not read it.
    pub platform: Option<Platform>,
    /// Requests to sources, by name of the source: the text of its request file. A source without a request is not
    /// needed on this host.
    pub requests: Vec<(&'static str, String)>,
    /// Whether something was changing during the scan: an extra scan, before the next regular one, may find more.
    pub look_again: bool,
}
