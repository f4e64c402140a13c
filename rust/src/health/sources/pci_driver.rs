//! Whether a PCI function still has the driver that was bound to it at the last scan.

use std::path::Path;

use rustix::io::Errno;

use crate::device::Device;
use crate::health::source::{About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject};
use crate::host::Host;
use crate::host::attribute::{Attribute, Cause};
use crate::host::directory;

static ABOUT: About = About {
    name: "pci-driver",
    reads: Class::KernelMemory,
    pace: Pace::Tenth, // an event reports a driver that goes, and a link cannot be kept open
    document: "https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci",
    meanings: &[Meaning::unhealthy(
        super::scan::DRIVER_UNBOUND,
        "the PCI function had a driver at the last scan, and has none",
        super::scan::BIND,
    )
    .undamped()],
};

/// The source.
#[derive(Debug)]
pub(super) struct PciDriver;

impl Source for PciDriver {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, _host: &Host, device: &Device) -> Vec<Subject> {
        let driven = device.functions.iter().filter(|function| function.driver.is_some());
        driven.map(|function| Subject::new(function.path.join("driver").to_string_lossy(), Bound)).collect()
    }
}

#[derive(Debug)]
struct Bound;

impl Examination for Bound {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        let link = context.host.absolute(context.file);
        match directory::link(&link) {
            Err(error) if error.cause == Cause::System(Errno::NOENT) => {}
            // Any other error does not mean that the driver is missing.
            _ => return Observation::Fine,
        }
        if link.parent().is_none_or(|function| names_driver(function) || !directory::exists(function)) {
            return Observation::Fine;
        }
        let detail = "no driver is bound to this PCI function; see the kernel log, and bind it again";
        Observation::Seen(ABOUT.finding(super::scan::DRIVER_UNBOUND).at(context.file).reading("absent").because(detail))
    }
}

/// Whether `uevent` names a driver: trees without the link have it there. A file that cannot be read may name one.
fn names_driver(function: &Path) -> bool {
    match Attribute::read(function.join("uevent")) {
        Ok(uevent) => uevent.text().lines().any(|line| line.starts_with("DRIVER=")),
        Err(error) => !error.is_absent(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FUNCTION, Tree, device};
    use super::*;

    #[test]
    fn a_function_that_lost_its_driver_is_unbound_until_it_has_one_again() {
        let tree = Tree::new();
        tree.set("uevent", "PCI_ID=8086:0B30\n");
        let mut watching = tree.watch(&PciDriver, &device("intel-fpga", Some("dfl-pci")));
        let driver = format!("{FUNCTION}/driver");
        tree.link(&driver, "../../../../bus/pci/drivers/dfl-pci");
        assert_eq!(watching.observation(), Observation::Fine);
        tree.remove(&driver);
        let finding = watching.finding();
        assert_eq!((&*finding.reason, &*finding.file, &*finding.value), ("driver-unbound", driver.as_str(), "absent"));
        tree.link(&driver, "../../../../bus/pci/drivers/vfio-pci");
        assert_eq!(watching.observation(), Observation::Fine);
    }

    #[test]
    fn a_tree_without_links_names_the_driver_in_uevent() {
        let tree = Tree::new();
        tree.set("uevent", "DRIVER=dfl-pci\nPCI_ID=8086:0B30\n");
        assert_eq!(tree.watch(&PciDriver, &device("intel-fpga", Some("dfl-pci"))).observation(), Observation::Fine);
    }

    #[test]
    fn a_link_that_cannot_be_read_and_a_function_that_is_gone_say_nothing() {
        let tree = Tree::new();
        let device = device("intel-fpga", Some("dfl-pci"));
        assert_eq!(tree.watch(&PciDriver, &device).observation(), Observation::Fine, "the function is gone");
        tree.set("driver", "no link");
        assert_eq!(tree.watch(&PciDriver, &device).observation(), Observation::Fine, "it is no link");
    }

    #[test]
    fn a_function_that_never_had_a_driver_is_not_looked_at() {
        assert!(Tree::new().watch(&PciDriver, &device("intel-fpga", None)).subjects.is_empty());
    }
}
