//! Code that the GPU vendors share: temperatures with a critical limit, the functions of one maker on the PCI bus, the
//! edits for the container of a virtual machine, and lists of product names.
//!
//! Temperatures follow <https://docs.kernel.org/hwmon/sysfs-interface.html>. The driver xe has limits from Linux 6.19
//! on; amdgpu has limits for edge, junction and memory (<https://docs.kernel.org/gpu/amdgpu/thermal.html>); i915 has
//! temperatures without limits, and devherd does not invent any.

use std::path::{Path, PathBuf};

use crate::bus::functions::Functions;
use crate::device::{Device, Reading};
use crate::edits::{Edits, Way};
use crate::health::sources::temperature;
use crate::host::Host;
use crate::host::attribute::{Attribute, content};
use crate::host::directory::{Directory, is_numbered};

/// The temperature readings below `<function>/hwmon`.
pub(super) fn temperature_readings(host: &Host, function: &Path) -> Vec<Reading> {
    let Ok(hwmon) = Directory::open(function.join("hwmon")) else { return Vec::new() };
    let devices = hwmon.names().unwrap_or_default().into_iter().filter(|name| is_numbered(name, "hwmon"));
    devices.filter_map(|name| hwmon.open_below(name).ok()).flat_map(|device| temperatures(host, &device)).collect()
}

fn temperatures(host: &Host, device: &Directory) -> Vec<Reading> {
    let names = device.names().unwrap_or_default();
    let sensors = names.iter().filter_map(|name| name.strip_suffix("_crit")).filter(|name| is_numbered(name, "temp"));
    sensors.filter_map(|sensor| below_critical(host, device, sensor)).collect()
}

/// A temperature and its critical limit, both in millidegrees Celsius. A zero means that the firmware knows no limit.
fn below_critical(host: &Host, device: &Directory, sensor: &str) -> Option<Reading> {
    let number = |name: &str| device.attribute(name).and_then(|number: Attribute| number.decimal()).ok();
    let limit = number(&format!("{sensor}_crit")).filter(|limit| *limit > 0)?;
    let input = host.own_path(device.path().join(format!("{sensor}_input")));
    Some(temperature::of_gpu(input, limit, number(&format!("{sensor}_crit_hyst"))))
}

/// The PCI addresses of a maker's GPUs by `vendor` and `class`, with or without one of its `own` drivers. Virtual
/// functions are left out: a driver for virtual machines binds to them and lists none.
pub(super) fn on_pci_bus(host: &Host, maker: u64, own: &[&str], is_gpu: fn(u64) -> bool) -> Vec<String> {
    let Some(functions) = Functions::of(host) else { return Vec::new() };
    let is_virtual = |address: &str| functions.bus().link(&format!("{address}/physfn")).is_ok();
    let is_one = |address: &&str| {
        !functions.is_of_others(address, own)
            && functions.class(address).is_some_and(is_gpu)
            && functions.maker(address) == Some(maker)
            && !is_virtual(address)
    };
    functions.addresses().filter(is_one).map(str::to_owned).collect()
}

/// An attribute that exists only on devices for virtual machines.
pub(super) const IOMMU_GROUP: &str = "iommu_group";

/// Why a function cannot be given to a virtual machine, with the cure.
pub(super) const NO_IOMMU_GROUP: &str =
    "no IOMMU group: enable the IOMMU in the firmware and on the kernel command line";

/// The attribute with the UUID of a mediated device.
pub(super) const MDEV_UUID: &str = "mdev_uuid";

/// The edits for the container of a virtual machine: the nodes, and the addresses or the UUID in the variable that
/// KubeVirt reads. `None` for a device that is meant for containers.
pub(super) fn for_virtual_machine(device: &Device, resource_name: &str) -> Option<Edits> {
    device.attributes.get(IOMMU_GROUP)?;
    let by_uuid = device.text(MDEV_UUID).map(|uuid| ("MDEV_PCI_RESOURCE", uuid));
    let (prefix, value) = by_uuid.unwrap_or_else(|| ("PCI_RESOURCE", device.text("pci_address").unwrap_or_default()));
    let name = format!("{prefix}_{}", in_capitals(resource_name));
    Some(Edits { joined_envs: [(name, value)].into(), ..Edits::of_nodes(&device.paths, "mrw") })
}

/// The reason why a device for virtual machines is not offered by this way; `None` for one that is offered, and for a
/// device that is meant for containers. `KubeVirt` finds devices of DRA by metadata files only.
pub(super) fn left_to_virtual_machines(device: &Device, way: Way) -> Option<&'static str> {
    let is_left = way == Way::Cdi && device.attributes.contains_key(IOMMU_GROUP);
    is_left.then_some("it is for virtual machines, which are given devices by the device plugin alone")
}

/// The resource name as KubeVirt's `ResourceNameToEnvVar` writes it, with hyphens kept: `AMD_COM_GPU`.
fn in_capitals(resource_name: &str) -> String {
    resource_name.replace(['/', '.'], "_").to_uppercase()
}

/// The first of these lists of product names that the host has, and its path without the host root. If a real host has
/// none, the lists in devherd's own container are used.
pub(super) fn text_of_list(host: &Host, paths: &[&str]) -> Option<(String, String)> {
    let own = paths.iter().filter(|_| host.has_kernel_sysfs()).map(|path| (PathBuf::from(path), *path));
    let places = paths.iter().map(|path| (host.absolute(path), *path)).chain(own);
    places
        .into_iter()
        .find_map(|(place, path)| Some((String::from_utf8_lossy(&content(&place)?).into_owned(), path.to_owned())))
}
