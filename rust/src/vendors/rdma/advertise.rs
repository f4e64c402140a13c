//! Turns facts into devices: one per RDMA device, perhaps with shares, or one per PCI function, or pools.
//!
//! The state of ports is a fact and does not affect health: a card with two ports may well have one without a cable.
//! Pools are the same as in k8s-rdma-shared-dev-plugin: their ids are numbers, and each id gives all devices of the
//! pool. The health of a pool depends on its nodes only: a container with a missing node cannot start, but the failure
//! of one card is no reason to withhold the others.

use std::sync::Arc;

use super::card::{Facts, Interface, word_of};
use super::{RdmaPool, RdmaSelectors, VENDOR};
use crate::bus::pci::VIRTUAL_FUNCTIONS;
use crate::device::{Device, Found, HostPath, NotExamined, Problem};
use crate::host::Host;
use crate::vendors::VIRTUAL_FUNCTIONS_ELSEWHERE;

const EXCLUSIVE: &str = "rdma/hca";
/// The default resource name, from the examples of the shared device plugin.
const SHARED: &str = "rdma/hca_shared_devices_a";

/// One device per RDMA device.
pub(super) fn devices(host: &Host, cards: &[Arc<Facts>], shares: u32) -> impl Iterator<Item = Arc<Device>> {
    cards.iter().map(move |facts| device(host, facts, shares).into())
}

/// The device with the id `mlx5_0`, or shared as `mlx5_0-0` … `mlx5_0-<shares-1>`.
fn device(host: &Host, facts: &Facts, shares: u32) -> Device {
    let whole = whole_device(host, facts);
    if shares == 0 {
        return whole;
    }
    let renamed = Device { resource_name: Some(SHARED.to_owned()), ..whole };
    renamed.shared_as((0..shares).map(|number| format!("{}-{number}", facts.hca.name)))
}

/// One device per PCI function, with its address as id: `0000:3b:00.1`. RDMA devices that are parts of a function
/// (subfunctions) are left out, as in sriov-network-device-plugin.
pub(super) fn functions(host: &Host, cards: &[Arc<Facts>]) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for facts in cards.iter().filter(|facts| facts.hca.device == facts.hca.function) {
        let device = Device { id: facts.hca.address.clone(), ..whole_device(host, facts) };
        match devices.iter_mut().find(|known| known.id == device.id) {
            Some(known) => add_paths(known, &device.paths),
            None => devices.push(device),
        }
    }
    devices
}

