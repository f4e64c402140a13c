//! Rules of every preferred allocation, and the choices of packed and distributed ones.

use std::collections::{BTreeMap, BTreeSet};

use crate::peers::{intel, nvidia_greedy};
use devherd_native::allocation::{Device, Kind, Preference};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const KINDS: [Kind; 3] = [Kind::Aligned, Kind::Packed, Kind::Distributed];

/// A replica of a part of a card: `card3-1::0`.
fn device(card: usize, part: usize, replica: usize, numa_nodes: &[i64]) -> Device {
    let physical_id = format!("card{card}-{part}");
    Device {
        id: format!("{physical_id}::{replica}"),
        physical_id,
        card: format!("card {card}"),
        numa_nodes: numa_nodes.to_vec(),
        healthy: true,
        ..Device::default()
    }
}

/// So many parts with so many replicas on each card; the first half of the cards on NUMA node 0, the others on node 1.
fn devices(cards: &[(usize, usize)]) -> Vec<Device> {
    let half = cards.len().div_ceil(2);
    let parts = cards.iter().enumerate().flat_map(|(card, &(parts, replicas))| {
        (0..parts).flat_map(move |part| (0..replicas).map(move |replica| (card, part, replica)))
    });
    parts.map(|(card, part, replica)| device(card, part, replica, &[i64::from(card >= half)])).collect()
}

fn texts(ids: &[String]) -> Vec<&str> {
    ids.iter().map(String::as_str).collect()
}

fn ids(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(|device| device.id.as_str()).collect()
}

/// Devices, the available ids, the required ones among them in any order, and the size.
fn questions() -> impl Strategy<Value = (Vec<Device>, Vec<String>, Vec<String>, usize)> {
    let numa_nodes = select(vec![vec![], vec![0], vec![1], vec![0, 1]]);
    let device = (0usize..4, 0usize..2, 0usize..3, numa_nodes, any::<bool>(), vec((0usize..4, 1u32..9), 0..4));
    let device = device.prop_map(|(card, part, replica, numa_nodes, healthy, distances)| Device {
        healthy,
        distances: distances.into_iter().map(|(card, distance)| (format!("card {card}"), distance)).collect(),
        ..self::device(card, part, replica, &numa_nodes)
    });
    (vec(device, 0..14), vec(any::<Index>(), 0..12), vec(any::<Index>(), 0..3), 0usize..14).prop_map(
        |(mut devices, available, required, size)| {
            devices.sort_by(|left, right| left.id.cmp(&right.id));
            devices.dedup_by(|left, right| left.id == right.id);
            let mut known: Vec<String> = devices.iter().map(|device| device.id.clone()).collect();
            known.extend(["gone::0".to_owned(), "gone::1".to_owned()]);
            let ids = |places: &[Index]| places.iter().map(|place| place.get(&known).clone()).collect::<Vec<_>>();
            let required = ids(&required);
            (devices, [ids(&available), required.clone()].concat(), required, size)
        },
    )
}

