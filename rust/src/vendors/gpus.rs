//! What the GPU vendors share: temperatures with a critical limit, and the GPUs of one maker on the PCI bus.
//!
//! Temperatures are those of <https://docs.kernel.org/hwmon/sysfs-interface.html>. The driver xe has limits from Linux
//! 6.19 on, amdgpu has them for edge, junction and memory (<https://docs.kernel.org/gpu/amdgpu/thermal.html>); i915 has
//! temperatures without limits, and none is made up for them.

use std::path::Path;

use crate::device::Reading;
use crate::health::sources::temperature;
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::host::directory::{Directory, is_numbered};

/// The readings below `<function>/hwmon`.
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

/// A temperature and its critical limit, both in millidegrees Celsius. Firmware that knows no limit reports zero.
fn below_critical(host: &Host, device: &Directory, sensor: &str) -> Option<Reading> {
    let number = |name: &str| device.attribute(name).and_then(|number: Attribute| number.decimal()).ok();
    let limit = number(&format!("{sensor}_crit")).filter(|limit| *limit > 0)?;
    let input = host.own_path(device.path().join(format!("{sensor}_input")));
    Some(temperature::of_gpu(input, limit, number(&format!("{sensor}_crit_hyst"))))
}

/// The PCI addresses of a maker's GPUs by `vendor` and `class`, whatever drives them. Virtual functions are left out: a
/// driver that serves virtual machines binds to those and lists none.
pub(super) fn on_pci_bus(host: &Host, maker: u64, is_gpu: fn(u64) -> bool) -> Vec<String> {
    let Ok(bus) = Directory::open(host.sys("bus/pci/devices")) else { return Vec::new() };
    let number = |address: &str, name: &str| {
        bus.attribute(&format!("{address}/{name}")).and_then(|attribute| attribute.hexadecimal())
    };
    let wanted = |address: &String| {
        number(address, "vendor") == Ok(maker)
            && number(address, "class").is_ok_and(is_gpu)
            && bus.link(&format!("{address}/physfn")).is_err()
    };
    bus.names().unwrap_or_default().into_iter().filter(wanted).collect()
}
