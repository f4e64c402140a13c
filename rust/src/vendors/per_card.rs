//! Runs work on each card of a vendor, behind the fence; a card that fails keeps its last known devices.

use std::path::PathBuf;

use crate::device::{Found, NotExamined, Problem};
use crate::fence::{Fence, Outcome};
use crate::health::sources::scan;

const OVERDUE: &str = "the card does not answer: a read has not come back; look for blocked tasks in the kernel log";

/// The unit that hangs as one: the card's name in devices, and its path on the host.
pub(super) type Place = (String, PathBuf);

/// A part of a card that is looked at by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    /// The card's name in devices, and its path on the host.
    pub(super) place: Place,
    /// The classes that look at it; none for the whole card. A class says which files are read: that one of them does not
    /// answer says nothing of what others read.
    pub(super) classes: Vec<String>,
}

impl Unit {
    /// What the fence spends one thread on.
    fn key(&self) -> String {
        let (card, _) = &self.place;
        if self.classes.is_empty() { card.clone() } else { format!("class {} {card}", self.classes.join(" ")) }
    }
}

/// Runs `work` on every card, and returns the results in the same order. A card that hangs or panics has no result; its
/// devices stay as they were last seen.
pub(super) fn per_card<C, R>(
    vendor: &'static str,
    found: &mut Found,
    fence: &Fence,
    cards: Vec<(Place, C)>,
    work: impl Fn(C) -> R + Send + Sync + 'static,
) -> Vec<R>
where
    C: Send + 'static,
    R: Send + 'static,
{
    let units = cards.into_iter().map(|(place, card)| (Unit { place, classes: Vec::new() }, card)).collect();
    per_unit(vendor, found, fence, units, work)
}

/// [`per_card`] for parts of cards.
pub(super) fn per_unit<C, R>(
    vendor: &'static str,
    found: &mut Found,
    fence: &Fence,
    units: Vec<(Unit, C)>,
    work: impl Fn(C) -> R + Send + Sync + 'static,
) -> Vec<R>
where
    C: Send + 'static,
    R: Send + 'static,
{
    let all: Vec<Unit> = units.iter().map(|(unit, _)| unit.clone()).collect();
    let outcomes = fence.each(units, |(unit, _)| unit.key(), move |(_, content)| work(content));
    let mut answers = Vec::new();
    for (Unit { place: (card, path), classes }, outcome) in all.into_iter().zip(outcomes) {
        let (error, finding) = match outcome {
            Outcome::Done(answer) => {
                answers.push(answer);
                continue;
            }
            Outcome::Overdue => {
                (OVERDUE.to_owned(), Some(scan::probe_timeout(fence.deadline(), &path.to_string_lossy())))
            }
            Outcome::NotStarted(why) => (why, None),
            Outcome::Panicked(message) => (format!("defect in the scan: {message}"), None),
        };
        found.problems.push(Problem::new(vendor, path, error));
        let unseen = NotExamined { finding, ..NotExamined::new(vendor, Some(card)) };
        if classes.is_empty() {
            found.unseen.push(unseen);
        } else {
            found.unseen.extend(classes.into_iter().map(|class| unseen.clone().of_class(class)));
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};
    use std::time::Duration;

    use super::*;

    fn cards() -> Vec<(Place, &'static str)> {
        ["works", "breaks", "hangs"].map(|card| ((card.to_owned(), PathBuf::from("/sys").join(card)), card)).to_vec()
    }

    #[test]
    fn a_card_that_hangs_or_breaks_the_scan_is_left_as_it_was() {
        let (mut found, fence) = (Found::default(), Fence::new(Duration::from_secs(2)));
        let release = Arc::new(Barrier::new(2));
        let held = Arc::clone(&release);
        let answers = per_card("vendor", &mut found, &fence, cards(), move |card| match card {
            "hangs" => {
                held.wait();
                card
            }
            "breaks" => panic!("nobody expects this"),
            _ => card,
        });
        release.wait();
        assert_eq!(answers, ["works"]);
        let unseen = found.unseen.into_iter().map(|unseen| (unseen.card.unwrap_or_default(), unseen.finding));
        let overdue = scan::probe_timeout(Duration::from_secs(2), "/sys/hangs");
        assert_eq!(unseen.collect::<Vec<_>>(), [("breaks".to_owned(), None), ("hangs".to_owned(), Some(overdue))]);
        let paths: Vec<_> = found.problems.iter().map(|problem| problem.path.clone()).collect();
        assert_eq!(paths, [PathBuf::from("/sys/breaks"), PathBuf::from("/sys/hangs")]);
        assert!(found.problems[0].error.contains("nobody expects this"));
    }
}
