//! What a container gets of an RDMA device, in each mode.

use std::collections::BTreeMap;

use serde_json::json;

use super::options::RdmaMode;
use crate::device::Device;
use crate::edits::{Edits, Way, cdi_name};

/// Nodes; those of a pool may also be made anew, and a PCI function is named in variables.
pub(super) fn edits(device: &Device, mode: RdmaMode, way: Way, resource_name: &str) -> Edits {
    let edits = match mode {
        RdmaMode::Device => Edits::of_nodes(&device.paths, "rw"),
        RdmaMode::Shared => Edits::of_nodes(&device.paths, "rwm"),
        RdmaMode::Sriov => Edits { envs: variables(device, resource_name), ..Edits::of_nodes(&device.paths, "rw") },
    };
    edits.given(way, || cdi_name(device))
}

/// `PCIDEVICE_INTEL_COM_MLNX=0000:3b:00.1`, and the same with `_INFO`, which tells the function's nodes and RDMA device.
fn variables(device: &Device, resource_name: &str) -> BTreeMap<String, String> {
    let name = format!("PCIDEVICE_{}", resource_name.replace(['.', '/'], "_").to_uppercase());
    let nodes = device.paths.iter().map(|path| (kind(&path.path).to_owned(), path.path.clone()));
    let mut rdma: BTreeMap<String, String> = nodes.collect();
    rdma.insert("rdma_dev".to_owned(), device.text("ibdev").unwrap_or_default());
    let information = json!({ &device.id: { "generic": { "deviceID": device.id }, "rdma": rdma } });
    BTreeMap::from([(format!("{name}_INFO"), information.to_string()), (name, device.id.clone())])
}

/// `uverbs` of `/dev/infiniband/uverbs0`.
fn kind(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.trim_end_matches(|letter: char| letter.is_ascii_digit())
}
