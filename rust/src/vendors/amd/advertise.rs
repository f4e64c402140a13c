//! Turns the facts of all GPUs into devices with distances, and into a problem for each missing fact.
//!
//! Distances use the weights of AMD's own plugin: lower is closer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::card::{COMPUTE_PARTITION, Facts, Part, PartitionMode};
use super::kfd_topology::{self, Place, Topology};
use super::links::{Fabric, Link};
use super::locate::{self, MAJOR};
use super::{AmdNaming, VENDOR};
use crate::device::{Device, Found, HostPath, Problem, Value};
use crate::health::sources::scan;
use crate::host::Host;
use crate::host::attribute::Attribute;

/// The resource of every device with naming `single`, and of unpartitioned GPUs with naming `mixed`.
pub(super) const GPU: &str = "amd.com/gpu";

/// Data that all devices of a host have in common.
#[derive(Debug)]
pub(super) struct Advertiser<'a> {
    host: &'a Host,
    naming: AmdNaming,
    fabric: &'a Fabric,
    /// Device number of /dev/kfd.
    kfd_number: Option<(u32, u32)>,
    /// Attributes of the driver's module.
    module: Vec<(&'static str, Value, PathBuf)>,
}

impl<'a> Advertiser<'a> {
    pub(super) fn new(host: &'a Host, naming: AmdNaming, topology: &Topology, fabric: &'a Fabric) -> Self {
        Self { host, naming, fabric, kfd_number: topology.kfd_number, module: module(host) }
    }

    /// Adds the devices of these GPUs.
    pub(super) fn devices(&self, cards: Vec<Facts>, found: &mut Found) {
        if self.naming == AmdNaming::Single {
            found.problems.extend(self.modes_that_differ(&cards));
        }
        let spots: Vec<Spot> = cards.iter().map(spot).collect();
        let mut distances = distances(&spots, self.fabric);
        for (mut facts, spot) in cards.into_iter().zip(&spots) {
            found.problems.append(&mut facts.problems);
            let distances = distances.remove(&facts.key).unwrap_or_default();
            let linked = linked_gpus(spot, &spots, self.fabric);
            for part in &facts.parts {
                let mut device = Device { distances: distances.clone(), ..self.device(&facts, part) };
                if let Some(node) =
                    facts.parts.iter().find_map(|part| part.node.as_ref()).filter(|_| !linked.is_empty())
                {
                    device.note("xgmi_gpus", &linked, self.host.own_path(node.path.join("io_links")));
                }
                if part.nodes.render.is_none() {
                    found.problems.push(self.no_render_node(&mut device, part));
                }
                found.devices.push(device.into());
            }
        }
    }

    fn device(&self, facts: &Facts, part: &Part) -> Device {
        let mut device =
            Device { vendor: VENDOR.into(), card: facts.key.clone(), id: part.id.clone(), ..Device::default() };
        device.paths.push(HostPath::node("/dev/kfd", self.kfd_number));
        let nodes = names(part).map(|(name, minor)| HostPath::node(format!("/dev/{name}"), Some((MAJOR, minor))));
        device.paths.extend(nodes);
        self.describe(&mut device, facts, part);
        device.readings.clone_from(&facts.readings);
        self.entitle(&mut device, &facts.partition_mode);
        device
    }

    /// The problem of a device without a render node; such a device cannot compute.
    fn no_render_node(&self, device: &mut Device, part: &Part) -> Problem {
        let error = "no render node: the driver is still initialising this GPU, or has failed; see the kernel log";
        let path = self.host.own_path(part.path.join("drm"));
        device.findings.insert(scan::finding(scan::NODE_MISSING, &path, error));
        Problem::new(VENDOR, path, error).of(&part.id)
    }

    fn entitle(&self, device: &mut Device, partition_mode: &PartitionMode) {
        match (self.naming, partition_mode) {
            // The device keeps its last name until the mode is known.
            (AmdNaming::Mixed, PartitionMode::Unknown) => device.first_sight_resource_name = Some(GPU.to_owned()),
            (AmdNaming::Mixed, PartitionMode::Partitioned { .. }) => {
                device.resource_name = partition_mode.name().map(|name| format!("amd.com/{name}"));
            }
            _ => device.resource_name = Some(GPU.to_owned()),
        }
    }

