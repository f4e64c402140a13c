//! One folder a vendor. To add one: implement [`Vendor`], declare its module here, give it a row in [`table`].

pub mod amd;
mod card_cache;
pub mod generic;
mod gpus;
pub mod intel_fpga;
pub mod intel_gpu;
pub mod nvidia;
mod per_card;
pub mod rdma;
pub mod simulated;
pub mod table;
#[cfg(test)]
#[path = "../../tests/settings/mod.rs"]
pub mod testing;
pub mod xilinx_fpga;

use std::path::PathBuf;

use crate::device::{Device, Found, Platform};
use crate::edits::{self, Edits, Way};
use crate::fence::Fence;
use crate::host::Host;
use crate::host::fingerprint::Fingerprint;
use crate::host::mounts::Mounts;

/// Why a physical function is left out of the offers.
const VIRTUAL_FUNCTIONS_INSTEAD: &str = "its virtual functions are offered instead";

/// A family of devices that one scan finds.
pub trait Vendor: Send + Sync {
    /// The word in `vendor` of JSON, metrics and problems: `intel-fpga`.
    fn name(&self) -> &'static str;

    /// Scans the host. A bad entry becomes a problem in the answer and never affects its siblings; reads that can hang
    /// go through the fence, one card at a time.
    fn scan(&self, host: &Host, fence: &Fence) -> Found;

    /// Drops what it remembers of earlier scans: something has happened on the host.
    fn forget(&self) {}

    /// What the answer depends on, as far as it is visible without a read that can hang: while the fingerprint stays
    /// the same, so does the answer. `None` if only a scan can tell.
    fn fingerprint(&self, _host: &Host, _mounts: &Mounts) -> Option<Fingerprint> {
        None
    }

    /// The container edits of one of its devices, for a way of handing it over and a resource name. A pure function of
    /// its arguments and of the options: an earlier scanner may have found the device.
    fn edits(&self, device: &Device, _platform: &Platform, way: Way, _resource_name: &str) -> Edits {
        Edits::of_nodes(&device.paths, "rw").given(way, || edits::cdi_name(device))
    }

    /// Whether a device of an earlier scan, which the last one could not examine, is known not to be there any more: the
    /// driver shows others in its place. That its PCI function has left the bus is seen without this. `false` if it
    /// cannot be told. Runs behind the fence.
    fn is_gone(&self, _host: &Host, _device: &Device) -> bool {
        false
    }

    /// Whether one of its devices can become another without an event: only the next scan notices.
    fn changes_in_silence(&self) -> bool {
        false
    }

    /// Why the options keep a device out of the offers, for users: its parts are offered instead, or the whole that it is
    /// a part of. `None` if it is offered. A pure function of the device and the options.
    fn left_out(&self, _device: &Device) -> Option<&'static str> {
        None
    }

    /// Directories whose entries come and go with devices although the kernel sends no event. Where one does not exist
    /// yet, its nearest existing parent is watched. /dev and the directories of found devices' nodes need not be named;
    /// in sysfs and procfs inotify reports nothing, so that nothing there is watched.
    fn watched_directories(&self, _host: &Host) -> Vec<PathBuf> {
        Vec::new()
    }
}
