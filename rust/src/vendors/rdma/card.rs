//! The facts of one RDMA device, read behind the fence: some come from its firmware.

use std::path::PathBuf;

use super::locate::Hca;
use super::origin::Origin;
use crate::bus::pci;
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::host::directory::Directory;

/// Attributes of the class device, by the kernel's names.
const ATTRIBUTES: [&str; 5] = [NODE_TYPE, "node_guid", "hca_type", "fw_ver", "board_id"];
const NODE_TYPE: &str = "node_type";

/// Everything read of an RDMA device.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) hca: Hca,
    pub(super) function: pci::Function,
    /// The physical function, of a virtual one.
    pub(super) origin: Option<Origin>,
    /// What the class device reports.
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    pub(super) ports: Ports,
    /// Its network interfaces, as far as they are in this network namespace.
    pub(super) interfaces: Vec<Interface>,
    /// Whether its PCI function has virtual ones.
    pub(super) has_virtual_functions: bool,
}

/// A network interface.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    /// `type`: a number of the kernel's `if_arp.h`.
    kind: Option<i64>,
}

/// The ports of a device, in their order.
#[derive(Debug, Default)]
pub(super) struct Ports {
    pub(super) path: PathBuf,
    /// `ACTIVE`, `DOWN`, `INIT`, `ARMED`.
    pub(super) states: Vec<String>,
    /// `InfiniBand`, `Ethernet`.
    pub(super) link_layers: Vec<String>,
    /// The first partition key of the first port, `0xffff`.
    pub(super) partition_key: Option<Attribute>,
}

impl Facts {
    pub(super) fn read(host: &Host, hca: Hca) -> Self {
        let attribute = |name| Attribute::read(hca.path.join(name)).ok().map(|attribute| (name, attribute));
        Self {
            function: pci::Function::read(&hca.function),
            origin: Origin::read(host, &hca.function),
            attributes: ATTRIBUTES.into_iter().filter_map(attribute).collect(),
            ports: Ports::read(hca.path.join("ports")),
            interfaces: Interface::of(hca.device.join("net")),
            has_virtual_functions: pci::has_virtual_functions(&hca.function).unwrap_or_default(),
            hca,
        }
    }

    /// `1: CA`.
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
            ports.states.push(word(&text("state")).to_owned());
            ports.link_layers.push(text("link_layer"));
        }
        ports.partition_key = directory.attribute("1/pkeys/0").ok();
        ports
    }
}

/// `4: ACTIVE` is `ACTIVE`, `1: CA` is `CA`.
pub(super) fn word(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(_, word)| word)
}

impl Interface {
    fn of(directory: PathBuf) -> Vec<Self> {
        let Ok(directory) = Directory::open(directory) else { return Vec::new() };
        let kind = |name: &str| directory.attribute(&format!("{name}/type")).and_then(|kind| kind.decimal()).ok();
        let names = directory.names().unwrap_or_default();
        names.into_iter().map(|name| Self { kind: kind(&name), name }).collect()
    }

    /// As netlink calls it.
    pub(super) fn link_type(&self) -> Option<&'static str> {
        match self.kind {
            Some(1) => Some("ether"),
            Some(32) => Some("infiniband"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_its_word() {
        for (text, expected) in [("4: ACTIVE", "ACTIVE"), ("1: DOWN", "DOWN"), ("unknown", "unknown"), ("", "")] {
            assert_eq!(word(text), expected);
        }
    }
}
