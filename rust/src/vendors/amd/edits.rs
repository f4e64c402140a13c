//! What a container gets of a GPU.

use super::passthrough::IOMMU_GROUP;
use crate::device::Device;
use crate::edits::{Edits, Way, cdi_name};

/// Nodes; a virtual machine's container gets the addresses as well, by the variable that KubeVirt reads.
pub(super) fn edits(device: &Device, way: Way, resource_name: &str) -> Edits {
    let edits = if device.attributes.contains_key(IOMMU_GROUP) {
        let name = format!("PCI_RESOURCE_{}", in_capitals(resource_name));
        let addresses = device.text("pci_address").unwrap_or_default();
        Edits { envs: [(name, addresses)].into(), ..Edits::of_nodes(&device.paths, "mrw") }
    } else {
        Edits::of_nodes(&device.paths, "rw")
    };
    edits.given(way, || cdi_name(device))
}

/// `AMD_COM_GPU`: as KubeVirt's `ResourceNameToEnvVar` has it, which leaves a hyphen alone.
fn in_capitals(resource_name: &str) -> String {
    resource_name.replace(['/', '.'], "_").to_uppercase()
}
