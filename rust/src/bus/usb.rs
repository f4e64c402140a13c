//! USB devices: <https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-usb>, /sys/bus/usb/devices.

use std::path::Path;

use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError};
use crate::host::directory::{Directory, is_numbered};

/// A device on the bus; interfaces are not devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsbDevice {
    /// Topology path, for example `1-2.4`; the name of its directory.
    pub name: String,
    /// `idVendor`, four hexadecimal digits.
    pub vendor: String,
    /// `idProduct`, four hexadecimal digits.
    pub product: String,
    /// `serial`; not all devices have one.
    pub serial: Option<String>,
    /// `busnum`
    pub bus: u32,
    /// `devnum`, a new number each time the device is plugged in.
    pub number: u32,
}

impl UsbDevice {
    /// Its device node, without the host root.
    #[must_use]
    pub fn node(&self) -> String {
        format!("/dev/bus/usb/{:03}/{:03}", self.bus, self.number)
    }
}

/// Where a USB device is plugged in. A device that is plugged into the same port again has another number, and its nodes
/// may have other names, but the port is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Topology path, for example `1-2.4`.
    pub name: String,
    /// The interface of the device, if the path leads to one: `1-2.4:1.0`.
    pub interface: Option<String>,
}

impl Port {
    /// The port of the USB device that a path below /sys/devices leads to or through; the last one if there are several.
    ///
    /// Names: `usb_alloc_dev` and `usb_set_configuration` in drivers/usb/core of Linux.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let names: Vec<&str> = path.iter().filter_map(|name| name.to_str()).collect();
        let root_hub = names.iter().rposition(|name| is_numbered(name, "usb"))?;
        let mut rest = names.get(root_hub + 1..)?.iter();
        let mut start = names[root_hub].replace("usb", "") + "-";
        let mut port = None;
        let mut next = rest.next();
        while let Some(name) = next.filter(|name| is_numbered(name, &start)) {
            (port, start, next) = (Some(*name), format!("{name}."), rest.next());
        }
        let port = port?;
        let interface = next.filter(|name| name.strip_prefix(port).is_some_and(|rest| rest.starts_with(':')));
        Some(Self { name: port.to_owned(), interface: interface.map(|&name| name.to_owned()) })
    }
}

/// The devices of all buses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bus {
    /// Sorted by bus and device number.
    pub devices: Vec<UsbDevice>,
    /// The files that could not be read. An error affects only the device that the file belongs to.
    pub errors: Vec<AttributeError>,
}

/// Reads all USB devices; a host without USB has none.
///
/// # Errors
/// If the directory of all devices cannot be listed.
pub fn read(host: &Host) -> Result<Bus, AttributeError> {
    let mut bus = Bus::default();
    let directory = match Directory::open(host.sys("bus/usb/devices")) {
        Err(error) if error.is_absent() => return Ok(bus),
        opened => opened?,
    };
    for name in directory.names()? {
        bus.add(&directory, &name);
    }
    bus.devices.sort_by_key(|device| (device.bus, device.number));
    Ok(bus)
}

impl Bus {
    fn add(&mut self, directory: &Directory, name: &str) {
        match directory.attribute(&format!("{name}/idVendor")) {
            Ok(vendor) => match self.device(directory, name, &vendor) {
                Ok(device) => self.devices.push(device),
                Err(error) => self.errors.push(error),
            },
            // An interface has no ids, and a device may be unplugged at any time.
            Err(error) if error.is_absent() => {}
            Err(error) => self.errors.push(error),
        }
    }

    fn device(&mut self, directory: &Directory, name: &str, vendor: &Attribute) -> Result<UsbDevice, AttributeError> {
        let read = |attribute: &str| directory.attribute(&format!("{name}/{attribute}"));
        let serial = match read("serial") {
            Ok(serial) => Some(serial.text().to_owned()),
            Err(error) if error.is_absent() => None,
            Err(error) => {
                self.errors.push(error);
                None
            }
        };
        Ok(UsbDevice {
            name: name.to_owned(),
            vendor: vendor.text().to_owned(),
            product: read("idProduct")?.text().to_owned(),
            serial,
            bus: number(&read("busnum")?)?,
            number: number(&read("devnum")?)?,
        })
    }
}

