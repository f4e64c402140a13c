//! NVIDIA's best-effort policy: cut all that is available into sets, take the best cut, and from it the best set.

/// The set that the policy takes; scores are higher for closer devices. `None` where it gives up.
pub(crate) fn aligned(scores: &[Vec<u64>], available: &[usize], required: &[usize], size: usize) -> Option<Vec<usize>> {
    let within = required.iter().all(|device| available.contains(device));
    if size == 0 || available.len() < size || required.len() > size || !within {
        return None;
    }
    if size == 1 {
        return Some(if required.is_empty() { vec![available[0]] } else { required.to_vec() });
    }
    let padding = (size - available.len() % size) % size;
    let mut cut = Cut { scores, required, size, sets: Vec::new(), best: None };
    cut.go(available, padding);
    let (_, sets) = cut.best?;
    let suits = |set: &&Vec<usize>| set.len() == size && required.iter().all(|device| set.contains(device));
    let mut best: Option<&Vec<usize>> = None;
    for set in sets.iter().filter(suits) {
        if best.is_none_or(|other| score(scores, set) > score(scores, other)) {
            best = Some(set);
        }
    }
    best.cloned()
}

/// The sum of the scores of all pairs.
pub(crate) fn score(scores: &[Vec<u64>], set: &[usize]) -> u64 {
    set.iter().enumerate().map(|(place, &one)| set[..place].iter().map(|&other| scores[one][other]).sum::<u64>()).sum()
}

struct Cut<'a> {
    scores: &'a [Vec<u64>],
    required: &'a [usize],
    size: usize,
    sets: Vec<Vec<usize>>,
    best: Option<(u64, Vec<Vec<usize>>)>,
}

impl Cut<'_> {
    /// Fixes the first device, chooses the rest of its set, and goes on with what is left; padding stays together.
    fn go(&mut self, left: &[usize], padding: usize) {
        let Some((&first, others)) = left.split_first() else {
            self.judge();
            return;
        };
        self.complete(vec![first], others, &[], self.size - 1, padding);
        if padding > 0 && padding < self.size {
            self.complete(vec![first], others, &[], self.size - 1 - padding, 0);
        }
    }

    fn complete(&mut self, set: Vec<usize>, choices: &[usize], skipped: &[usize], missing: usize, padding: usize) {
        if missing == 0 {
            self.sets.push(set);
            self.go(&[skipped, choices].concat(), padding);
            self.sets.pop();
            return;
        }
        if choices.len() < missing {
            return;
        }
        let (next, rest) = (choices[0], &choices[1..]);
        self.complete([set.as_slice(), &[next]].concat(), rest, skipped, missing - 1, padding);
        self.complete(set, rest, &[skipped, &[next]].concat(), missing, padding);
    }

    fn judge(&mut self) {
        let suits = |set: &Vec<usize>| set.len() == self.size && self.required.iter().all(|each| set.contains(each));
        if !self.sets.iter().any(suits) {
            return;
        }
        let total = self.sets.iter().map(|set| score(self.scores, set)).sum();
        if self.best.as_ref().is_none_or(|&(best, _)| total > best) {
            self.best = Some((total, self.sets.clone()));
        }
    }
}
