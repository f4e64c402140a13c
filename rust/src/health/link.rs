//! The PCI link of a function against what both of its ends can do:
//! <https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci>, `{current,max}_link_{width,speed}`.

use std::path::Path;

use super::kept_file::{Keeping, KeptFile};
use crate::attribute::{Attribute, Cause, trimmed};

/// The widest link that PCI Express knows; the kernel writes 63 or 255 where it could not find out.
const WIDEST: u32 = 32;

/// Lanes and speed; `None` is no statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub(super) struct Link {
    width: Option<u32>,
    /// In GT/s.
    speed: Option<f64>,
}

/// The attributes of one function's link.
#[derive(Debug)]
pub(super) struct LinkFiles {
    width: KeptFile,
    speed: KeptFile,
    /// What both ends can do; read again whenever the function may be another one.
    best: Link,
}

impl LinkFiles {
    /// Of the PCI function with this directory.
    pub(super) fn new(function: &Path) -> Self {
        let file = |name: &str| KeptFile::new(function.join(name));
        Self { width: file("current_link_width"), speed: file("current_link_speed"), best: Link::default() }
    }

    /// Whether the link is narrower or slower than both of its ends can do.
    ///
    /// # Errors
    /// When the link's present state cannot be read.
    pub(super) fn is_degraded(&mut self, function: &Path, keeping: Keeping) -> Result<bool, Cause> {
        let (width, width_opened) = self.width.read(keeping)?;
        let (speed, speed_opened) = self.speed.read(keeping)?;
        if width_opened || speed_opened {
            // The directory of a function lies in that of the bridge above it, and the kernel goes up behind the link.
            self.best = read_best(function).both(read_best(&function.join("..")));
        }
        Ok(Link::parse(&width, &speed).is_below(self.best))
    }
}

fn read_best(function: &Path) -> Link {
    let text = |name| Attribute::read(function.join(name)).map(|found| found.text().to_owned()).unwrap_or_default();
    Link::parse(&text("max_link_width"), &text("max_link_speed"))
}

impl Link {
    /// From the text of a width and a speed attribute.
    fn parse(width: &str, speed: &str) -> Self {
        Self { width: parse_width(width), speed: parse_speed(speed) }
    }

    /// What two ends can do together. One of which nothing is known leaves nothing to say.
    fn both(self, other: Self) -> Self {
        Self {
            width: self.width.zip(other.width).map(|(own, other)| own.min(other)),
            speed: self.speed.zip(other.speed).map(|(own, other)| own.min(other)),
        }
    }

    fn is_below(self, best: Self) -> bool {
        self.width.zip(best.width).is_some_and(|(now, best)| now < best)
            || self.speed.zip(best.speed).is_some_and(|(now, best)| now < best)
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
    use std::fs::{create_dir_all, write};

    use proptest::prelude::*;

    use super::*;

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
            (link(16, 8.0), link(16, 8.0), link(16, 8.0), false),
            (link(8, 8.0), link(16, 8.0), link(16, 8.0), true),
            (link(16, 2.5), link(16, 8.0), link(16, 8.0), true),
            (link(8, 8.0), link(16, 8.0), link(8, 16.0), false),
            (link(8, 8.0), link(16, 8.0), unknown, false),
            (unknown, link(16, 8.0), link(16, 8.0), false),
            (Link { speed: None, ..link(4, 0.0) }, link(8, 8.0), link(8, 8.0), true),
        ] {
            assert_eq!(now.is_below(own.both(above)), expected, "{now:?} {own:?} {above:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_a_link(width: String, speed: String) {
            let link = Link::parse(&width, &speed);
            prop_assert!(!link.is_below(link));
        }
    }

    #[test]
    fn the_bridge_above_is_found_behind_the_link() {
        let root = tempfile::tempdir().unwrap();
        let bridge = root.path().join("devices/0000:80:01.0");
        let function = root.path().join("bus/0000:81:00.0");
        create_dir_all(bridge.join("0000:81:00.0")).unwrap();
        create_dir_all(root.path().join("bus")).unwrap();
        std::os::unix::fs::symlink(bridge.join("0000:81:00.0"), &function).unwrap();
        for (directory, width) in [(&bridge, "8"), (&function, "16")] {
            write(directory.join("max_link_width"), width).unwrap();
            write(directory.join("max_link_speed"), "8.0 GT/s PCIe").unwrap();
        }
        write(function.join("current_link_speed"), "8.0 GT/s PCIe").unwrap();
        let keeping = Keeping { open: true, check_links: true };
        let mut files = LinkFiles::new(&function);
        for (width, expected) in [("8", false), ("4", true), ("8", false)] {
            write(function.join("current_link_width"), width).unwrap();
            assert_eq!(files.is_degraded(&function, keeping), Ok(expected));
        }
    }
}
