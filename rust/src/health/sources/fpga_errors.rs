//! The error registers of an Intel FPGA's ports and management engine (FME): bit masks that are zero when all is well.

use std::path::PathBuf;

use super::scan::{FME_ERROR, PORT_ERROR};
use crate::device::{Device, Limit, Reading};
use crate::health::reading::{self, Manner};
use crate::health::source::{About, Class, Meaning, Source, Subject};
use crate::host::Host;

static ABOUT: About = About {
    name: "fpga-errors",
    reads: Class::DeviceRegisters,
    document: "https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-platform-dfl-fme",
    meanings: &[
        Meaning::unhealthy(PORT_ERROR, "an error register of a port has a bit set, or is no number").only_when_new(),
        Meaning::unhealthy(FME_ERROR, "an error register of the management engine has a bit set, or is no number")
            .only_when_new(),
    ],
};

/// The drivers write numbers and nothing else.
const MANNER: Manner = Manner { blames_words: true, wakes: false };

/// The source.
#[derive(Debug)]
pub(super) struct FpgaErrors;

impl Source for FpgaErrors {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        reading::subjects(&ABOUT, MANNER, host, device)
    }
}

/// An error register of a port: `errors/errors`.
pub fn of_port(attribute: impl Into<PathBuf>) -> Reading {
    Reading { source: ABOUT.name, reason: PORT_ERROR, attribute: attribute.into(), limit: Limit::Zero }
}

/// An error register of a management engine: `errors/fme_errors`, …
pub fn of_engine(attribute: impl Into<PathBuf>) -> Reading {
    Reading { source: ABOUT.name, reason: FME_ERROR, attribute: attribute.into(), limit: Limit::Zero }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FUNCTION, Tree};
    use super::*;
    use crate::health::source::Sight;

    /// What is said of a port's error register with each of these contents; `None` makes it absent.
    fn sights(contents: &[Option<&str>]) -> Vec<Sight> {
        let tree = Tree::new();
        let register = format!("{FUNCTION}/fpga_region/region0/dfl-port.0/errors/errors");
        let device = Device { readings: vec![of_port(&register)], ..Device::default() };
        let mut watching = tree.watch(&FpgaErrors, &device);
        let mut sight = |content: Option<&str>| {
            match content {
                Some(content) => tree.write(&register, content),
                None => std::fs::remove_file(tree.path(&register)).unwrap_or_default(),
            }
            watching.sight()
        };
        contents.iter().copied().map(&mut sight).collect()
    }

    fn are_faults(contents: &[Option<&str>]) -> Vec<bool> {
        sights(contents)
            .iter()
            .map(|sight| matches!(sight, Sight::Seen(finding) if finding.reason == "port-error"))
            .collect()
    }

    #[test]
    fn a_register_must_be_zero() {
        let contents =
            [None, Some("0x0\n"), Some("0x20\n"), Some("0"), None, Some("7"), Some("0xffffffffffffffff"), Some("-1")];
        assert_eq!(are_faults(&contents), [false, false, true, false, false, true, true, true]);
        let Sight::Seen(finding) = &sights(&contents)[2] else { panic!("an error is set") };
        assert_eq!((&*finding.value, &*finding.detail), ("0x20", "errors is not zero"));
    }

    #[test]
    fn a_register_that_is_no_number_is_a_fault() {
        assert_eq!(are_faults(&[Some("garbage"), Some(""), Some("0x0\0\n")]), [true, true, false]);
        assert_eq!(are_faults(&[Some(&"0".repeat(5000))]), [true]);
    }

    #[test]
    fn a_directory_in_place_of_a_register_is_no_fault_and_no_end() {
        let tree = Tree::new();
        tree.set("errors/below", "");
        let device = Device { readings: vec![of_engine(format!("{FUNCTION}/errors"))], ..Device::default() };
        assert_eq!(tree.watch(&FpgaErrors, &device).sight(), Sight::Nothing);
    }
}
