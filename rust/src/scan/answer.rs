//! What one vendor found, as it is passed on.

use std::sync::Arc;

use super::OVERDUE;
use crate::device::{Device, Found, NotExamined, Platform, Problem};
use crate::fence::{FULL, Outcome};

/// As [`Found`], but its devices can be had again without copying them.
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
        Self {
            problems: vec![Problem::new(vendor, "/", error)],
            unseen: vec![NotExamined { vendor, card: None, finding: None }],
            ..Self::default()
        }
    }

    /// Whether there was nothing that another look may see and this one did not.
    pub(super) fn is_whole(&self) -> bool {
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
