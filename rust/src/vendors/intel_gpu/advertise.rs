//! What a card's facts make: one device for each share, all of them the same card.

use serde_json::{Value, json};

use super::by_path::ByPath;
use super::card::{CardNode, Facts};
use super::{NAMESPACE, VENDOR};
use crate::check::Check;
use crate::device::{Device, Mount, Node, Problem, Reason};
use crate::host::Host;

const CDI_KIND: &str = "intel.cdi.k8s.io/gpu";

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
        mounts: by_path.mounts(card.address.as_deref()),
        numa_nodes: facts.function.numa_node.iter().map(|(node, _)| *node).collect(),
        ..Device::default()
    };
    let mut problem =
        |error: &str| problems.push(Problem::new(VENDOR, host.own_path(&card.device), error).of(&card.name));
    if by_path.needs_address() && card.address.is_none() {
        problem("the card leads to no PCI address, so its links in /dev/dri/by-path are unknown");
    }
    describe(host, facts, &mut device);
    if let Some((driver, source)) = &facts.function.driver {
        device.note("driver", driver, host.own_path(source));
        device.resource_name = Some(format!("{NAMESPACE}/{driver}"));
    } else {
        device.reasons.insert(Reason::DriverUnbound);
        problem("no driver can be told, and the resource is called by it: see the link `driver`");
    }
    if facts.nodes.is_empty() {
        device.reasons.insert(Reason::NodeMissing);
        problem("the card has no DRM node");
    }
    for node in &facts.nodes {
        expect(host, &mut device, node);
        device.nodes.push(given(node));
    }
    device.checks.extend(facts.checks.iter().cloned());
    let name = format!("{CDI_KIND}={}", card.name);
    device.cdi_edits.insert(name.clone(), edits(&device.nodes, &device.mounts));
    device.cdi_devices.push(name);
    device
}

fn describe(host: &Host, facts: &Facts, device: &mut Device) {
    facts.function.describe(host, device);
    device.note("card", &facts.card.name, host.own_path(facts.card.device.join("drm").join(&facts.card.name)));
    if let Some(physical) = &facts.physical {
        device.note("physfn", physical, host.own_path(facts.card.device.join("physfn")));
    }
}

fn expect(host: &Host, device: &mut Device, node: &CardNode) {
    let path = host.dev(&node.name);
    if host.lacks_node(&path, node.number) {
        device.reasons.insert(Reason::NodeMissing);
    }
    device.checks.push(Check::NodePresent { path, number: node.number });
}

/// A node as a container gets it.
pub(super) fn given(node: &CardNode) -> Node {
    let path = format!("/dev/{}", node.name);
    Node { host_path: path.clone(), container_path: path, permissions: "rw".to_owned() }
}

/// The same nodes and mounts for a runtime that knows CDI.
fn edits(nodes: &[Node], mounts: &[Mount]) -> String {
    let node = |node: &Node| -> Value {
        json!({"path": node.container_path, "hostPath": node.host_path, "permissions": node.permissions})
    };
    let mount = |mount: &Mount| -> Value {
        let (host, container) = (&mount.host_path, &mount.container_path);
        json!({"hostPath": host, "containerPath": container, "type": "none", "options": ["bind", "ro"]})
    };
    let mut edits = json!({"deviceNodes": nodes.iter().map(node).collect::<Vec<_>>()});
    if !mounts.is_empty() {
        edits["mounts"] = mounts.iter().map(mount).collect();
    }
    edits.to_string()
}
