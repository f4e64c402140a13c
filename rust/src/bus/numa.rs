//! The NUMA node of the hardware behind a device: <https://docs.kernel.org/admin-guide/mm/numaperf.html>.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError};
use crate::host::directory::{self, normal};

/// A NUMA node and the file it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Near {
    /// The node's number.
    pub node: u32,
    /// A `numa_node` of /sys/devices.
    pub source: PathBuf,
}

/// What is known of directories of /sys/devices: many devices have a way up in common.
#[derive(Debug, Default)]
pub struct Nears(HashMap<PathBuf, Option<Near>>);

impl Nears {
    /// Of the device with this link: an entry of /sys/dev/char, /sys/dev/block or a /sys/bus/*/devices.
    ///
    /// The device itself rarely says; the first directory on the way up that has a `numa_node` does (the PCI function of a
    /// USB controller for its sticks). `None` if there is none, or it is -1.
    ///
    /// # Errors
    /// When that file cannot be read or is not a number.
    pub fn of(&mut self, host: &Host, directory: &Path, link: &str) -> Result<Option<Near>, AttributeError> {
        let Ok(target) = directory::link(&directory.join(link)) else { return Ok(None) };
        self.above(&host.sys("devices"), &normal(&directory.join(target)))
    }

    fn above(&mut self, devices: &Path, place: &Path) -> Result<Option<Near>, AttributeError> {
        if let Some(known) = self.0.get(place) {
            return Ok(known.clone());
        }
        let near = match place.parent().filter(|_| place != devices && place.starts_with(devices)) {
            None => None,
            Some(parent) => match Attribute::read(place.join("numa_node")) {
                Ok(attribute) => near(&attribute)?,
                Err(error) if error.is_absent() => self.above(devices, parent)?,
                Err(error) => return Err(error),
            },
        };
        self.0.insert(place.to_path_buf(), near.clone());
        Ok(near)
    }
}

fn near(attribute: &Attribute) -> Result<Option<Near>, AttributeError> {
    Ok(attribute.numa_node()?.map(|node| Near { node, source: attribute.path().to_path_buf() }))
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use super::*;

    const CONTROLLER: &str = "sys/devices/pci0000:00/0000:00:14.0";

    /// A serial adapter on a USB controller that says this.
    fn host(numa_node: Option<&str>) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        create_dir_all(root.path().join(CONTROLLER).join("usb1/1-2/1-2:1.0/ttyUSB0")).unwrap();
        create_dir_all(root.path().join("sys/dev/char")).unwrap();
        write(root.path().join("sys/numa_node"), "9\n").unwrap();
        if let Some(text) = numa_node {
            write(root.path().join(CONTROLLER).join("numa_node"), text).unwrap();
        }
        let target = format!("../../../{CONTROLLER}/usb1/1-2/1-2:1.0/ttyUSB0");
        symlink(target, root.path().join("sys/dev/char/188:0")).unwrap();
        let host = Host::new(root.path());
        (root, host)
    }

    fn node(host: &Host) -> Result<Option<u32>, AttributeError> {
        Ok(Nears::default().of(host, &host.sys("dev/char"), "188:0")?.map(|near| near.node))
    }

    #[test]
    fn the_nearest_directory_upwards_tells() {
        let (root, host) = host(Some("1\n"));
        let near = Nears::default().of(&host, &host.sys("dev/char"), "188:0").unwrap();
        assert_eq!(near, Some(Near { node: 1, source: root.path().join(CONTROLLER).join("numa_node") }));
    }

    #[test]
    fn the_way_that_devices_have_in_common_is_read_once() {
        let (root, host) = host(Some("1\n"));
        let target = format!("../../../{CONTROLLER}/usb1/1-3/1-3:1.0/ttyUSB1");
        symlink(target, root.path().join("sys/dev/char/188:1")).unwrap();
        let mut nears = Nears::default();
        let first = nears.of(&host, &host.sys("dev/char"), "188:0").unwrap();
        std::fs::remove_file(root.path().join(CONTROLLER).join("numa_node")).unwrap();
        assert_eq!(nears.of(&host, &host.sys("dev/char"), "188:1"), Ok(first));
    }

    #[test]
    fn minus_one_nothing_and_no_link_are_unknown() {
        assert_eq!(node(&host(Some("-1\n")).1), Ok(None));
        assert_eq!(node(&host(None).1), Ok(None));
        let (_root, host) = host(Some("1\n"));
        assert_eq!(Nears::default().of(&host, &host.sys("dev/char"), "1:3"), Ok(None));
        assert_eq!(Nears::default().of(&host, &host.sys("dev/block"), "188:0"), Ok(None));
    }

    #[test]
    fn what_is_no_number_is_an_error_with_its_file() {
        let (root, host) = host(Some("many"));
        assert_eq!(node(&host).unwrap_err().path, root.path().join(CONTROLLER).join("numa_node"));
    }
}
