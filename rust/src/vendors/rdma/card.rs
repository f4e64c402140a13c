//! The facts of one RDMA device, read behind the fence: some come from its firmware.
//!
//! A virtual function also has facts about its origin: the physical function, its own number there, and the network
//! interface of the physical function. sriov-network-device-plugin selects by them (`rootDevices`, `pfNames`, each with
//! `#` and numbers). The kernel's documentation: ABI/testing/sysfs-bus-pci (`physfn`, `virtfnN`),
//! ABI/testing/sysfs-class-net (`phys_port_name`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::locate::Hca;
use crate::bus::pci;
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::host::directory::{self, Directory, is_numbered};

/// Attributes of the class device, under the kernel's names.
const ATTRIBUTES: [&str; 5] = [NODE_TYPE, "node_guid", "hca_type", "fw_ver", "board_id"];
const NODE_TYPE: &str = "node_type";

/// The facts of an RDMA device.
#[derive(Debug, PartialEq)]
pub(super) struct Facts {
    pub(super) hca: Arc<Hca>,
    pub(super) function: pci::Function,
    pub(super) physical: Physical,
    /// Attributes of the class device.
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    pub(super) ports: Ports,
    /// Its network interfaces, as far as they are in this network namespace.
    pub(super) interfaces: Vec<Interface>,
    /// The number of virtual functions of its PCI function.
    pub(super) virtual_functions: u32,
    /// The drivers of these, if none of them is an RDMA device.
    pub(super) elsewhere: Option<String>,
}

/// A network interface.
#[derive(Debug, PartialEq)]
pub(super) struct Interface {
    pub(super) name: String,
    /// `type`: a number of the kernel's `if_arp.h`.
    kind: Option<i64>,
}

/// The ports of a device, in order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Ports {
    pub(super) path: PathBuf,
    /// State of each port: `ACTIVE`, `DOWN`, `INIT`, `ARMED`.
    pub(super) states: Vec<String>,
    /// Link layer of each port: `InfiniBand`, `Ethernet`.
    pub(super) link_layers: Vec<String>,
    /// The first partition key of the first port: `0xffff`.
    pub(super) partition_key: Option<Attribute>,
}

impl Facts {
    pub(super) fn read(host: &Host, hca: Arc<Hca>) -> Self {
        let attribute = |name| Attribute::read(hca.path.join(name)).ok().map(|attribute| (name, attribute));
        let virtual_functions = pci::virtual_functions(&hca.function).unwrap_or_default();
        let interfaces = Interface::of(hca.device.join("net"));
        Self {
            function: pci::Function::read(&hca.function),
            physical: Physical::read(host, &hca, &interfaces),
            attributes: ATTRIBUTES.into_iter().filter_map(attribute).collect(),
            ports: Ports::read(hca.path.join("ports")),
            interfaces,
            elsewhere: (virtual_functions > 0)
                .then(|| pci::virtual_functions_elsewhere(host, &hca.function, "infiniband"))
                .flatten(),
            virtual_functions,
            hca,
        }
    }

    /// Whether its ports are unchanged: their state, and the keys that a subnet manager sets, can change while the
    /// kernel's objects stay.
    pub(super) fn is_current(&self) -> bool {
        Ports::read(self.ports.path.clone()) == self.ports
    }

    /// The type of the RDMA device: `1: CA`.
    pub(super) fn node_type(&self) -> Option<&str> {
        self.attributes.iter().find(|(name, _)| *name == NODE_TYPE).map(|(_, attribute)| attribute.text())
    }
}

impl Ports {
    fn read(path: PathBuf) -> Self {
        let mut ports = Self { path, ..Self::default() };
        let Ok(directory) = Directory::open(&ports.path) else { return ports };
        for port in directory.names().unwrap_or_default() {
            let text = |name: &str| {
                directory.attribute(&format!("{port}/{name}")).map_or("unknown".to_owned(), |it| it.text().to_owned())
            };
            ports.states.push(word_of(&text("state")).to_owned());
            ports.link_layers.push(text("link_layer"));
        }
        ports.partition_key = directory.attribute("1/pkeys/0").ok();
        ports
    }
}

/// The word behind the number: `ACTIVE` in `4: ACTIVE`, `CA` in `1: CA`.
pub(super) fn word_of(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(_, word)| word)
}

