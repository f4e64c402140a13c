//! What NVML has told of a host. Everything works without: what only NVML knows is then absent.

use std::sync::Arc;

use super::mig::Instance;
use crate::host::Host;
use crate::nvml::facts::{Facts, Gpu, MigDevice};
use crate::nvml::process::Answer;

/// What a fact of NVML has for a source.
pub(super) const SOURCE: &str = "NVML";

/// In the root of a simulated host, in place of the library: the facts as JSON.
const SIMULATED_ANSWER: &str = "/.devherd-nvml.json";

/// What NVML has told of this host, if anything.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    facts: Option<Arc<Facts>>,
    is_awaited: bool,
}

impl Told {
    pub(super) fn new(facts: Option<Arc<Facts>>) -> Self {
        Self { facts, is_awaited: false }
    }

    /// What stands for NVML on a simulated host; `None` where there is no such file, or it is none.
    #[expect(clippy::disallowed_methods, reason = "no attribute, and larger than one")]
    pub(super) fn simulated(host: &Host) -> Option<Self> {
        let answer = std::fs::read_to_string(host.absolute(SIMULATED_ANSWER)).ok().filter(|_| host.is_simulated())?;
        Some(Self::new(serde_json::from_str(&answer).ok().map(Arc::new)))
    }

    /// Whether NVML is about to tell for the first time: until then its silence means nothing.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    pub(super) fn facts(&self) -> Option<&Facts> {
        self.facts.as_deref()
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

impl From<Answer> for Told {
    fn from(answer: Answer) -> Self {
        Self { facts: answer.facts, is_awaited: answer.awaited }
    }
}

/// The MIG device of a GPU that is this instance.
pub(super) fn mig_device(gpu: &Gpu, instance: Instance) -> Option<&MigDevice> {
    gpu.mig_devices.iter().find(|device| Instance::of(device) == instance)
}
