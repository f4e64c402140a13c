//! Tegra boards: one GPU within the chip, which the vendor's plugin offers as one device without paths.

use super::advertise::NAMESPACE;
use super::roles::LISTED;
use super::{DeviceDiscoveryStrategy, NvidiaOptions, VENDOR, tegra_lists};
use crate::device::{Device, HostPath, Platform, Problem};
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::host::directory;

const ID: &str = "tegra";
const RELEASE: &str = "/etc/nv_tegra_release";
/// The GPU's own nodes under the drivers that there have been; one of them is there where the GPU works.
const NODES: [&str; 4] = ["nvgpu/igpu0/ctrl", "nvhost-ctrl-gpu", "nvhost-gpu", "nvidia0"];
/// The GPU of a Tegra chip, where the driver for cards lists it.
const INTEGRATED: [&str; 2] = ["(nvgpu)", "NVIDIA Thor"];

/// Whether this is such a board, given the models that the driver for cards lists.
pub(super) fn is_here<'m>(host: &Host, options: &NvidiaOptions, mut models: impl Iterator<Item = &'m str>) -> bool {
    match options.device_discovery_strategy {
        DeviceDiscoveryStrategy::Tegra => true,
        DeviceDiscoveryStrategy::Auto => models.all(is_integrated) && has_tegra_files(host),
        DeviceDiscoveryStrategy::Nvml | DeviceDiscoveryStrategy::Procfs => false,
    }
}

/// The one device. It has no path of its own to give; the runtime knows what belongs to it.
pub(super) fn device(host: &Host) -> Device {
    let mut device = Device {
        vendor: VENDOR.into(),
        card: ID.to_owned(),
        id: ID.to_owned(),
        resource_name: Some(format!("{NAMESPACE}/gpu")),
        ..Device::default()
    };
    device.note("uuid", ID, RELEASE);
    device.note("index", "0", RELEASE);
    if let Ok(model) = Attribute::read(host.proc("device-tree/model")) {
        device.note("model", model.text(), host.own_path(model.path()));
    }
    let nodes = NODES.map(|name| host.dev(name));
    let path = nodes.iter().find(|path| directory::exists(path)).unwrap_or(&nodes[0]).clone();
    device.paths.push(HostPath::node(host.own_path(path).to_string_lossy(), None).in_role("integrated"));
    device
}

/// Adds what a container with the GPU needs; returns a problem if CDI would give it nothing.
pub(super) fn add_listed(host: &Host, platform: &mut Platform) -> Option<Problem> {
    platform.paths.extend(tegra_lists::read(host));
    let error = "no list in this directory names a file of this host: containers get no GPU by CDI";
    platform.paths_in(LISTED).next().is_none().then(|| Problem::new(VENDOR, tegra_lists::DIRECTORY, error).of(ID))
}

fn is_integrated(model: &str) -> bool {
    INTEGRATED.iter().any(|part| model.contains(part))
}

fn has_tegra_files(host: &Host) -> bool {
    let family = Attribute::read(host.sys("devices/soc0/family"));
    let is_tegra = family.is_ok_and(|family| family.text().to_lowercase().starts_with("tegra"));
    is_tegra || directory::exists(&host.absolute(RELEASE))
}
