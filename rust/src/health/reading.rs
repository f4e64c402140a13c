//! Readings: numbers that a vendor has found on a card and that must be zero or below a limit. Sources use this module
//! to look at them.

use std::borrow::Cow;

use super::kept_file::KeptFile;
use super::power::Power;
use super::source::{About, Examination, LookContext, Observation, Subject, failed_read, is_failure};
use crate::bus::pci;
use crate::device::{Device, Limit, Reading};
use crate::finding::Finding;
use crate::host::Host;
use crate::host::attribute::{Cause, decimal, hexadecimal, trimmed};

/// The largest number that counts as a measurement if the reading has a limit: 200 °C. Firmware without a value or a
/// sensor gives all ones: 65 535 °C.
const LARGEST: i128 = 200_000;

/// How a source judges its readings.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadPolicy {
    /// Whether text that is not a number is a finding. Some drivers have other reasons to write words.
    pub(super) blames_words: bool,
    /// Whether a read would wake the PCI function that the attribute belongs to.
    pub(super) wakes: bool,
}

/// The subjects of a source: the device's readings with this source's name.
pub(super) fn subjects(about: &'static About, policy: ReadPolicy, host: &Host, device: &Device) -> Vec<Subject> {
    let own = device.readings.iter().filter(|reading| reading.source == about.name);
    own.map(|reading| subject(about, policy, host, reading)).collect()
}

fn subject(about: &'static About, policy: ReadPolicy, host: &Host, reading: &Reading) -> Subject {
    let path = host.absolute(&reading.attribute);
    let function = pci::function_of(&path).filter(|_| policy.wakes);
    let examined = Examined {
        about,
        blames_words: policy.blames_words,
        reason: reading.reason.clone(),
        limit: reading.limit.clone(),
        power: function.map(Power::of),
        file: KeptFile::new(&path),
        was_too_much: None,
    };
    let variant = format!("{} {:?}", reading.reason, reading.limit);
    Subject::new(reading.attribute.to_string_lossy(), examined).variant(variant)
}

#[derive(Debug)]
struct Examined {
    about: &'static About,
    blames_words: bool,
    reason: Cow<'static, str>,
    limit: Limit,
    power: Option<Power>,
    file: KeptFile,
    /// Whether the number was beyond its limit and has not been well below it since; `None` if unknown.
    was_too_much: Option<bool>,
}

impl Examination for Examined {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        if let Some(asleep) = self.power.as_ref().and_then(|power| power.asleep(context.reads)) {
            // A device that is too hot cools while it sleeps; without a container nothing would wake it to show that.
            let cools = matches!(self.limit, Limit::Below { .. }) && self.was_too_much == Some(true);
            return if cools { Observation::Fine } else { Observation::NotLooked(asleep) };
        }
        let seen = |value: &str, detail: String| {
            Observation::Seen(
                Finding::new(self.about.name, self.reason.clone()).at(context.file).reading(value).because(&detail),
            )
        };
        let name = context.file.rsplit('/').next().unwrap_or_default();
        match self.file.read(context.stays_open) {
            Ok(text) => match (number(&text), &self.limit) {
                (Some(number), Limit::Zero) if number != 0 => seen(trimmed(&text), format!("{name} is not zero")),
                (Some(number), Limit::Below { .. }) if number > LARGEST => {
                    Observation::NotLooked(format!("{name} is {number}, which no sensor measures"))
                }
                (Some(number), &Limit::Below { limit, well_below }) => {
                    self.was_too_much = is_too_much(number, (limit, well_below), self.was_too_much);
                    match self.was_too_much {
                        Some(true) => seen(trimmed(&text), format!("{name} is {number}, the limit is {limit}")),
                        Some(false) => Observation::Fine,
                        None => Observation::NotLooked(format!("{name} is {number}, close below its limit")),
                    }
                }
                (_, Limit::Other(word)) if trimmed(&text) == word => seen(trimmed(&text), format!("{name} is {word}")),
                (Some(number), Limit::AtMost(most)) if number > i128::from(*most) => {
                    seen(trimmed(&text), format!("{name} is {number}, at most {most} is right"))
                }
                (None, Limit::AtMost(_)) => {
                    Observation::NotLooked(format!("{name} is {:?}, which is no number", trimmed(&text)))
                }
                (None, _) if self.blames_words => seen(trimmed(&text), format!("{name} is no number")),
                _ => Observation::Fine,
            },
            Err(cause) if self.limit == Limit::Present && cause.is_absent() => seen("", format!("{name} is absent")),
            Err(Cause::TooLarge) if self.blames_words => seen("", format!("{name} is {}", Cause::TooLarge)),
            Err(cause) if is_failure(&cause) => seen("", format!("{name} cannot be read: {cause}")),
            Err(cause) => failed_read(&cause),
        }
    }

    fn close(&mut self) {
        self.file.close();
    }
}

/// Whether the number is beyond its limit. Between the two values the state does not change.
fn is_too_much(number: i128, (limit, well_below): (i64, i64), was: Option<bool>) -> Option<bool> {
    match number {
        _ if number >= limit.into() => Some(true),
        _ if number < well_below.into() => Some(false),
        _ => was,
    }
}

/// `0x1f` or `31`.
pub(super) fn number(text: &str) -> Option<i128> {
    let text = trimmed(text);
    if text.starts_with("0x") { hexadecimal(text).map(i128::from) } else { decimal(text).map(i128::from) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_can_be_a_number(text: String) {
            number(&text);
        }

        #[test]
        fn hexadecimal_and_decimal_mean_the_same(value: u32) {
            prop_assert_eq!(number(&format!("{value:#x}\n")), Some(i128::from(value)));
            prop_assert_eq!(number(&format!("{value}\n")), Some(i128::from(value)));
        }
    }
}