proptest! {
    #[test]
    fn the_answer_has_the_exact_size_and_the_required_ids((devices, available, required, size) in questions()) {
        for kind in KINDS {
            let preference = Preference::new(kind, devices.clone());
            let chosen = preference.choose(&texts(&available), &texts(&required), size);
            let set: BTreeSet<&str> = chosen.iter().copied().collect();
            let offered: BTreeSet<&str> = available.iter().map(String::as_str).collect();
            let kept: BTreeSet<&str> = required.iter().map(String::as_str).collect();
            prop_assert_eq!(set.len(), chosen.len());
            prop_assert!(set.is_subset(&offered));
            if size == 0 {
                prop_assert!(chosen.is_empty());
            } else {
                prop_assert_eq!(chosen.len(), kept.len().max(size.min(offered.len())));
                prop_assert!(kept.is_subset(&set));
            }
        }
    }

    #[test]
    fn what_is_unknown_or_unhealthy_comes_last((devices, available, required, size) in questions()) {
        let good: BTreeSet<&str> = devices.iter().filter(|device| device.healthy).map(|device| device.id.as_str()).collect();
        for kind in KINDS {
            let preference = Preference::new(kind, devices.clone());
            let chosen = preference.choose(&texts(&available), &texts(&required), size);
            let doubtful = |id: &&&str| !good.contains(**id) && !required.iter().any(|required| required == **id);
            if chosen.iter().any(|id| doubtful(&id)) {
                prop_assert!(available.iter().all(|id| !good.contains(id.as_str()) || chosen.contains(&id.as_str())));
            }
        }
    }

    #[test]
    fn the_order_of_the_question_makes_no_difference(
        (devices, available, required, size) in questions(), shuffled in any::<u64>()
    ) {
        let turn = |list: &[String]| {
            let mut list = list.to_vec();
            let place = usize::try_from(shuffled).unwrap_or_default() % list.len().max(1);
            list.rotate_left(place);
            list.reverse();
            list
        };
        for kind in KINDS {
            let (one, other) = (devices.clone(), devices.iter().rev().cloned().collect());
            let (one, other) = (Preference::new(kind, one), Preference::new(kind, other));
            let (turned_available, turned_required) = (turn(&available), turn(&required));
            prop_assert_eq!(
                one.choose(&texts(&available), &texts(&required), size),
                other.choose(&texts(&turned_available), &texts(&turned_required), size)
            );
        }
    }

    /// nvidia.md 3.9, and Intel's `balanced` if all cards have the same number of ids.
    #[test]
    fn replicas_are_distributed_as_nvidias_and_intels_plugins_do(
        replicas in 1usize..5, used in vec(0usize..5, 1..6), size in 1usize..12
    ) {
        let gpus = used.len();
        let free: Vec<usize> = used.iter().map(|&used| replicas.saturating_sub(used)).collect();
        let size = size.min(free.iter().sum());
        let taken = taken_of_each(Kind::Distributed, replicas, &free, size);
        let left = |taken: &[usize]| {
            let mut left: Vec<usize> = free.iter().zip(taken).map(|(free, taken)| free - taken).collect();
            left.sort_unstable();
            left
        };
        prop_assert_eq!(left(&taken), left(&nvidia_greedy::distributed(&vec![replicas; gpus], &free, size)));
        prop_assert_eq!(left(&taken), left(&intel::balanced(&free, size)));
    }

    #[test]
    fn replicas_are_packed_on_no_more_gpus_than_nvidias_plugin_takes(
        replicas in 1usize..5, used in vec(0usize..5, 1..6), size in 1usize..12
    ) {
        let free: Vec<usize> = used.iter().map(|&used| replicas.saturating_sub(used)).collect();
        let size = size.min(free.iter().sum());
        let gpus = |taken: &[usize]| taken.iter().filter(|&&taken| taken > 0).count();
        let theirs = nvidia_greedy::packed(&vec![replicas; free.len()], &free, size);
        prop_assert!(gpus(&taken_of_each(Kind::Packed, replicas, &free, size)) <= gpus(&theirs));
    }
}

/// The number of chosen replicas of each GPU, given the free ones; all GPUs are on one NUMA node.
fn taken_of_each(kind: Kind, replicas: usize, free: &[usize], size: usize) -> Vec<usize> {
    let devices = |count: &dyn Fn(usize) -> usize| -> Vec<Device> {
        let gpus = (0..free.len()).flat_map(|gpu| (0..count(gpu)).map(move |replica| (gpu, replica)));
        gpus.map(|(gpu, replica)| device(gpu, 0, replica, &[0])).collect()
    };
    let available = devices(&|gpu| free[gpu]);
    let preference = Preference::new(kind, devices(&|_| replicas));
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    for id in preference.choose(&ids(&available), &[], size) {
        *taken.entry(id.split_once("::").map_or(id, |(gpu, _)| gpu)).or_default() += 1;
    }
    (0..free.len()).map(|gpu| taken.get(format!("card{gpu}-0").as_str()).copied().unwrap_or_default()).collect()
}

/// Intel G2: all of the vendor's policies ignored them.
#[test]
fn required_ids_come_first() {
    for kind in KINDS {
        let all = devices(&[(4, 1), (4, 1)]);
        let preference = Preference::new(kind, all.clone());
        let chosen = preference.choose(&ids(&all), &["card1-2::0", "card0-3::0"], 3);
        assert_eq!(chosen[..2], ["card0-3::0", "card1-2::0"]);
    }
}

/// Intel G3: `balanced` panicked.
#[test]
fn nothing_is_the_answer_to_a_request_for_nothing() {
    for kind in KINDS {
        assert_eq!(Preference::new(kind, devices(&[(2, 1)])).choose(&["card0-0::0"], &[], 0), [""; 0]);
        assert_eq!(Preference::new(kind, Vec::new()).choose(&[], &[], 3), [""; 0]);
    }
}

/// AMD 23 and 37: an unknown id ended the plugin's process.
#[test]
fn an_unknown_id_is_taken_when_nothing_else_is_left() {
    for kind in KINDS {
        let preference = Preference::new(kind, devices(&[(1, 1)]));
        assert_eq!(preference.choose(&["x", "card0-0::0"], &[], 1), ["card0-0::0"]);
        assert_eq!(preference.choose(&["x", "card0-0::0", "a"], &["y"], 3), ["y", "card0-0::0", "a"]);
    }
}

