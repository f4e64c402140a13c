//! One folder a vendor. To add one: implement [`Vendor`], declare its module here, give it a row in [`table`].

pub mod amd;
pub mod generic;
mod gpu_sensors;
mod gpus_on_the_bus;
pub mod intel_fpga;
pub mod intel_gpu;
pub mod nvidia;
mod per_card;
pub mod rdma;
pub mod simulated;
pub mod table;
pub mod xilinx_fpga;

use std::path::PathBuf;

use crate::device::{Device, Found, Platform};
use crate::edits::{self, Edits, Way};
use crate::fence::Fence;
use crate::host::Host;
use crate::host::mounts::Mounts;
use crate::host::sight::Sight;

/// A family of devices that are found the same way.
pub trait Vendor: Send + Sync {
    /// The word in `vendor` of JSON, metrics and problems: `intel-fpga`.
    fn name(&self) -> &'static str;

    /// Looks at the host. A bad entry is a problem in the answer and never costs its siblings; reads that can hang go
    /// through the fence, one card at a time.
    fn scan(&self, host: &Host, fence: &Fence) -> Found;

    /// Something has happened on the host: whatever it remembers of earlier scans is to be looked at again.
    fn forget(&self) {}

    /// What its answer follows from, where that is seen without a read that can hang: as long as it looks the same, what was found
    /// stands. `None` where a scan alone can tell.
    fn sight(&self, _host: &Host, _mounts: &Mounts) -> Option<Sight> {
        None
    }

    /// What a container gets for one of its devices, handed over in this way, under this resource name. A pure function of
    /// its arguments and of the options: the device may have been found by an earlier scanner.
    fn edits(&self, device: &Device, _platform: &Platform, way: Way, _resource_name: &str) -> Edits {
        Edits::of_nodes(&device.paths, "rw").given(way, || edits::cdi_name(device))
    }

    /// Directories whose entries come and go with devices although the kernel sends no event. Where one does not exist yet,
    /// the next one above it is watched. /dev and the directories of found devices' nodes need not be named; in sysfs and
    /// procfs inotify reports nothing, so that nothing there is watched.
    fn watched_directories(&self, _host: &Host) -> Vec<PathBuf> {
        Vec::new()
    }
}
