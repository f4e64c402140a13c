//! What a scan itself finds while it reads what there is: a vendor's code says it, and nothing is polled.

use std::path::Path;

use crate::device::Device;
use crate::health::finding::Finding;
use crate::health::source::{About, Class, Meaning, Source, Subject};
use crate::host::Host;
use crate::host::attribute::AttributeError;

/// The source.
#[derive(Debug)]
pub(super) struct Scan;

/// The words of this source, each with what it takes for a scan to say it. A word that is not here cannot be said.
macro_rules! words {
    ($($(#[$about:meta])* $name:ident = $word:literal: $threshold:literal $(, $builder:ident)*;)*) => {
        $($(#[$about])* pub const $name: &str = $word;)*

        static ABOUT: About = About {
            name: "scan",
            reads: Class::None,
            document: "deploy/vendors.md",
            meanings: &[$(Meaning::unhealthy($name, $threshold)$(.$builder())*),*],
        };
    };
}

words! {
    /// A node without which the device is nothing has not been made.
    NODE_MISSING = "node-missing": "the driver has made none of the nodes without which the device is nothing", undamped;
    /// The PCI function has no driver.
    DRIVER_UNBOUND = "driver-unbound": "the PCI function has no driver, or nothing names it", undamped;
    /// No accelerator function is loaded.
    UNPROGRAMMED = "unprogrammed": "no accelerator function or shell is loaded, or it is being loaded", undamped;
    /// The port of an FPGA cannot be read.
    PORT_ERROR = "port-error": "the id of what is loaded in the port cannot be read, is no id, or is all ones";
    /// The management engine of an FPGA cannot be read.
    FME_ERROR = "fme-error": "the interface id is missing, unreadable, ambiguous or all ones, or no management engine belongs to the port";
    /// The card of an FPGA is there, and what containers get of it is not.
    SHELL_LOST = "shell-lost": "the card is on the bus without the function that containers get: it is being flashed or reset, or that function lost its driver", undamped;
    /// The shell of an FPGA cannot be read.
    SHELL_UNREADABLE = "shell-unreadable": "the name or the timestamp of the card's shell cannot be read";
}

impl Source for Scan {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, _host: &Host, _device: &Device) -> Vec<Subject> {
        Vec::new()
    }
}

/// A finding of a scan for one of the words above: the host's own path of what was read, and what is the matter with it.
#[must_use]
pub fn finding(reason: &'static str, file: impl AsRef<Path>, detail: &str) -> Finding {
    ABOUT.finding(reason).at(file.as_ref().to_string_lossy()).because(detail)
}

/// The same for an attribute that could not be read, or does not say what it should.
#[must_use]
pub fn unreadable(reason: &'static str, host: &Host, error: &AttributeError) -> Finding {
    finding(reason, host.own_path(&error.path), &error.cause.to_string()).reading(error.cause.found())
}