/// Intel G4: `card0-10` came before `card0-2`.
#[test]
fn packed_takes_ids_in_natural_order() {
    let all = devices(&[(12, 1)]);
    let reversed: Vec<&str> = ids(&all).into_iter().rev().collect();
    let preference = Preference::new(Kind::Packed, all.clone());
    assert_eq!(preference.choose(&reversed, &[], 3), ["card0-0::0", "card0-1::0", "card0-2::0"]);
}

/// Intel G5.
#[test]
fn packed_opens_the_fewest_numa_nodes_then_the_fewest_cards() {
    let all = devices(&[(2, 1), (3, 1), (2, 1), (2, 1)]);
    let preference = Preference::new(Kind::Packed, all.clone());
    assert_eq!(preference.choose(&ids(&all), &[], 3), ["card2-0::0", "card2-1::0", "card3-0::0"]);
    assert_eq!(preference.choose(&ids(&all)[..5], &[], 3), ["card1-0::0", "card1-1::0", "card1-2::0"]);
    assert_eq!(preference.choose(&ids(&all), &["card1-0::0"], 2), ["card1-0::0", "card1-1::0"]);
}

/// Others D5: one such device made the choice blind to the nodes of all.
#[test]
fn a_device_whose_numa_node_is_unknown_is_chosen_last() {
    let mut all = devices(&[(1, 1), (1, 1), (1, 1), (1, 1), (1, 1)]);
    all[0].numa_nodes.clear();
    for kind in KINDS {
        let preference = Preference::new(kind, all.clone());
        assert_eq!(preference.choose(&ids(&all), &[], 1), ["card1-0::0"], "{kind:?}");
        assert_eq!(preference.choose(&ids(&all), &[], 2), ["card1-0::0", "card2-0::0"], "{kind:?}");
        assert_eq!(preference.choose(&ids(&all), &[], 5).len(), 5, "{kind:?}");
    }
}

#[test]
fn packed_fills_the_fullest_card_and_device_first() {
    let all = devices(&[(2, 4)]);
    let preference = Preference::new(Kind::Packed, all.clone());
    assert_eq!(preference.choose(&ids(&all)[2..], &[], 1), ["card0-0::2"]);
    assert_eq!(preference.choose(&ids(&all)[2..], &[], 2), ["card0-0::2", "card0-0::3"]);
    assert_eq!(preference.choose(&ids(&all)[2..], &[], 3), ["card0-1::0", "card0-1::1", "card0-1::2"]);
}

/// NVIDIA N6: the vendor's policies do not see the GPU behind a MIG device.
#[test]
fn mig_devices_are_packed_on_one_gpu_or_spread_over_gpus() {
    let all = devices(&[(7, 1), (7, 1)]);
    let chosen = |kind, available: &[&str]| {
        let preference = Preference::new(kind, all.clone());
        preference.choose(available, &[], 2).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(chosen(Kind::Packed, &ids(&all)[4..]), ["card0-4::0", "card0-5::0"]);
    assert_eq!(chosen(Kind::Distributed, &ids(&all)), ["card0-0::0", "card1-0::0"]);
    assert_eq!(chosen(Kind::Aligned, &ids(&all)[4..]), ["card0-4::0", "card0-5::0"]);
}

/// NVIDIA N7: the vendor's order of equals was random.
#[test]
fn distributed_prefers_used_numa_nodes_and_natural_order_among_equals() {
    let all = devices(&[(1, 2), (1, 2), (1, 2), (1, 2)]);
    let preference = Preference::new(Kind::Distributed, all.clone());
    assert_eq!(preference.choose(&ids(&all), &[], 2), ["card0-0::0", "card1-0::0"]);
    assert_eq!(preference.choose(&ids(&all), &["card2-0::0"], 2), ["card2-0::0", "card3-0::0"]);
    assert_eq!(preference.choose(&ids(&all)[2..], &[], 2), ["card2-0::0", "card3-0::0"]);
    assert_eq!(preference.choose(&ids(&all), &[], 3), ["card0-0::0", "card1-0::0", "card2-0::0"]);
}

#[test]
fn ten_thousand_devices_are_chosen_from() {
    let all = devices(&vec![(1, 1); 10_000]);
    let ids = ids(&all);
    for kind in KINDS {
        let preference = Preference::new(kind, all.clone());
        let chosen = preference.choose(&ids, &["card9999-0::0"], 4000);
        assert_eq!((chosen.len(), chosen[1]), (4000, "card5000-0::0"));
    }
}
