//! The configuration of RDMA devices.

use serde::Deserialize;

/// Options of RDMA devices.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RdmaOptions {
    /// Whether to look for it.
    pub enabled: bool,
    /// What is advertised.
    pub mode: RdmaMode,
    /// Ids a device, for sharing; 0 = each device goes to one container at a time.
    pub shared_devices: u32,
    /// Of the mode `shared`.
    pub pools: Vec<RdmaPool>,
}

impl Default for RdmaOptions {
    fn default() -> Self {
        Self { enabled: true, mode: RdmaMode::default(), shared_devices: 0, pools: Vec::new() }
    }
}

/// What is advertised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RdmaMode {
    /// RDMA devices, each by its name.
    #[default]
    Device,
    /// Pools of devices that containers share, as k8s-rdma-shared-dev-plugin has them.
    Shared,
    /// PCI functions by address, as sriov-network-device-plugin has them.
    Sriov,
}

/// Devices that go to a container together, and to many containers at once. A device may be in several pools.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RdmaPool {
    /// Full resource name.
    pub name: String,
    /// How many containers may have the pool.
    pub rdma_hca_max: u32,
    /// Which devices are in it.
    pub selectors: RdmaSelectors,
}

/// What a device must be: one of each list that is not empty.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RdmaSelectors {
    /// PCI vendors, `15b3`.
    pub vendors: Vec<String>,
    /// PCI devices, `1017`.
    pub device_ids: Vec<String>,
    /// PCI drivers, `mlx5_core`.
    pub drivers: Vec<String>,
    /// Network interfaces, `ib0`.
    pub if_names: Vec<String>,
    /// Kinds of network interfaces: `ether`, `infiniband`.
    pub link_types: Vec<String>,
}
