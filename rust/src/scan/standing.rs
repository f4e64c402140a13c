//! Answers of vendors that still stand: what they follow from looks as it did, so nothing need be handed to the fence.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::answer::Answer;
use crate::host::Host;
use crate::host::mounts::Mounts;
use crate::host::sight::Sight;
use crate::vendors::Vendor;

/// So long at most. What a sight does not tell, as a NUMA node that the operator has set, is seen after that.
const LONGEST: Duration = Duration::from_secs(60);

/// The last answers of vendors that say what theirs follow from.
#[derive(Default)]
pub(super) struct Standing {
    mounts: Option<Mounts>,
    answers: HashMap<&'static str, (Seen, Answer)>,
}

/// What a vendor's answer follows from, and when it was given.
pub(super) struct Seen {
    sight: Sight,
    /// Which reading of the table of mounts: what is mounted on a node changes it without a trace in its directory.
    reading: u64,
    at: Instant,
}

impl Standing {
    /// What is seen now, for each vendor.
    pub(super) fn look(&mut self, host: &Host, vendors: &[Arc<dyn Vendor>]) -> Vec<Option<Seen>> {
        if self.mounts.is_none() {
            self.mounts = Mounts::open().ok();
        }
        let reading = self.mounts.as_mut().and_then(|mounts| mounts.reading().ok());
        let (Some(mounts), Some(reading)) = (&self.mounts, reading) else {
            return vendors.iter().map(|_| None).collect();
        };
        let at = Instant::now();
        let sight = |vendor: &Arc<dyn Vendor>| catch_unwind(AssertUnwindSafe(|| vendor.sight(host, mounts))).ok()?;
        vendors.iter().map(|vendor| Some(Seen { sight: sight(vendor)?, reading, at })).collect()
    }

    /// The vendor's last answer, if it stands.
    pub(super) fn answer(&self, vendor: &str, now: Option<&Seen>) -> Option<&Answer> {
        let (before, answer) = self.answers.get(vendor)?;
        now.is_some_and(|now| before.still_holds(now)).then_some(answer)
    }

    /// Keeps an answer by what was seen before it was asked for: what has changed meanwhile looks different the next time.
    pub(super) fn keep(&mut self, vendor: &'static str, seen: Option<Seen>, answer: &Answer) {
        match seen.filter(|_| answer.is_whole()) {
            Some(seen) => self.answers.insert(vendor, (seen, answer.clone())),
            None => self.answers.remove(vendor),
        };
    }

    /// The vendor has other options now.
    pub(super) fn forget(&mut self, vendor: &str) {
        self.answers.remove(vendor);
    }
}

impl Seen {
    fn still_holds(&self, now: &Self) -> bool {
        self.reading == now.reading && self.sight == now.sight && now.at.duration_since(self.at) < LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(reading: u64, at: Instant) -> Seen {
        Seen { sight: Sight::default(), reading, at }
    }

    #[test]
    fn an_answer_stands_for_a_while_and_until_something_is_mounted() {
        let start = Instant::now();
        assert!(seen(1, start).still_holds(&seen(1, start + LONGEST / 2)));
        assert!(!seen(1, start).still_holds(&seen(1, start + LONGEST)));
        assert!(!seen(1, start).still_holds(&seen(2, start)));
    }

    #[test]
    fn an_answer_without_a_sight_is_not_kept() {
        let mut standing = Standing::default();
        let now = || Some(seen(1, Instant::now()));
        standing.keep("generic", now(), &Answer::default());
        assert!(standing.answer("generic", now().as_ref()).is_some());
        assert!(standing.answer("generic", None).is_none());
        standing.keep("generic", None, &Answer::default());
        assert!(standing.answer("generic", now().as_ref()).is_none());
    }
}
