//! Whether an Intel FPGA is being programmed, or programming has failed, by the state of the kernel's FPGA manager.
//!
//! <https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-fpga-manager>, `state`

use std::path::PathBuf;

use super::scan::UNPROGRAMMED;
use crate::device::{Device, Limit, Reading};
use crate::health::source::{
    About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject, failed_read,
};
use crate::host::Host;
use crate::host::attribute::trimmed;

static ABOUT: About = About {
    name: "fpga-manager",
    reads: Class::KernelMemory,
    pace: Pace::Fifth,
    document: "https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-fpga-manager",
    meanings: &[Meaning::unhealthy(
        UNPROGRAMMED,
        "the FPGA manager's state is a step of programming, or an error of one: neither `operating` nor `unknown`",
        "wait for the programming to end; after an error, program the FPGA again",
    )
    .undamped()],
};

/// The source.
#[derive(Debug)]
pub(super) struct FpgaManager;

impl Source for FpgaManager {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        let own = device.readings.iter().filter(|reading| reading.source == ABOUT.name);
        let subject = |reading: &Reading| {
            Subject::new(reading.attribute.to_string_lossy(), State(host.absolute(&reading.attribute)))
        };
        own.map(subject).collect()
    }
}

/// The reading of a manager, `fpga_region/region0/dfl-fme.0/dfl-fme-mgr.0/fpga_manager/fpga0/state`.
pub fn of_manager(attribute: impl Into<PathBuf>) -> Reading {
    Reading { source: ABOUT.name, reason: UNPROGRAMMED.into(), attribute: attribute.into(), limit: Limit::Word }
}

#[derive(Debug)]
struct State(PathBuf);

impl Examination for State {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        let text = match context.read(&self.0) {
            Ok(text) => text,
            Err(cause) => return failed_read(&cause),
        };
        let detail = match trimmed(&text) {
            // `unknown`: not programmed since the driver was loaded.
            "operating" | "unknown" | "" => return Observation::Fine,
            state if state.ends_with("error") => {
                "programming has failed: what is loaded is undefined; program it again"
            }
            _ => "the FPGA is being programmed",
        };
        Observation::Seen(ABOUT.finding(UNPROGRAMMED).at(context.file).reading(trimmed(&text)).because(detail))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FUNCTION, Tree};
    use super::*;

    fn state() -> String {
        format!("{FUNCTION}/fpga_region/region0/dfl-fme.0/dfl-fme-mgr.0/fpga_manager/fpga0/state")
    }

    #[test]
    fn an_fpga_that_is_being_programmed_or_was_left_half_programmed_is_unprogrammed() {
        let tree = Tree::new();
        tree.write(&state(), "unknown\n");
        let device = Device { readings: vec![of_manager(state())], ..Device::default() };
        let mut watching = tree.watch(&FpgaManager, &device);
        assert_eq!(watching.observation(), Observation::Fine);
        for (text, is_well) in
            [("write init\n", false), ("write\n", false), ("write complete error\n", false), ("operating\n", true)]
        {
            tree.write(&state(), text);
            match watching.observation() {
                Observation::Seen(finding) => {
                    assert_eq!((&*finding.reason, finding.file, is_well), ("unprogrammed", state(), false));
                }
                observation => assert_eq!((observation, is_well), (Observation::Fine, true), "{text}"),
            }
        }
        tree.remove(&state());
        assert_eq!(watching.observation(), Observation::Nothing);
    }
}
