//! Groups with members by USB id: either all matching USB devices of all entries form one device, or each is a device
//! of its own. A device has as many shares as the group's count.

use std::path::PathBuf;

use super::{GenericUsb, Group, Seen, USB_PORT, glob, place};
use std::sync::Arc;

use crate::bus::numa::NumaNode;
use crate::bus::usb::UsbDevice;
use crate::device::{Device, HostPath};
use crate::host::Host;

/// Adds the devices of a group. USB devices are ordered by entry, then by bus and number: ids are the same as in
/// generic-device-plugin wherever its own order is defined. In that plugin, a USB device that matches two entries
/// counts twice.
pub(super) fn add(host: &Host, group: &Group, sticks: &[UsbDevice], seen: &mut Seen) {
    let entries = group.options.usb.iter();
    let members: Vec<&UsbDevice> =
        entries.flat_map(|options| sticks.iter().filter(move |stick| is_meant(options, stick))).collect();
    if members.is_empty() {
        let ids = if seen.is_partial { &[] } else { group.options.usb.as_slice() };
        seen.unmatched.extend(ids.iter().map(|options| (group.resource_name.clone(), name(options))));
    } else if group.options.separate {
        for stick in distinct(&members) {
            add_device(host, group, &[stick], seen);
        }
    } else {
        add_device(host, group, &members, seen);
    }
}

fn add_device(host: &Host, group: &Group, members: &[&UsbDevice], seen: &mut Seen) {
    let of_id: Vec<String> = members.iter().map(|stick| stick.node()).collect();
    let of_id: Vec<&str> = of_id.iter().map(String::as_str).collect();
    let members = distinct(members);
    let mut device = group.device(&of_id);
    let numa_nodes: Vec<NumaNode> =
        members.iter().filter_map(|stick| seen.near(host, "bus/usb/devices", &stick.name)).collect();
    place(host, &mut device, numa_nodes.iter());
    describe(host, &mut device, &members);
    device.paths.extend(members.iter().map(|stick| HostPath::node(stick.node(), None)));
    seen.devices.extend((group.options.count > 0).then(|| Arc::new(device)));
}

/// Each USB device once, at the position where it occurs first.
fn distinct<'s>(sticks: &[&'s UsbDevice]) -> Vec<&'s UsbDevice> {
    let mut distinct: Vec<&UsbDevice> = Vec::new();
    for stick in sticks {
        if !distinct.contains(stick) {
            distinct.push(stick);
        }
    }
    distinct
}

/// The directories of USB nodes. They are watched because entries change there even if the kernel's events do not
/// arrive.
pub(super) fn watched_directories(host: &Host) -> impl Iterator<Item = PathBuf> {
    let buses = glob::find(host, "/dev/bus/usb/*").unwrap_or_default().paths;
    buses.into_iter().map(|bus| host.absolute(bus.path))
}

fn name(options: &GenericUsb) -> String {
    let serial = options.serial.iter().map(|serial| format!(" serial {serial}"));
    format!("USB {}:{}", options.vendor, options.product) + &serial.collect::<String>()
}

fn is_meant(options: &GenericUsb, stick: &UsbDevice) -> bool {
    options.vendor.eq_ignore_ascii_case(&stick.vendor)
        && options.product.eq_ignore_ascii_case(&stick.product)
        && options.serial.as_ref().is_none_or(|serial| serial.is_empty() || stick.serial.as_ref() == Some(serial))
}

fn describe(host: &Host, device: &mut Device, members: &[&UsbDevice]) {
    let ids: Vec<String> = members.iter().map(|stick| format!("{}:{}", stick.vendor, stick.product)).collect();
    let serials: Vec<&str> = members.iter().filter_map(|stick| stick.serial.as_deref()).collect();
    let directories: Vec<String> = members
        .iter()
        .map(|stick| host.own_path(host.sys("bus/usb/devices").join(&stick.name)).display().to_string())
        .collect();
    let ports: Vec<&str> = members.iter().map(|stick| stick.name.as_str()).collect();
    device.note("usb_id", ids.join(","), directories.join(","));
    device.note(USB_PORT, ports.join(","), directories.join(","));
    if !serials.is_empty() {
        device.note("serial", serials.join(","), directories.join(","));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_compared_whatever_their_case_and_serials_when_given() {
        let stick = |serial: Option<&str>| UsbDevice {
            name: "1-1".into(),
            vendor: "1a86".into(),
            product: "7523".into(),
            serial: serial.map(Into::into),
            bus: 1,
            number: 2,
        };
        let options = |vendor: &str, serial: Option<&str>| GenericUsb {
            vendor: vendor.into(),
            product: "7523".into(),
            serial: serial.map(Into::into),
        };
        for (options, stick, expected) in [
            (options("1A86", None), stick(None), true),
            (options("1a86", None), stick(Some("A")), true),
            (options("1a87", None), stick(None), false),
            (options("1a86", Some("A")), stick(Some("A")), true),
            (options("1a86", Some("A")), stick(Some("a")), false),
            (options("1a86", Some("A")), stick(None), false),
            (options("1a86", Some("")), stick(Some("A")), true),
        ] {
            assert_eq!(is_meant(&options, &stick), expected, "{options:?} {stick:?}");
        }
    }
}
