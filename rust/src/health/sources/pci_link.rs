//! The PCI link of a function, compared with its best state since boot.
//!
//! The capability of both ends is not the measure: slots with fewer lanes, risers and shared lanes are common.
//!
//! <https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci>, `{current,max}_link_{width,speed}`

use std::path::{Path, PathBuf};

use crate::device::Device;
use crate::health::kept_file::ReadOnce;
use crate::health::power::Power;
use crate::health::source::{
    About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject, failed_read, is_failure,
};
use crate::host::Host;
use crate::host::attribute::{Attribute, Cause, trimmed};

const LINK_DEGRADED: &str = "link-degraded";

/// Vendors whose cards keep their link at full speed when idle; for other cards, such as GPUs, the speed means nothing.
const STEADY: [&str; 3] = ["intel-fpga", "xilinx-fpga", "rdma"];

/// A warning: the card still works.
static ABOUT: About = About {
    name: "pci-link",
    reads: Class::ConfigSpace,
    pace: Pace::Tenth,
    document: "https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci",
    meanings: &[Meaning::warning(
        LINK_DEGRADED,
        "current_link_width, or of FPGAs and RDMA devices current_link_speed, is below what it was in this boot, and what \
         the card and the bridge above it can still both do",
        "drain and power off the node, reseat the card[ {place}]; if the link is right as it is, \
         run devherd clear[ {resource}] {device} link-degraded",
    )
    .relative()],
};

/// The source.
#[derive(Debug)]
pub(super) struct PciLink;

impl Source for PciLink {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        // The link belongs to the physical function; virtual functions report nothing about it.
        let physical = device.functions.iter().filter(|function| function.physical.is_none());
        let physical = physical.map(|function| host.absolute(&function.path));
        physical.map(|function| subject(host, function, STEADY.contains(&&*device.vendor))).collect()
    }
}

fn subject(host: &Host, function: PathBuf, with_speed: bool) -> Subject {
    let link = LinkFiles {
        power: Power::of(&function),
        width: function.join("current_link_width"),
        speed: with_speed.then(|| function.join("current_link_speed")),
        best: Link::default(),
        function,
    };
    Subject::new(host.own_path(&link.function).to_string_lossy(), link)
}

/// The widest link of PCI Express; the kernel writes 63 or 255 if it does not know.
const WIDEST: u32 = 32;

/// Lanes and speed; `None` if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
struct Link {
    width: Option<u32>,
    /// In GT/s.
    speed: Option<f64>,
}

/// The attributes of one function's link.
#[derive(Debug)]
struct LinkFiles {
    function: PathBuf,
    power: Power,
    width: PathBuf,
    /// Only for vendors whose speed matters.
    speed: Option<PathBuf>,
    /// The best state seen since boot.
    best: Link,
}

impl Examination for LinkFiles {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        if let Some(asleep) = self.power.asleep(context.reads) {
            return Observation::NotLooked(asleep);
        }
        let seen = |name: &str, value: &str, detail: &str| {
            let finding = ABOUT.finding(LINK_DEGRADED).at(format!("{}/{name}", context.file));
            Observation::Seen(finding.reading(value).because(detail))
        };
        match self.shortfalls(context.reads) {
            Ok(shortfalls) => {
                let Some(first) = shortfalls.first() else { return Observation::Fine };
                let details: Vec<&str> = shortfalls.iter().map(|one| one.detail.as_str()).collect();
                seen(first.name, &first.value, &details.join("; "))
            }
            Err(cause) if is_failure(&cause) => seen("current_link_width", "", &format!("cannot be read: {cause}")),
            Err(cause) => failed_read(&cause),
        }
    }

    fn memory(&self) -> Option<String> {
        let Link { width, speed } = self.best;
        let known = width.is_some() || speed.is_some();
        known.then(|| format!("{} {} GT/s", width.unwrap_or_default(), speed.unwrap_or_default()))
    }

    fn forget_best(&mut self) {
        self.best = Link::default();
    }

    fn recall(&mut self, memory: &str) {
        let (width, speed) = memory.split_once(' ').unwrap_or_default();
        self.best = self.best.or_better(Link::parse(width, speed));
    }
}

/// A value that is lower than before.
#[derive(Debug, PartialEq, Eq)]
struct Shortfall {
    /// Name of the attribute.
    name: &'static str,
    value: String,
    detail: String,
}

impl Shortfall {
    fn new(name: &'static str, value: &str, best: impl std::fmt::Display) -> Self {
        let value = trimmed(value).to_owned();
        Self { name, detail: format!("{name} is {value}, it was {best}"), value }
    }
}