    fn describe(&self, device: &mut Device, facts: &Facts, part: &Part) {
        let own = |path: &Path| self.host.own_path(path);
        if let Some(function) = &facts.function {
            function.describe(self.host, device);
            device.numa_nodes = facts.numa_node().into_iter().collect();
            if let PartitionMode::Partitioned { compute, memory } = &facts.partition_mode {
                device.note(COMPUTE_PARTITION, compute, own(&function.path.join("current_compute_partition")));
                device.note("memory_partition", memory, own(&function.path.join("current_memory_partition")));
            }
        }
        if let Some((name, source)) = &facts.product_name {
            device.note("product_name", name, source);
        }
        if let Some(serial) = &facts.serial {
            device.note("serial", serial.text(), own(serial.path()));
        }
        for (kind, minor) in [("card", part.nodes.card), ("render", part.nodes.render)] {
            if let Some(minor) = minor {
                device.note(&format!("{kind}_minor"), minor, own(&part.path.join("drm")));
            }
        }
        for (name, value, source) in &self.module {
            device.note(name, value.clone(), own(source));
        }
        if let Some(node) = &part.node {
            self.describe_node(device, node);
            if facts.parts.len() > 1 {
                device.note("partition", node.partition, own(node.properties.path()));
            }
        }
    }

    fn describe_node(&self, device: &mut Device, node: &kfd_topology::Node) {
        const FACTS: [&str; 3] = ["gfx_target_version", "simd_count", "num_xcc"];
        let properties = &node.properties;
        // Older kernels write zero for unknown facts.
        let mut facts: Vec<(&str, u64)> = FACTS
            .iter()
            .filter_map(|&name| Some((name, properties.number(name).filter(|&value| value > 0)?)))
            .collect();
        facts.push(("kfd_node", node.number.into()));
        if let (Some(simds), Some(each @ 1..)) = (properties.number("simd_count"), properties.number("simd_per_cu")) {
            facts.push(("cu_count", simds / each));
        }
        for (name, value) in facts {
            device.note(name, value, self.host.own_path(properties.path()));
        }
        // Hexadecimal, as in sysfs and AMD's tools.
        if let Some(id @ 1..) = properties.number("unique_id") {
            device.note("unique_id", format!("{id:#018x}"), self.host.own_path(properties.path()));
        }
        if let Some(bytes) = self.fabric.memory.get(&node.number) {
            let bank = node.path.join("mem_banks/0/properties");
            device.note("vram_bytes", *bytes, self.host.own_path(bank));
        }
    }

    /// A problem if GPUs in different modes share one resource name: a pod cannot choose among them.
    fn modes_that_differ(&self, cards: &[Facts]) -> Option<Problem> {
        let mut modes: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for facts in cards {
            if let Some(mode) = facts.partition_mode.name() {
                modes.entry(mode).or_default().insert(&facts.key);
            }
        }
        let each = modes.iter().map(|(mode, cards)| format!("{mode} ({})", list(cards)));
        let each = each.collect::<Vec<_>>().join(", ");
        let error = format!(
            "GPUs are partitioned in different ways and all are {GPU}: {each}; set `vendors.amd.naming: mixed` to tell \
             them apart"
        );
        let path = self.host.own_path(locate::driver_directory(self.host));
        (modes.len() > 1).then(|| Problem::new(VENDOR, path, error))
    }
}

fn module(host: &Host) -> Vec<(&'static str, Value, PathBuf)> {
    let read = |name, file: &str, kind: fn(String) -> Value| {
        let attribute = Attribute::read(host.sys("module/amdgpu").join(file)).ok()?;
        Some((name, kind(attribute.text().to_owned()), attribute.path().to_path_buf()))
    };
    let version = read("driver_version", "version", Value::Version);
    version.into_iter().chain(read("driver_src_version", "srcversion", Value::Text)).collect()
}

/// Name below /dev and minor number of each DRM node.
fn names(part: &Part) -> impl Iterator<Item = (String, u32)> {
    let card = part.nodes.card.map(|number| (format!("dri/card{number}"), number));
    let render = part.nodes.render.map(|number| (format!("dri/renderD{number}"), number));
    card.into_iter().chain(render)
}

fn spot(facts: &Facts) -> Spot {
    Spot { card: facts.key.clone(), place: facts.place, numa_node: facts.numa_node() }
}

fn list(cards: &BTreeSet<&str>) -> String {
    cards.iter().copied().collect::<Vec<_>>().join(", ")
}

