//! NVML's answer, checked against what the driver shows now. Everything works without it: what only NVML knows is then
//! absent.

use super::mig::Instance;
use crate::nvml::answer::Answer;
use crate::nvml::facts::{Facts, Gpu, MigDevice};
use crate::nvml::request::Request;

/// The source of a fact that NVML gave.
pub(super) const SOURCE: &str = "NVML";

/// NVML's answer, and the current request.
#[derive(Debug, Clone, Default)]
pub(super) struct NvmlFacts {
    answer: Answer,
    request: Request,
    /// Whether an answer is to be expected at all.
    is_asked: bool,
}

impl NvmlFacts {
    /// From the answer file. Without `is_asked`, no further answer will come.
    pub(super) fn new(answer: Answer, request: Request, is_asked: bool) -> Self {
        Self { answer: answer.to(&request), request, is_asked }
    }

    /// Whether a new answer about a GPU is expected: until then its absence means nothing.
    pub(super) fn is_awaited(&self, address: &str) -> bool {
        self.is_asked && self.answer.is_awaited(&self.request, address)
    }

    pub(super) fn facts(&self) -> Option<&Facts> {
        self.answer.facts.as_ref()
    }

    /// What went wrong, in words.
    pub(super) fn problems(&self) -> impl Iterator<Item = &String> {
        self.facts().into_iter().flat_map(|facts| &facts.problems).chain(&self.answer.problem)
    }

    pub(super) fn gpu(&self, address: &str) -> Option<&Gpu> {
        self.facts()?.gpus.iter().find(|gpu| gpu.pci_address == address)
    }

    /// The GPU at this address, unless another one was there when NVML was asked.
    pub(super) fn gpu_with(&self, address: &str, uuid: Option<&String>) -> Option<&Gpu> {
        let is_same = |gpu: &&Gpu| uuid.is_none() || gpu.uuid.is_none() || gpu.uuid.as_ref() == uuid;
        self.gpu(address).filter(is_same)
    }

    /// The MIG device of a GPU with the ids of this instance, unless they were another one's when NVML was asked.
    pub(super) fn mig_device<'a>(&self, gpu: &'a Gpu, instance: Instance) -> Option<&'a MigDevice> {
        let state = |request: &Request| request.instance(&gpu.pci_address, instance.gpu, instance.compute);
        let is_same = self.answer.facts_of.as_ref().is_none_or(|of| state(of) == state(&self.request));
        gpu.mig_devices.iter().find(|device| Instance::of(device) == instance).filter(|_| is_same)
    }
}
