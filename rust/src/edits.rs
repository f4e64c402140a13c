//! The changes that a container needs for a device, and how a front end passes them on. They are made from facts alone,
//! without reading the host.
//!
//! CDI: <https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use crate::device::{Access, Device, HostPath};

/// How a container gets a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The kubelet's device plugin API: the answer has nodes, mounts, variables and annotations, and CDI names if the
    /// vendor's plugin also returns them.
    DevicePlugin,
    /// CDI names only; the CDI specs contain all edits.
    Cdi,
}

/// Changes to a container.
///
/// By CDI almost all of them are in `specs`. What is beside these belongs in no static spec: annotations, which no spec
/// can contain, and what depends on the other devices of the container or on the name under which it asks for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edits {
    /// Environment variables.
    pub envs: BTreeMap<String, String>,
    /// Environment variables that the devices of one container join: a runtime that applies several specs keeps the last
    /// device's value. [`Self::given`] makes them `envs`.
    pub joined_envs: BTreeMap<String, String>,
    /// Annotations for the container runtime; a CDI spec cannot contain them.
    pub annotations: BTreeMap<String, String>,
    /// Device nodes created in the container.
    pub nodes: Vec<Node>,
    /// Host paths bound into the container.
    pub mounts: Vec<Mount>,
    /// Host programs that the runtime runs for the container; only a CDI spec can request them.
    pub hooks: Vec<Hook>,
    /// Qualified CDI names for the runtime to resolve.
    pub cdi_devices: Vec<String>,
    /// Contents of the CDI names whose specs devherd writes. Key: the qualified name, or the kind alone
    /// (`vendor/class`) for edits that every device of the kind has.
    pub specs: BTreeMap<String, Arc<Edits>>,
}

/// A device node. Its type and numbers are the same as on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Path on the host, without the host root.
    pub host_path: String,
    /// Path in the container.
    pub container_path: String,
    /// Any of `r`, `w`, `m`; if empty, the runtime chooses (in specs only).
    pub permissions: String,
    /// The group that may open the node, on the host and in the container; the container's processes join it. In specs
    /// only. If `None`, the runtime chooses the permissions, and lets everybody in the container open the node.
    pub access: Option<Access>,
}

/// A file, directory or socket bound into a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mount {
    /// Path on the host, without the host root.
    pub host_path: String,
    /// Path in the container.
    pub container_path: String,
    /// Whether the mount is read-only in the container.
    pub read_only: bool,
    /// Options of mount(8), in specs only; empty if `read_only` is enough.
    pub options: &'static [&'static str],
}

/// A host program that the container runtime runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// When the program runs: `createContainer` is after the mounts are made and before the root is changed.
    pub hook_name: &'static str,
    /// Absolute path of the program.
    pub path: String,
    /// Arguments, `argv[0]` included; may be empty.
    pub args: Vec<String>,
}

impl Edits {
    /// Whether there are no changes at all: runtimes refuse a CDI device without edits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These edits and `more`.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.envs.extend(more.envs);
        self.joined_envs.extend(more.joined_envs);
        self.annotations.extend(more.annotations);
        self.nodes.extend(more.nodes);
        self.mounts.extend(more.mounts);
        self.hooks.extend(more.hooks);
        self.cdi_devices.extend(more.cdi_devices);
        self.specs.extend(more.specs);
        self
    }

    /// The device nodes among `paths`, each with the same path in the container.
    pub fn of_nodes<'p>(paths: impl IntoIterator<Item = &'p HostPath>, permissions: &str) -> Self {
        let nodes = paths.into_iter().filter(|path| path.is_node).map(|path| Node::same(&path.path, permissions));
        Self { nodes: nodes.collect(), ..Self::default() }
    }

    /// Moves the edits into the spec of one CDI name, but for annotations and joined variables; without other edits there
    /// is no name.
    #[must_use]
    pub fn by_cdi(mut self, name: String) -> Self {
        let annotations = std::mem::take(&mut self.annotations);
        let joined_envs = std::mem::take(&mut self.joined_envs);
        let outside = Self { joined_envs, annotations, ..Self::default() };
        if self.is_empty() {
            return outside;
        }
        Self { cdi_devices: vec![name.clone()], specs: BTreeMap::from([(name, Arc::new(self))]), ..outside }
    }

    /// The edits in the form for `way`: as they are for the device plugin API, or as one CDI name.
    #[must_use]
    pub fn given(self, way: Way, cdi_name: impl FnOnce() -> String) -> Self {
        let mut given = match way {
            Way::DevicePlugin => self,
            Way::Cdi => self.by_cdi(cdi_name()),
        };
        given.envs.append(&mut given.joined_envs);
        given
    }
}

impl Node {
    /// A node with the same path in the container.
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
    /// A read-only mount with the same path in the container.
    #[must_use]
    pub fn same(path: &str) -> Self {
        Self { host_path: path.to_owned(), container_path: path.to_owned(), read_only: true, ..Self::default() }
    }
}

/// A legal and unique CDI name for a device whose vendor's own software defines none.
#[must_use]
pub fn cdi_name(device: &Device) -> String {
    let (card, id) = (&device.card, &device.id);
    let whole = if card == id || card.is_empty() { id.clone() } else { format!("{card}_{id}") };
    let legal = |letter: char| if letter.is_ascii_alphanumeric() || "_-.:".contains(letter) { letter } else { '_' };
    let name: String = whole.chars().map(legal).collect();
    format!("devherd/{}={}", device.vendor, name.trim_matches(|letter: char| !letter.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(name: &str) -> BTreeMap<String, String> {
        [(name.to_owned(), "x".to_owned())].into()
    }

    #[test]
    fn variables_that_devices_join_are_in_the_answer_and_in_no_spec() {
        let edits = || Edits { envs: variables("OWN"), joined_envs: variables("JOINED"), ..Edits::default() };
        let answer = edits().given(Way::DevicePlugin, || unreachable!("a name is for CDI"));
        assert_eq!(answer.envs.keys().collect::<Vec<_>>(), ["JOINED", "OWN"]);
        let by_cdi = edits().given(Way::Cdi, || "a/b=c".to_owned());
        assert_eq!((&by_cdi.envs, &by_cdi.specs["a/b=c"].envs), (&variables("JOINED"), &variables("OWN")));
        let joined_alone = Edits { joined_envs: variables("JOINED"), ..Edits::default() };
        let by_cdi = joined_alone.given(Way::Cdi, || "a/b=c".to_owned());
        assert_eq!(by_cdi, Edits { envs: variables("JOINED"), ..Edits::default() });
    }
}
