//! The health that an Intel GPU under xe reports: its own judgement, kept over resets, and whether its firmware must be
//! flashed.
//!
//! `gpu_health`: `ok`, `warning` or `critical`; `survivability_mode`: exists, with text, while the card can only take
//! new firmware: <https://docs.kernel.org/gpu/xe/xe_pcode.html>.

use std::path::PathBuf;

use crate::device::{Device, PciFunction};
use crate::health::power::Power;
use crate::health::source::{
    About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject, failed_read,
};
use crate::host::Host;
use crate::host::attribute::trimmed;

const FIRMWARE: &str = "firmware";

const DOCUMENT: &str = "https://docs.kernel.org/gpu/xe/xe_pcode.html";

static CRITICAL: About = About {
    name: "xe-health",
    reads: Class::Firmware,
    pace: Pace::Thirtieth,
    document: DOCUMENT,
    meanings: &[Meaning::unhealthy(
        FIRMWARE,
        "gpu_health is `critical`, or survivability_mode is set",
        "flash the GPU's firmware if survivability_mode is set; else ask Intel what \
         gpu_health means for the card[ {place}]",
    )],
};

static WARNING: About = About {
    name: "xe-health-warning",
    reads: Class::Firmware,
    pace: Pace::Thirtieth,
    document: DOCUMENT,
    meanings: &[Meaning::warning(
        FIRMWARE,
        "gpu_health is `warning`",
        "ask Intel what gpu_health means for the card[ {place}]",
    )],
};

/// The source for one degree.
#[derive(Debug)]
pub(super) struct XeHealth {
    about: &'static About,
    /// Attributes, and their content in case of a fault.
    signs: &'static [(&'static str, Sign)],
}

#[derive(Debug, Clone, Copy)]
enum Sign {
    Word(&'static str),
    AnyText,
}

impl XeHealth {
    /// The card must not be used.
    pub(super) const CRITICAL: Self = Self {
        about: &CRITICAL,
        signs: &[("gpu_health", Sign::Word("critical")), ("survivability_mode", Sign::AnyText)],
    };
    /// The card can be used.
    pub(super) const WARNING: Self = Self { about: &WARNING, signs: &[("gpu_health", Sign::Word("warning"))] };
}

impl Source for XeHealth {
    fn about(&self) -> &'static About {
        self.about
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        let is_under_xe = |function: &&PciFunction| function.driver.as_deref() == Some("xe");
        let subject = |function: PathBuf, (name, sign): (&str, Sign)| {
            let file = function.join(name);
            let own = host.own_path(&file);
            let attribute = Attribute { about: self.about, sign, power: Power::of(&function), file };
            Subject::new(own.to_string_lossy(), attribute)
        };
        let of_function = |function: &PciFunction| {
            let path = host.absolute(&function.path);
            self.signs.iter().map(|&sign| subject(path.clone(), sign)).collect::<Vec<_>>()
        };
        device.functions.iter().filter(is_under_xe).flat_map(of_function).collect()
    }
}

#[derive(Debug)]
struct Attribute {
    about: &'static About,
    sign: Sign,
    power: Power,
    file: PathBuf,
}

impl Examination for Attribute {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        if let Some(asleep) = self.power.asleep(context.reads) {
            return Observation::NotLooked(asleep);
        }
        let text = match context.read(&self.file) {
            Ok(text) => text,
            Err(cause) => return failed_read(&cause),
        };
        let (text, name) = (trimmed(&text), context.file.rsplit('/').next().unwrap_or_default());
        let detail = match self.sign {
            Sign::Word(word) if text == word => format!("{name} is {word}: the card's own judgement"),
            Sign::AnyText if !text.is_empty() => "the card does nothing but wait for new firmware; flash it".to_owned(),
            _ => return Observation::Fine,
        };
        Observation::Seen(self.about.finding(FIRMWARE).at(context.file).reading(text).because(&detail))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FUNCTION, Tree, device};
    use super::*;
    use crate::health::source::Action;

    #[test]
    fn a_card_that_calls_itself_critical_is_unhealthy_and_one_that_warns_is_warned_of() {
        let tree = Tree::new();
        let device = device("intel-gpu", Some("xe"));
        let mut critical = tree.watch(&XeHealth::CRITICAL, &device);
        let mut warning = tree.watch(&XeHealth::WARNING, &device);
        assert_eq!(
            [critical.observation(), warning.observation()],
            [Observation::Nothing, Observation::Nothing],
            "an older kernel"
        );
        for (word, expected) in [
            ("ok\n", (false, false)),
            ("warning\n", (false, true)),
            ("critical\n", (true, false)),
            ("new", (false, false)),
        ] {
            tree.set("gpu_health", word);
            let is_seen = |observation: Observation| matches!(observation, Observation::Seen(finding) if finding.reason == "firmware");
            assert_eq!((is_seen(critical.observation()), is_seen(warning.observation())), expected, "{word}");
        }
        assert_eq!([CRITICAL.meanings[0].action, WARNING.meanings[0].action], [Action::Unhealthy, Action::Warn]);
    }

    #[test]
    fn a_card_that_waits_for_new_firmware_is_unhealthy() {
        let tree = Tree::new();
        let mut watching = tree.watch(&XeHealth::CRITICAL, &device("intel-gpu", Some("xe")));
        tree.set("survivability_mode", "\n");
        assert_eq!(watching.observation(), Observation::Fine);
        tree.set("survivability_mode", "Runtime\nFW error 0x1\n");
        let finding = watching.finding();
        assert_eq!((finding.file, &*finding.value), (format!("{FUNCTION}/survivability_mode"), "Runtime FW error 0x1"));
    }

    #[test]
    fn a_card_that_sleeps_and_one_under_another_driver_are_left_alone() {
        let tree = Tree::new();
        tree.set("gpu_health", "critical");
        assert!(tree.watch(&XeHealth::CRITICAL, &device("intel-gpu", Some("i915"))).subjects.is_empty());
        tree.set("power/runtime_status", "suspended\n");
        let observations = tree.watch(&XeHealth::CRITICAL, &device("intel-gpu", Some("xe"))).observations();
        assert!(
            observations.iter().all(|observation| matches!(observation, Observation::NotLooked(_))),
            "{observations:?}"
        );
    }
}
