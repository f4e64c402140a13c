//! One folder per vendor. To add a vendor: implement [`Vendor`], declare its module here, and add a row to [`table`].

pub mod amd;
mod card_cache;
pub mod classes;
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

/// Why a device is not offered by one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The reason, for users.
    pub why: Cow<'static, str>,
    /// Whether a rule of the configuration that names the device offers it all the same.
    pub unless_named: bool,
}

impl LeftOut {
    /// Left out for this reason, whatever the rules say.
    fn because(why: &'static str) -> Self {
        Self { why: why.into(), unless_named: false }
    }
}

/// The reason for leaving a physical function out of the offers; `None` for a function without virtual ones.
fn virtual_functions_instead(device: &Device) -> Option<LeftOut> {
    device.attributes.get(VIRTUAL_FUNCTIONS)?;
    Some(match device.text(VIRTUAL_FUNCTIONS_ELSEWHERE) {
        None => LeftOut::because("its virtual functions are offered instead"),
        Some(drivers) => LeftOut {
            why: format!(
                "its virtual functions are under {drivers}, and no devices here: a rule of `resources` that names its \
                 `pci_address` offers it"
            )
            .into(),
            unless_named: true,
        },
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

    /// What a container needs besides to share a device through the vendor's Multi-Process Service, whose files are below
    /// `root`, under a resource name. It belongs in no static spec.
    fn mps(&self, _root: &str, _resource_name: &str) -> Edits {
        Edits::default()
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

    /// Why a device is not offered by this way: its parts are offered instead, or the whole that it belongs to, or the
    /// way has no use for it. `None` if the device is offered. A pure function of its arguments and of the options.
    fn left_out(&self, _device: &Device, _way: Way) -> Option<LeftOut> {
        None
    }

    /// Directories whose entries are created and removed with devices although the kernel sends no event. If one does
    /// not exist yet, its nearest existing parent is watched. /dev and the directories of found devices' nodes need not
    /// be listed. Directories in sysfs and procfs are useless here, because inotify reports nothing there.
    fn watched_directories(&self, _host: &Host) -> Vec<PathBuf> {
        Vec::new()
    }
}
