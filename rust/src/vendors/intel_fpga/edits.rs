//! What a container gets of a card, in each mode.

use super::IntelFpgaMode;
use super::advertise::{FME, PORT};
use crate::device::Device;
use crate::edits::{Edits, Hook, Way, cdi_name};

const MODE_ANNOTATION: (&str, &str) = ("com.intel.fpga.mode", "fpga.intel.com/region");
const CDI_KIND: &str = "intel.cdi.k8s.io/fpga";
/// The vendor's OCI hook, which loads the bitstream that the container asks for.
const HOOK: (&str, &str) = ("createRuntime", "/opt/intel/fpga-sw/intel-fpga-crihook");

/// The nodes of ports; in mode `regiondevel` that of the management engine too, in mode `region` the hook that programs
/// through it, which is asked for by CDI.
pub(super) fn edits(device: &Device, mode: IntelFpgaMode, way: Way) -> Edits {
    let ports = Edits::of_nodes(device.paths_in(PORT), "rw");
    match mode {
        IntelFpgaMode::Af => ports.given(way, || cdi_name(device)),
        IntelFpgaMode::RegionDevel => {
            ports.and(Edits::of_nodes(device.paths_in(FME), "rw")).given(way, || cdi_name(device))
        }
        IntelFpgaMode::Region => programmed(device, ports, way),
    }
}

fn programmed(device: &Device, ports: Edits, way: Way) -> Edits {
    let name = format!("{CDI_KIND}={}", device.id);
    let (key, value) = MODE_ANNOTATION;
    let annotations = [(key.to_owned(), value.to_owned())].into();
    let (when, path) = HOOK;
    let hook = Hook { hook_name: when, path: path.to_owned(), args: Vec::new() };
    let hook = Edits { hooks: vec![hook], annotations, ..Edits::default() };
    match way {
        Way::DevicePlugin => ports.and(hook.by_cdi(name)),
        Way::Cdi => ports.and(hook).by_cdi(name),
    }
}
