//! AMD's best-effort policy: permutations of GPUs, all but the last taken whole, the least sum of weights.

use std::collections::{BTreeSet, VecDeque};

/// The policy's set; `gpus` has the GPU of each device. `None` if it gives up.
pub(crate) fn aligned(
    weights: &[Vec<u64>],
    gpus: &[usize],
    available: &[usize],
    required: &[usize],
    size: usize,
) -> Option<Vec<usize>> {
    if size == 0 || available.len() < size || required.len() > size {
        return None;
    }
    if available.len() == size {
        return Some(available.to_vec());
    }
    if required.len() == size {
        return Some(required.to_vec());
    }
    let groups = groups(gpus, available, required);
    let missing = size - required.len();
    let mut candidates = Vec::new();
    let mut queue = VecDeque::new();
    for (number, group) in groups.iter().enumerate() {
        let state = State::new(weights, required);
        if missing == 1 || group.len() >= missing {
            candidates.push(state.with(weights, &group[..missing], number));
        } else {
            queue.push_back(state.with(weights, group, number));
        }
    }
    while let Some(state) = queue.pop_front() {
        for (number, group) in groups.iter().enumerate().filter(|(number, _)| !state.used.contains(number)) {
            let still = size - state.devices.len();
            let next = state.with(weights, &group[..still.min(group.len())], number);
            if next.devices.len() == size { candidates.push(next) } else { queue.push_back(next) }
        }
    }
    candidates.into_iter().reduce(|best, next| if next.sum < best.sum { next } else { best }).map(|state| state.devices)
}

/// The sum of the weights of all pairs.
pub(crate) fn sum(weights: &[Vec<u64>], set: &[usize]) -> u64 {
    super::nvidia::score(weights, set)
}

/// Free devices by GPU, the GPU with the fewest first.
fn groups(gpus: &[usize], available: &[usize], required: &[usize]) -> Vec<Vec<usize>> {
    let mut free: Vec<usize> = available.iter().copied().filter(|device| !required.contains(device)).collect();
    free.sort_unstable();
    let numbers: BTreeSet<usize> = free.iter().map(|&device| gpus[device]).collect();
    let of = |gpu: usize| free.iter().copied().filter(|&device| gpus[device] == gpu).collect();
    let mut groups: Vec<Vec<usize>> = numbers.into_iter().map(of).collect();
    groups.sort_by_key(Vec::len);
    groups
}

struct State {
    devices: Vec<usize>,
    sum: u64,
    used: Vec<usize>,
}

impl State {
    fn new(weights: &[Vec<u64>], required: &[usize]) -> Self {
        Self { devices: required.to_vec(), sum: sum(weights, required), used: Vec::new() }
    }

    fn with(&self, weights: &[Vec<u64>], added: &[usize], group: usize) -> Self {
        let mut next = Self { devices: self.devices.clone(), sum: self.sum, used: [&self.used[..], &[group]].concat() };
        for &device in added {
            next.sum += next.devices.iter().map(|&other| weights[device][other]).sum::<u64>();
            next.devices.push(device);
        }
        next
    }
}
