//! The configuration of Intel GPUs.

use serde::Deserialize;

/// Options of Intel's GPU plugin, under the plugin's names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IntelGpuOptions {
    /// Whether to look for it.
    pub enabled: bool,
    /// Ids a card.
    pub shared_devices: u32,
    /// Whether and how a resource with every card's nodes is advertised.
    pub monitoring: IntelGpuMonitoring,
    /// PCI device ids to advertise, `0x56c0`; all when empty.
    pub allow_ids: Vec<String>,
    /// PCI device ids to leave out.
    pub deny_ids: Vec<String>,
    /// Which links of /dev/dri/by-path containers get.
    pub bypath: IntelGpuByPath,
}

impl Default for IntelGpuOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            shared_devices: 1,
            monitoring: IntelGpuMonitoring::default(),
            allow_ids: Vec::new(),
            deny_ids: Vec::new(),
            bypath: IntelGpuByPath::default(),
        }
    }
}

/// A resource that has every card's nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntelGpuMonitoring {
    /// None.
    #[default]
    Off,
    /// `gpu.intel.com/monitoring`.
    Single,
    /// One for each driver: `gpu.intel.com/i915_monitoring`.
    Split,
}

/// Which links of /dev/dri/by-path containers get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntelGpuByPath {
    /// Those of the card.
    #[default]
    Single,
    /// None.
    None,
    /// The directory.
    All,
}
