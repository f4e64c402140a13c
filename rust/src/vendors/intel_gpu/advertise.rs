//! Turns the facts of a card into a device with its shares, and the facts of all cards into monitoring devices.
//!
//! The monitoring resource has one device with the nodes of all cards. It has no health of its own, because its users
//! want to see sick cards, too; only existing nodes are given. `/dev/dri/by-path` holds udev's links to the nodes of
//! each card, by PCI address.

use std::collections::BTreeMap;

use super::card::{CardNode, Facts};
use super::{IntelGpuByPath, IntelGpuMonitoring, NAMESPACE, VENDOR};
use crate::bus::pci::VIRTUAL_FUNCTIONS;
use crate::device::{Device, HostPath, NotExamined, Problem};
use crate::health::sources::scan;
use crate::host::Host;
use crate::host::directory::Directory;

/// The card, shared as `card0-0` … `card0-<shares-1>`, and its problems.
pub(super) fn device(host: &Host, facts: &Facts, by_path: &ByPath, shares: u32) -> (Device, Vec<Problem>) {
    let mut problems = Vec::new();
    let whole = whole_card(host, facts, by_path, &mut problems);
    (whole.shared_as((0..shares).map(|number| format!("{}-{number}", facts.card.name))), problems)
}

fn whole_card(host: &Host, facts: &Facts, by_path: &ByPath, problems: &mut Vec<Problem>) -> Device {
    let card = &facts.card;
    let mut device = Device {
        vendor: VENDOR.into(),
        card: card.key().to_owned(),
        paths: by_path.links(card.address.as_deref()),
        numa_nodes: facts.function.numa_node.iter().map(|(node, _)| *node).collect(),
        ..Device::default()
    };
    let mut problem =
        |error: &str| problems.push(Problem::new(VENDOR, host.own_path(&card.device), error).of(&card.name));
    if by_path.needs_address() && card.address.is_none() {
        problem("the card has no PCI address; its links in /dev/dri/by-path are unknown");
    }
    describe(host, facts, &mut device);
    if let Some((driver, source)) = facts.driver() {
        device.note("driver", driver, host.own_path(source));
        device.resource_name = Some(format!("{NAMESPACE}/{driver}"));
    } else {
        let error = "the driver is unknown, and the resource is named after it: check the link `driver`";
        device.findings.insert(scan::finding(scan::DRIVER_UNBOUND, host.own_path(card.device.join("driver")), error));
        problem(error);
    }
    if facts.nodes.is_empty() {
        let error = "the card has no DRM node";
        device.findings.insert(scan::finding(scan::NODE_MISSING, host.own_path(card.device.join("drm")), error));
        problem(error);
    }
    device.paths.extend(facts.nodes.iter().map(path_of));
    device.readings.extend(facts.readings.iter().cloned());
    device
}

fn describe(host: &Host, facts: &Facts, device: &mut Device) {
    facts.function.describe(host, device);
    device.note("card", &facts.card.name, host.own_path(facts.card.device.join("drm").join(&facts.card.name)));
    if facts.virtual_functions > 0 {
        let source = host.own_path(facts.card.device.join(VIRTUAL_FUNCTIONS));
        device.note(VIRTUAL_FUNCTIONS, facts.virtual_functions, source);
    }
    if let Some(physical) = &facts.physical {
        device.note("physfn", physical, host.own_path(facts.card.device.join("physfn")));
    }
}

/// The host path of a node, as required.
fn path_of(node: &CardNode) -> HostPath {
    HostPath::node(format!("/dev/{}", node.name), node.number)
}

const SINGLE: &str = "monitoring";
/// The possible drivers of a card that could not be examined.
const DRIVERS: [&str; 2] = ["i915", "xe"];

/// The part of a monitoring device that comes from one card.
#[derive(Debug)]
pub(super) struct Monitored {
    /// Last part of the resource name.
    resource: String,
    nodes: Vec<CardNode>,
}

/// The card's part of a monitoring device; `None` if monitoring is off, or if the card has no nodes or has virtual
/// functions.
pub(super) fn monitored(host: &Host, facts: &Facts, choice: IntelGpuMonitoring) -> Option<Monitored> {
    let resource = match choice {
        _ if facts.virtual_functions > 0 => return None,
        IntelGpuMonitoring::Off => return None,
        IntelGpuMonitoring::Single => SINGLE.to_owned(),
        IntelGpuMonitoring::Split => of_driver(facts.driver()?.0),
    };
    let present = facts.nodes.iter().filter(|node| !host.lacks_node(&host.dev(&node.name), node.number));
    let nodes: Vec<CardNode> = present.chain(&facts.management_nodes).cloned().collect();
    (!nodes.is_empty()).then_some(Monitored { resource, nodes })
}

