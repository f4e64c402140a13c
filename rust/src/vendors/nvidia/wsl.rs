//! Windows Subsystem for Linux: all GPUs of the Windows host behind one node, of which the vendor's plugin makes one device.

use std::path::PathBuf;

use super::advertise::NAMESPACE;
use super::answer::{Answers, Name};
use super::nodes::Needed;
use super::told::{self, Told};
use super::{DeviceDiscoveryStrategy, NvidiaOptions, VENDOR, cdi};
use crate::cdi::Edits;
use crate::device::Device;
use crate::directory;
use crate::host::Host;

const ID: &str = "all";
const NODE: &str = "/dev/dxg";
/// Windows puts its drivers' libraries here: the one of DirectX always, the other with a driver of NVIDIA.
const LIBRARIES: [&str; 2] = ["usr/lib/wsl/lib/libdxcore.so", "usr/lib/wsl/lib/libnvidia-ml.so.1"];

const DRIVER_STORE: &str = "/usr/lib/wsl";
const DRIVER_STORE_LIBRARIES: &str = "/usr/lib/wsl/lib";

/// Whether this is such a system, with an NVIDIA driver.
pub(super) fn is_here(host: &Host, options: &NvidiaOptions) -> bool {
    let is_asked =
        matches!(options.device_discovery_strategy, DeviceDiscoveryStrategy::Auto | DeviceDiscoveryStrategy::Nvml);
    is_asked && LIBRARIES.iter().all(|library| directory::exists(&library_path(host, options, library)))
}

/// The one device.
pub(super) fn device(host: &Host, options: &NvidiaOptions, answers: &Answers, told: &Told) -> Device {
    let mut device = Device {
        vendor: VENDOR.into(),
        card: "wsl".to_owned(),
        id: ID.to_owned(),
        resource_name: Some(format!("{NAMESPACE}/gpu")),
        ..Device::default()
    };
    let library = host.own_path(library_path(host, options, LIBRARIES[1]));
    device.note("uuid", ID, &library);
    device.note("index", ID, library);
    if let Some([gpu]) = told.facts().map(|facts| &facts.gpus[..]) {
        if let Some(model) = &gpu.model {
            device.note("model", model, told::SOURCE);
        }
    }
    let needed = [Needed { path: NODE.to_owned(), number: None }];
    let name = Name::Known { uuid: ID.to_owned(), index: ID.to_owned() };
    answers.complete_with(&mut device, &name, &needed, |hook_program| driver_store(host, hook_program));
    device
}

/// Windows' drivers, and how programs find their libraries.
fn driver_store(host: &Host, hook_program: &str) -> Edits {
    let is_there = directory::exists(&host.absolute(DRIVER_STORE));
    let store = if is_there { vec![DRIVER_STORE.to_owned()] } else { Vec::new() };
    cdi::listed(&[], &store, &[], hook_program).and(cdi::searched(DRIVER_STORE_LIBRARIES, hook_program))
}

fn library_path(host: &Host, options: &NvidiaOptions, library: &str) -> PathBuf {
    host.absolute(&options.driver_root).join(library)
}
