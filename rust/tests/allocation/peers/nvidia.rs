//! NVIDIA's best-effort policy: cut all available devices into sets, take the best cut, and from it the best set.

/// The policy's set; scores are higher for closer devices. `None` if it gives up.
pub(crate) fn aligned(scores: &[Vec<u64>], available: &[usize], required: &[usize], size: usize) -> Option<Vec<usize>> {
    let within = required.iter().all(|device| available.contains(device));
    if size == 0 || available.len() < size || required.len() > size || !within {
        return None;
    }
    if size == 1 {
        return Some(if required.is_empty() { vec![available[0]] } else { required.to_vec() });
    }
    let places = (0..available.len()).filter(|&place| required.contains(&available[place]));
    let required = places.map(|place| 1 << place).sum();
    let padding = (size - available.len() % size) % size;
    let mut cut = Cut { scores, available, required, size, sets: Vec::new(), best: None };
    cut.go((1 << available.len()) - 1, padding);
    let (_, sets) = cut.best.take()?;
    let suitable = sets.into_iter().filter(|&set| cut.suits(set));
    let best = suitable.reduce(|best, set| if cut.score(set) > cut.score(best) { set } else { best })?;
    Some(places_of(best).map(|place| available[place]).collect())
}

/// The sum of the scores of all pairs.
pub(crate) fn score(scores: &[Vec<u64>], set: &[usize]) -> u64 {
    set.iter().enumerate().map(|(place, &one)| set[..place].iter().map(|&other| scores[one][other]).sum::<u64>()).sum()
}

/// Indexes of available devices, as bits.
type Set = u32;

fn places_of(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(place)
    })
}

struct Cut<'a> {
    scores: &'a [Vec<u64>],
    available: &'a [usize],
    required: Set,
    size: usize,
    sets: Vec<Set>,
    best: Option<(u64, Vec<Set>)>,
}

impl Cut<'_> {
    /// Fixes the first device, chooses the rest of its set, and continues with the remaining devices; padding stays
    /// together.
    fn go(&mut self, left: Set, padding: usize) {
        if left == 0 {
            self.judge();
            return;
        }
        let first = left & left.wrapping_neg();
        let others = left & !first;
        self.complete(first, others, others, self.size - 1, padding);
        if padding > 0 {
            self.complete(first, others, others, self.size - 1 - padding, 0);
        }
    }

    fn complete(&mut self, set: Set, choices: Set, left: Set, missing: usize, padding: usize) {
        if missing == 0 {
            self.sets.push(set);
            self.go(left & !set, padding);
            self.sets.pop();
            return;
        }
        for place in places_of(choices) {
            self.complete(set | 1 << place, choices >> place >> 1 << place << 1, left, missing - 1, padding);
        }
    }

    fn judge(&mut self) {
        if self.sets.iter().any(|&set| self.suits(set)) {
            let total = self.sets.iter().map(|&set| self.score(set)).sum();
            if self.best.as_ref().is_none_or(|&(best, _)| total > best) {
                self.best = Some((total, self.sets.clone()));
            }
        }
    }

    fn suits(&self, set: Set) -> bool {
        set.count_ones() as usize == self.size && set & self.required == self.required
    }

    fn score(&self, set: Set) -> u64 {
        let row = |place: usize| &self.scores[self.available[place]];
        let before = |place: usize| places_of(set & ((1 << place) - 1));
        places_of(set).map(|one| before(one).map(|other| row(one)[self.available[other]]).sum::<u64>()).sum()
    }
}
