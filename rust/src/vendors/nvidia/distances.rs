//! Distances between GPUs: sums of distances rank sets of GPUs like NVIDIA's pair scores.
//!
//! NVIDIA's allocator scores a pair with 10 to 60 for its place in the PCI tree and 100 for each NVLink, at most 1800
//! for links, and prefers the set with the largest sum. A distance is the best possible score minus the pair's score,
//! so the smallest sum wins. Links to NVLink switches count as links to every GPU with such links, because a fabric
//! connects all of them equally.

use std::collections::BTreeMap;
use std::path::Path;

use super::card::Card;
use super::nvml_facts::NvmlFacts;
use crate::bus::pci::{self, Function};
use crate::host::Host;
use crate::nvml::facts::Gpu;

/// Score of a pair on one board with the maximum number of links.
const BEST_SCORE: u32 = 60 + 100 * MOST_LINKS;
const MOST_LINKS: u32 = 18;

/// The connection of two GPUs, with its score in NVIDIA's allocator. One board (60) is treated as one switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// The GPUs are on different NUMA nodes.
    System = 10,
    /// The GPUs are behind different host bridges of one NUMA node.
    Node = 20,
    /// The GPUs are behind the same host bridge.
    HostBridge = 30,
    /// The GPUs are connected through several PCI switches.
    Multiple = 40,
    /// The GPUs are connected through a single PCI switch.
    Single = 50,
}

/// Distances of a GPU to all other GPUs, by card.
pub(super) fn distances(host: &Host, from: &Function, all: &[Card], nvml_facts: &NvmlFacts) -> BTreeMap<String, u32> {
    let others = all.iter().map(|card| &card.function).filter(|other| other.address() != from.address());
    let distance = |other: &Function| BEST_SCORE - score(level(host, from, other), links(nvml_facts, from, other));
    others.map(|other| (other.address().to_owned(), distance(other))).collect()
}

fn score(level: Level, links: u32) -> u32 {
    level as u32 + 100 * links.min(MOST_LINKS)
}

fn links(nvml_facts: &NvmlFacts, one: &Function, other: &Function) -> u32 {
    let (Some(one), Some(other)) = (nvml_facts.gpu(one.address()), nvml_facts.gpu(other.address())) else { return 0 };
    let direct = |from: &Gpu, to: &Gpu| from.nvlinks.get(&to.pci_address).copied().unwrap_or_default();
    let by_switch = one.switch_links.min(other.switch_links);
    direct(one, other).max(direct(other, one)).max(by_switch)
}

/// The connection of two functions, from their real paths below /sys/devices: they share the bridges of their common
/// prefix.
fn level(host: &Host, one: &Function, other: &Function) -> Level {
    let (left, right) = (host.own_path(&one.path), host.own_path(&other.path));
    let same: Vec<&str> = names(&left).zip(names(&right)).take_while(|(a, b)| a == b).map(|(name, _)| name).collect();
    if same.iter().any(|name| pci::is_address(name)) {
        // Counts the bridges below the shared bridge: the downstream ports of its switch, and all further bridges.
        let between = |path: &Path| names(path).count().saturating_sub(same.len() + 1);
        return if between(&left).max(between(&right)) <= 1 { Level::Single } else { Level::Multiple };
    }
    let numa = |function: &Function| function.numa_node.as_ref().map(|(node, _)| *node);
    match same.last() {
        Some(name) if is_host_bridge(name) => Level::HostBridge,
        // If the machine reports no NUMA nodes, it counts as one node.
        _ if numa(one) == numa(other) => Level::Node,
        _ => Level::System,
    }
}

fn names(path: &Path) -> impl Iterator<Item = &str> {
    path.components().filter_map(|part| part.as_os_str().to_str())
}