impl LinkFiles {
    fn shortfalls(&mut self, reads: &ReadOnce) -> Result<Vec<Shortfall>, Cause> {
        let width = reads.read(&self.width)?;
        let speed = self.speed.as_ref().map_or(Ok(String::new()), |speed| reads.read(speed))?;
        let now = Link::parse(&width, &speed);
        self.best = self.best.or_better(now);
        if !now.is_narrower_than(self.best) && !now.is_slower_than(self.best) {
            return Ok(Vec::new());
        }
        // The function may be another one by now. Its directory is in that of the bridge above it, and the kernel
        // resolves `..` behind the link.
        let able = read_able(&self.function).both(read_able(&self.function.join("..")));
        let best = self.best.both(able);
        let narrow = best.width.filter(|_| now.is_narrower_than(best));
        let slow = best.speed.filter(|_| now.is_slower_than(best));
        let narrow = narrow.map(|best| Shortfall::new("current_link_width", &width, best));
        let slow = slow.map(|best| Shortfall::new("current_link_speed", &speed, format_args!("{best} GT/s")));
        Ok(narrow.into_iter().chain(slow).collect())
    }
}

fn read_able(function: &Path) -> Link {
    let text = |name| Attribute::read(function.join(name)).map(|found| found.text().to_owned()).unwrap_or_default();
    Link::parse(&text("max_link_width"), &text("max_link_speed"))
}

impl Link {
    /// Parses the text of a width and a speed attribute.
    fn parse(width: &str, speed: &str) -> Self {
        Self { width: parse_width(width), speed: parse_speed(speed) }
    }

    /// What two ends can do together; unknown if one of them is unknown.
    fn both(self, other: Self) -> Self {
        Self {
            width: self.width.zip(other.width).map(|(own, other)| own.min(other)),
            speed: self.speed.zip(other.speed).map(|(own, other)| own.min(other)),
        }
    }

    /// The better value of each; a known value is better than an unknown one.
    fn or_better(self, other: Self) -> Self {
        let faster = |own: Option<f64>, other: Option<f64>| match (own, other) {
            (Some(own), Some(other)) => Some(own.max(other)),
            (own, other) => own.or(other),
        };
        Self { width: self.width.max(other.width), speed: faster(self.speed, other.speed) }
    }

    fn is_narrower_than(self, best: Self) -> bool {
        self.width.zip(best.width).is_some_and(|(now, best)| now < best)
    }

    fn is_slower_than(self, best: Self) -> bool {
        self.speed.zip(best.speed).is_some_and(|(now, best)| now < best)
    }
}

/// `16`
fn parse_width(text: &str) -> Option<u32> {
    trimmed(text).parse().ok().filter(|width| (1..=WIDEST).contains(width))
}

