//! Of which physical function a virtual one is, which of its virtual ones, and what interface the physical one has: by these
//! sriov-network-device-plugin selects (`rootDevices`, `pfNames`, each with `#` and numbers).
//!
//! The kernel's documentation: ABI/testing/sysfs-bus-pci (`physfn`, `virtfnN`), ABI/testing/sysfs-class-net (`phys_port_name`).

use std::path::{Path, PathBuf};

use crate::bus::pci;
use crate::host::Host;
use crate::host::directory::{self, Directory, is_numbered};

/// Where a virtual function comes from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The address of the physical function.
    pub(super) address: String,
    /// Its directory.
    pub(super) path: PathBuf,
    /// `N` of the physical function's link `virtfnN` to the virtual one.
    pub(super) number: Option<usize>,
    /// The network interface of the physical function.
    pub(super) interface: Option<String>,
}

impl Origin {
    /// `None` for what is no virtual function.
    pub(super) fn read(host: &Host, function: &Path) -> Option<Self> {
        let path = pci::physical_function(host, function)?;
        let address = pci::address_of(&path)?.to_owned();
        let (number, interface) = (number(&path, pci::address_of(function)?), interface(&path));
        Some(Self { address, path, number, interface })
    }
}

/// The numbers have no gap.
fn number(physical: &Path, address: &str) -> Option<usize> {
    let targets = (0..).map_while(|number| directory::link(&physical.join(format!("virtfn{number}"))).ok());
    targets.enumerate().find(|(_, target)| target.ends_with(address)).map(|(number, _)| number)
}

/// In switchdev mode the virtual functions' representors stand beside it: then it is the one with the name of a port, `p0`.
fn interface(physical: &Path) -> Option<String> {
    let directory = Directory::open(physical.join("net")).ok()?;
    let names = directory.names().ok()?;
    let is_uplink = |name: &&String| {
        directory.attribute(&format!("{name}/phys_port_name")).is_ok_and(|port| is_numbered(port.text(), "p"))
    };
    names.iter().find(is_uplink).or(names.first()).cloned()
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use super::*;

    /// A physical function with three virtual ones.
    fn host() -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        let bus = root.path().join("sys/devices/pci0000:3a");
        let physical = bus.join("0000:3b:00.0");
        create_dir_all(&physical).unwrap();
        for (number, address) in ["0000:3b:00.1", "0000:3b:00.2", "0000:3b:01.2"].iter().enumerate() {
            create_dir_all(bus.join(address)).unwrap();
            symlink("../0000:3b:00.0", bus.join(address).join("physfn")).unwrap();
            symlink(format!("../{address}"), physical.join(format!("virtfn{number}"))).unwrap();
        }
        let host = Host::new(root.path());
        (root, host)
    }

    fn origin(host: &Host, address: &str) -> Option<Origin> {
        Origin::read(host, &host.sys("devices/pci0000:3a").join(address))
    }

    #[test]
    fn a_virtual_function_has_the_number_of_the_link_to_it() {
        let (_root, host) = host();
        for (address, number) in [("0000:3b:00.1", 0), ("0000:3b:00.2", 1), ("0000:3b:01.2", 2)] {
            let origin = origin(&host, address).unwrap();
            assert_eq!((origin.address.as_str(), origin.number), ("0000:3b:00.0", Some(number)));
        }
        assert_eq!(origin(&host, "0000:3b:00.0"), None);
    }

    #[test]
    fn the_physical_functions_interface_is_its_uplink_among_representors() {
        let (root, host) = host();
        let net = root.path().join("sys/devices/pci0000:3a/0000:3b:00.0/net");
        let interface = |host: &Host| origin(host, "0000:3b:00.1").unwrap().interface;
        assert_eq!(interface(&host), None);
        for (name, port) in [("ens1f0_0", "pf0vf0"), ("ens1f0np0", "p0"), ("ens1f0_1", "pf0vf1")] {
            create_dir_all(net.join(name)).unwrap();
            write(net.join(name).join("phys_port_name"), format!("{port}\n")).unwrap();
        }
        assert_eq!(interface(&host).as_deref(), Some("ens1f0np0"));
        std::fs::remove_file(net.join("ens1f0np0/phys_port_name")).unwrap();
        assert_eq!(interface(&host).as_deref(), Some("ens1f0_0"));
    }
}
