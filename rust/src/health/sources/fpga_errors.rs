//! Error registers of an Intel FPGA's ports and management engine (FME): bit masks that are zero if there is no error.
//!
//! `inject_errors`, next to an engine's registers, contains errors that somebody injects for a test: they count as
//! errors, and the finding says so.

use std::path::PathBuf;

use super::scan::{FME_ERROR, PORT_ERROR};
use crate::device::{Device, Limit, Reading};
use crate::health::reading::{self, ReadPolicy};
use crate::health::source::{About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject};
use crate::host::Host;
use crate::host::attribute::Attribute;

const CLEAR: &str = "end its pods and clear it (fpgainfo errors all --clear) or power-cycle the node; if it comes again, ask the \
     card's vendor";

static ABOUT: About = About {
    name: "fpga-errors",
    reads: Class::DeviceRegisters,
    pace: Pace::Each,
    document: "https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-platform-dfl-fme",
    meanings: &[
        Meaning::unhealthy(PORT_ERROR, "an error register of a port has a bit set, or is no number", CLEAR)
            .only_when_new(),
        Meaning::unhealthy(
            FME_ERROR,
            "an error register of the management engine has a bit set, or is no number",
            CLEAR,
        )
        .only_when_new(),
    ],
};

/// The drivers write only numbers, so other text is a finding.
const POLICY: ReadPolicy = ReadPolicy { blames_words: true, wakes: false };

/// The source.
#[derive(Debug)]
pub(super) struct FpgaErrors;

impl Source for FpgaErrors {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        let with_injection = |subject: Subject| {
            let injected = host.absolute(&subject.file).with_file_name("inject_errors");
            let examination = Box::new(WithInjection { examination: subject.examination, injected });
            Subject { examination, ..subject }
        };
        reading::subjects(&ABOUT, POLICY, host, device).into_iter().map(with_injection).collect()
    }
}

/// A register, and whether somebody injects errors.
#[derive(Debug)]
struct WithInjection {
    examination: Box<dyn Examination>,
    /// `inject_errors`, read only if there are errors; ports have none.
    injected: PathBuf,
}

impl Examination for WithInjection {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        let observation = self.examination.look(context);
        let Observation::Seen(finding) = &observation else { return observation };
        match Attribute::read(&self.injected) {
            Ok(injected) if injected.hexadecimal().is_ok_and(|mask| mask != 0) => {
                let on_purpose = format!("somebody injects errors: inject_errors is {}", injected.text());
                Observation::Seen(finding.clone().because(&format!("{}; {on_purpose}", finding.detail)))
            }
            _ => observation,
        }
    }

    fn close(&mut self) {
        self.examination.close();
    }
}

/// An error register of a port: `errors/errors`.
pub fn of_port(attribute: impl Into<PathBuf>) -> Reading {
    Reading { source: ABOUT.name, reason: PORT_ERROR.into(), attribute: attribute.into(), limit: Limit::Zero }
}

/// An error register of a management engine: `errors/fme_errors`, …
pub fn of_engine(attribute: impl Into<PathBuf>) -> Reading {
    Reading { source: ABOUT.name, reason: FME_ERROR.into(), attribute: attribute.into(), limit: Limit::Zero }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FUNCTION, Tree};
    use super::*;
    use crate::health::source::Observation;

    /// The observations for a port's error register with each of these contents; `None` makes it absent.
    fn observations(contents: &[Option<&str>]) -> Vec<Observation> {
        let tree = Tree::new();
        let register = format!("{FUNCTION}/fpga_region/region0/dfl-port.0/errors/errors");
        let device = Device { readings: vec![of_port(&register)], ..Device::default() };
        let mut watching = tree.watch(&FpgaErrors, &device);
        let mut observation = |content: Option<&str>| {
            match content {
                Some(content) => tree.write(&register, content),
                None => std::fs::remove_file(tree.path(&register)).unwrap_or_default(),
            }
            watching.observation()
        };
        contents.iter().copied().map(&mut observation).collect()
    }

    fn are_faults(contents: &[Option<&str>]) -> Vec<bool> {
        observations(contents)
            .iter()
            .map(|observation| matches!(observation, Observation::Seen(finding) if finding.reason == "port-error"))
            .collect()
    }

    #[test]
    fn a_register_must_be_zero() {
        let contents =
            [None, Some("0x0\n"), Some("0x20\n"), Some("0"), None, Some("7"), Some("0xffffffffffffffff"), Some("-1")];
        assert_eq!(are_faults(&contents), [false, false, true, false, false, true, true, true]);
        let Observation::Seen(finding) = &observations(&contents)[2] else { panic!("an error is set") };
        assert_eq!((&*finding.value, &*finding.detail), ("0x20", "errors is not zero"));
    }

    #[test]
    fn a_register_that_is_no_number_is_a_fault() {
        assert_eq!(are_faults(&[Some("garbage"), Some(""), Some("0x0\0\n")]), [true, true, false]);
        assert_eq!(are_faults(&[Some(&"0".repeat(5000))]), [true]);
    }

    #[test]
    fn injected_errors_are_distinguished() {
        let tree = Tree::new();
        let errors = format!("{FUNCTION}/fpga_region/region0/dfl-fme.0/errors");
        let (register, injected) = (format!("{errors}/nonfatal_errors"), format!("{errors}/inject_errors"));
        let device = Device { readings: vec![of_engine(&register)], ..Device::default() };
        let mut watching = tree.watch(&FpgaErrors, &device);
        let mut detail = |mask: &str, inject: &str| {
            tree.write(&register, mask);
            tree.write(&injected, inject);
            if let Observation::Seen(finding) = watching.observation() { finding.detail } else { String::new() }
        };
        assert_eq!(detail("0x0\n", "0x0\n"), "");
        assert_eq!(detail("0x40\n", "0x0\n"), "nonfatal_errors is not zero");
        let expected = "nonfatal_errors is not zero; somebody injects errors: inject_errors is 0x4";
        assert_eq!(detail("0x40\n", "0x4\n"), expected);
        assert_eq!(detail("0x40\n", "garbage"), "nonfatal_errors is not zero");
        assert_eq!(detail("0x0\n", "0x4\n"), "", "what is injected and not there yet is no error");
    }

    #[test]
    fn a_directory_in_place_of_a_register_is_no_fault_and_no_end() {
        let tree = Tree::new();
        tree.set("errors/below", "");
        let device = Device { readings: vec![of_engine(format!("{FUNCTION}/errors"))], ..Device::default() };
        assert_eq!(tree.watch(&FpgaErrors, &device).observation(), Observation::Nothing);
    }
}
