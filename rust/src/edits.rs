//! What a container gets for a device, and how a front end hands it over. Made from facts alone, without reading the host.
//!
//! CDI: <https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::device::{Access, Device, HostPath};

/// By what a container gets a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The kubelet's device plugin API: nodes, mounts, variables and annotations in the answer, and CDI names where the
    /// vendor's plugin answers by them.
    DevicePlugin,
    /// CDI names alone; the specs of the names bring everything.
    Cdi,
}

/// What is changed in a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edits {
    /// Environment variables.
    pub envs: BTreeMap<String, String>,
    /// Annotations for the container runtime; no spec can hold any.
    pub annotations: BTreeMap<String, String>,
    /// Device nodes that are made in the container, and that it may use.
    pub nodes: Vec<Node>,
    /// What of the host is bound into it.
    pub mounts: Vec<Mount>,
    /// Programs of the host that the runtime runs for it; only a spec can ask for them.
    pub hooks: Vec<Hook>,
    /// Qualified CDI names that the runtime is to resolve.
    pub cdi_devices: Vec<String>,
    /// What CDI names bring, where the specs are ours to write: by qualified name; by the kind alone (`vendor/class`) what
    /// every device of the kind brings.
    pub specs: BTreeMap<String, Arc<Edits>>,
}

/// A device node. Type and numbers are those of the host's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Path on the host, without the host root.
    pub host_path: String,
    /// Path in the container.
    pub container_path: String,
    /// Any of `r`, `w`, `m`; empty leaves it to the runtime, in specs only.
    pub permissions: String,
    /// The group that it is for on the host, and so in the container: of this group the container's processes are, too. In specs
    /// only; `None` leaves it to the runtime, which lets everybody in the container open it.
    pub access: Option<Access>,
}

/// A file, directory or socket bound into a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mount {
    /// Path on the host, without the host root.
    pub host_path: String,
    /// Path in the container.
    pub container_path: String,
    /// Whether the container may not write.
    pub read_only: bool,
    /// Of mount(8), in specs; empty where nothing but `read_only` matters.
    pub options: &'static [&'static str],
}

/// A program of the host that the runtime runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// When: `createContainer` is after the mounts are made, and before the container's root becomes its root.
    pub hook_name: &'static str,
    /// Which, absolute.
    pub path: String,
    /// With what; the first argument is the program's own name. May be empty.
    pub args: Vec<String>,
}

impl Edits {
    /// Whether they change nothing: runtimes refuse a CDI device without changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Both.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.envs.extend(more.envs);
        self.annotations.extend(more.annotations);
        self.nodes.extend(more.nodes);
        self.mounts.extend(more.mounts);
        self.hooks.extend(more.hooks);
        self.cdi_devices.extend(more.cdi_devices);
        self.specs.extend(more.specs);
        self
    }

    /// The device nodes among these paths, each under its own path in the container.
    pub fn of_nodes<'p>(paths: impl IntoIterator<Item = &'p HostPath>, permissions: &str) -> Self {
        let nodes = paths.into_iter().filter(|path| path.is_node).map(|path| Node::same(&path.path, permissions));
        Self { nodes: nodes.collect(), ..Self::default() }
    }

    /// The same by CDI: one name, whose spec holds all edits. Annotations have no place in a spec and stay beside it;
    /// a name without edits is left out.
    #[must_use]
    pub fn by_cdi(mut self, name: String) -> Self {
        let annotations = std::mem::take(&mut self.annotations);
        if self.is_empty() {
            return Self { annotations, ..Self::default() };
        }
        Self {
            annotations,
            cdi_devices: vec![name.clone()],
            specs: BTreeMap::from([(name, Arc::new(self))]),
            ..Self::default()
        }
    }

    /// In this way: as they are, or under this CDI name.
    #[must_use]
    pub fn given(self, way: Way, cdi_name: impl FnOnce() -> String) -> Self {
        match way {
            Way::DevicePlugin => self,
            Way::Cdi => self.by_cdi(cdi_name()),
        }
    }
}

impl Node {
    /// With the same path in the container.
    #[must_use]
    pub fn same(path: &str, permissions: &str) -> Self {
        Self {
            host_path: path.to_owned(),
            container_path: path.to_owned(),
            permissions: permissions.to_owned(),
            access: None,
        }
    }
}

impl Mount {
    /// What has its own path in the container, and may not be written to there.
    #[must_use]
    pub fn same(path: &str) -> Self {
        Self { host_path: path.to_owned(), container_path: path.to_owned(), read_only: true, ..Self::default() }
    }
}

/// The CDI name of a device whose vendor's own software has none: legal whatever its id, and of no other device.
#[must_use]
pub fn cdi_name(device: &Device) -> String {
    let (card, id) = (&device.card, &device.id);
    let whole = if card == id || card.is_empty() { id.clone() } else { format!("{card}_{id}") };
    let legal = |letter: char| if letter.is_ascii_alphanumeric() || "_-.:".contains(letter) { letter } else { '_' };
    let name: String = whole.chars().map(legal).collect();
    format!("devherd/{}={}", device.vendor, name.trim_matches(|letter: char| !letter.is_ascii_alphanumeric()))
}
