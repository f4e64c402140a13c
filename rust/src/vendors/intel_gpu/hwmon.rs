//! The temperatures of a card that have a critical limit: <https://docs.kernel.org/hwmon/sysfs-interface.html>.
//!
//! The driver xe tells limits from Linux 6.19 on, i915 tells temperatures without one: no limit is made up for it.

use std::path::Path;

use crate::attribute::Attribute;
use crate::check::Check;
use crate::device::Reason;
use crate::directory::{Directory, is_numbered};

/// What health polling can look at below `<function>/hwmon`.
pub(super) fn checks(function: &Path) -> Vec<Check> {
    let Ok(hwmon) = Directory::open(function.join("hwmon")) else { return Vec::new() };
    let devices = hwmon.names().unwrap_or_default().into_iter().filter(|name| is_numbered(name, "hwmon"));
    devices.filter_map(|name| hwmon.open_below(name).ok()).flat_map(|device| temperatures(&device)).collect()
}

fn temperatures(device: &Directory) -> Vec<Check> {
    let names = device.names().unwrap_or_default();
    let sensors = names.iter().filter_map(|name| name.strip_suffix("_crit")).filter(|name| is_numbered(name, "temp"));
    sensors.filter_map(|sensor| below_critical(device, sensor)).collect()
}

/// Both are in millidegrees Celsius.
fn below_critical(device: &Directory, sensor: &str) -> Option<Check> {
    let limit = device.attribute(&format!("{sensor}_crit")).and_then(|limit: Attribute| limit.decimal()).ok()?;
    let attribute = device.path().join(format!("{sensor}_input"));
    Some(Check::Below { attribute, limit, reason: Reason::Temperature })
}
