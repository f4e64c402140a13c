//! What NVML has told, and who is asked: a process of its own on a real host, a file on a simulated one.
//!
//! Everything works without: what only NVML knows is then absent.

use std::fmt::Debug;
use std::sync::Arc;

use super::mig::Instance;
use crate::host::Host;
use crate::nvml::facts::{Facts, Gpu, MigDevice};

/// What a fact of NVML has for a source.
pub(super) const SOURCE: &str = "NVML";

/// In the root of a simulated host: the facts as JSON.
const SIMULATED_ANSWER: &str = "/.devherd-nvml.json";

/// Who asks NVML. Called at each scan; never fails, and waits no longer than a probe may take.
pub trait Library: Debug + Send + Sync {
    /// What NVML last said, or `None` as long as it has said nothing.
    ///
    /// `present` lists the GPUs and MIG devices that the driver shows: when it is another than last time, NVML has
    /// something new to say.
    fn facts(&self, present: &str) -> Option<Arc<Facts>>;
}

/// What NVML has told of this host, if anything.
#[derive(Debug, Clone, Default)]
pub(super) struct Told(Option<Arc<Facts>>);

impl Told {
    pub(super) fn new(facts: Option<Arc<Facts>>) -> Self {
        Self(facts)
    }

    /// What stands for NVML on a simulated host; nothing where there is no such file, or it is none.
    #[expect(clippy::disallowed_methods, reason = "no attribute, and larger than one")]
    pub(super) fn simulated(host: &Host) -> Self {
        let answer = std::fs::read_to_string(host.absolute(SIMULATED_ANSWER)).ok().filter(|_| host.is_simulated());
        Self(answer.and_then(|text| serde_json::from_str(&text).ok()).map(Arc::new))
    }

    pub(super) fn facts(&self) -> Option<&Facts> {
        self.0.as_deref()
    }

    pub(super) fn gpu(&self, address: &str) -> Option<&Gpu> {
        self.facts()?.gpus.iter().find(|gpu| gpu.pci_address == address)
    }

    /// Of the GPU there: what was told of another one at its place before does not count.
    pub(super) fn gpu_with(&self, address: &str, uuid: Option<&String>) -> Option<&Gpu> {
        let is_same = |told: &&Gpu| uuid.is_none() || told.uuid.is_none() || told.uuid.as_ref() == uuid;
        self.gpu(address).filter(is_same)
    }
}

/// The MIG device of a GPU that is this instance.
pub(super) fn mig_device(gpu: &Gpu, instance: Instance) -> Option<&MigDevice> {
    gpu.mig_devices.iter().find(|device| Instance::of(device) == instance)
}