/// One device with the id `all` for each resource.
pub(super) fn monitoring_devices(watched: Vec<Monitored>) -> Vec<Device> {
    let mut by_resource: BTreeMap<String, Vec<CardNode>> = BTreeMap::new();
    for card in watched {
        by_resource.entry(card.resource).or_default().extend(card.nodes);
    }
    by_resource.into_iter().map(|(resource, nodes)| monitoring_device(resource, &nodes)).collect()
}

/// Keeps the monitoring devices as they were while a card cannot be examined.
pub(super) fn unseen_monitoring(choice: IntelGpuMonitoring) -> Vec<NotExamined> {
    let cards = match choice {
        IntelGpuMonitoring::Off => Vec::new(),
        IntelGpuMonitoring::Single => vec![SINGLE.to_owned()],
        IntelGpuMonitoring::Split => DRIVERS.map(of_driver).to_vec(),
    };
    cards.into_iter().map(|card| NotExamined { vendor: VENDOR, card: Some(card), finding: None }).collect()
}

fn of_driver(driver: &str) -> String {
    format!("{driver}_{SINGLE}")
}

fn monitoring_device(resource: String, nodes: &[CardNode]) -> Device {
    Device {
        vendor: VENDOR.into(),
        id: "all".to_owned(),
        resource_name: Some(format!("{NAMESPACE}/{resource}")),
        card: resource,
        paths: nodes.iter().map(path_of).collect(),
        ..Device::default()
    }
}

const DIRECTORY: &str = "/dev/dri/by-path";

/// The links of `/dev/dri/by-path` that containers get.
#[derive(Debug)]
pub(super) struct ByPath {
    choice: IntelGpuByPath,
    /// Entries of the directory; `None` if it is missing or not wanted.
    names: Option<Vec<String>>,
}

impl ByPath {
    /// Lists the directory; links are created and removed with the cards.
    pub(super) fn read(host: &Host, choice: IntelGpuByPath) -> Self {
        let read = || Directory::open(host.absolute(DIRECTORY)).and_then(|directory| directory.names()).ok();
        Self { choice, names: (choice != IntelGpuByPath::None).then(read).flatten() }
    }

    /// Whether the address of a card is needed to find its links.
    fn needs_address(&self) -> bool {
        self.choice == IntelGpuByPath::Single && self.names.is_some()
    }

    /// The links of a card.
    pub(super) fn links(&self, address: Option<&str>) -> Vec<HostPath> {
        match (self.choice, &self.names, address) {
            (IntelGpuByPath::All, Some(_), _) => vec![HostPath::file(DIRECTORY)],
            (IntelGpuByPath::Single, Some(names), Some(address)) => {
                let prefix = format!("pci-{address}-");
                let own = names.iter().filter(|name| name.starts_with(&prefix));
                own.map(|name| HostPath::file(format!("{DIRECTORY}/{name}"))).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked(choice: IntelGpuByPath, names: Option<&[&str]>, address: Option<&str>) -> Vec<String> {
        let names = names.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        ByPath { choice, names }.links(address).into_iter().map(|link| link.path).collect()
    }

    #[test]
    fn a_card_has_the_links_of_its_own_address() {
        let names = ["pci-0000:00:02.0-card", "pci-0000:00:02.0-render", "pci-0000:00:02.01-card", "platform-gpu"];
        let single = IntelGpuByPath::Single;
        let own = ["/dev/dri/by-path/pci-0000:00:02.0-card", "/dev/dri/by-path/pci-0000:00:02.0-render"];
        assert_eq!(linked(single, Some(&names), Some("0000:00:02.0")), own);
        assert!(linked(single, Some(&names), Some("0000:03:00.0")).is_empty());
        assert!(linked(single, Some(&names), None).is_empty());
        assert!(linked(single, None, Some("0000:00:02.0")).is_empty());
        assert_eq!(linked(IntelGpuByPath::All, Some(&names), None), ["/dev/dri/by-path"]);
        assert!(linked(IntelGpuByPath::None, Some(&names), Some("0000:00:02.0")).is_empty());
    }
}
