//! Intel's `balanced` policy: again and again from the card with the most free ids.

/// How many ids are taken of each card, from the number of free ones of each.
pub(crate) fn balanced(free: &[usize], size: usize) -> Vec<usize> {
    let mut taken = vec![0; free.len()];
    for _ in 0..size {
        let left = |card: &usize| free[*card] - taken[*card];
        // Of equal ones the last: the policy goes through a map, whose order is random.
        if let Some(card) = (0..free.len()).max_by_key(left) {
            taken[card] += 1;
        }
    }
    taken
}
