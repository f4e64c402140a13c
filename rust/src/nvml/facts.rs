//! Facts that NVML reports about a host, and the two files in which the scan and process `source:nvml` exchange them,
//! as plain data: the request of the scan (which library to load, the state of the driver to answer for), and the
//! answer that every scan reads.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::host::attribute::content;

/// All facts. A field is `None` if the driver does not support or answer it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The driver's version, `590.48.01`.
    pub driver_version: Option<String>,
    /// The newest supported CUDA version, `13.1`.
    pub cuda_version: Option<String>,
    /// GPUs in NVML's own order.
    pub gpus: Vec<Gpu>,
    /// Failed queries, in words.
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
    /// Number of its device node.
    pub minor: Option<u32>,
    /// Marketing name.
    pub model: Option<String>,
    /// Product line, as NVIDIA's drivers for Kubernetes write it: `Nvidia`, `GeForce`.
    pub brand: Option<String>,
    /// Generation, as they write it: `Hopper`.
    pub architecture: Option<String>,
    /// How it reaches the host's memory: `HMM`, `ATS`, `None`; absent if the platform has no such modes.
    pub addressing_mode: Option<String>,
    /// Serial number of its board, which is printed on it: GPUs of one board have the same.
    pub serial: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// Whether it is in MIG mode; absent if it does not support MIG.
    pub mig_mode: Option<bool>,
    /// Its MIG devices, by index.
    pub mig_devices: Vec<MigDevice>,
    /// Number of active direct NVLinks to each other GPU, by PCI address.
    pub nvlinks: BTreeMap<String, u32>,
    /// Number of active NVLinks to switches.
    pub switch_links: u32,
    /// The switch and its port at the other end of each of these links, by the link's number: `0000:07:00.0/46`.
    pub switch_ports: BTreeMap<u32, String>,
    /// The `NVLink` fabric that it has joined, as cluster and clique: `<uuid>.<number>`.
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
    /// Engines by kind, which it shares with others of its GPU instance; empty if its attributes are unknown.
    pub engines: BTreeMap<String, u32>,
    /// Slices and memory from its own name: `1g.5gb`.
    pub profile_sizes: Option<String>,
    /// Suffixes of the profile's name: `me`, `me.all`, `gfx`, each with its sign, as in `+me`.
    pub profile_suffixes: Vec<String>,
    /// The GPU's own id of the GPU instance's profile, as `nvidia-smi mig -lgip` lists it: 19; absent if it may not be
    /// asked for, as the placement.
    pub profile_id: Option<u32>,
    /// First memory slice of the GPU instance.
    pub placement_start: Option<u32>,
    /// Its memory slices.
    pub placement_size: Option<u32>,
}

/// The request file. Process `source:nvml` answers it once, and again after each change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Where the driver's libraries are searched, as a path of this mount namespace.
    pub driver_root: PathBuf,
    /// The library to load if the driver root has none: a name that the dynamic loader resolves.
    pub library: Option<String>,
    /// Seconds after which NVML counts as slow; after ten times that, as hanging.
    pub patience_seconds: f64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: Option<String>,
    /// The loaded driver's version, `590.48.01`.
    pub driver_version: Option<String>,
    /// Whether the GPUs stay open between two looks, so that events are received.
    pub keep_open: bool,
    /// The GPUs that the driver lists and does not exclude, by PCI address.
    pub gpus: BTreeMap<String, GpuState>,
}

/// A GPU as the driver's procfs shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuState {
    /// `GPU-<uuid>`.
    pub uuid: Option<String>,
    /// Its device node where the process finds it: without it, NVML does not know the GPU.
    pub node: Option<PathBuf>,
    /// Its MIG devices.
    pub instances: Vec<InstanceState>,
}

/// A MIG device: the ids of its GPU instance and compute instance, which the driver reuses, and its time of creation.
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
    /// Whether both requests are for the same driver, loaded in the same boot, and the same library.
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

/// The answer file. On a simulated node it holds facts only, which answer every request.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The last facts; a later failure does not remove them.
    pub facts: Option<Facts>,
    /// The request that `facts` answer.
    pub facts_of: Option<Request>,
    /// Failed attempts since `facts` were read, or since the start if there are no facts.
    pub failures: u32,
    /// The request of the last failed attempt.
    pub failed: Option<Request>,
    /// Why the facts are missing or out of date, and the cure.
    pub problem: Option<String>,
}

