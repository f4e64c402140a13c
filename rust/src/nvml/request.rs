//! What the scan asks NVML: which library, and the state of the driver to answer for.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The request file: process `source:nvml` answers it, and again whenever it changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Where the driver's libraries are looked for, as a path of this mount namespace.
    pub driver_root: PathBuf,
    /// The library to load if there is none below the driver root: a name that the dynamic loader resolves.
    pub library: Option<String>,
    /// Seconds after which NVML counts as slow; after ten times that, as hanging.
    pub patience_seconds: f64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: Option<String>,
    /// `590.48.01`.
    pub driver_version: Option<String>,
    /// Whether the GPUs stay open between two looks, so that events are heard.
    pub keep_open: bool,
    /// The GPUs that the driver lists, by PCI address.
    pub gpus: BTreeMap<String, GpuState>,
}

/// A GPU as the driver's procfs shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuState {
    /// `GPU-<uuid>`.
    pub uuid: Option<String>,
    /// Its MIG devices.
    pub instances: Vec<InstanceState>,
}

/// A MIG device: ids of its GPU instance and of its compute instance, which are given out again, and when it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstanceState {
    /// Id of the GPU instance.
    pub gpu: u32,
    /// Id of the compute instance.
    pub compute: u32,
    /// Inode, and time of change in seconds and nanoseconds, of its directory in procfs; absent when it has just gone.
    pub birth: Option<(u64, i64, u64)>,
}

impl Request {
    /// Whether both are about the same driver, loaded in the same boot, by the same library.
    #[must_use]
    pub fn is_of_same_driver(&self, other: &Self) -> bool {
        let driver = |request: &Self| {
            (
                request.boot_id.clone(),
                request.driver_version.clone(),
                request.driver_root.clone(),
                request.library.clone(),
            )
        };
        driver(self) == driver(other)
    }

    /// The MIG device with these ids.
    #[must_use]
    pub fn instance(&self, address: &str, gpu: u32, compute: u32) -> Option<InstanceState> {
        let instances = &self.gpus.get(address)?.instances;
        instances.iter().find(|instance| (instance.gpu, instance.compute) == (gpu, compute)).copied()
    }
}
