//! One file a vendor. To add one: implement [`Vendor`], add it to [`enabled`].

pub mod amd;
mod each_card;
pub mod generic;
mod gpus_on_the_bus;
pub mod intel_fpga;
pub mod intel_gpu;
pub mod nvidia;
pub mod rdma;
pub mod simulated;
pub mod xilinx_fpga;

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

    /// Directories whose entries tell of devices that come and go. Of one that does not exist yet
    /// the next one above it is watched; /dev need not be named.
    fn watched_directories(&self, _host: &Host) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// The vendors that the settings ask for.
#[must_use]
pub fn enabled(settings: &Settings) -> Vec<Box<dyn Vendor>> {
    let mut vendors: Vec<Box<dyn Vendor>> = Vec::new();
    let of = settings.vendors.clone();
    if of.intel_fpga.enabled {
        vendors.push(Box::new(intel_fpga::IntelFpga::new(of.intel_fpga.mode)));
    }
    if of.nvidia.enabled {
        vendors.push(Box::new(nvidia::Nvidia::new(of.nvidia, settings.patience())));
    }
    if of.amd.enabled {
        vendors.push(Box::new(amd::Amd::new(of.amd)));
    }
    if of.intel_gpu.enabled {
        vendors.push(Box::new(intel_gpu::IntelGpu::new(of.intel_gpu)));
    }
    if of.xilinx_fpga.enabled {
        vendors.push(Box::new(xilinx_fpga::XilinxFpga::new(of.xilinx_fpga)));
    }
    if of.rdma.enabled {
        vendors.push(Box::new(rdma::Rdma::new(of.rdma)));
    }
    vendors.push(Box::new(generic::Generic::new(settings.generic.clone())));
    vendors.push(Box::new(simulated::Simulated::new(settings.simulated.clone())));
    vendors
}
