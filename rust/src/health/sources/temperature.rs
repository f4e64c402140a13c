//! Temperatures, compared with the limits of the hardware: <https://docs.kernel.org/hwmon/sysfs-interface.html>.

use std::path::PathBuf;

use crate::device::{Device, Limit, Reading};
use crate::health::reading::{self, ReadPolicy};
use crate::health::source::{About, Class, Meaning, Pace, Source, Subject};
use crate::host::Host;

const TEMPERATURE: &str = "temperature";

const COOL: &str = "check the fans, the air flow and the inlet temperature of the card[ {place}]";

static ABOUT: About = About {
    name: "temperature",
    reads: Class::DeviceRegisters,
    pace: Pace::Tenth,
    document: "https://docs.kernel.org/hwmon/sysfs-interface.html",
    meanings: &[Meaning::unhealthy(
        TEMPERATURE,
        "a sensor has reached its emergency or critical limit and has not cooled by 5 °C since, or by the hardware's own margin; or \
         its alarm is set",
        COOL,
    )],
};

/// A warning only: a GPU lowers its clocks at its critical temperature, and goes on working.
static OF_GPU: About = About {
    name: "gpu-temperature",
    reads: Class::Firmware,
    pace: Pace::Thirtieth,
    document: "https://docs.kernel.org/hwmon/sysfs-interface.html",
    meanings: &[Meaning::warning(
        TEMPERATURE,
        "a sensor of a GPU has reached its critical limit and has not cooled by 5 °C since, or by the hardware's own margin",
        COOL,
    )],
};

/// Some drivers wake their card for the read.
const POLICY: ReadPolicy = ReadPolicy { blames_words: false, wakes: true };

/// The source for one kind of card.
#[derive(Debug)]
pub(super) struct Temperature {
    about: &'static About,
}

impl Temperature {
    /// Cards whose hardware switches itself off if they get hotter.
    pub(super) const OF_CARD: Self = Self { about: &ABOUT };
    /// GPUs.
    pub(super) const OF_GPU: Self = Self { about: &OF_GPU };
}

impl Source for Temperature {
    fn about(&self) -> &'static About {
        self.about
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        reading::subjects(self.about, POLICY, host, device)
    }
}

/// The temperature must fall by 5 °C if the hardware does not say how far.
const MARGIN: i64 = 5000;

/// A reading of a sensor: `temp1_input`, the first value that is too high, and the value below which it is normal again
/// if the hardware has one (`temp1_crit_hyst`); all in millidegrees Celsius.
pub fn below(attribute: impl Into<PathBuf>, limit: i64, hysteresis: Option<i64>) -> Reading {
    // amdgpu reports absolute zero, or zero, if it knows none.
    let well_below =
        hysteresis.filter(|value| (1..limit).contains(value)).unwrap_or_else(|| limit.saturating_sub(MARGIN));
    let limit = Limit::Below { limit, well_below };
    Reading { source: ABOUT.name, reason: TEMPERATURE.into(), attribute: attribute.into(), limit }
}

/// As [`below`], for a GPU.
pub fn of_gpu(attribute: impl Into<PathBuf>, limit: i64, hysteresis: Option<i64>) -> Reading {
    Reading { source: OF_GPU.name, ..below(attribute, limit, hysteresis) }
}

