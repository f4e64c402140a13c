//! Two sources that are never polled: `scan`, faults that a vendor's code finds during a scan, and `probe`, cards that
//! miss the deadline of the fence in scans and polls.

use std::path::Path;
use std::time::Duration;

use crate::device::Device;
use crate::finding::Finding;
use crate::health::source::{About, Class, Meaning, Pace, Source, Subject};
use crate::host::Host;
use crate::host::attribute::AttributeError;

/// The source `scan`.
#[derive(Debug)]
pub(super) struct Scan;

/// For a node that is absent. Only NVIDIA's driver leaves its nodes to a program.
pub(super) const MAKE_NODE: &str = "make the node[ {node}]: udevadm trigger, for NVIDIA nvidia-modprobe; else drain the node and load the driver again";

/// For a PCI function without a driver.
pub(super) const BIND: &str = "load the driver (modprobe[ {driver}]) and bind it to the card[ at {pci_address}]; if it \
     refuses, dmesg says why";

/// The value of [`NODE_MISSING`] where the container runtime makes the node for the first container.
pub const MADE_BY_THE_RUNTIME: &str = "absent, and made by the container runtime";

/// The reasons of this source, each with its condition. Other reasons cannot be given.
macro_rules! words {
    ($(
        $(#[$about:meta])*
        $name:ident = $word:literal: $threshold:literal, $to_do:expr $(, $builder:ident$(($given:expr))?)*;
    )*) => {
        $($(#[$about])* pub const $name: &str = $word;)*

        static ABOUT: About = About {
            name: "scan",
            reads: Class::None,
            pace: Pace::Each,
            document: "docs/switch.md",
            meanings: &[$(Meaning::unhealthy($name, $threshold, $to_do)$(.$builder($($given)?))*),*],
        };
    };
}

words! {
    /// A device node that the device needs does not exist.
    NODE_MISSING = "node-missing": "the driver has made none of the device's required nodes", MAKE_NODE, undamped, by_value(&[(
        MADE_BY_THE_RUNTIME,
        Meaning::warning(
            "node-missing",
            "no GPU of the host has its node, and the container runtime makes them",
            "do nothing: the container runtime makes the node for the first container",
        ),
    )]);
    /// The PCI function has no driver.
    DRIVER_UNBOUND = "driver-unbound": "the PCI function has no driver, or no driver is known", BIND, undamped;
    /// No accelerator function is loaded.
    UNPROGRAMMED = "unprogrammed": "no accelerator function or shell is loaded, or it is being loaded",
        "program the FPGA, or wait for the programming that runs", undamped;
    /// The port of an FPGA cannot be read.
    PORT_ERROR = "port-error": "the id of what is loaded in the port cannot be read, is no id, or is all ones",
        "program the FPGA again; if its id stays unreadable, power-cycle the node, then ask the card's vendor";
    /// The management engine of an FPGA cannot be read.
    FME_ERROR = "fme-error": "the interface id is missing, unreadable, ambiguous or all ones, or no management engine belongs to the port",
        "power-cycle the node; if it stays, ask the card's vendor";
    /// The card of an FPGA is on the bus, but the function for containers is not.
    SHELL_LOST = "shell-lost": "the card is on the bus without the function that containers get: it is being flashed or reset, or that function lost its driver",
        "wait until the card's flash or reset has ended; then load the function's driver (modprobe xocl) or reboot", undamped;
    /// The shell of an FPGA cannot be read.
    SHELL_UNREADABLE = "shell-unreadable": "the name or the timestamp of the card's shell cannot be read",
        "ask the card (xbutil examine[ -d {pci_address}]); if that cannot read the shell either, flash it anew";
}

impl Source for Scan {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, _host: &Host, _device: &Device) -> Vec<Subject> {
        Vec::new()
    }
}

/// A finding of a scan for one of the reasons above: the file without the host root, and what is wrong.
#[must_use]
pub fn finding(reason: &'static str, file: impl AsRef<Path>, detail: &str) -> Finding {
    ABOUT.finding(reason).at(file.as_ref().to_string_lossy()).because(detail)
}

/// A finding for an attribute that could not be read, or has unexpected content.
#[must_use]
pub fn unreadable(reason: &'static str, host: &Host, error: &AttributeError) -> Finding {
    finding(reason, host.own_path(&error.path), &error.cause.to_string()).reading(error.cause.found())
}

/// A read has not returned in time.
const PROBE_TIMEOUT: &str = "probe-timeout";

static PROBE: About = About {
    name: "probe",
    reads: Class::None,
    pace: Pace::Each,
    document: "README.md, scan.probe_timeout",
    meanings: &[Meaning::unhealthy(
        PROBE_TIMEOUT,
        "a read of the card has not come back within scan.probe_timeout",
        "look for blocked tasks in the kernel log (dmesg); if the read stays stuck, reboot the node",
    )],
};

/// The source `probe`.
#[derive(Debug)]
pub(super) struct Probe;

impl Source for Probe {
    fn about(&self) -> &'static About {
        &PROBE
    }

    fn subjects(&self, _host: &Host, _device: &Device) -> Vec<Subject> {
        Vec::new()
    }
}

/// The name of the source `probe`.
pub(in crate::health) fn probe_name() -> &'static str {
    PROBE.name
}

/// The finding for a read that has not returned before the deadline; `file` is the file or directory without the host
/// root.
#[must_use]
pub fn probe_timeout(deadline: Duration, file: &str) -> Finding {
    let detail = format!(
        "a read has not come back within {} s; look for blocked tasks in the kernel log",
        deadline.as_secs_f64()
    );
    PROBE.finding(PROBE_TIMEOUT).at(file).because(&detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_that_a_card_missed_is_named() {
        let finding = probe_timeout(Duration::from_millis(2500), "/sys/x");
        assert_eq!((&*finding.reason, &*finding.file), ("probe-timeout", "/sys/x"));
        assert!(finding.detail.contains("within 2.5 s"), "{}", finding.detail);
    }
}
