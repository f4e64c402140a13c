//! Aligned allocations are optimal, and no vendor's own plugin chooses closer devices.

use crate::peers::hosts::{Host, MOST_SCORE};
use crate::peers::{amd, nvidia};
use devherd_native::allocation::{Kind, Preference};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// A host, its available devices, the required ones among them, and the size.
type Question = (Host, Vec<usize>, Vec<usize>, usize);

fn hosts(members: impl Strategy<Value = Vec<usize>>) -> impl Strategy<Value = Host> {
    // Few different distances make many equal sums, so that the tie-breaks decide.
    (members, select(vec![2, 5, 1850u64])).prop_flat_map(|(members, most)| {
        vec(vec(1..=most, members.len()), members.len()).prop_map(move |square: Vec<Vec<u64>>| {
            Host::new(&members, |one, other| square[one.min(other)][one.max(other)])
        })
    })
}

fn questions(hosts: impl Strategy<Value = Host>) -> impl Strategy<Value = Question> {
    hosts.prop_flat_map(|host| (Just(host.clone()), subsequence(host.all(), 1..=host.ids.len()))).prop_flat_map(
        |(host, available)| {
            let required = subsequence(available.clone(), 0..=available.len().min(3));
            (Just(host), Just(available.clone()), required, 1..=available.len())
        },
    )
}

fn sum(host: &Host, set: &[usize]) -> u64 {
    amd::sum(&host.distances, set)
}

fn without(all: &[usize], some: &[usize]) -> Vec<usize> {
    all.iter().copied().filter(|device| !some.contains(device)).collect()
}

/// Every set of that size that contains the required devices.
fn all_sets(available: &[usize], required: &[usize], size: usize) -> Vec<Vec<usize>> {
    let free = without(available, required);
    let subsets = (0u32..1 << free.len()).filter(|bits| bits.count_ones() as usize + required.len() == size);
    let of = |bits: u32| (0..free.len()).filter(|place| bits >> place & 1 == 1).map(|place| free[place]).collect();
    subsets.map(|bits: u32| [required.to_vec(), of(bits)].concat()).collect()
}

/// The order of sets: by their own sum, the sum of the remaining devices, and the number of cards with a first device
/// taken.
fn goodness(host: &Host, available: &[usize], required: &[usize], set: &[usize]) -> (u64, u64, usize) {
    let cards = |set: &[usize]| set.iter().map(|&device| host.cards[device]).collect::<std::collections::BTreeSet<_>>();
    let opened = cards(set).difference(&cards(required)).count();
    (sum(host, set), sum(host, &without(available, set)), opened)
}

fn gpus_and_partitions() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        (1usize..=10).prop_map(|gpus| vec![1; gpus]),
        vec(1usize..=5, 1..=4).prop_filter("at most ten devices", |members| members.iter().sum::<usize>() <= 10),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn aligned_is_the_best_of_all_sets((host, available, required, size) in questions(hosts(gpus_and_partitions()))) {
        let chosen = host.choose(&host.preference(Kind::Aligned), &available, &required, size);
        if size > required.len() {
            let sets = all_sets(&available, &required, size);
            let best = sets.iter().map(|set| goodness(&host, &available, &required, set)).min().unwrap();
            prop_assert_eq!(goodness(&host, &available, &required, &chosen), best);
        }
    }

    #[test]
    fn aligned_is_the_best_of_sixteen_gpus(
        (host, available, required, size) in questions(hosts((11usize..=16).prop_map(|gpus| vec![1; gpus])))
    ) {
        let chosen = host.choose(&host.preference(Kind::Aligned), &available, &required, size);
        if size > required.len() {
            let sets = all_sets(&available, &required, size);
            prop_assert_eq!(sum(&host, &chosen), sets.iter().map(|set| sum(&host, set)).min().unwrap());
        }
    }

    #[test]
    fn amds_own_policy_is_no_better_on_twenty_gpus(
        (host, available, required, size) in questions(hosts((17usize..=20).prop_map(|gpus| vec![1; gpus])))
    ) {
        amd_is_not_better(&host, &available, &required, size.min(required.len() + 3));
    }

    #[test]
    fn nvidias_own_policy_never_has_a_better_score(
        (host, available, required, size) in questions(hosts((1usize..=9).prop_map(|gpus| vec![1; gpus])))
    ) {
        nvidia_is_not_better(&host, &available, &required, size);
    }

    #[test]
    fn amds_own_policy_never_has_a_better_sum(
        (host, available, required, size) in questions(hosts(vec(1usize..=4, 1..=6)))
    ) {
        amd_is_not_better(&host, &available, &required, size);
    }
}

