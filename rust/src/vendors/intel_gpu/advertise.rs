//! Turns the facts of a card into a device with its shares, and the facts of all cards into monitoring devices.
//!
//! The monitoring resource has one device with the nodes of all cards. It has no health of its own, because its users
//! want to see sick cards, too; only existing nodes are given. `/dev/dri/by-path` holds udev's links to the nodes of
//! each card, by PCI address. A link can outlive its node: that of the boot framebuffer, which had the card's address
//! until the card's own driver was loaded. A container that is to get a link which leads nowhere cannot start.

use std::collections::BTreeMap;
use std::path::Path;

use super::card::{CardNode, Facts};
use super::models;
use super::{CARD, IntelGpuByPath, IntelGpuMonitoring, NAMESPACE, VENDOR};
use crate::bus::pci::VIRTUAL_FUNCTIONS;
use crate::device::{Device, HostPath, NotExamined, Problem};
use crate::health::sources::scan;
use crate::host::directory::Directory;
use crate::host::{Host, resolve};
use crate::vendors::VIRTUAL_FUNCTIONS_ELSEWHERE;

/// What is said about a card.
#[derive(Debug)]
pub(super) struct Said {
    /// The card, shared as `card0-0` … `card0-<shares-1>`.
    pub(super) device: Device,
    pub(super) problems: Vec<Problem>,
    /// The links that containers do not get.
    pub(super) notice: Option<Problem>,
}

pub(super) fn device(host: &Host, facts: &Facts, by_path: &ByPath, shares: u32) -> Said {
    let mut problems = Vec::new();
    let links = by_path.links(host, facts.card.address.as_deref(), &facts.nodes);
    let whole = whole_card(host, facts, by_path, links.own, &mut problems);
    Said {
        device: whole.shared_as((0..shares).map(|number| format!("{}-{number}", facts.card.name))),
        problems,
        notice: stale(&links.stale).map(|error| Problem::new(VENDOR, DIRECTORY, error).of(&facts.card.name)),
    }
}

fn stale(links: &[String]) -> Option<String> {
    let named = links.join(", ");
    let rest = "no node of the card, and no container gets";
    match links.len() {
        0 => None,
        1 => Some(format!("the link {named} with the card's address leads to {rest} it: remove it")),
        _ => Some(format!("the links {named} with the card's address lead to {rest} them: remove them")),
    }
}

