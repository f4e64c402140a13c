//! What the facts of devices make: one device each, or one for each share, or one for each PCI function.
//!
//! The state of ports is a fact and does not affect health: on a card of two ports one may well have no cable.

use super::VENDOR;
use super::card::{Facts, word};
use crate::device::{Device, HostPath};
use crate::host::Host;

const EXCLUSIVE: &str = "rdma/hca";
/// As in the examples of the shared device plugin.
const SHARED: &str = "rdma/hca_shared_devices_a";

/// `mlx5_0`, or `mlx5_0-0` … `mlx5_0-<shares-1>`.
pub(super) fn devices(host: &Host, facts: &Facts, shares: u32) -> Vec<Device> {
    let whole = whole_device(host, facts);
    if shares == 0 {
        return vec![whole];
    }
    let share = |number: u32| Device {
        id: format!("{}-{number}", facts.hca.name),
        resource_name: Some(SHARED.to_owned()),
        ..whole.clone()
    };
    (0..shares).map(share).collect()
}

/// `0000:3b:00.1`. A function with virtual ones is left out for them, as sriov-network-device-plugin does, and so are the
/// RDMA devices that are parts of a function (subfunctions).
pub(super) fn functions(host: &Host, cards: &[Facts]) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for facts in cards.iter().filter(|facts| facts.hca.device == facts.hca.function && !facts.has_virtual_functions) {
        let device = Device { id: facts.hca.address.clone(), ..whole_device(host, facts) };
        match devices.iter_mut().find(|known| known.id == device.id) {
            Some(known) => add_paths(known, &device.paths),
            None => devices.push(device),
        }
    }
    devices
}

/// Adds what the device does not have yet.
pub(super) fn add_paths(device: &mut Device, paths: &[HostPath]) {
    for path in paths {
        if !device.paths.contains(path) {
            device.paths.push(path.clone());
        }
    }
}

/// The nodes of an RDMA device, in the order in which containers get them.
pub(super) fn nodes(facts: &Facts) -> Vec<HostPath> {
    let companions = facts.hca.companions.iter();
    companions.map(|one| HostPath::node(format!("/dev/infiniband/{}", one.name), one.number)).collect()
}

fn whole_device(host: &Host, facts: &Facts) -> Device {
    let mut device = Device {
        vendor: VENDOR.into(),
        card: facts.hca.address.clone(),
        id: facts.hca.name.clone(),
        resource_name: Some(EXCLUSIVE.to_owned()),
        numa_nodes: facts.function.numa_node.iter().map(|(node, _)| *node).collect(),
        paths: nodes(facts),
        ..Device::default()
    };
    describe(host, facts, &mut device);
    device
}

fn describe(host: &Host, facts: &Facts, device: &mut Device) {
    facts.function.describe(host, device);
    let hca = &facts.hca;
    device.note("ibdev", &hca.name, host.own_path(&hca.path));
    if let Some((driver, source)) = &facts.function.driver {
        device.note("driver", driver, host.own_path(source));
    }
    for (name, attribute) in &facts.attributes {
        device.note(name, word(attribute.text()), host.own_path(attribute.path()));
    }
    let ports = host.own_path(&facts.ports.path);
    if !facts.ports.states.is_empty() {
        device.note("port_state", facts.ports.states.join(","), &ports);
        device.note("link_layer", distinct(&facts.ports.link_layers), &ports);
    }
    if !facts.interfaces.is_empty() {
        let names: Vec<&str> = facts.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        device.note("netdev", names.join(","), host.own_path(hca.device.join("net")));
    }
    if let Some(key) = &facts.ports.partition_key {
        device.note("pkey", key.text(), host.own_path(key.path()));
    }
    if let Some(origin) = &facts.origin {
        device.note("physfn", &origin.address, host.own_path(hca.function.join("physfn")));
        if let Some(number) = origin.number {
            device.note("vf_index", number as u64, host.own_path(origin.path.join(format!("virtfn{number}"))));
        }
        if let Some(interface) = &origin.interface {
            device.note("pf_name", interface, host.own_path(origin.path.join("net").join(interface)));
        }
    }
}

/// A single value if all ports have the same.
fn distinct(words: &[String]) -> String {
    let mut words = words.to_vec();
    words.dedup();
    words.join(",")
}
