//! What a container runtime is to change in a container: the `containerEdits` of CDI specs.
//!
//! <https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>

use serde::Serialize;

use crate::device::Node;

/// A set of changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Edits {
    /// `NAME=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device nodes that are made in the container, and that it may use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// What of the host is bound into it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Programs that are run for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
}

/// A device node. Type, numbers and mode are those of the host's node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceNode {
    /// In the container.
    pub path: String,
    /// On the host, where it has another path there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
}

/// A bind mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// On the host.
    pub host_path: String,
    /// In the container.
    pub container_path: String,
    /// Of mount(8).
    pub options: Vec<&'static str>,
}

/// A program of the host that the runtime runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// When: `createContainer` is after the mounts are made, and before the container's root becomes its root.
    pub hook_name: &'static str,
    /// Which, absolute.
    pub path: String,
    /// With what; the first argument is the program's own name.
    pub args: Vec<String>,
}

impl Edits {
    /// Whether they change nothing: runtimes refuse a device without changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Both.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.env.extend(more.env);
        self.device_nodes.extend(more.device_nodes);
        self.mounts.extend(more.mounts);
        self.hooks.extend(more.hooks);
        self
    }

    /// As a spec has them.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl From<&Node> for DeviceNode {
    fn from(node: &Node) -> Self {
        let elsewhere = node.host_path != node.container_path;
        Self { path: node.container_path.clone(), host_path: elsewhere.then(|| node.host_path.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_is_written() {
        assert!(Edits::default().is_empty());
        assert_eq!(Edits::default().json(), "{}");
        let node = |host_path: &str| Node {
            host_path: host_path.to_owned(),
            container_path: "/dev/x".to_owned(),
            permissions: "rw".to_owned(),
        };
        let edits = Edits {
            device_nodes: vec![(&node("/dev/x")).into(), (&node("/driver/dev/x")).into()],
            hooks: vec![Hook { hook_name: "createContainer", path: "/x".to_owned(), args: vec!["x".to_owned()] }],
            ..Edits::default()
        };
        assert!(!edits.is_empty());
        assert_eq!(
            edits.json(),
            r#"{"deviceNodes":[{"path":"/dev/x"},{"path":"/dev/x","hostPath":"/driver/dev/x"}],"hooks":[{"hookName":"createContainer","path":"/x","args":["x"]}]}"#
        );
    }
}