/// Adds the paths that the device does not have yet.
fn add_paths(device: &mut Device, paths: &[HostPath]) {
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
    // The auxiliary device of a subfunction: `mlx5_sf_dev_add` in drivers/net/ethernet/mellanox/mlx5/core/sf/dev/dev.c.
    if let Some(part) = hca.device.file_name().filter(|_| hca.device != hca.function) {
        device.note("subfunction", part.to_string_lossy().into_owned(), host.own_path(&hca.device));
    }
    for (name, attribute) in &facts.attributes {
        device.note(name, word_of(attribute.text()), host.own_path(attribute.path()));
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
    describe_function(host, facts, device);
}

/// Adds which function it is, physical or virtual. Both kinds have `virtual`, `pf_address` and `pf_netdev`, so that a
/// condition on these can be asked of all.
fn describe_function(host: &Host, facts: &Facts, device: &mut Device) {
    let (hca, physical) = (&facts.hca, &facts.physical);
    let is_virtual = physical.path != hca.function;
    let function = host.own_path(&hca.function);
    let source = if is_virtual { host.own_path(hca.function.join("physfn")) } else { function.clone() };
    device.note("virtual", is_virtual, &source);
    device.note("pf_address", &physical.address, &source);
    let netdev = physical.interface.as_ref().map(|name| (name, host.own_path(physical.path.join("net").join(name))));
    if let Some((name, source)) = &netdev {
        device.note("pf_netdev", *name, source);
    }
    if is_virtual {
        device.note("physfn", &physical.address, source);
        if let Some(number) = physical.number {
            device.note("vf_index", number as u64, host.own_path(physical.path.join(format!("virtfn{number}"))));
        }
        if let Some((name, source)) = netdev {
            device.note("pf_name", name, source);
        }
    }
    // A subfunction has the PCI function of its parent, and no virtual functions.
    if facts.virtual_functions > 0 && hca.device == hca.function {
        device.note(VIRTUAL_FUNCTIONS, facts.virtual_functions, host.own_path(hca.function.join(VIRTUAL_FUNCTIONS)));
        if let Some(drivers) = &facts.elsewhere {
            device.note(VIRTUAL_FUNCTIONS_ELSEWHERE, drivers, function);
        }
    }
}

/// The values of the ports, separated by commas; a single value if all ports have the same.
fn distinct(words: &[String]) -> String {
    let mut words = words.to_vec();
    words.dedup();
    words.join(",")
}

/// Adds the ids of every pool. A pool without devices is a problem. If a device that could not be examined may belong
/// to the pool, the pool stays as it was instead.
pub(super) fn add_pools(host: &Host, pools: &[RdmaPool], cards: &[Arc<Facts>], found: &mut Found) {
    let unseen = found.unseen.first().cloned();
    for pool in pools {
        let members: Vec<&Facts> =
            cards.iter().map(AsRef::as_ref).filter(|facts| is_member(&pool.selectors, facts)).collect();
        if !members.is_empty() {
            let whole = whole_pool(host, pool, &members);
            let ids = (0..pool.rdma_hca_max).map(|number| number.to_string());
            found.devices.extend((pool.rdma_hca_max > 0).then(|| whole.shared_as(ids).into()));
        } else if let Some(unseen) = &unseen {
            found.unseen.push(NotExamined { card: Some(pool.name.clone()), ..unseen.clone() });
        } else {
            let error = format!("no RDMA device matches the selectors; {} is advertised without devices", pool.name);
            found.problems.push(Problem::new(VENDOR, &pool.name, error));
        }
    }
}

fn is_member(selectors: &RdmaSelectors, facts: &Facts) -> bool {
    let ids =
        facts.function.id.as_ref().map(|((vendor, device), _)| (format!("{vendor:04x}"), format!("{device:04x}")));
    let (vendor, device) = ids.unzip();
    let driver = facts.function.driver.as_ref().map(|(driver, _)| driver.as_str());
    let interfaces = || facts.interfaces.iter();
    fits(&selectors.vendors, vendor.as_deref())
        && fits(&selectors.device_ids, device.as_deref())
        && fits(&selectors.drivers, driver)
        && fits(&selectors.if_names, interfaces().map(|interface| interface.name.as_str()))
        && fits(&selectors.link_types, interfaces().filter_map(Interface::link_type))
}

/// Whether the list contains one of the values; an empty list accepts all.
fn fits<'v>(wanted: &[String], values: impl IntoIterator<Item = &'v str>) -> bool {
    wanted.is_empty() || values.into_iter().any(|value| wanted.iter().any(|one| one == value))
}

fn whole_pool(host: &Host, pool: &RdmaPool, members: &[&Facts]) -> Device {
    let mut device = Device {
        vendor: VENDOR.into(),
        card: pool.name.clone(),
        resource_name: Some(pool.name.clone()),
        ..Device::default()
    };
    for facts in members {
        add_paths(&mut device, &nodes(facts));
    }
    let all =
        |name: fn(&Facts) -> Vec<&str>| members.iter().flat_map(|facts| name(facts)).collect::<Vec<_>>().join(",");
    let class = host.own_path(super::locate::class_directory(host));
    device.note("ibdev", all(|facts| vec![&facts.hca.name]), &class);
    device.note("pci_address", all(|facts| vec![&facts.hca.address]), &class);
    let interfaces = all(|facts| facts.interfaces.iter().map(|interface| interface.name.as_str()).collect());
    if !interfaces.is_empty() {
        device.note("netdev", interfaces, &class);
    }
    device
}
