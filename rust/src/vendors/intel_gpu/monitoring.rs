//! The resource of those who watch every card: one device with all nodes. It has no health of its own: a card that is ill
//! is what one wants to see, so only nodes that are there are given.

use std::collections::BTreeMap;

use super::advertise::path_of;
use super::card::{CardNode, Facts};
use super::options::IntelGpuMonitoring;
use super::{NAMESPACE, VENDOR};
use crate::device::{Device, NotExamined};
use crate::host::Host;

const SINGLE: &str = "monitoring";
/// The drivers whose cards may be the ones that could not be looked at.
const DRIVERS: [&str; 2] = ["i915", "xe"];

/// What one card brings.
#[derive(Debug)]
pub(super) struct Watched {
    /// Last part of the resource's name.
    resource: String,
    nodes: Vec<CardNode>,
}

/// What a card brings; `None` where monitoring is off, or nothing is there to be watched.
pub(super) fn watched(host: &Host, facts: &Facts, choice: IntelGpuMonitoring) -> Option<Watched> {
    let resource = match choice {
        IntelGpuMonitoring::Off => return None,
        IntelGpuMonitoring::Single => SINGLE.to_owned(),
        IntelGpuMonitoring::Split => of_driver(facts.driver()?.0),
    };
    let present = facts.nodes.iter().filter(|node| !host.lacks_node(&host.dev(&node.name), node.number));
    let nodes: Vec<CardNode> = present.chain(&facts.management_nodes).cloned().collect();
    (!nodes.is_empty()).then_some(Watched { resource, nodes })
}

/// One device called `all` for each resource.
pub(super) fn devices(watched: Vec<Watched>) -> Vec<Device> {
    let mut by_resource: BTreeMap<String, Vec<CardNode>> = BTreeMap::new();
    for card in watched {
        by_resource.entry(card.resource).or_default().extend(card.nodes);
    }
    by_resource.into_iter().map(|(resource, nodes)| device(resource, &nodes)).collect()
}

/// While a card cannot be looked at, what was known of it is better than nothing.
pub(super) fn unseen(choice: IntelGpuMonitoring) -> Vec<NotExamined> {
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

fn device(resource: String, nodes: &[CardNode]) -> Device {
    Device {
        vendor: VENDOR.into(),
        id: "all".to_owned(),
        resource_name: Some(format!("{NAMESPACE}/{resource}")),
        card: resource,
        paths: nodes.iter().map(path_of).collect(),
        ..Device::default()
    }
}