/// `8.0 GT/s PCIe`, or before kernel 5.7 `8 GT/s`.
fn parse_speed(text: &str) -> Option<f64> {
    let (number, unit) = trimmed(text).split_once(' ')?;
    let is_speed = |speed: &f64| speed.is_finite() && *speed > 0.0 && unit.starts_with("GT/s");
    number.parse().ok().filter(is_speed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{FUNCTION, Tree, device, virtual_one};
    use super::*;
    use crate::health::source::Action;

    #[test]
    fn unknown_widths_and_speeds_say_nothing() {
        for (text, expected) in
            [("16\n", Some(16)), ("1", Some(1)), ("0", None), ("63", None), ("255", None), ("", None)]
        {
            assert_eq!(parse_width(text), expected, "{text:?}");
        }
        for (text, expected) in [
            ("8.0 GT/s PCIe\n", Some(8.0)),
            ("2.5 GT/s", Some(2.5)),
            ("8 GT/s", Some(8.0)),
            ("Unknown", None),
            ("Unknown speed", None),
            ("inf GT/s", None),
            ("-1 GT/s", None),
            ("0 GT/s", None),
            ("", None),
        ] {
            assert_eq!(parse_speed(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_link_is_degraded_below_what_both_ends_can_do() {
        let link = |width, speed| Link { width: Some(width), speed: Some(speed) };
        let unknown = Link::default();
        for (now, own, above, expected) in [
            (link(16, 8.0), link(16, 8.0), link(16, 8.0), (false, false)),
            (link(8, 8.0), link(16, 8.0), link(16, 8.0), (true, false)),
            (link(16, 2.5), link(16, 8.0), link(16, 8.0), (false, true)),
            (link(8, 8.0), link(16, 8.0), link(8, 16.0), (false, false)),
            (link(8, 8.0), link(16, 8.0), unknown, (false, false)),
            (unknown, link(16, 8.0), link(16, 8.0), (false, false)),
            (Link { speed: None, ..link(4, 0.0) }, link(8, 8.0), link(8, 8.0), (true, false)),
        ] {
            let best = own.both(above);
            assert_eq!((now.is_narrower_than(best), now.is_slower_than(best)), expected, "{now:?} {own:?} {above:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_a_link(width: String, speed: String) {
            let link = Link::parse(&width, &speed);
            prop_assert!(!link.is_narrower_than(link) && !link.is_slower_than(link));
        }
    }

    /// A card with sixteen lanes below a bridge with eight, both at 8 GT/s.
    fn tree() -> Tree {
        let tree = Tree::new();
        let bridge = "/sys/devices/pci0000:80/0000:80:01.0";
        for (directory, width) in [(bridge, "8"), (FUNCTION, "16")] {
            tree.write(&format!("{directory}/max_link_width"), width);
            tree.write(&format!("{directory}/max_link_speed"), "8.0 GT/s PCIe");
        }
        tree.set("current_link_width", "8\n");
        tree.set("current_link_speed", "8.0 GT/s PCIe\n");
        tree
    }

    #[test]
    fn a_link_is_compared_with_what_the_bridge_above_can_do_as_well() {
        let tree = tree();
        let mut watching = tree.watch(&PciLink, &device("intel-fpga", Some("dfl-pci")));
        assert_eq!(watching.observation(), Observation::Fine);
        tree.set("current_link_width", "4\n");
        let expected = ABOUT.finding("link-degraded").at(format!("{FUNCTION}/current_link_width")).reading("4");
        assert_eq!(watching.finding(), expected.because("current_link_width is 4, it was 8"));
        tree.set("current_link_width", "8\n");
        tree.set("current_link_speed", "2.5 GT/s PCIe\n");
        let expected = ABOUT.finding("link-degraded").at(format!("{FUNCTION}/current_link_speed"));
        let detail = "current_link_speed is 2.5 GT/s PCIe, it was 8 GT/s";
        assert_eq!(watching.finding(), expected.reading("2.5 GT/s PCIe").because(detail));
        tree.set("current_link_width", "1");
        assert_eq!(watching.finding().detail, format!("current_link_width is 1, it was 8; {detail}"));
    }

    #[test]
    fn a_card_that_never_had_more_lanes_has_lost_none() {
        let tree = tree();
        tree.set("current_link_width", "4\n");
        let mut watching = tree.watch(&PciLink, &device("intel-fpga", Some("dfl-pci")));
        assert_eq!(watching.observation(), Observation::Fine, "in a slot with four lanes, or on a riser");
        tree.set("current_link_width", "2\n");
        assert_eq!(watching.finding().detail, "current_link_width is 2, it was 4");
    }

    #[test]
    fn a_card_that_is_exchanged_for_a_lesser_one_has_lost_nothing() {
        let tree = tree();
        let mut watching = tree.watch(&PciLink, &device("intel-fpga", Some("dfl-pci")));
        assert_eq!(watching.observation(), Observation::Fine);
        watching.subjects[0].examination.close();
        tree.set("max_link_width", "4\n");
        tree.set("current_link_width", "4\n");
        assert_eq!(watching.observation(), Observation::Fine);
    }

    #[test]
    fn another_process_learns_the_state_of_the_link() {
        let tree = tree();
        let device = device("intel-fpga", Some("dfl-pci"));
        let mut before = tree.watch(&PciLink, &device);
        assert_eq!((before.subjects[0].examination.memory(), before.observation()), (None, Observation::Fine));
        let memory = before.subjects[0].examination.memory().unwrap();
        tree.set("current_link_width", "4\n");
        for memory in [memory.as_str(), "", "garbage", "x y"] {
            let mut after = tree.watch(&PciLink, &device);
            after.subjects[0].examination.recall(memory);
            assert_eq!(matches!(after.observation(), Observation::Seen(_)), memory == "8 8 GT/s", "{memory}");
        }
    }

    #[test]
    fn of_a_gpu_the_width_alone_matters() {
        let tree = tree();
        let mut watching = tree.watch(&PciLink, &device("nvidia", Some("nvidia")));
        assert_eq!(watching.observation(), Observation::Fine);
        tree.set("current_link_speed", "2.5 GT/s PCIe");
        assert_eq!(watching.observation(), Observation::Fine);
        tree.set("current_link_width", "4");
        assert_eq!(&*watching.finding().value, "4");
    }

    #[test]
    fn a_narrow_or_slow_link_is_a_warning() {
        assert_eq!(ABOUT.meanings[0].action, Action::Warn);
    }

    #[test]
    fn a_function_that_sleeps_is_left_asleep() {
        let tree = tree();
        tree.set("current_link_width", "1");
        tree.set("power/runtime_status", "suspended\n");
        for vendor in ["rdma", "amd"] {
            let mut watching = tree.watch(&PciLink, &device(vendor, Some("driver")));
            assert_eq!(
                watching.observation(),
                Observation::NotLooked("asleep: runtime_status is suspended".to_owned())
            );
        }
    }

    #[test]
    fn a_function_without_link_attributes_and_a_virtual_one_say_nothing() {
        let tree = Tree::new();
        let device = device("rdma", Some("mlx5_core"));
        assert_eq!(tree.watch(&PciLink, &device).observation(), Observation::Nothing);
        assert!(tree.watch(&PciLink, &virtual_one(&tree, "rdma")).subjects.is_empty());
    }
}
