//! What a device's facts make: one device, or one for each share, with all the nodes that an RDMA workload needs.
//!
//! The state of ports is a fact and does not affect health: on a card of two ports one may well have no cable.

use super::VENDOR;
use super::card::{Facts, word};
use super::companion::{self, Companion};
use crate::device::{Device, HostPath, Problem};
use crate::host::Host;

const EXCLUSIVE: &str = "rdma/hca";
/// As in the examples of the shared device plugin.
const SHARED: &str = "rdma/hca_shared_devices_a";

/// `mlx5_0`, or `mlx5_0-0` … `mlx5_0-<shares-1>`.
///
/// # Errors
/// When a companion is missing that every workload needs: which module makes it.
pub(super) fn devices(
    host: &Host,
    facts: &Facts,
    connection_manager: Option<&Companion>,
    shares: u32,
) -> Result<Vec<Device>, Problem> {
    let hca = &facts.hca;
    let companions: Vec<Companion> = hca.verbs.iter().chain(&hca.mads).chain(connection_manager).cloned().collect();
    if let Some(error) = companion::lack(host, &companions, companion::needed(facts.node_type())) {
        return Err(Problem::new(VENDOR, host.own_path(&hca.path), error).of(&hca.name));
    }
    let whole = whole_device(host, facts, &companions);
    if shares == 0 {
        return Ok(vec![Device { id: hca.name.clone(), resource_name: Some(EXCLUSIVE.to_owned()), ..whole }]);
    }
    let share = |number: u32| Device {
        id: format!("{}-{number}", hca.name),
        resource_name: Some(SHARED.to_owned()),
        ..whole.clone()
    };
    Ok((0..shares).map(share).collect())
}

fn whole_device(host: &Host, facts: &Facts, companions: &[Companion]) -> Device {
    let mut device = Device {
        vendor: VENDOR.into(),
        card: facts.hca.address.clone(),
        numa_nodes: facts.function.numa_node.iter().map(|(node, _)| *node).collect(),
        ..Device::default()
    };
    describe(host, facts, &mut device);
    for companion in companions {
        device.paths.push(HostPath::node(format!("/dev/infiniband/{}", companion.name), companion.number));
    }
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
        device.note("netdev", facts.interfaces.join(","), host.own_path(hca.device.join("net")));
    }
    if let Some(physical) = &facts.physical {
        device.note("physfn", physical, host.own_path(hca.function.join("physfn")));
    }
}

/// A single value if all ports have the same.
fn distinct(words: &[String]) -> String {
    let mut words = words.to_vec();
    words.dedup();
    words.join(",")
}
