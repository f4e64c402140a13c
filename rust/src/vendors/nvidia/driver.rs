//! The driver's version and its GPUs, from procfs.

use std::path::{Path, PathBuf};

use crate::bus::pci;
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError};
use crate::host::directory::Directory;

/// `/proc/driver/nvidia/gpus`: one directory for each GPU that the driver has, by PCI address.
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

/// `590.48.01`, and the file it was read from.
pub(super) fn version(host: &Host) -> Option<(String, PathBuf)> {
    let said = |path: PathBuf, parse: fn(&str) -> Option<&str>| {
        let attribute = Attribute::read(path).ok()?;
        Some((parse(attribute.text())?.to_owned(), attribute.path().to_path_buf()))
    };
    said(host.proc("driver/nvidia/version"), version_in)
        .or_else(|| said(host.sys(Path::new("module/nvidia/version")), number_at_start))
}

/// Of `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.06  Release Build …`.
fn version_in(text: &str) -> Option<&str> {
    let (_, behind) = text.lines().next()?.split_once("Kernel Module")?;
    behind.split_whitespace().find_map(number_at_start)
}

/// `535.129.03`: two or three numbers with dots between.
fn number_at_start(word: &str) -> Option<&str> {
    let word = word.split_whitespace().next()?;
    let mut parts = word.split('.');
    let numbers = parts.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    (numbers && matches!(word.split('.').count(), 2 | 3)).then_some(word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_version_is_told_by_the_proprietary_and_the_open_module() {
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