impl Interface {
    fn of(directory: PathBuf) -> Vec<Self> {
        let Ok(directory) = Directory::open(directory) else { return Vec::new() };
        let kind = |name: &str| directory.attribute(&format!("{name}/type")).and_then(|kind| kind.decimal()).ok();
        let names = directory.names().unwrap_or_default();
        names.into_iter().map(|name| Self { kind: kind(&name), name }).collect()
    }

    /// The kind of interface, in the terms of netlink.
    pub(super) fn link_type(&self) -> Option<&'static str> {
        match self.kind {
            Some(1) => Some("ether"),
            Some(32) => Some("infiniband"),
            _ => None,
        }
    }
}

/// The physical function of a function: itself, unless it is virtual.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Physical {
    /// The address of the physical function.
    pub(super) address: String,
    /// Its directory.
    pub(super) path: PathBuf,
    /// `N` in the name of the link `virtfnN`, by which the physical function refers to this virtual function.
    pub(super) number: Option<usize>,
    /// The network interface of the physical function.
    pub(super) interface: Option<String>,
}

impl Physical {
    /// Reads the physical function of an RDMA device with these interfaces.
    fn read(host: &Host, hca: &Hca, interfaces: &[Interface]) -> Self {
        let of_virtual = || {
            let path = pci::physical_function(host, &hca.function)?;
            let address = pci::address_of(&path)?.to_owned();
            let (number, interface) = (number(&path, &hca.address), interface(&path));
            Some(Self { address, path, number, interface })
        };
        of_virtual().unwrap_or_else(|| {
            let interface = match interfaces {
                [one] if hca.device == hca.function => Some(one.name.clone()),
                _ => interface(&hca.function),
            };
            Self { address: hca.address.clone(), path: hca.function.clone(), number: None, interface }
        })
    }
}

/// The number of a virtual function. The numbers have no gaps.
fn number(physical: &Path, address: &str) -> Option<usize> {
    let targets = (0..).map_while(|number| directory::link(&physical.join(format!("virtfn{number}"))).ok());
    targets.enumerate().find(|(_, target)| target.ends_with(address)).map(|(number, _)| number)
}

/// The network interface of the physical function. In switchdev mode, the same directory also has the representors of
/// the virtual functions; then it is the interface with the name of a port, `p0`.
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

    #[test]
    fn a_state_is_its_word() {
        for (text, expected) in [("4: ACTIVE", "ACTIVE"), ("1: DOWN", "DOWN"), ("unknown", "unknown"), ("", "")] {
            assert_eq!(word_of(text), expected);
        }
    }

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

    fn physical(host: &Host, address: &str) -> Physical {
        let function = host.sys("devices/pci0000:3a").join(address);
        let (device, path) = (function.clone(), function.join("infiniband/mlx5_0"));
        let (name, address, companions) = ("mlx5_0".to_owned(), address.to_owned(), Vec::new());
        Physical::read(host, &Hca { name, path, device, function, address, companions }, &[])
    }

    #[test]
    fn a_virtual_function_has_the_number_of_the_link_to_it() {
        let (_root, host) = host();
        for (address, number) in [("0000:3b:00.1", 0), ("0000:3b:00.2", 1), ("0000:3b:01.2", 2)] {
            let physical = physical(&host, address);
            assert_eq!((physical.address.as_str(), physical.number), ("0000:3b:00.0", Some(number)));
        }
        let of_itself = physical(&host, "0000:3b:00.0");
        assert_eq!((of_itself.address.as_str(), of_itself.number), ("0000:3b:00.0", None));
    }

    #[test]
    fn the_physical_functions_interface_is_its_uplink_among_representors() {
        let (root, host) = host();
        let net = root.path().join("sys/devices/pci0000:3a/0000:3b:00.0/net");
        let interface = |host: &Host| physical(host, "0000:3b:00.1").interface;
        assert_eq!(interface(&host), None);
        for (name, port) in [("ens1f0_0", "pf0vf0"), ("ens1f0np0", "p0"), ("ens1f0_1", "pf0vf1")] {
            create_dir_all(net.join(name)).unwrap();
            write(net.join(name).join("phys_port_name"), format!("{port}\n")).unwrap();
        }
        assert_eq!(interface(&host).as_deref(), Some("ens1f0np0"));
        assert_eq!(physical(&host, "0000:3b:00.0").interface.as_deref(), Some("ens1f0np0"));
        std::fs::remove_file(net.join("ens1f0np0/phys_port_name")).unwrap();
        assert_eq!(interface(&host).as_deref(), Some("ens1f0_0"));
    }
}
