//! Intel's `balanced` policy: each id from the card with the most free ids.

/// The number of ids taken from each card, given the free ones of each.
pub(crate) fn balanced(free: &[usize], size: usize) -> Vec<usize> {
    let mut taken = vec![0; free.len()];
    for _ in 0..size {
        let left = |card: &usize| free[*card] - taken[*card];
        // Among equal ones the last: the policy iterates over a map in random order.
        if let Some(card) = (0..free.len()).max_by_key(left) {
            taken[card] += 1;
        }
    }
    taken
}
