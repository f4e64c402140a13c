//! NVIDIA's policies for replicas and MIG: one after the other from the least or the most allocated device.
//!
//! Each returns the number taken from each device, given its replicas and the free ones among them.

pub(crate) fn distributed(replicas: &[usize], free: &[usize], size: usize) -> Vec<usize> {
    greedy(replicas, free, size, |allocated| allocated)
}

pub(crate) fn packed(replicas: &[usize], free: &[usize], size: usize) -> Vec<usize> {
    greedy(replicas, free, size, |allocated| usize::MAX - allocated)
}

fn greedy(replicas: &[usize], free: &[usize], size: usize, order: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut picked = vec![0; replicas.len()];
    for _ in 0..size {
        let left = (0..replicas.len()).filter(|&device| free[device] > picked[device]);
        let allocated = |device: usize| replicas[device] - free[device] + picked[device];
        if let Some(next) = left.min_by_key(|&device| (order(allocated(device)), picked[device])) {
            picked[next] += 1;
        }
    }
    picked
}
