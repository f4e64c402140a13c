//! The configuration of RDMA devices.

use serde::Deserialize;

/// Options of RDMA devices.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RdmaOptions {
    /// Whether to look for it.
    pub enabled: bool,
    /// Ids a device, for sharing; 0 = each device goes to one container at a time.
    pub shared_devices: u32,
}

impl Default for RdmaOptions {
    fn default() -> Self {
        Self { enabled: true, shared_devices: 0 }
    }
}
