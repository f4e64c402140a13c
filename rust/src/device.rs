//! What a scan yields: devices and problems, as plain data.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::check::Check;

/// Why a device is Unhealthy. The spelling is the same in logs, labels and gRPC errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Its /dev node is absent or is no device.
    NodeMissing,
    /// The PCI function has no driver.
    DriverUnbound,
    /// Configuration space reads as all ones.
    OffBus,
    /// A read did not come back before its deadline.
    ProbeTimeout,
    /// No accelerator function is loaded.
    Unprogrammed,
    /// The port reports errors, or cannot be read.
    PortError,
    /// The management engine reports errors, or cannot be read.
    FmeError,
    /// A thermal threshold has been crossed.
    Temperature,
    /// The PCI link is narrower or slower than both of its ends can do.
    LinkDegraded,
    /// Uncorrectable PCI errors were counted.
    PciAer,
}

impl Reason {
    /// The word users meet.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeMissing => "node-missing",
            Self::DriverUnbound => "driver-unbound",
            Self::OffBus => "off-bus",
            Self::ProbeTimeout => "probe-timeout",
            Self::Unprogrammed => "unprogrammed",
            Self::PortError => "port-error",
            Self::FmeError => "fme-error",
            Self::Temperature => "temperature",
            Self::LinkDegraded => "link-degraded",
            Self::PciAer => "pci-aer",
        }
    }

    /// Every reason that the scan core knows.
    pub const ALL: [Self; 10] = [
        Self::NodeMissing,
        Self::DriverUnbound,
        Self::OffBus,
        Self::ProbeTimeout,
        Self::Unprogrammed,
        Self::PortError,
        Self::FmeError,
        Self::Temperature,
        Self::LinkDegraded,
        Self::PciAer,
    ];

    /// The reason that is spelt like this.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A device node given to a container. Paths are the host's own, without the host root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Path on the host.
    pub host_path: String,
    /// Path in the container.
    pub container_path: String,
    /// Any of `r`, `w`, `m`.
    pub permissions: String,
}

/// A file, directory or socket bound into a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Path on the host.
    pub host_path: String,
    /// Path in the container.
    pub container_path: String,
    /// Whether the container may not write.
    pub read_only: bool,
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
    /// Full resource name, or `None` while it cannot be told (being reprogrammed, unreadable).
    pub resource_name: Option<String>,
    /// The name to use when it cannot be told and was never known.
    pub first_sight_resource_name: Option<String>,
    /// What is wrong with it as of this scan.
    pub reasons: BTreeSet<Reason>,
    /// NUMA nodes it is close to; empty when unknown.
    pub numa_nodes: Vec<u32>,
    /// Device nodes for the container.
    pub nodes: Vec<Node>,
    /// Mounts for the container.
    pub mounts: Vec<Mount>,
    /// Environment for the container; `{RESOURCE_NAME}` in a name is the resource's, in capitals, `_` for what is no letter
    /// or digit.
    pub envs: BTreeMap<String, String>,
    /// Annotations for the container runtime.
    pub annotations: BTreeMap<String, String>,
    /// Qualified CDI names.
    pub cdi_devices: Vec<String>,
    /// Qualified CDI name to the JSON of its `containerEdits`, for the names whose specs are ours to write; the kind alone
    /// (`vendor/class`) to what every device of the kind brings.
    pub cdi_edits: BTreeMap<String, String>,
    /// Facts in the vendor's own words.
    pub attributes: BTreeMap<String, String>,
    /// Attribute name to the file it was read from.
    pub sources: BTreeMap<String, String>,
    /// How far its card is from others of its vendor, by card: lower is closer, and a card that is not named is farthest.
    /// Its own card is named where devices of one card are close to each other.
    pub distances: BTreeMap<String, u32>,
    /// What health polling looks at between scans.
    pub checks: Vec<Check>,
}

impl Device {
    /// Notes a fact and the file of the host that says so.
    pub fn note(&mut self, name: &str, value: impl Into<String>, source: impl AsRef<Path>) {
        self.attributes.insert(name.to_owned(), value.into());
        self.sources.insert(name.to_owned(), source.as_ref().to_string_lossy().into_owned());
    }
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

    /// The same problem, laid at one device's door.
    #[must_use]
    pub fn of(mut self, device: impl Into<String>) -> Self {
        self.device = Some(device.into());
        self
    }
}

/// A part of the host that a scan could not look at: its devices stay as they were last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// The vendor concerned.
    pub vendor: &'static str,
    /// The card, or `None` for all cards of the vendor.
    pub card: Option<String>,
    /// What its devices suffer from meanwhile, or `None` to leave their health alone.
    pub reason: Option<Reason>,
}

/// What one vendor found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// In natural order of id.
    pub devices: Vec<Device>,
    /// In the order met.
    pub problems: Vec<Problem>,
    /// Where it could not look.
    pub unseen: Vec<Unseen>,
}
