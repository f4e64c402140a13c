//! What NVML reports about a host, as plain data; the JSON form is that of the answer file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All facts. What a driver does not support or answer is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// `590.48.01`.
    pub driver_version: Option<String>,
    /// `13.1`.
    pub cuda_version: Option<String>,
    /// In NVML's own order.
    pub gpus: Vec<Gpu>,
    /// What could not be asked, in words.
    pub problems: Vec<String>,
}

/// One GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// `0000:3b:00.0`, as sysfs spells it.
    pub pci_address: String,
    /// NVML's index.
    pub index: u32,
    /// `GPU-<uuid>`.
    pub uuid: Option<String>,
    /// Number of its node.
    pub minor: Option<u32>,
    /// Marketing name.
    pub model: Option<String>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// Whether it is in MIG mode; absent if it does not support MIG.
    pub mig_mode: Option<bool>,
    /// Its MIG devices, by their index.
    pub mig_devices: Vec<MigDevice>,
    /// Active direct NVLinks to other GPUs, by PCI address.
    pub nvlinks: BTreeMap<String, u32>,
    /// Active NVLinks to switches.
    pub switch_links: u32,
    /// The cluster and the clique of the `NVLink` fabric that it has joined: `<uuid>.<number>`.
    pub fabric_clique: Option<String>,
}

/// One MIG device: a compute instance of a GPU instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MigDevice {
    /// Its index below the GPU.
    pub index: u32,
    /// `MIG-<uuid>`; older drivers: `MIG-GPU-<uuid>/<gi>/<ci>`.
    pub uuid: Option<String>,
    /// Id of the GPU instance.
    pub gpu_instance: u32,
    /// Id of the compute instance.
    pub compute_instance: u32,
    /// Slices of the GPU instance.
    pub gpu_slices: u32,
    /// Slices of the compute instance.
    pub compute_slices: u32,
    /// Memory in MiB.
    pub memory_mebibytes: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Engines that it shares with others of its GPU instance, by kind; empty where its attributes are unknown.
    pub engines: BTreeMap<String, u32>,
    /// Slices and memory as its own name has them: `1g.5gb`.
    pub profile_sizes: Option<String>,
    /// Suffixes of the profile's name: `me`, `me.all`, `gfx`, each with its sign, as in `+me`.
    pub profile_suffixes: Vec<String>,
}
