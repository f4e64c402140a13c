//! What is told of a device in attributes, and where each was read.

use std::path::PathBuf;

use super::advertise::Parent;
use super::cards::Card;
use super::driver;
use super::mig::{self, Instance};
use super::told::{self, Told};
use crate::device::Device;
use crate::host::Host;
use crate::nvml::facts::{Gpu as ToldGpu, MigDevice};

/// What is true of all devices of a host.
#[derive(Debug)]
pub(super) struct Common {
    driver_version: Option<(String, PathBuf)>,
    cuda_version: Option<String>,
    /// Addresses of the GPUs that the driver keeps from all users.
    excluded: Vec<String>,
}

impl Common {
    pub(super) fn read(host: &Host, cards: &[Card], told: &Told) -> Self {
        let facts = told.facts();
        let told_version = || Some((facts?.driver_version.clone()?, PathBuf::from(told::SOURCE)));
        let is_excluded = |card: &&Card| card.gpu.as_ref().is_some_and(|gpu| gpu.information.is_excluded);
        Self {
            driver_version: if cards.is_empty() { None } else { driver::version(host).or_else(told_version) },
            cuda_version: facts.and_then(|facts| facts.cuda_version.clone()),
            excluded: cards.iter().filter(is_excluded).map(|card| card.address().to_owned()).collect(),
        }
    }

    pub(super) fn describe(&self, host: &Host, device: &mut Device) {
        if let Some((version, source)) = &self.driver_version {
            device.note("driver_version", version, host.own_path(source));
        }
        if let Some(version) = &self.cuda_version {
            device.note("cuda_version", version, told::SOURCE);
        }
        if !self.excluded.is_empty() {
            device.note("excluded_gpus", self.excluded.join(","), host.own_path(driver::gpus_directory(host)));
        }
    }
}

/// What the driver, the PCI function and NVML say of the GPU.
pub(super) fn gpu(host: &Host, device: &mut Device, parent: &Parent) {
    if let Some(told) = parent.told {
        note_told(device, told);
    }
    let (information, source) = (&parent.gpu.information, host.own_path(&parent.gpu.source));
    let minor = information.minor.map(|minor| minor.to_string());
    for (name, value) in [
        ("model", information.model.as_ref()),
        ("gpu_uuid", information.uuid.as_ref()),
        ("minor", minor.as_ref()),
        ("video_bios", information.video_bios.as_ref()),
        ("gpu_firmware", information.firmware.as_ref()),
    ] {
        if let Some(value) = value {
            device.note(name, value, &source);
        }
    }
    if let Some((class, source)) = &parent.gpu.function.class {
        device.note("mode", mode(*class), host.own_path(source));
    }
}

fn note_told(device: &mut Device, told: &ToldGpu) {
    for (name, value) in [
        ("model", told.model.clone()),
        ("gpu_uuid", told.uuid.clone()),
        ("minor", told.minor.map(|minor| minor.to_string())),
        ("compute_capability", told.compute_capability.map(|(major, minor)| format!("{major}.{minor}"))),
        ("memory_bytes", told.memory_bytes.map(|bytes| bytes.to_string())),
    ] {
        if let Some(value) = value {
            device.note(name, value, told::SOURCE);
        }
    }
}

/// By what users and the container runtime name it.
pub(super) fn name(host: &Host, device: &mut Device, parent: &Parent, index: &str) {
    let is_whole = parent.gpu.information.uuid.as_ref() == Some(&device.id);
    let source = if is_whole { host.own_path(&parent.gpu.source) } else { told::SOURCE.into() };
    device.note("uuid", device.id.clone(), source);
    let gpus = host.own_path(driver::gpus_directory(host));
    let source = if parent.told.is_some() { told::SOURCE.into() } else { gpus };
    device.note("index", index, &source);
    device.note("gpu_index", parent.index.to_string(), source);
}

/// What NVML says of a MIG device; its memory takes the place of the GPU's.
pub(super) fn partition(device: &mut Device, mig: &MigDevice, index: &str, profile: &str) {
    device.note("mig_index", index, told::SOURCE);
    device.note("mig_profile", profile, told::SOURCE);
    device.note("memory_bytes", (mig.memory_mebibytes << 20).to_string(), told::SOURCE);
}

/// Which part of the GPU it is.
pub(super) fn instance(host: &Host, device: &mut Device, minor: u32, instance: Instance) {
    let source = host.own_path(mig::directory(host, minor));
    device.note("gpu_instance", instance.gpu.to_string(), &source);
    device.note("compute_instance", instance.compute.to_string(), source);
}

/// The words of NVIDIA's labels.
fn mode(class: u32) -> &'static str {
    match class >> 8 {
        0x0300 => "graphics",
        0x0302 => "compute",
        _ => "unknown",
    }
}
