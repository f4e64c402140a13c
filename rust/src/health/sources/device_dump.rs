//! Dumps of a device's state that its driver has made: drivers do so when a card hangs. The kernel removes a dump after
//! five minutes, that of xe after an hour. The dump itself is never read.
//!
//! A dump names its device, but a device does not name its dumps, so they are listed once for all devices
//! ([`Poller::device_dumps`](crate::health::Poller::device_dumps)) and belong to no card that could hang.
//!
//! `failing_device`: <https://docs.kernel.org/gpu/amdgpu/debugging.html>; the class: `drivers/base/devcoredump.c`.

use rustix::io::Errno;

use crate::device::Device;
use crate::finding::Finding;
use crate::health::source::{About, Class, Meaning, Pace, Source, Subject};
use crate::host::Host;
use crate::host::attribute::{AttributeError, Cause};
use crate::host::directory::{self, Directory};

/// Where the kernel lists dumps. Without its `CONFIG_DEV_COREDUMP` there are none.
pub const DUMPS: &str = "/sys/class/devcoredump";

const DEVICE_DUMP: &str = "device-dump";

static ABOUT: About = About {
    name: DEVICE_DUMP,
    reads: Class::KernelMemory,
    pace: Pace::Fifth,
    document: "https://docs.kernel.org/gpu/amdgpu/debugging.html",
    meanings: &[Meaning::warning(
        DEVICE_DUMP,
        "the device's driver has dumped its state, as drivers do when a card hangs, and the dump is still there",
        "save the driver's dump[ ({file})], which the kernel deletes after minutes, and ask \
         the card's vendor with it",
    )
    .undamped()],
};

/// The source.
#[derive(Debug)]
pub(super) struct DeviceDump;

impl Source for DeviceDump {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, _host: &Host, _device: &Device) -> Vec<Subject> {
        Vec::new()
    }
}

/// All dumps: for each the path of its device without the host root (a PCI function or a part of one), and the finding.
///
/// # Errors
/// The kernel's error, if there may be dumps that cannot be listed.
pub fn dumps(host: &Host) -> Result<Vec<(String, Finding)>, AttributeError> {
    match Directory::open(host.absolute(DUMPS)) {
        Ok(class) => Ok(class.names()?.iter().filter_map(|name| dump(host, &class, name)).collect()),
        Err(error) if error.cause == Cause::System(Errno::NOENT) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// `None` for an attribute of the class, and for a dump that is being made or removed.
fn dump(host: &Host, class: &Directory, name: &str) -> Option<(String, Finding)> {
    if !name.starts_with("devcd") {
        return None;
    }
    let dump = host.behind_link(class.path(), &class.link(name).ok()?);
    let device = host.behind_link(&dump, &directory::link(&dump.join("failing_device")).ok()?);
    if !directory::exists(&device) {
        return None;
    }
    let driver = directory::link(&device.join("driver")).unwrap_or_default();
    let driver = driver.file_name().unwrap_or_default().to_string_lossy();
    let by = if driver.is_empty() { "its driver" } else { &driver };
    let place = format!("{DUMPS}/{name}");
    let detail = format!("{by} has dumped the device's state; copy {place}/data before the kernel removes it");
    Some((
        host.own_path(device).to_string_lossy().into_owned(),
        ABOUT.finding(DEVICE_DUMP).at(place).reading(&driver).because(&detail),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FUNCTION, Tree};
    use super::*;

    const DEVCD: &str = "/sys/devices/virtual/devcoredump/devcd";

    /// Adds the dump with this number, of a device below /sys/devices.
    fn add(tree: &Tree, number: u32, device: &str) {
        tree.link(&format!("{DUMPS}/devcd{number}"), format!("../../devices/virtual/devcoredump/devcd{number}"));
        let device = device.strip_prefix("/sys/devices/").unwrap();
        tree.link(&format!("{DEVCD}{number}/failing_device"), format!("../../../{device}"));
    }

    #[test]
    fn a_dump_is_a_finding_for_its_device_with_the_driver_and_the_place() {
        let tree = Tree::new();
        assert_eq!(dumps(&tree.host), Ok(Vec::new()), "a kernel without the class");
        tree.set("uevent", "");
        tree.link(&format!("{FUNCTION}/driver"), "../../../../bus/pci/drivers/xe");
        add(&tree, 1, FUNCTION);
        let [(device, finding)] = dumps(&tree.host).unwrap().try_into().unwrap();
        assert_eq!((device, &*finding.source, &*finding.reason), (FUNCTION.into(), "device-dump", "device-dump"));
        assert_eq!((&*finding.file, &*finding.value), ("/sys/class/devcoredump/devcd1", "xe"));
        let expected =
            "xe has dumped the device's state; copy /sys/class/devcoredump/devcd1/data before the kernel removes it";
        assert_eq!(finding.detail, expected);
    }

    #[test]
    fn dumps_are_in_the_order_of_their_numbers_and_one_of_a_part_of_a_card_names_the_part() {
        let tree = Tree::new();
        let part = format!("{FUNCTION}/part.0");
        tree.write(&format!("{part}/uevent"), "");
        add(&tree, 10, &part);
        add(&tree, 9, FUNCTION);
        let found = dumps(&tree.host).unwrap();
        let devices: Vec<_> = found.iter().map(|(device, finding)| (device.as_str(), &*finding.value)).collect();
        assert_eq!(devices, [(FUNCTION, ""), (part.as_str(), "")]);
        assert!(found[0].1.detail.starts_with("its driver has dumped"), "{}", found[0].1.detail);
    }

    #[test]
    fn an_attribute_of_the_class_and_a_dump_that_comes_or_goes_are_no_findings() {
        let tree = Tree::new();
        tree.write(&format!("{DUMPS}/disabled"), "0\n");
        tree.write(&format!("{DEVCD}1/data"), "");
        tree.link(&format!("{DUMPS}/devcd1"), "../../devices/virtual/devcoredump/devcd1");
        tree.link(&format!("{DUMPS}/devcd2"), "../../devices/virtual/devcoredump/devcd2");
        add(&tree, 3, FUNCTION);
        assert_eq!(dumps(&tree.host), Ok(Vec::new()), "neither link names a device that is there");
    }

    #[test]
    fn a_class_that_cannot_be_listed_is_an_error() {
        let tree = Tree::new();
        tree.write(DUMPS, "");
        let error = dumps(&tree.host).unwrap_err();
        assert_eq!(error.path, tree.path(DUMPS));
    }
}
