//! Wear of toys: a source of health that only a test adds.

use crate::device::Device;
use crate::health::source::{About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject};
use crate::host::Host;
use crate::host::attribute::Attribute;

const WORN: &str = "worn";

static ABOUT: About = About {
    name: "toy-wear",
    reads: Class::KernelMemory,
    pace: Pace::Each,
    document: "tests/toy/test_toy_vendor.py",
    meanings: &[Meaning::warning(WORN, "the attribute wear of a toy is not `none`", "replace the toy")],
};

/// The source.
#[derive(Debug)]
pub(super) struct ToyWear;

impl Source for ToyWear {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, _host: &Host, device: &Device) -> Vec<Subject> {
        let is_toy = device.vendor == "toy";
        is_toy.then(|| Subject::new(format!("/sys/class/toy/{}/wear", device.id), Wear)).into_iter().collect()
    }
}

#[derive(Debug)]
struct Wear;

impl Examination for Wear {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        match Attribute::read(context.host.absolute(context.file)) {
            Ok(attribute) if attribute.text() != "none" => {
                Observation::Seen(ABOUT.finding(WORN).at(context.file).reading(attribute.text()).because("the toy is worn"))
            }
            _ => Observation::Fine,
        }
    }
}