fn number(attribute: &Attribute) -> Result<u32, AttributeError> {
    u32::try_from(attribute.decimal()?).map_err(|_| attribute.unexpected("a USB bus or device number"))
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, remove_file, write};
    use std::path::Path;

    use super::*;

    fn plug(root: &Path, name: &str, ids: (&str, &str), place: (u32, u32), serial: Option<&str>) {
        let directory = root.join("sys/bus/usb/devices").join(name);
        create_dir_all(&directory).unwrap();
        write(directory.join("idVendor"), format!("{}\n", ids.0)).unwrap();
        write(directory.join("idProduct"), format!("{}\n", ids.1)).unwrap();
        write(directory.join("busnum"), format!("{}\n", place.0)).unwrap();
        write(directory.join("devnum"), format!("{}\n", place.1)).unwrap();
        if let Some(serial) = serial {
            write(directory.join("serial"), format!("{serial}\n")).unwrap();
        }
    }

    fn names(bus: &Bus) -> Vec<&str> {
        bus.devices.iter().map(|device| device.name.as_str()).collect()
    }

    #[test]
    fn a_device_is_what_its_attributes_say() {
        let root = tempfile::tempdir().unwrap();
        plug(root.path(), "1-2.4", ("1a86", "7523"), (1, 12), Some("A B"));
        let expected = UsbDevice {
            name: "1-2.4".into(),
            vendor: "1a86".into(),
            product: "7523".into(),
            serial: Some("A B".into()),
            bus: 1,
            number: 12,
        };
        assert_eq!(expected.node(), "/dev/bus/usb/001/012");
        assert_eq!(read(&Host::new(root.path())), Ok(Bus { devices: vec![expected], errors: Vec::new() }));
    }

    #[test]
    fn devices_come_by_bus_and_number_and_interfaces_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        plug(root.path(), "2-1", ("1a86", "7523"), (2, 3), None);
        plug(root.path(), "1-10", ("1a86", "7523"), (1, 2), None);
        plug(root.path(), "1-9", ("1a86", "7523"), (1, 10), None);
        create_dir_all(root.path().join("sys/bus/usb/devices/1-9:1.0")).unwrap();
        assert_eq!(names(&read(&Host::new(root.path())).unwrap()), ["1-10", "1-9", "2-1"]);
    }

    #[test]
    fn an_unreadable_device_is_an_error_and_costs_no_other() {
        let root = tempfile::tempdir().unwrap();
        let devices = root.path().join("sys/bus/usb/devices");
        for name in ["1-1", "1-2", "1-3", "1-4"] {
            plug(root.path(), name, ("1a86", "7523"), (1, 1), None);
        }
        write(devices.join("1-1/busnum"), "x").unwrap();
        remove_file(devices.join("1-2/devnum")).unwrap();
        remove_file(devices.join("1-3/idVendor")).unwrap();
        create_dir_all(devices.join("1-3/idVendor")).unwrap();
        create_dir_all(devices.join("1-4/serial")).unwrap();
        let bus = read(&Host::new(root.path())).unwrap();
        assert_eq!(names(&bus), ["1-4"]);
        let blamed: Vec<_> = bus.errors.iter().map(|error| error.path.strip_prefix(&devices).unwrap()).collect();
        assert_eq!(blamed, ["1-1/busnum", "1-2/devnum", "1-3/idVendor", "1-4/serial"].map(Path::new));
    }

    #[test]
    fn a_path_tells_the_port_and_the_interface_below_it() {
        let of = |path: &str| Port::of(&Path::new("/sys/devices/pci0000:00/0000:00:14.0").join(path));
        let port = |name: &str, interface: Option<&str>| {
            Some(Port { name: name.to_owned(), interface: interface.map(str::to_owned) })
        };
        assert_eq!(of("usb1/1-2"), port("1-2", None));
        assert_eq!(of("usb1/1-2/1-2.4"), port("1-2.4", None));
        assert_eq!(of("usb1/1-2/1-2.4/1-2.4:1.1/ttyUSB0/tty/ttyUSB0"), port("1-2.4", Some("1-2.4:1.1")));
        assert_eq!(of("usb10/10-3/10-3:1.0/i2c-5/5-0050"), port("10-3", Some("10-3:1.0")));
        for none in ["", "usb1", "usb1/1-0:1.0", "usb1/usb1-port2", "i2c-1/1-0050", "usb2/1-1", "usbmisc/hiddev0"] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn a_host_without_usb_has_no_devices() {
        assert_eq!(read(&Host::new("/nonexistent")), Ok(Bus::default()));
    }
}