/// A GPU, and its NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spot {
    /// Its PCI address.
    pub(super) card: String,
    pub(super) place: Place,
    pub(super) numa_node: Option<u32>,
}

/// The distance of each GPU to each other GPU, by card. A pair without a link is absent, and therefore farthest.
fn distances(spots: &[Spot], fabric: &Fabric) -> BTreeMap<String, BTreeMap<String, u32>> {
    let from = |one: &Spot| {
        spots.iter().filter_map(|other| Some((other.card.clone(), distance(one, other, fabric)?))).collect()
    };
    spots.iter().map(|one| (one.card.clone(), from(one))).collect()
}

fn distance(one: &Spot, other: &Spot, fabric: &Fabric) -> Option<u32> {
    let pair = (one.place.min(other.place), one.place.max(other.place));
    let link = fabric.links.get(&pair).copied();
    if one.place == other.place {
        // Partitions of one GPU share its memory, independent of the links that KFD reports.
        return Some(weight(true, link.unwrap_or(Link::Xgmi), true));
    }
    Some(weight(false, link?, one.numa_node == other.numa_node))
}

/// The other GPUs to which this one has an XGMI link.
fn linked_gpus(one: &Spot, spots: &[Spot], fabric: &Fabric) -> String {
    let is_linked = |other: &&Spot| {
        let pair = (one.place.min(other.place), one.place.max(other.place));
        one.place != other.place && fabric.links.get(&pair) == Some(&Link::Xgmi)
    };
    spots.iter().filter(is_linked).map(|other| other.card.as_str()).collect::<Vec<_>>().join(",")
}

fn weight(same_gpu: bool, link: Link, same_numa_node: bool) -> u32 {
    let gpu = if same_gpu { 10 } else { 20 };
    let way = match link {
        Link::Xgmi => 10,
        Link::Pcie => 40,
        Link::Other => 50,
    };
    let numa = if same_numa_node { 10 } else { 20 };
    gpu + way + numa
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(bus: u64, numa_node: Option<u32>) -> Spot {
        let place = Place::of_location(0, bus << 8);
        Spot { card: place.to_string(), place, numa_node }
    }

    fn between(one: &Spot, other: &Spot, link: Option<Link>) -> Option<u32> {
        let pair = (one.place.min(other.place), one.place.max(other.place));
        let fabric = Fabric { links: link.map(|link| (pair, link)).into_iter().collect(), ..Fabric::default() };
        distances(&[one.clone(), other.clone()], &fabric)[&one.card].get(&other.card).copied()
    }

    #[test]
    fn the_sums_are_those_of_the_vendors_plugin() {
        let (near, same, far) = (spot(1, Some(0)), spot(2, Some(0)), spot(3, Some(1)));
        for (other, link, sum) in [
            (&near, Some(Link::Xgmi), Some(30)),
            (&same, Some(Link::Xgmi), Some(40)),
            (&far, Some(Link::Xgmi), Some(50)),
            (&same, Some(Link::Pcie), Some(70)),
            (&far, Some(Link::Pcie), Some(80)),
            (&same, Some(Link::Other), Some(80)),
            (&far, Some(Link::Other), Some(90)),
            (&same, None, None),
            (&near, None, Some(30)),
        ] {
            assert_eq!(between(&near, other, link), sum, "{other:?} {link:?}");
            assert_eq!(between(other, &near, link), sum, "{other:?} {link:?}");
        }
    }

    #[test]
    fn only_xgmi_to_another_gpu_is_a_link_between_gpus() {
        let spots = [spot(1, None), spot(2, None), spot(3, None)];
        let links = [((0, 1), Link::Xgmi), ((0, 2), Link::Pcie), ((0, 0), Link::Xgmi)];
        let place = |number: usize| spots[number].place;
        let links = links.into_iter().map(|((one, other), link)| ((place(one), place(other)), link)).collect();
        let fabric = Fabric { links, ..Fabric::default() };
        let linked: Vec<String> = spots.iter().map(|one| linked_gpus(one, &spots, &fabric)).collect();
        assert_eq!(linked, [spots[1].card.as_str(), spots[0].card.as_str(), ""]);
    }

    #[test]
    fn two_unknown_numa_nodes_are_the_same() {
        assert_eq!(between(&spot(1, None), &spot(2, None), Some(Link::Xgmi)), Some(40));
        assert_eq!(between(&spot(1, None), &spot(2, Some(0)), Some(Link::Xgmi)), Some(50));
    }
}
