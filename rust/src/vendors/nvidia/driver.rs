//! The driver's version and its GPUs, from procfs; also GPUs that the driver no longer lists, or not yet, from PCI.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::VENDOR;
use super::card::Card;
use crate::bus::pci;
use crate::device::{Found, NotExamined, Problem, Refusal};
use crate::health::sources::scan;
use crate::host::Host;
use crate::host::attribute::{self, Attribute, AttributeError, Cause};
use crate::host::directory::{self, Directory};
use crate::vendors::gpus::on_pci_bus;

/// `/proc/driver/nvidia/gpus`: one directory for each GPU of the driver, by PCI address.
pub(super) fn gpus_directory(host: &Host) -> PathBuf {
    host.proc("driver/nvidia/gpus")
}

/// The addresses of the driver's GPUs in PCI order; empty without the driver.
pub(super) fn gpus(host: &Host) -> Result<Vec<String>, AttributeError> {
    let mut addresses = match Directory::open(gpus_directory(host)).and_then(|directory| directory.names()) {
        Ok(names) => names,
        Err(error) if error.is_absent() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    addresses.retain(|name| pci::is_address(name));
    addresses.sort_by(|left, right| (left.len(), left).cmp(&(right.len(), right)));
    Ok(addresses)
}

/// The driver's version, `590.48.01`, and the file that contains it.
pub(super) fn version(host: &Host) -> Option<(String, PathBuf)> {
    let read = |path: PathBuf, parse: fn(&str) -> Option<&str>| {
        let attribute = Attribute::read(path).ok()?;
        Some((parse(attribute.text())?.to_owned(), attribute.path().to_path_buf()))
    };
    read(host.proc("driver/nvidia/version"), version_in)
        .or_else(|| read(host.sys(Path::new("module/nvidia/version")), number_at_start))
}

/// Whether an option makes the driver print no Xids. The file is larger than an attribute.
#[must_use]
pub fn prints_no_xids(host: &Host) -> bool {
    let parameters = attribute::content(&host.proc("driver/nvidia/params")).unwrap_or_default();
    parameters.split(|&byte| byte == b'\n').any(|line| line == b"RmLogonRC: 0")
}

/// The version in `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.06  Release Build …`.
fn version_in(text: &str) -> Option<&str> {
    let (_, behind) = text.lines().next()?.split_once("Kernel Module")?;
    behind.split_whitespace().find_map(number_at_start)
}

/// The version at the start of a word, `535.129.03`: two or three numbers separated by dots.
fn number_at_start(word: &str) -> Option<&str> {
    let word = word.split_whitespace().next()?;
    let mut parts = word.split('.');
    let numbers = parts.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    (numbers && matches!(word.split('.').count(), 2 | 3)).then_some(word)
}

pub(super) const NVIDIA: u64 = 0x10de;

/// All GPUs of this and earlier scans, by address. The value tells whether the driver excluded the GPU.
#[derive(Debug, Default)]
pub(super) struct KnownGpus {
    excluded: BTreeMap<String, bool>,
    has_looked: bool,
}

impl KnownGpus {
    /// Whether the driver excludes a GPU from use; if the GPU is unreadable, whether it did at the last readable scan.
    pub(super) fn is_excluded(&mut self, card: &Card) -> bool {
        let known = self.excluded.entry(card.address().to_owned()).or_default();
        *known = card.gpu.as_ref().map_or(*known, |gpu| gpu.information.is_excluded);
        *known
    }

    /// Reports the GPUs that the driver does not list; forgets GPUs that have left the bus.
    pub(super) fn report_unlisted(&mut self, host: &Host, listed: &[Card], passthrough: bool, found: &mut Found) {
        // Only at the first scan: a scanner that starts while GPUs are without their driver must not treat them as
        // removed.
        if !self.has_looked {
            self.has_looked = true;
            let on_bus = on_pci_bus(host, NVIDIA, &["nvidia", "nouveau"], is_gpu).into_iter();
            let there = on_bus.filter(|address| !self.excluded.contains_key(address));
            self.excluded.extend(there.map(|address| (address, false)).collect::<Vec<_>>());
        }
        self.excluded.retain(|address, _| {
            listed.iter().any(|card| card.address() == address) || is_still_there(host, address, passthrough, found)
        });
    }
}

/// Whether the GPU is still on the bus. If so, the reason why the driver does not list it becomes a problem or a
/// finding.
fn is_still_there(host: &Host, address: &str, passthrough: bool, found: &mut Found) -> bool {
    let function = host.sys("bus/pci/devices").join(address);
    if !directory::exists(&function) {
        return false;
    }
    let unseen = |finding| NotExamined { vendor: VENDOR, class: None, card: Some(address.to_owned()), finding };
    match directory::link(&function.join("driver")) {
        Ok(driver) if driver.file_name().is_some_and(|name| name == "nvidia") => {
            let proc = host.own_path(gpus_directory(host));
            let what = format!("bound to the driver nvidia, but not listed in {}", proc.display());
            let cure = "check that the host's whole /proc is visible, or look for NVRM in the kernel log";
            let refusal = Refusal { what, is_bound: true };
            found.problems.push(Problem::refused(VENDOR, host.own_path(function), refusal, cure).of(address));
            found.unseen.push(unseen(None));
        }
        // Another driver has the GPU, for example to pass it to a virtual machine: it was taken on purpose.
        Ok(_) => {}
        Err(error) if error.cause == Cause::System(Errno::NOENT) => {
            let instead = if passthrough { ", or vfio-pci for virtual machines" } else { "" };
            let detail = format!("no driver is bound to this GPU; bind nvidia to it again{instead}");
            let link = host.own_path(function.join("driver"));
            found.unseen.push(unseen(Some(scan::finding(scan::DRIVER_UNBOUND, link, &detail).reading("absent"))));
        }
        Err(_) => found.unseen.push(unseen(None)),
    }
    true
}

fn is_gpu(class: u64) -> bool {
    matches!(class >> 8, 0x0300 | 0x0302)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_version_is_read_from_the_proprietary_and_the_open_module() {
        for (text, version) in [
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  515.65.01  Wed Mar 16 11:24:05 UTC 2022", "515.65.01"),
            ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.06  Release Build  (a@b)", "555.42.06"),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  595.45  Release Build\nGCC version: 1.2",
                "595.45",
            ),
        ] {
            assert_eq!(version_in(text), Some(version));
        }
        for text in
            ["", "GCC version:  gcc version 11.4.0", "Kernel Module", "Kernel Module 1.2.3.4 5", "Kernel Module 1."]
        {
            assert_eq!(version_in(text), None, "{text:?}");
        }
    }

    #[test]
    fn gpus_come_in_pci_order_and_a_missing_driver_has_none() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        assert_eq!(gpus(&host), Ok(Vec::new()));
        for name in ["10000:01:00.0", "0000:9b:00.0", "0000:0a:00.0", "0001:00:00.0", "nonsense"] {
            std::fs::create_dir_all(gpus_directory(&host).join(name)).unwrap();
        }
        assert_eq!(gpus(&host).unwrap(), ["0000:0a:00.0", "0000:9b:00.0", "0001:00:00.0", "10000:01:00.0"]);
    }

    proptest! {
        #[test]
        fn any_text_has_a_version_or_none(text: String) {
            prop_assert!(version_in(&text).is_none_or(|version| version.contains('.')));
        }
    }
}