/// Whether a directory is a host bridge: `pci0000:80`.
fn is_host_bridge(name: &str) -> bool {
    name.strip_prefix("pci").is_some_and(|rest| rest.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvml::facts::{Answer, Facts, Request};

    fn function(path: &str, numa_node: Option<u32>) -> Function {
        let numa_node = numa_node.map(|node| (node, "/numa_node".into()));
        Function { path: Path::new("/sys/devices").join(path), numa_node, ..Function::default() }
    }

    fn level_of(one: (&str, Option<u32>), other: (&str, Option<u32>)) -> Level {
        let (one, other) = (function(one.0, one.1), function(other.0, other.1));
        let host = Host::new("/");
        assert_eq!(level(&host, &one, &other), level(&host, &other, &one));
        level(&host, &one, &other)
    }

    #[test]
    fn the_level_is_what_the_real_paths_share() {
        let switch = "pci0000:00/0000:00:01.0/0000:01:00.0";
        let one = (&*format!("{switch}/0000:02:00.0/0000:03:00.0"), Some(0));
        let beside = (&*format!("{switch}/0000:02:01.0/0000:04:00.0"), Some(0));
        let below_another = (&*format!("{switch}/0000:02:02.0/0000:05:00.0/0000:06:00.0/0000:07:00.0"), Some(0));
        assert_eq!(level_of(one, beside), Level::Single);
        assert_eq!(level_of(one, below_another), Level::Multiple);
        assert_eq!(level_of(one, ("pci0000:00/0000:00:02.0/0000:09:00.0", Some(0))), Level::HostBridge);
        assert_eq!(level_of(one, ("pci0000:80/0000:80:02.0/0000:81:00.0", Some(0))), Level::Node);
        assert_eq!(level_of(one, ("pci0000:80/0000:80:02.0/0000:81:00.0", Some(1))), Level::System);
        assert_eq!(level_of(("a/0000:01:00.0", None), ("b/0000:02:00.0", None)), Level::Node);
    }

    fn gpu(address: &str, nvlinks: &[(&str, u32)], switch_links: u32) -> Gpu {
        let nvlinks = nvlinks.iter().map(|&(to, count)| (to.to_owned(), count)).collect();
        Gpu { pci_address: address.to_owned(), nvlinks, switch_links, ..Gpu::default() }
    }

    const A: &str = "0000:03:00.0";
    const B: &str = "0000:04:00.0";
    const C: &str = "0000:81:00.0";

    fn three() -> [Card; 3] {
        let switch = "pci0000:00/0000:00:01.0/0000:01:00.0";
        [
            function(&format!("{switch}/0000:02:00.0/{A}"), Some(0)),
            function(&format!("{switch}/0000:02:01.0/{B}"), Some(0)),
            function(&format!("pci0000:80/0000:80:01.0/{C}"), Some(1)),
        ]
        .map(|function| Card { function, gpu: None })
    }

    fn from_a(gpus: Vec<Gpu>) -> Vec<u32> {
        let all = three();
        let answer = Answer { facts: Some(Facts { gpus, ..Facts::default() }), ..Answer::default() };
        let nvml_facts = NvmlFacts::new(answer, Request::default(), false);
        distances(&Host::new("/"), &all[0].function, &all, &nvml_facts).into_values().collect()
    }

    #[test]
    fn a_distance_is_what_the_pairs_score_lacks_of_the_best() {
        assert_eq!(from_a(vec![]), [1860 - 50, 1860 - 10]);
        let gpus = vec![gpu(A, &[(B, 4)], 0), gpu(B, &[(A, 4)], 0), gpu(C, &[], 0)];
        assert_eq!(from_a(gpus), [1860 - 450, 1860 - 10]);
    }

    #[test]
    fn all_gpus_of_a_switch_fabric_are_linked_alike() {
        let gpus = vec![gpu(A, &[], 18), gpu(B, &[], 18), gpu(C, &[], 12)];
        assert_eq!(from_a(gpus), [1860 - 1850, 1860 - 1210]);
        let gpus = vec![gpu(A, &[], 18), gpu(B, &[], 0), gpu(C, &[], 99)];
        assert_eq!(from_a(gpus), [1860 - 50, 1860 - 1810]);
    }
}
