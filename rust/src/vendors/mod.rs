//! One file a vendor. To add one: implement [`Vendor`], add it to [`enabled`].

pub mod generic;
pub mod intel_fpga;
pub mod simulated;

use std::path::PathBuf;

use crate::device::Found;
use crate::host::Host;
use crate::probe::Fence;
use crate::settings::Settings;

/// A family of devices that are found the same way.
pub trait Vendor: Send + Sync {
    /// The word in `vendor` of JSON, metrics and problems: `intel-fpga`.
    fn name(&self) -> &'static str;

    /// Looks at the host. A bad entry is a problem in the answer and never costs its siblings; reads that can hang go
    /// through the fence, one card at a time.
    fn scan(&self, host: &Host, fence: &Fence) -> Found;

    /// Directories whose entries tell of devices that come and go. They need not exist, and /dev need not be named.
    fn watched_directories(&self, _host: &Host) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// The vendors that the settings ask for.
#[must_use]
pub fn enabled(settings: &Settings) -> Vec<Box<dyn Vendor>> {
    let mut vendors: Vec<Box<dyn Vendor>> = Vec::new();
    if settings.vendors.intel_fpga.enabled {
        vendors.push(Box::new(intel_fpga::IntelFpga::new(settings.vendors.intel_fpga.mode)));
    }
    vendors.push(Box::new(generic::Generic::new(settings.generic.clone())));
    vendors.push(Box::new(simulated::Simulated::new(settings.simulated.clone())));
    vendors
}
