//! The device groups of generic-device-plugin, with its own keys.

use serde::Deserialize;

/// One device of generic-device-plugin's config: alternatives under one resource name.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenericDevice {
    /// Full resource name.
    pub name: String,
    /// Alternatives, all advertised.
    pub groups: Vec<GenericGroup>,
}

/// Paths or USB devices that go into a container together.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenericGroup {
    /// How often the group may be allocated at once.
    pub count: u32,
    /// Members by path.
    pub paths: Vec<GenericPath>,
    /// Members by USB id.
    pub usb: Vec<GenericUsb>,
    /// Whether each stick is a device of its own.
    pub separate: bool,
}

impl Default for GenericGroup {
    fn default() -> Self {
        Self { count: 1, paths: Vec::new(), usb: Vec::new(), separate: false }
    }
}

/// A member by path.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct GenericPath {
    /// Glob on host paths.
    pub path: String,
    /// Path in the container; a trailing slash appends the host path's base name; empty = the host path.
    pub mount_path: String,
    /// Device node or bind mount.
    #[serde(rename = "type")]
    pub kind: GenericKind,
    /// Of a device node.
    pub permissions: String,
    /// Of a mount.
    pub read_only: bool,
    /// How often each match may be used inside the group.
    pub limit: u32,
    /// Whether no match leaves the member out.
    pub optional: bool,
}

impl Default for GenericPath {
    fn default() -> Self {
        Self {
            path: String::new(),
            mount_path: String::new(),
            kind: GenericKind::Device,
            permissions: "mrw".to_owned(),
            read_only: false,
            limit: 1,
            optional: false,
        }
    }
}

/// How a path reaches the container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum GenericKind {
    /// As a device node.
    #[default]
    Device,
    /// As a bind mount.
    Mount,
}

/// A member by USB id, four hexadecimal digits each.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenericUsb {
    /// `idVendor`.
    pub vendor: String,
    /// `idProduct`.
    pub product: String,
    /// `serial`, any when absent or empty.
    pub serial: Option<String>,
}
