//! Whether an Intel FPGA lowers the clocks of a port because it draws too much power or is too hot.
//!
//! `power_state`: <https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-platform-dfl-port>; 0 is normal, AP1, AP2
//! and AP6 are increasingly strong.

use std::path::PathBuf;

use crate::device::{Device, Limit, Reading};
use crate::health::reading::{self, ReadPolicy};
use crate::health::source::{About, Class, Meaning, Pace, Source, Subject};
use crate::host::Host;

const POWER_THROTTLED: &str = "power-throttled";

/// At AP1 half of the clock is left, at AP2 a tenth (`temp1_max_policy` of
/// <https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-platform-dfl-fme>).
const AP1: i64 = 1;

static ABOUT: About = About {
    name: "fpga-power",
    reads: Class::DeviceRegisters,
    pace: Pace::Tenth,
    document: "https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-platform-dfl-port",
    meanings: &[Meaning::warning(
        POWER_THROTTLED,
        "power_state of a port is 1 (AP1) or more: its clocks are lowered",
        "check the power supply and the cooling of the card[ {place}]",
    )],
};

/// Text that is not a number says nothing about the clocks, so it is no finding. `fpga-errors` reports ports that
/// cannot be trusted.
const POLICY: ReadPolicy = ReadPolicy { blames_words: false, wakes: false };

/// The source.
#[derive(Debug)]
pub(super) struct FpgaPower;

impl Source for FpgaPower {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        reading::subjects(&ABOUT, POLICY, host, device)
    }
}

/// `power_state` of a port.
pub fn of_port(attribute: impl Into<PathBuf>) -> Reading {
    let limit = Limit::Below { limit: AP1, well_below: AP1 };
    Reading { source: ABOUT.name, reason: POWER_THROTTLED.into(), attribute: attribute.into(), limit }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FUNCTION, Tree};
    use super::*;
    use crate::health::source::Observation;

    #[test]
    fn a_port_whose_clocks_are_lowered_is_warned_of_until_they_are_not() {
        let tree = Tree::new();
        let attribute = format!("{FUNCTION}/fpga_region/region0/dfl-port.0/power_state");
        let device = Device { readings: vec![of_port(&attribute)], ..Device::default() };
        let mut watching = tree.watch(&FpgaPower, &device);
        assert_eq!(watching.observation(), Observation::Nothing);
        for (state, is_throttled) in
            [("0x0\n", false), ("0x1\n", true), ("0x2\n", true), ("0x6\n", true), ("0x0\n", false)]
        {
            tree.write(&attribute, state);
            let observation = watching.observation();
            assert_eq!(
                matches!(&observation, Observation::Seen(finding) if finding.reason == "power-throttled"),
                is_throttled,
                "{observation:?}"
            );
        }
        assert_eq!(ABOUT.meanings[0].action, crate::health::source::Action::Warn);
    }
}