fn nvidia_is_not_better(host: &Host, available: &[usize], required: &[usize], size: usize) {
    let scores: Vec<Vec<u64>> =
        host.distances.iter().map(|row| row.iter().map(|distance| MOST_SCORE - distance).collect()).collect();
    if let Some(theirs) = nvidia::aligned(&scores, available, required, size) {
        let ours = host.choose(&host.preference(Kind::Aligned), available, required, size);
        assert!(nvidia::score(&scores, &ours) >= nvidia::score(&scores, &theirs), "{ours:?} {theirs:?}");
    }
}

fn amd_is_not_better(host: &Host, available: &[usize], required: &[usize], size: usize) {
    if let Some(theirs) = amd::aligned(&host.distances, &host.cards, available, required, size) {
        let ours = host.choose(&host.preference(Kind::Aligned), available, required, size);
        assert!(sum(host, &ours) <= sum(host, &theirs), "{ours:?} {theirs:?}");
    }
}

#[test]
fn nvidias_own_policy_is_no_better_on_hosts_with_switches_and_links() {
    let cube =
        |one: usize, other: usize| u64::from((one ^ other).is_power_of_two()) * (1 + u64::from(one / 4 == other / 4));
    for host in [Host::nvidia(8, |_, _| 0), Host::nvidia(8, cube), Host::nvidia(8, |_, _| 18), Host::nvidia(10, cube)] {
        for size in 1..=host.ids.len() {
            nvidia_is_not_better(&host, &host.all(), &[], size);
            nvidia_is_not_better(&host, &without(&host.all(), &[0, 5]), &[3], size.min(host.ids.len() - 2));
        }
    }
}

#[test]
fn amds_own_policy_is_no_better_on_hosts_with_hives_and_partitions() {
    let cpx = [8, 8, 8, 8, 8, 8, 8, 7];
    for host in [Host::amd(&cpx, 8), Host::amd(&cpx, 4), Host::amd(&[4; 8], 8), Host::amd(&[1; 8], 4)] {
        for size in (1..=host.ids.len()).filter(|size| *size < 33 || *size > 62) {
            amd_is_not_better(&host, &host.all(), &[], size);
        }
        let available = without(&host.all(), &[0, 1, 5]);
        for size in 3..host.ids.len().min(20) - 2 {
            amd_is_not_better(&host, &available, &[2, 6], size);
        }
    }
}

/// amd.md 4.2: the vendor's own tests on two hives of four MI210.
#[test]
fn the_vendors_own_cases_on_mi210_have_the_same_answers() {
    let host = Host::amd(&[1; 8], 4);
    let preference = host.preference(Kind::Aligned);
    let all = host.all();
    for (available, size, expected) in [
        (&all[..], 1, vec![0]),
        (&all[..], 3, vec![0, 1, 2]),
        (&all[..], 5, vec![0, 1, 2, 3, 4]),
        (&all[2..], 3, vec![4, 5, 6]),
    ] {
        assert_eq!(host.choose(&preference, available, &[], size), expected);
    }
    for (size, best) in [(2, 40), (3, 120), (4, 240), (5, 560), (6, 920), (7, 1320)] {
        assert_eq!(sum(&host, &host.choose(&preference, &all, &[], size)), best);
    }
}

