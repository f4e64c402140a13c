//! The temperatures of a GPU that have a critical limit: <https://docs.kernel.org/hwmon/sysfs-interface.html>.
//!
//! The driver xe has limits from Linux 6.19 on, amdgpu has them of edge, junction and memory
//! (<https://docs.kernel.org/gpu/amdgpu/thermal.html>), i915 has temperatures without one: no limit is made up for it.

use std::path::Path;

use crate::device::Reading;
use crate::health::sources::temperature;
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::host::directory::{Directory, is_numbered};

/// What can be looked at below `<function>/hwmon`.
pub(super) fn readings(host: &Host, function: &Path) -> Vec<Reading> {
    let Ok(hwmon) = Directory::open(function.join("hwmon")) else { return Vec::new() };
    let devices = hwmon.names().unwrap_or_default().into_iter().filter(|name| is_numbered(name, "hwmon"));
    devices.filter_map(|name| hwmon.open_below(name).ok()).flat_map(|device| temperatures(host, &device)).collect()
}

fn temperatures(host: &Host, device: &Directory) -> Vec<Reading> {
    let names = device.names().unwrap_or_default();
    let sensors = names.iter().filter_map(|name| name.strip_suffix("_crit")).filter(|name| is_numbered(name, "temp"));
    sensors.filter_map(|sensor| below_critical(host, device, sensor)).collect()
}

/// Both are in millidegrees Celsius. Firmware that knows no limit has zero.
fn below_critical(host: &Host, device: &Directory, sensor: &str) -> Option<Reading> {
    let number = |name: &str| device.attribute(name).and_then(|number: Attribute| number.decimal()).ok();
    let limit = number(&format!("{sensor}_crit")).filter(|limit| *limit > 0)?;
    let input = host.own_path(device.path().join(format!("{sensor}_input")));
    Some(temperature::of_gpu(input, limit, number(&format!("{sensor}_crit_hyst"))))
}
