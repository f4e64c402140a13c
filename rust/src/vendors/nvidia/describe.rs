//! The attributes of a device, and where each was read.

use std::path::PathBuf;

use super::cards::Card;
use super::driver;
use super::gpu::Gpu;
use super::mig::{self, Instance};
use super::nvml_facts::{self, NvmlFacts};
use crate::device::{Device, Value};
use crate::host::Host;
use crate::nvml::facts::{Gpu as NvmlGpu, MigDevice};

/// A GPU, and what NVML reports about it.
pub(super) struct Parent<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) nvml: Option<&'a NvmlGpu>,
    /// NVML's index, or the one that NVML will give.
    pub(super) index: u32,
    pub(super) uuid: Option<&'a String>,
}

impl Parent<'_> {
    /// Procfs shows MIG devices; only NVML reports MIG mode without any.
    pub(super) fn is_partitioned(&self) -> bool {
        !self.instances().is_empty() || self.nvml.is_some_and(|nvml| nvml.mig_mode == Some(true))
    }

    /// From procfs, because NVML's list may be out of date; from NVML where the driver shows none.
    pub(super) fn instances(&self) -> Vec<Instance> {
        let nvml_instances = || self.nvml.iter().flat_map(|nvml| &nvml.mig_devices).map(Instance::of).collect();
        self.gpu.instances.clone().unwrap_or_else(nvml_instances)
    }
}

/// What is true of all devices of a host.
#[derive(Debug)]
pub(super) struct Common {
    driver_version: Option<(String, PathBuf)>,
    cuda_version: Option<String>,
    /// Addresses of the GPUs that the driver keeps from all users.
    excluded: Vec<String>,
}

impl Common {
    pub(super) fn read(host: &Host, cards: &[Card], nvml_facts: &NvmlFacts) -> Self {
        let facts = nvml_facts.facts();
        let nvml_version = || Some((facts?.driver_version.clone()?, PathBuf::from(nvml_facts::SOURCE)));
        let is_excluded = |card: &&Card| card.gpu.as_ref().is_some_and(|gpu| gpu.information.is_excluded);
        Self {
            driver_version: if cards.is_empty() { None } else { driver::version(host).or_else(nvml_version) },
            cuda_version: facts.and_then(|facts| facts.cuda_version.clone()),
            excluded: cards.iter().filter(is_excluded).map(|card| card.address().to_owned()).collect(),
        }
    }

    pub(super) fn describe(&self, host: &Host, device: &mut Device) {
        if let Some((version, source)) = &self.driver_version {
            device.note("driver_version", Value::Version(version.clone()), host.own_path(source));
        }
        if let Some(version) = &self.cuda_version {
            device.note("cuda_version", Value::Version(version.clone()), nvml_facts::SOURCE);
        }
        if !self.excluded.is_empty() {
            device.note("excluded_gpus", self.excluded.join(","), host.own_path(driver::gpus_directory(host)));
        }
    }
}

/// Adds what the driver, the PCI function and NVML report about the GPU.
pub(super) fn gpu(host: &Host, device: &mut Device, parent: &Parent) {
    if let Some(nvml) = parent.nvml {
        note_nvml(device, nvml);
    }
    let (information, source) = (&parent.gpu.information, host.own_path(&parent.gpu.source));
    for (name, value) in [
        ("model", information.model.as_ref().map(Value::from)),
        ("gpu_uuid", information.uuid.as_ref().map(Value::from)),
        ("minor", information.minor.map(Value::from)),
        ("video_bios", information.video_bios.as_ref().map(Value::from)),
        ("gpu_firmware", information.firmware.as_ref().map(Value::from)),
    ] {
        if let Some(value) = value {
            device.note(name, value, &source);
        }
    }
    if let Some((class, source)) = &parent.gpu.function.class {
        device.note("mode", mode(*class), host.own_path(source));
    }
}

fn note_nvml(device: &mut Device, nvml: &NvmlGpu) {
    for (name, value) in [
        ("model", nvml.model.as_ref().map(Value::from)),
        ("gpu_uuid", nvml.uuid.as_ref().map(Value::from)),
        ("minor", nvml.minor.map(Value::from)),
        (
            "compute_capability",
            nvml.compute_capability.map(|(major, minor)| Value::Version(format!("{major}.{minor}"))),
        ),
        ("memory_bytes", nvml.memory_bytes.map(Value::from)),
    ] {
        if let Some(value) = value {
            device.note(name, value, nvml_facts::SOURCE);
        }
    }
}

/// Adds the names that users and the container runtime have for it.
pub(super) fn name(host: &Host, device: &mut Device, parent: &Parent, index: &str) {
    let is_whole = parent.gpu.information.uuid.as_ref() == Some(&device.id);
    let source = if is_whole { host.own_path(&parent.gpu.source) } else { nvml_facts::SOURCE.into() };
    device.note("uuid", device.id.clone(), source);
    let gpus = host.own_path(driver::gpus_directory(host));
    let source = if parent.nvml.is_some() { nvml_facts::SOURCE.into() } else { gpus };
    device.note("index", index, &source);
    device.note("gpu_index", parent.index, source);
}

/// Adds what NVML reports about a MIG device; its memory replaces the GPU's.
pub(super) fn partition(device: &mut Device, mig: &MigDevice, index: &str, profile: &str) {
    device.note("mig_index", index, nvml_facts::SOURCE);
    device.note("mig_profile", profile, nvml_facts::SOURCE);
    device.note("memory_bytes", mig.memory_mebibytes << 20, nvml_facts::SOURCE);
}

/// Which part of the GPU it is.
pub(super) fn instance(host: &Host, device: &mut Device, minor: u32, instance: Instance) {
    let source = host.own_path(mig::directory(host, minor));
    device.note("gpu_instance", instance.gpu, &source);
    device.note("compute_instance", instance.compute, source);
}

/// The words of NVIDIA's labels.
fn mode(class: u32) -> &'static str {
    match class >> 8 {
        0x0300 => "graphics",
        0x0302 => "compute",
        _ => "unknown",
    }
}
