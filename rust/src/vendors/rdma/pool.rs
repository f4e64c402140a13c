//! Pools as k8s-rdma-shared-dev-plugin advertises them: the ids are numbers, and behind each are all devices of the pool.
//!
//! A pool is as healthy as its nodes: a container that is to get one that is missing cannot start. What happens to one card
//! of several is no reason to withhold the others.

use super::VENDOR;
use super::advertise::{add_paths, nodes};
use super::card::{Facts, Interface};
use super::options::{RdmaPool, RdmaSelectors};
use crate::device::{Device, Found, NotExamined, Problem};
use crate::host::Host;

/// Adds the ids of every pool. One without devices is a problem, unless a device that could not be looked at may be in it:
/// then it stays as it was.
pub(super) fn add(host: &Host, pools: &[RdmaPool], cards: &[Facts], found: &mut Found) {
    let unseen = found.unseen.first().cloned();
    for pool in pools {
        let members: Vec<&Facts> = cards.iter().filter(|facts| is_member(&pool.selectors, facts)).collect();
        if !members.is_empty() {
            let whole = whole_pool(host, pool, &members);
            let id = |number: u32| Device { id: number.to_string(), ..whole.clone() }.into();
            found.devices.extend((0..pool.rdma_hca_max).map(id));
        } else if let Some(unseen) = &unseen {
            found.unseen.push(NotExamined { card: Some(pool.name.clone()), ..unseen.clone() });
        } else {
            let error = format!("no RDMA device matches the selectors; {} is not advertised", pool.name);
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

/// Whether one of the values is wanted; an empty list wants all.
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