/// amd.md 2.2: requests for one device leave whole GPUs whole.
#[test]
fn of_equal_partitions_those_on_the_gpu_with_the_fewest_free_are_taken() {
    let host = Host::amd(&[4; 4], 4);
    let preference = host.preference(Kind::Aligned);
    let available = without(&host.all(), &[0, 9, 10]); // three left on the first GPU, two on the third
    assert_eq!(host.choose(&preference, &available, &[], 1), [8]);
    assert_eq!(host.choose(&preference, &available, &[], 2), [8, 11]);
    assert_eq!(host.choose(&preference, &available, &[], 3), [1, 2, 3]);
}

#[test]
fn of_equal_sets_one_is_taken_that_leaves_switches_whole() {
    let host = Host::nvidia(8, |_, _| 0);
    let preference = host.preference(Kind::Aligned);
    assert_eq!(host.choose(&preference, &without(&host.all(), &[4]), &[], 1), [5]);
    assert_eq!(host.choose(&preference, &without(&host.all(), &[5]), &[], 2), [6, 7]);
    assert_eq!(host.choose(&preference, &host.all(), &[6], 2), [6, 7]);
}

/// NVIDIA N2: one lost GPU made the call fail for the whole node.
#[test]
fn a_lost_gpu_costs_the_others_nothing() {
    let host = Host::nvidia(8, |_, _| 0);
    let mut devices = host.devices();
    devices[1].healthy = false;
    devices[1].distances.clear();
    let preference = Preference::new(Kind::Aligned, devices);
    assert_eq!(host.choose(&preference, &host.all(), &[], 2), [2, 3]);
    assert_eq!(host.choose(&preference, &host.all(), &[], 7), without(&host.all(), &[1]));
    assert_eq!(host.choose(&preference, &host.all(), &[], 8).len(), 8);
}

/// NVIDIA N4: with NVSwitch all GPUs of a fabric are linked alike, and their switches decide among them only.
#[test]
fn gpus_of_one_fabric_come_before_a_common_switch() {
    let fabric = |one: usize, other: usize| u64::from(one % 2 == other % 2) * 18;
    let host = Host::nvidia(8, fabric);
    assert_eq!(host.choose(&host.preference(Kind::Aligned), &host.all(), &[], 2), [0, 2]);
    assert_eq!(host.choose(&host.preference(Kind::Aligned), &host.all(), &[], 4), [0, 2, 4, 6]);
    let all = Host::nvidia(8, |_, _| 18);
    assert_eq!(all.choose(&all.preference(Kind::Aligned), &all.all(), &[3], 2), [3, 2]);
}

/// NVIDIA N5: 22 million ways to cut 16 GPUs, and a whole node was cut as well.
#[test]
fn sixteen_gpus_are_chosen_from_at_every_size() {
    let host = Host::nvidia(16, |_, _| 0);
    let preference = host.preference(Kind::Aligned);
    for size in 1..=16 {
        let chosen = host.choose(&preference, &host.all(), &[], size);
        assert_eq!(chosen, (0..size).collect::<Vec<_>>());
    }
}

/// AMD 35: a missing link counted as the closest.
#[test]
fn gpus_without_a_link_between_them_come_last() {
    let host = Host::amd(&[1; 8], 4);
    let mut devices = host.devices();
    for (number, device) in devices.iter_mut().enumerate() {
        let linked = |card: &str| (0..8).any(|other| other / 4 == number / 4 && card == format!("card {other}"));
        device.distances.retain(|card, _| linked(card));
    }
    let preference = Preference::new(Kind::Aligned, devices);
    assert_eq!(host.choose(&preference, &[1, 3, 4, 6, 7], &[], 2), [1, 3]);
    assert_eq!(host.choose(&preference, &[1, 3, 4, 6, 7], &[], 3), [4, 6, 7]);
}

/// AMD 24: with one GPU preferred allocation was switched off.
#[test]
fn one_device_is_a_case_like_any_other() {
    let preference = Preference::new(Kind::Aligned, Host::amd(&[1], 1).devices());
    assert_eq!(preference.choose(&["gpu0-0"], &[], 1), ["gpu0-0"]);
    assert_eq!(preference.choose(&["gpu0-0"], &["gpu0-0"], 1), ["gpu0-0"]);
}