/// A reading of an alarm, `temp1_crit_alarm`.
pub fn alarm(attribute: impl Into<PathBuf>) -> Reading {
    Reading { source: ABOUT.name, reason: TEMPERATURE.into(), attribute: attribute.into(), limit: Limit::Zero }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FUNCTION, Tree};
    use super::*;
    use crate::health::source::{Action, Observation};

    fn sensor() -> String {
        format!("{FUNCTION}/hwmon/hwmon3/temp1_input")
    }

    fn device(reading: Reading) -> Device {
        Device { readings: vec![reading], ..Device::default() }
    }

    #[test]
    fn a_temperature_must_stay_below_its_limit() {
        let tree = Tree::new();
        let mut watching = tree.watch(&Temperature::OF_CARD, &device(below(sensor(), 90_000, None)));
        for (content, is_hot) in [("-5000", false), ("89999\n", false), ("90000", true), ("20", false), ("20", false)] {
            tree.write(&sensor(), content);
            assert_eq!(matches!(watching.observation(), Observation::Seen(_)), is_hot, "{content}");
        }
        tree.write(&sensor(), "95000\n");
        let expected = ABOUT.finding("temperature").at(sensor()).reading("95000");
        assert_eq!(watching.finding(), expected.because("temp1_input is 95000, the limit is 90000"));
    }

    #[test]
    fn a_number_that_no_sensor_measures_says_nothing() {
        let tree = Tree::new();
        let mut watching = tree.watch(&Temperature::OF_CARD, &device(below(sensor(), 90_000, None)));
        for all_ones in ["65535000\n", "4294967295", "255000", "200001"] {
            tree.write(&sensor(), all_ones);
            assert!(matches!(watching.observation(), Observation::NotLooked(_)), "{all_ones}");
        }
        tree.write(&sensor(), "200000\n");
        assert_eq!(watching.finding().value, "200000");
    }

    #[test]
    fn a_gpu_that_is_too_hot_is_warned_of() {
        let tree = Tree::new();
        let mut watching = tree.watch(&Temperature::OF_GPU, &device(of_gpu(sensor(), 90_000, None)));
        tree.write(&sensor(), "90000\n");
        assert_eq!(watching.finding().source, "gpu-temperature");
        assert_eq!(OF_GPU.meanings[0].action, Action::Warn);
        assert!(tree.watch(&Temperature::OF_CARD, &device(of_gpu(sensor(), 90_000, None))).subjects.is_empty());
    }

    #[test]
    fn a_card_that_was_too_hot_must_cool_down_before_it_is_all_right_again() {
        for (hysteresis, well_below) in [
            (None, 85_000),
            (Some(80_000), 80_000),
            (Some(90_000), 85_000),
            (Some(0), 85_000),
            (Some(-273_150), 85_000),
        ] {
            let tree = Tree::new();
            let mut watching = tree.watch(&Temperature::OF_CARD, &device(below(sensor(), 90_000, hysteresis)));
            for (millidegrees, is_hot) in [
                (85_001, false),
                (90_000, true),
                (89_999, true),
                (well_below, true),
                (well_below - 1, false),
                (89_999, false),
            ] {
                tree.write(&sensor(), millidegrees.to_string());
                let seen = watching.observation();
                assert_eq!(matches!(seen, Observation::Seen(_)), is_hot, "{hysteresis:?} {millidegrees} {seen:?}");
            }
        }
    }

    #[test]
    fn a_card_that_is_first_seen_while_it_cools_down_is_as_it_was() {
        let tree = Tree::new();
        let mut watching = tree.watch(&Temperature::OF_CARD, &device(below(sensor(), 90_000, None)));
        tree.write(&sensor(), "86000");
        assert!(matches!(watching.observation(), Observation::NotLooked(_)));
        tree.write(&sensor(), "84000");
        assert_eq!(watching.observation(), Observation::Fine);
        tree.write(&sensor(), "86000");
        assert_eq!(watching.observation(), Observation::Fine);
    }

    #[test]
    fn an_alarm_must_be_off() {
        let tree = Tree::new();
        let file = format!("{FUNCTION}/hwmon/hwmon3/temp1_crit_alarm");
        tree.write(&file, "0\n");
        let mut watching = tree.watch(&Temperature::OF_CARD, &device(alarm(&file)));
        assert_eq!(watching.observation(), Observation::Fine);
        tree.write(&file, "1\n");
        assert_eq!(watching.finding().reason, "temperature");
    }

    #[test]
    fn words_and_an_absent_sensor_say_nothing() {
        let tree = Tree::new();
        let mut watching = tree.watch(&Temperature::OF_CARD, &device(below(sensor(), 90_000, None)));
        assert_eq!(watching.observation(), Observation::Nothing);
        tree.write(&sensor(), "Query currently inaccessible");
        assert_eq!(watching.observation(), Observation::Fine);
    }

    #[test]
    fn a_card_that_sleeps_is_not_asked_for_its_temperature() {
        let tree = Tree::new();
        tree.write(&sensor(), "95000");
        tree.set("power/runtime_status", "suspended");
        let mut watching = tree.watch(&Temperature::OF_CARD, &device(below(sensor(), 90_000, None)));
        assert_eq!(watching.observation(), Observation::NotLooked("asleep: runtime_status is suspended".to_owned()));
    }

    #[test]
    fn a_card_that_was_too_hot_cools_while_it_sleeps() {
        let tree = Tree::new();
        tree.write(&sensor(), "95000");
        tree.set("power/runtime_status", "active");
        let mut watching = tree.watch(&Temperature::OF_CARD, &device(below(sensor(), 90_000, None)));
        assert_eq!(watching.finding().reason, "temperature");
        // An Unhealthy device gets no container, so nothing would wake it for a look.
        tree.set("power/runtime_status", "suspended");
        assert_eq!(watching.observation(), Observation::Fine);
        tree.set("power/runtime_status", "active");
        assert_eq!(watching.finding().reason, "temperature");
    }
}
