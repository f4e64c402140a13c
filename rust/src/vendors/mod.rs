//! One folder per vendor. To add a vendor: implement [`Vendor`], declare its module here, and add a row to [`table`].

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

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use crate::bus::pci::VIRTUAL_FUNCTIONS;
use crate::device::{Device, Found, Platform};
use crate::edits::{self, Edits, Way};
use crate::fence::Fence;
use crate::host::Host;

/// The fact with the drivers of a physical function's virtual ones, if none of these is a device here.
const VIRTUAL_FUNCTIONS_ELSEWHERE: &str = "sriov_elsewhere";

/// The reason for leaving a physical function out of the offers; `None` for a function without virtual ones.
fn virtual_functions_instead(device: &Device) -> Option<Cow<'static, str>> {
    device.attributes.get(VIRTUAL_FUNCTIONS)?;
    Some(match device.text(VIRTUAL_FUNCTIONS_ELSEWHERE) {
        None => "its virtual functions are offered instead".into(),
        Some(drivers) => format!(
            "its virtual functions are under {drivers}, and no devices here: a rule of `resources` that names its \
             `pci_address` offers it"
        )
        .into(),
    })
}

/// A family of devices that one scan finds.
pub trait Vendor: Send + Sync {
    /// The value of `vendor` in JSON, metrics and problems: `intel-fpga`.
    fn name(&self) -> &'static str;

    /// Scans the host. A bad entry becomes a problem in the answer and never affects its siblings; reads that can hang
    /// go through the fence, one card at a time.
    fn scan(&self, host: &Host, fence: &Fence) -> Found;

    /// Drops the results that it keeps from earlier scans: something has changed on the host.
    fn forget(&self) {}

    /// The container edits of one of its devices, for a way of handing it over and a resource name. A pure function of
    /// its arguments and of the options: an earlier scanner may have found the device.
    fn edits(&self, device: &Device, _platform: &Platform, way: Way, _resource_name: &str) -> Edits {
        Edits::of_nodes(&device.paths, "rw").given(way, || edits::cdi_name(device))
    }

    /// Whether a device of an earlier scan, which the last scan could not examine, is certainly gone: the driver shows
    /// other devices in its place. The caller itself notices if the PCI function has left the bus. `false` if unknown.
    /// Runs behind the fence.
    fn is_gone(&self, _host: &Host, _device: &Device) -> bool {
        false
    }

    /// Whether one of these devices, which its scan has found, can turn into another without an event, or get a sibling,
    /// so that only the next scan notices.
    fn changes_in_silence(&self, _found: &[Arc<Device>]) -> bool {
        false
    }

    /// The reason, for users, why the options keep a device out of the offers: its parts are offered instead, or the
    /// whole that it belongs to. `None` if the device is offered. A pure function of the device and the options.
    fn left_out(&self, _device: &Device) -> Option<Cow<'static, str>> {
        None
    }

    /// Directories whose entries are created and removed with devices although the kernel sends no event. If one does
    /// not exist yet, its nearest existing parent is watched. /dev and the directories of found devices' nodes need not
    /// be listed. Directories in sysfs and procfs are useless here, because inotify reports nothing there.
    fn watched_directories(&self, _host: &Host) -> Vec<PathBuf> {
        Vec::new()
    }
}
