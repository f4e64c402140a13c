//! What the class of a device calls a fault: `health` of its definition. The reasons are the class's own words.

use std::path::PathBuf;

use crate::device::{Device, Limit, Reading};
use crate::health::reading::{self, ReadPolicy};
use crate::health::source::{About, Class, Meaning, Pace, Source, Subject};
use crate::host::Host;

/// The name of the source. Every reason has the meaning of the reason of this name.
const CLASS: &str = "class";

static ABOUT: About = About {
    name: CLASS,
    reads: Class::DeviceRegisters,
    pace: Pace::Fifth,
    document: "docs/classes.md",
    meanings: &[Meaning::unhealthy(
        CLASS,
        "a file that the class of the device names shows the fault",
        "see what[ {file} says|its files say]: the class of the device calls it a fault",
    )],
};

/// Nobody knows what a driver does for the read.
const POLICY: ReadPolicy = ReadPolicy { blames_words: false, wakes: true };

/// The source.
#[derive(Debug)]
pub(super) struct ClassHealth;

impl Source for ClassHealth {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        reading::subjects(&ABOUT, POLICY, host, device)
    }
}

/// A reading of a class: a file, what it may not show, and the class's word for the fault.
pub fn of_class(attribute: impl Into<PathBuf>, limit: Limit, reason: String) -> Reading {
    Reading { source: ABOUT.name, reason: reason.into(), attribute: attribute.into(), limit }
}

/// Whether a file with this text shows a number that a reading of a class can compare.
#[must_use]
pub fn is_number(text: &str) -> bool {
    reading::number(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FUNCTION, Tree};
    use super::*;
    use crate::health::source::Observation;

    #[test]
    fn a_fault_is_what_the_class_calls_one_and_has_its_word() {
        let tree = Tree::new();
        let file = format!("{FUNCTION}/widget/state");
        for (limit, content, fault) in [
            (Limit::Other("broken".to_owned()), Some("broken\n"), Some("state is broken")),
            (Limit::Other("broken".to_owned()), Some("well\n"), None),
            (Limit::Other("broken".to_owned()), None, None),
            (Limit::Present, Some("\n"), None),
            (Limit::Present, None, Some("state is absent")),
            (Limit::AtMost(300_000), Some("300001\n"), Some("state is 300001, at most 300000 is right")),
            (Limit::AtMost(300_000), Some("300000\n"), None),
            (Limit::AtMost(-1), Some("0x0\n"), Some("state is 0, at most -1 is right")),
            (Limit::AtMost(0), Some("many\n"), None),
        ] {
            tree.write(&file, content.unwrap_or_default());
            if content.is_none() {
                tree.remove(&file);
            }
            let reading = of_class(&file, limit.clone(), "widget-broken".to_owned());
            let seen = tree.watch(&ClassHealth, &Device { readings: vec![reading], ..Device::default() }).observation();
            let seen = match seen {
                Observation::NotLooked(why) => {
                    assert_eq!((content, &*why), (Some("many\n"), "state is \"many\", which is no number"));
                    None
                }
                Observation::Seen(finding) => {
                    assert_eq!((&*finding.source, &*finding.reason, &finding.file), ("class", "widget-broken", &file));
                    Some(finding.detail)
                }
                _ => None,
            };
            assert_eq!(seen.as_deref(), fault, "{limit:?} {content:?}");
        }
    }
}
