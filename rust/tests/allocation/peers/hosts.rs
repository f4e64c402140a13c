//! Hosts with devices at given distances.

use devherd_native::allocation::{Device, Kind, Preference};

/// The highest score of a pair, from which NVIDIA's scan derives distances.
pub(crate) const MOST_SCORE: u64 = 1860;

/// Devices by number, and the distance of every pair.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) ids: Vec<String>,
    pub(crate) cards: Vec<usize>,
    pub(crate) distances: Vec<Vec<u64>>,
}

impl Host {
    /// A host with so many devices on each card; the distance of two devices depends on their cards.
    pub(crate) fn new(members: &[usize], distance: impl Fn(usize, usize) -> u64) -> Self {
        let places = members.iter().enumerate().flat_map(|(card, &count)| (0..count).map(move |number| (card, number)));
        let (cards, ids): (Vec<usize>, Vec<String>) =
            places.map(|(card, number)| (card, format!("gpu{card}-{number}"))).unzip();
        let distances = cards.iter().map(|&one| cards.iter().map(|&other| distance(one, other)).collect()).collect();
        Self { ids, cards, distances }
    }

    /// GPUs, a switch for every two, two switches below a host bridge, two host bridges a socket; and NVLinks.
    pub(crate) fn nvidia(gpus: usize, links: impl Fn(usize, usize) -> u64) -> Self {
        Self::new(&vec![1; gpus], |one, other| MOST_SCORE - pcie_score(one, other) - 100 * links(one, other))
    }

    /// AMD GPUs with so many partitions each, in hives of so many GPUs; half of them belong to each socket.
    pub(crate) fn amd(partitions: &[usize], hive: usize) -> Self {
        let socket = |gpu: usize| 2 * gpu / partitions.len();
        Self::new(partitions, |one, other| {
            let link = if one / hive == other / hive { 10 } else { 40 };
            link + if one == other { 10 } else { 20 } + if socket(one) == socket(other) { 10 } else { 20 }
        })
    }

    pub(crate) fn devices(&self) -> Vec<Device> {
        let cards: Vec<String> = self.cards.iter().map(|card| format!("card {card}")).collect();
        let device = |(number, id): (usize, &String)| Device {
            id: id.clone(),
            card: cards[number].clone(),
            healthy: true,
            distances: cards.iter().cloned().zip(self.distances[number].iter().copied().map(narrow)).collect(),
            ..Device::default()
        };
        self.ids.iter().enumerate().map(device).collect()
    }

    pub(crate) fn preference(&self, kind: Kind) -> Preference {
        Preference::new(kind, self.devices())
    }

    /// The chosen devices as numbers; ids are in natural order.
    pub(crate) fn choose(
        &self,
        preference: &Preference,
        available: &[usize],
        required: &[usize],
        size: usize,
    ) -> Vec<usize> {
        let ids = |numbers: &[usize]| numbers.iter().map(|&number| self.ids[number].as_str()).collect::<Vec<_>>();
        let chosen = preference.choose(&ids(available), &ids(required), size);
        chosen.iter().filter_map(|id| self.ids.iter().position(|other| other == id)).collect()
    }

    pub(crate) fn all(&self) -> Vec<usize> {
        (0..self.ids.len()).collect()
    }
}

fn narrow(distance: u64) -> u32 {
    u32::try_from(distance).unwrap_or(u32::MAX)
}

/// 50 below one switch, 40 below one host bridge through several, 20 on one socket, else 10.
fn pcie_score(one: usize, other: usize) -> u64 {
    match () {
        () if one / 2 == other / 2 => 50,
        () if one / 4 == other / 4 => 40,
        () if one / 8 == other / 8 => 20,
        () => 10,
    }
}
