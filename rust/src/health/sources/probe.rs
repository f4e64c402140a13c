//! Whether a card answers at all: the fence says so, in scans and in polls, and nothing is read for it.

use std::time::Duration;

use crate::device::Device;
use crate::health::finding::Finding;
use crate::health::source::{About, Class, Meaning, Source, Subject};
use crate::host::Host;

/// A read has not come back in time.
const PROBE_TIMEOUT: &str = "probe-timeout";

static ABOUT: About = About {
    name: "probe",
    reads: Class::None,
    document: "README.md, scan.probe_timeout",
    meanings: &[Meaning::unhealthy(PROBE_TIMEOUT, "a read of the card has not come back within scan.probe_timeout")],
};

/// The source.
#[derive(Debug)]
pub(super) struct Probe;

impl Source for Probe {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, _host: &Host, _device: &Device) -> Vec<Subject> {
        Vec::new()
    }
}

/// The name of this source.
pub(in crate::health) fn name() -> &'static str {
    ABOUT.name
}

/// A read that has not come back before this deadline: the file or directory that was being read, as the host names it.
#[must_use]
pub fn timeout(deadline: Duration, file: &str) -> Finding {
    let detail = format!(
        "a read has not come back within {} s; look for blocked tasks in the kernel log",
        deadline.as_secs_f64()
    );
    ABOUT.finding(PROBE_TIMEOUT).at(file).because(&detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_that_a_card_missed_is_named() {
        let finding = timeout(Duration::from_millis(2500), "/sys/x");
        assert_eq!((&*finding.reason, &*finding.file), ("probe-timeout", "/sys/x"));
        assert!(finding.detail.contains("within 2.5 s"), "{}", finding.detail);
    }
}
