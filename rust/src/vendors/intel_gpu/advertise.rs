//! What a card's facts make: one device for each share, all of them the same card.

use super::by_path::ByPath;
use super::card::{CardNode, Facts};
use super::{NAMESPACE, VENDOR};
use crate::device::{Device, HostPath, Problem};
use crate::health::sources::scan;
use crate::host::Host;

/// `card0-0` … `card0-<shares-1>`, and what is wrong with the card.
pub(super) fn devices(host: &Host, facts: &Facts, by_path: &ByPath, shares: u32) -> (Vec<Device>, Vec<Problem>) {
    let mut problems = Vec::new();
    let whole = whole_card(host, facts, by_path, &mut problems);
    let share = |number: u32| Device { id: format!("{}-{number}", facts.card.name), ..whole.clone() };
    ((0..shares).map(share).collect(), problems)
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
    if let Some(physical) = &facts.physical {
        device.note("physfn", physical, host.own_path(facts.card.device.join("physfn")));
    }
}

/// A node that the device is nothing without.
pub(super) fn path_of(node: &CardNode) -> HostPath {
    HostPath::node(format!("/dev/{}", node.name), node.number)
}
