//! Windows Subsystem for Linux: all GPUs of the Windows host are behind one node, offered as one device as in NVIDIA's
//! plugin.

use std::path::PathBuf;

use super::advertise::NAMESPACE;
use super::installation::{DRIVER_STORE, Installation};
use super::nodes::Needed;
use super::nvml_facts::{self, NvmlFacts};
use super::{DeviceDiscoveryStrategy, NvidiaOptions, VENDOR};
use crate::device::{Device, HostPath, Platform};
use crate::host::{Host, directory};

pub(super) const ID: &str = "all";
const NODE: &str = "/dev/dxg";
/// Libraries of the Windows drivers: the DirectX library is always present, the other one only with an NVIDIA driver.
const LIBRARIES: [&str; 2] = ["usr/lib/wsl/lib/libdxcore.so", "usr/lib/wsl/lib/libnvidia-ml.so.1"];

const STORE: &str = "/usr/lib/wsl";
const SMI: &str = "/usr/lib/wsl/lib/nvidia-smi";
pub(super) const DRIVER_STORE_LIBRARIES: &str = "/usr/lib/wsl/lib";

/// Whether this is WSL with an NVIDIA driver.
pub(super) fn is_here(host: &Host, options: &NvidiaOptions) -> bool {
    let is_asked =
        matches!(options.device_discovery_strategy, DeviceDiscoveryStrategy::Auto | DeviceDiscoveryStrategy::Nvml);
    is_asked && LIBRARIES.iter().all(|library| directory::exists(&library_path(host, options, library)))
}

/// The only device.
pub(super) fn device(
    host: &Host,
    options: &NvidiaOptions,
    installation: &Installation,
    nvml_facts: &NvmlFacts,
) -> Device {
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
    if let Some([gpu]) = nvml_facts.facts().map(|facts| &facts.gpus[..]) {
        if let Some(model) = &gpu.model {
            device.note("model", model, nvml_facts::FACT_SOURCE);
        }
    }
    if nvml_facts.is_unanswered() {
        device.awaits(&["model"]);
    }
    let needed = [Needed { path: NODE.to_owned(), number: None }];
    installation.require(host, &mut device, &needed);
    device
}

/// Adds the Windows drivers, and a link to their nvidia-smi at the path where users expect it.
pub(super) fn add_driver_store(host: &Host, platform: &mut Platform) {
    let is_there = |path: &str| directory::exists(&host.absolute(path));
    let link = || HostPath { target: SMI.to_owned(), ..HostPath::file("/usr/bin/nvidia-smi") };
    let found = [is_there(STORE).then(|| HostPath::file(STORE)), is_there(SMI).then(link)];
    platform.paths.extend(found.into_iter().flatten().map(|path| path.in_role(DRIVER_STORE)));
}

fn library_path(host: &Host, options: &NvidiaOptions, library: &str) -> PathBuf {
    host.absolute(&options.driver_root).join(library)
}
