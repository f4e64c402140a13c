//! Answers of vendors, and which of them are still valid: while the directories behind an answer look the same, the
//! vendor is not asked again.

use std::collections::HashMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::OVERDUE;
use crate::device::{Device, Found, NotExamined, Platform, Problem};
use crate::fence::{FULL, Outcome};
use crate::host::Host;
use crate::host::fingerprint::Fingerprint;
use crate::host::mounts::Mounts;
use crate::vendors::Vendor;

/// [`Found`], shared so that it can be returned again without copying.
#[derive(Debug, Clone, Default)]
pub(super) struct Answer {
    pub(super) devices: Vec<Arc<Device>>,
    pub(super) platform: Option<Arc<Platform>>,
    pub(super) problems: Vec<Problem>,
    pub(super) unseen: Vec<NotExamined>,
    pub(super) requests: Vec<(&'static str, String)>,
    pub(super) look_again: bool,
}

impl Answer {
    pub(super) fn of(vendor: &'static str, outcome: Outcome<Found>) -> Self {
        let error = match outcome {
            Outcome::Done(found) => return found.into(),
            Outcome::Overdue => OVERDUE.to_owned(),
            Outcome::NotStarted => FULL.to_owned(),
            Outcome::Panicked(message) => format!("defect in the scan: {message}"),
        };
        Self::not_examined(vendor, error)
    }

    /// The answer of a vendor whose devices could not be examined.
    pub(super) fn not_examined(vendor: &'static str, error: impl Display) -> Self {
        Self {
            problems: vec![Problem::new(vendor, "/", error)],
            unseen: vec![NotExamined { vendor, card: None, finding: None }],
            ..Self::default()
        }
    }

    /// Whether everything was examined, so that another look would find nothing more.
    fn is_whole(&self) -> bool {
        self.unseen.is_empty() && !self.look_again
    }
}

impl From<Found> for Answer {
    fn from(found: Found) -> Self {
        Self {
            devices: found.devices,
            platform: found.platform.map(Arc::new),
            problems: found.problems,
            unseen: found.unseen,
            requests: found.requests,
            look_again: found.look_again,
        }
    }
}

/// Longest time that an answer is reused. What a fingerprint does not show, such as a NUMA node set by the operator, is
/// noticed after that.
const LONGEST: Duration = Duration::from_secs(60);

/// The last answers of vendors that have a fingerprint.
#[derive(Default)]
pub(super) struct CachedScan {
    mounts: Option<Mounts>,
    answers: HashMap<&'static str, (Basis, Answer)>,
}

/// The fingerprint that an answer belongs to, and when it was taken.
pub(super) struct Basis {
    fingerprint: Fingerprint,
    /// Number of the reading of the mount table: a mount over a node does not change its directory.
    reading: u64,
    at: Instant,
}

impl CachedScan {
    /// The current fingerprint of each vendor; `None` for a vendor that has none.
    pub(super) fn look(&mut self, host: &Host, vendors: &[Arc<dyn Vendor>]) -> Vec<Option<Basis>> {
        if self.mounts.is_none() {
            self.mounts = Mounts::open().ok();
        }
        let reading = self.mounts.as_mut().and_then(|mounts| mounts.reading().ok());
        let (Some(mounts), Some(reading)) = (&self.mounts, reading) else {
            return vendors.iter().map(|_| None).collect();
        };
        let at = Instant::now();
        let fingerprint =
            |vendor: &Arc<dyn Vendor>| catch_unwind(AssertUnwindSafe(|| vendor.fingerprint(host, mounts))).ok()?;
        vendors.iter().map(|vendor| Some(Basis { fingerprint: fingerprint(vendor)?, reading, at })).collect()
    }

    /// The vendor's last answer, if it is still valid.
    pub(super) fn answer(&self, vendor: &str, now: Option<&Basis>) -> Option<&Answer> {
        let (before, answer) = self.answers.get(vendor)?;
        now.is_some_and(|now| before.still_holds(now)).then_some(answer)
    }

    /// Keeps an answer with the fingerprint taken before the scan: a change during the scan shows in the next
    /// fingerprint.
    pub(super) fn keep(&mut self, vendor: &'static str, basis: Option<Basis>, answer: &Answer) {
        match basis.filter(|_| answer.is_whole()) {
            Some(basis) => self.answers.insert(vendor, (basis, answer.clone())),
            None => self.answers.remove(vendor),
        };
    }

    /// Drops the answer of a vendor whose options have changed.
    pub(super) fn forget(&mut self, vendor: &str) {
        self.answers.remove(vendor);
    }
}

impl Basis {
    fn still_holds(&self, now: &Self) -> bool {
        self.reading == now.reading && self.fingerprint == now.fingerprint && now.at.duration_since(self.at) < LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basis(reading: u64, at: Instant) -> Basis {
        Basis { fingerprint: Fingerprint::default(), reading, at }
    }

    #[test]
    fn an_answer_stands_for_a_while_and_until_something_is_mounted() {
        let start = Instant::now();
        assert!(basis(1, start).still_holds(&basis(1, start + LONGEST / 2)));
        assert!(!basis(1, start).still_holds(&basis(1, start + LONGEST)));
        assert!(!basis(1, start).still_holds(&basis(2, start)));
    }

    #[test]
    fn an_answer_without_a_sight_is_not_kept() {
        let mut cached = CachedScan::default();
        let now = || Some(basis(1, Instant::now()));
        cached.keep("generic", now(), &Answer::default());
        assert!(cached.answer("generic", now().as_ref()).is_some());
        assert!(cached.answer("generic", None).is_none());
        cached.keep("generic", None, &Answer::default());
        assert!(cached.answer("generic", now().as_ref()).is_none());
    }
}