fn whole_card(
    host: &Host,
    facts: &Facts,
    by_path: &ByPath,
    links: Vec<HostPath>,
    problems: &mut Vec<Problem>,
) -> Device {
    let card = &facts.card;
    let mut device = Device {
        vendor: VENDOR.into(),
        card: card.key().to_owned(),
        paths: links,
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
    device.note(CARD, &facts.card.name, host.own_path(facts.card.device.join("drm").join(&facts.card.name)));
    if let Some(((_, id), source)) = &facts.function.id {
        if let Some((model, family)) = models::named(*id) {
            device.note("model", model, host.own_path(source));
            device.note("family", family, host.own_path(source));
        }
        let (sriov, source) = facts.sriov.as_ref().map_or((false, source), |(sriov, source)| (*sriov, source));
        device.note("sriov", sriov, host.own_path(source));
    }
    if facts.virtual_functions > 0 {
        let source = host.own_path(facts.card.device.join(VIRTUAL_FUNCTIONS));
        device.note(VIRTUAL_FUNCTIONS, facts.virtual_functions, source);
        if let Some(drivers) = &facts.elsewhere {
            device.note(VIRTUAL_FUNCTIONS_ELSEWHERE, drivers, host.own_path(&facts.card.device));
        }
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
    cards.into_iter().map(|card| NotExamined::new(VENDOR, Some(card))).collect()
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

/// The directory of udev's links.
pub(super) const DIRECTORY: &str = "/dev/dri/by-path";

/// The links of a card.
#[derive(Debug, Default, PartialEq, Eq)]
struct Links {
    /// The links that containers get.
    own: Vec<HostPath>,
    /// Links that lead to no node of the card, each with its end: `pci-0000:00:02.0-card -> /dev/dri/card9`.
    stale: Vec<String>,
}

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

    /// The links of a card with these nodes.
    fn links(&self, host: &Host, address: Option<&str>, nodes: &[CardNode]) -> Links {
        match (self.choice, &self.names, address) {
            (IntelGpuByPath::All, Some(_), _) => Links { own: vec![HostPath::file(DIRECTORY)], ..Links::default() },
            (IntelGpuByPath::Single, Some(names), Some(address)) => of_card(host, names, address, nodes),
            _ => Links::default(),
        }
    }
}

/// Sorts the links with the card's address by whether they end at one of its nodes.
fn of_card(host: &Host, names: &[String], address: &str, nodes: &[CardNode]) -> Links {
    let end = |path: &str| resolve::end_of(host, Path::new(path));
    let ends: Vec<_> = nodes.iter().map(|node| end(&path_of(node).path)).collect();
    let prefix = format!("pci-{address}-");
    let mut links = Links::default();
    for name in names.iter().filter(|name| name.starts_with(&prefix)) {
        let path = format!("{DIRECTORY}/{name}");
        let end = end(&path);
        if ends.contains(&end) {
            links.own.push(HostPath::file(path));
        } else {
            links.stale.push(format!("{name} -> {}", end.display()));
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A host with these links in /dev/dri/by-path, and the nodes card0 and renderD128.
    fn linked(links: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join(&DIRECTORY[1..]);
        std::fs::create_dir_all(&directory).unwrap();
        for node in ["card0", "renderD128"] {
            std::fs::write(root.path().join("dev/dri").join(node), "").unwrap();
        }
        for (name, target) in links {
            symlink(target, directory.join(name)).unwrap();
        }
        let host = Host::new(root.path());
        (root, host)
    }

    fn links(host: &Host, choice: IntelGpuByPath, address: Option<&str>) -> (Vec<String>, Vec<String>) {
        let nodes = ["dri/card0", "dri/renderD128"].map(|name| CardNode { name: name.to_owned(), number: None });
        let Links { own, stale } = ByPath::read(host, choice).links(host, address, &nodes);
        (own.into_iter().map(|link| link.path).collect(), stale)
    }

    fn nothing() -> (Vec<String>, Vec<String>) {
        (Vec::new(), Vec::new())
    }

    #[test]
    fn a_card_has_the_links_of_its_own_address() {
        let (_root, host) = linked(&[
            ("pci-0000:00:02.0-card", "../card0"),
            ("pci-0000:00:02.0-render", "/dev/dri/renderD128"),
            ("pci-0000:00:02.01-card", "../card0"),
            ("platform-gpu", "../card0"),
        ]);
        let single = IntelGpuByPath::Single;
        let own = ["card", "render"].map(|kind| format!("/dev/dri/by-path/pci-0000:00:02.0-{kind}"));
        assert_eq!(links(&host, single, Some("0000:00:02.0")), (own.to_vec(), Vec::new()));
        assert_eq!(links(&host, single, Some("0000:03:00.0")), nothing());
        assert_eq!(links(&host, single, None), nothing());
        assert_eq!(links(&Host::new("/nowhere"), single, Some("0000:00:02.0")), nothing());
        assert_eq!(links(&host, IntelGpuByPath::All, None), (vec!["/dev/dri/by-path".to_owned()], Vec::new()));
        assert_eq!(links(&host, IntelGpuByPath::None, Some("0000:00:02.0")), nothing());
    }

    #[test]
    fn a_link_that_ends_at_no_node_of_the_card_is_stale() {
        let (_root, host) = linked(&[
            ("pci-0000:00:02.0-card", "../card0"),
            ("pci-0000:00:02.0-loop", "pci-0000:00:02.0-loop"),
            ("pci-0000:00:02.0-other", "../card1"),
            ("pci-0000:00:02.0-platform-simple-framebuffer.0-card", "../card9"),
            ("pci-0000:00:02.0-twice", "pci-0000:00:02.0-card"),
        ]);
        std::fs::write(host.dev("dri/card1"), "").unwrap();
        let found = links(&host, IntelGpuByPath::Single, Some("0000:00:02.0"));
        let own = ["card", "twice"].map(|name| format!("/dev/dri/by-path/pci-0000:00:02.0-{name}"));
        let stale = [
            "pci-0000:00:02.0-loop -> /dev/dri/by-path/pci-0000:00:02.0-loop",
            "pci-0000:00:02.0-other -> /dev/dri/card1",
            "pci-0000:00:02.0-platform-simple-framebuffer.0-card -> /dev/dri/card9",
        ];
        assert_eq!(found, (own.to_vec(), stale.map(str::to_owned).to_vec()));
    }
}