impl Answer {
    /// Reads the first of these files that is readable; empty if there is none yet.
    #[must_use]
    pub fn read(files: &[PathBuf]) -> Self {
        let content = files.iter().find_map(|file| content(file));
        content.and_then(|content| serde_json::from_slice(&content).ok()).unwrap_or_default()
    }

    /// The part that is valid for a host in the state of `request`: facts and failures of another driver or another
    /// boot are dropped.
    #[must_use]
    pub fn to(mut self, request: &Request) -> Self {
        let is_foreign = |of: &Option<Request>| of.as_ref().is_some_and(|of| !of.is_of_same_driver(request));
        if is_foreign(&self.facts_of) {
            (self.facts, self.facts_of) = (None, None);
        }
        if is_foreign(&self.failed) {
            (self.failures, self.failed, self.problem) = (0, None, None);
        }
        self
    }

    /// Whether NVML has not answered for a GPU yet, so that its absence from the answer means nothing.
    #[must_use]
    pub fn is_awaited(&self, request: &Request, address: &str) -> bool {
        let is_answered = match (&self.facts, &self.facts_of) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(_), Some(of)) => of.gpus.contains_key(address) && of.gpus.get(address) == request.gpus.get(address),
        };
        !is_answered && self.failures == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(driver: &str, gpus: &[(&str, &str)]) -> Request {
        let state = |uuid: &str| GpuState { uuid: Some(uuid.to_owned()), ..GpuState::default() };
        let gpus = gpus.iter().map(|(address, uuid)| ((*address).to_owned(), state(uuid))).collect();
        Request { driver_version: Some(driver.to_owned()), gpus, ..Request::default() }
    }

    fn facts_of(request: &Request) -> Answer {
        Answer { facts: Some(Facts::default()), facts_of: Some(request.clone()), ..Answer::default() }
    }

    #[test]
    fn nothing_holds_of_another_driver() {
        let (old, new) = (request("1.0", &[("a", "x")]), request("2.0", &[("a", "x")]));
        assert_eq!(facts_of(&old).to(&old), facts_of(&old));
        assert_eq!(facts_of(&old).to(&new), Answer::default());
        let failed = Answer { failures: 3, failed: Some(old), problem: Some("why".to_owned()), ..Answer::default() };
        assert_eq!(failed.to(&new), Answer::default());
    }

    #[test]
    fn a_gpu_is_awaited_until_an_answer_is_about_it_or_an_attempt_has_failed() {
        let (one, other) = (request("1.0", &[("a", "x")]), request("1.0", &[("a", "x"), ("b", "y")]));
        assert!(Answer::default().is_awaited(&one, "a"));
        assert!(!facts_of(&one).is_awaited(&other, "a"));
        assert!(facts_of(&one).is_awaited(&other, "b"));
        assert!(facts_of(&one).is_awaited(&request("1.0", &[("a", "another")]), "a"));
        assert!(!Answer { failures: 1, ..facts_of(&one) }.is_awaited(&other, "b"));
    }

    #[test]
    fn facts_without_a_request_are_of_every_request() {
        let answer = Answer { facts: Some(Facts::default()), ..Answer::default() };
        assert!(!answer.is_awaited(&request("1.0", &[("a", "x")]), "a"));
        assert_eq!(answer.clone().to(&request("1.0", &[])), answer);
    }

    #[test]
    fn the_first_file_that_can_be_read_counts() {
        let directory = tempfile::tempdir().unwrap();
        let files = ["a", "b", "c"].map(|name| directory.path().join(name));
        assert_eq!(Answer::read(&files), Answer::default());
        std::fs::write(&files[1], r#"{"failures": 2, "asking": {}}"#).unwrap();
        std::fs::write(&files[2], r#"{"failures": 3}"#).unwrap();
        assert_eq!(Answer::read(&files).failures, 2);
        std::fs::write(&files[0], "torn").unwrap();
        assert_eq!(Answer::read(&files), Answer::default());
    }
}
