//! One row per vendor, with everything about the vendor that is not in its own folder.
//!
//! The rows determine the sections of the settings, the vendors of a scan, and the data that Python gets
//! (`_native.vendors()`: the sections of the configuration file, the facts that rules may match, the order of
//! preference, the `model` label, the CDI files). `tests/vendors/test_vendor_rows.py` compares the rows with the pages
//! and files that are written by hand.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::Vendor;
use super::amd::{self, Amd, AmdOptions};
use super::classes::{self, Classes, DeviceClass};
use super::generic::{self, Generic, GenericDevice};
use super::intel_fpga::{self, IntelFpga, IntelFpgaOptions};
use super::intel_gpu::{self, IntelGpu, IntelGpuOptions};
use super::nvidia::{self, Nvidia, NvidiaOptions};
use super::rdma::{self, Rdma, RdmaOptions};
use super::simulated::{self, Simulated, SimulatedDevice};
use super::xilinx_fpga::{self, XilinxFpga, XilinxFpgaOptions};
use crate::allocation::Kind;
use crate::edits::Way;
use crate::nvml::NvmlSettings;

/// Data about a vendor that is independent of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The value of `vendor` in JSON, metrics and problems: `intel-fpga`.
    pub name: &'static str,
    /// The plural name in text: `Intel FPGAs`.
    pub title: &'static str,
    /// Whether its devices are PCI functions, and therefore have the attributes of [`FACTS`](crate::bus::pci::FACTS).
    pub is_pci: bool,
    /// The other attributes of its devices. Rules may match all of them.
    pub facts: &'static [&'static str],
    /// The attributes for the `model` label of metrics, the best one first. If a device has none of them, `device_id`
    /// is used.
    pub model: &'static [&'static str],
    /// The order of preference of the vendor's own plugin; rules and options override it.
    pub preferred: Kind,
    /// The order of preference for shared devices.
    pub preferred_shared: Kind,
    /// Where a scan finds the devices, for people.
    pub found_in: &'static str,
    /// The PCI functions that its devices consist of once the driver is bound.
    pub hardware: &'static [Hardware],
    /// Whether its devices have facts that come from NVML only.
    pub uses_nvml: bool,
    /// Whether a scan depends on the ways in which containers get its devices.
    pub uses_ways: bool,
    /// The vendor part of its CDI names, `intel.cdi.k8s.io`, if the vendor's own plugin writes one spec file per
    /// device. `None` if one file holds a whole kind.
    pub cdi_file_a_device: Option<&'static str>,
}

/// PCI functions, selected by their ids and classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hardware {
    /// The PCI vendor id, `vendor`.
    pub maker: u16,
    /// First and last of each range of `device`.
    pub devices: &'static [(u16, u16)],
    /// `class` without its last two digits, the programming interface.
    pub classes: &'static [u16],
    /// The drivers under which the functions are devices for containers.
    pub drivers: &'static [&'static str],
    /// The modules to load, in words for people.
    pub cure: &'static str,
    /// The option that offers the functions to virtual machines, in words for people.
    pub passed_through: Option<&'static str>,
}

/// Base classes of the PCI code and ID assignment specification: display controllers, processing accelerators.
pub const DISPLAY: u16 = 0x03;
/// See [`DISPLAY`].
pub const ACCELERATOR: u16 = 0x12;
/// Class of co-processors, to which QAT belongs: `PCI_CLASS_PROCESSOR_CO` in `include/linux/pci_ids.h` of Linux.
pub const CO_PROCESSOR: u16 = 0x0b40;

/// Every device of a maker.
const ANY: &[(u16, u16)] = &[(0, u16::MAX)];

/// VGA, 3D and other display controllers: <https://admin.pci-ids.ucw.cz/read/PD/03>.
const DISPLAYS: &[u16] = &[0x0300, 0x0302, 0x0380];

/// Processing accelerators: <https://admin.pci-ids.ucw.cz/read/PD/12>.
const ACCELERATORS: &[u16] = &[0x1200];

/// The settings that vendors get besides their options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// The time that a scan waits for one answer.
    pub patience: Duration,
    /// Where NVML's facts come from.
    pub nvml: NvmlSettings,
    /// The ways in which containers get devices on this host.
    pub ways: BTreeSet<Way>,
}

#[cfg(test)]
impl Default for Surroundings {
    fn default() -> Self {
        let (patience, nvml) = (Duration::default(), NvmlSettings::default());
        Self { patience, nvml, ways: BTreeSet::from([Way::DevicePlugin]) }
    }
}

/// The fields that most vendors have in common.
const BLANK: Row = Row {
    name: "",
    title: "",
    is_pci: true,
    facts: &[],
    model: &[],
    preferred: Kind::Packed,
    preferred_shared: Kind::Packed,
    found_in: "",
    hardware: &[],
    uses_nvml: false,
    uses_ways: false,
    cdi_file_a_device: None,
};

/// Defines [`Options`] and [`ROWS`]. For each vendor it takes the section, the options, the constructor (`None`:
/// switched off) and the row.
macro_rules! vendors {
    ($($section:ident: $options:ty => $vendor:expr, $row:expr;)*) => {
        /// The options of each vendor, by its section in the configuration file.
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Options {
            $(
                #[doc = concat!("Of `vendors.", stringify!($section), "`.")]
                pub $section: $options,
            )*
        }

        /// Every vendor, in the order in which scans list them.
        pub const ROWS: &[Row] = &[$($row),*];

        impl Options {
            /// The vendors that are not switched off.
            #[must_use]
            pub fn vendors(&self, surroundings: &Surroundings) -> Vec<Arc<dyn Vendor>> {
                let mut vendors: Vec<Arc<dyn Vendor>> = Vec::new();
                $({
                    let make: fn(&$options, &Surroundings) -> Option<_> = $vendor;
                    if let Some(vendor) = make(&self.$section, surroundings) {
                        vendors.push(Arc::new(vendor));
                    }
                })*
                vendors
            }

            /// Whether both have the same options for this vendor.
            #[must_use]
            pub fn agree_on(&self, other: &Self, vendor: &str) -> bool {
                $(
                    if $row.name == vendor {
                        return self.$section == other.$section;
                    }
                )*
                false
            }
        }
    };
}

vendors! {
    intel_fpga: IntelFpgaOptions => |options, _| options.enabled.then(|| IntelFpga::new(options.mode)), Row {
        name: intel_fpga::VENDOR,
        title: "Intel FPGAs",
        found_in: "/sys/class/fpga, /sys/class/fpga_region",
        facts: &["afu_id", "bitstream_id", "driver", "fme", "interface_id", "port", "port_id", "ports"],
        model: &["afu_id", "interface_id"],
        // PCI ids of the kernel's dfl-pci and Intel's own drivers; Intel's other accelerators are not FPGAs.
        hardware: &[Hardware {
            maker: 0x8086,
            devices: &[(0x09c4, 0x09c4), (0x0b2b, 0x0b2b), (0x0b30, 0x0b30), (0xbcbd, 0xbcbd), (0xbcc0, 0xbcc0), (0xbcce, 0xbcce)],
            classes: ACCELERATORS,
            drivers: &["dfl-pci", "intel-fpga-pci"],
            cure: "`dfl-pci`, or `intel-fpga-pci` of OPAE",
            passed_through: None,
        }],
        cdi_file_a_device: Some("intel.cdi.k8s.io"),
        ..BLANK
    };
    nvidia: NvidiaOptions => |options, given| options.enabled.then(|| Nvidia::new(options.clone(), given)), Row {
        name: nvidia::VENDOR,
        title: "NVIDIA GPUs",
        found_in: "/proc/driver/nvidia/gpus",
        facts: &[
            "uuid", "index", "minor", "model", "serial", "mode", "gpu_uuid", "gpu_index", "mig_index", "mig_profile", "mig_profile_id",
            "mig_placement_start", "mig_placement_size", "gpu_instance", "compute_instance", "brand", "architecture", "addressing_mode", "memory_bytes", "compute_capability", "driver_version", "cuda_version", "gpu_firmware",
            "video_bios", "excluded_gpus", "mig_mode", "mig_devices", "fabric_clique", "nvlink_gpus", "nvswitch_ports", "gpu_slices", "compute_slices", "multiprocessors",
            "engines_copy", "engines_decoder", "engines_encoder", "engines_jpeg", "engines_ofa",
            "vgpu_host_driver_version", "vgpu_host_driver_branch", "vgpus", "vgpu_functions", "vgpu_type", "mdev_uuid", "iommu_group",
        ],
        model: &["model"],
        hardware: &[Hardware {
            maker: 0x10de,
            devices: ANY,
            classes: DISPLAYS,
            drivers: &["nvidia"],
            cure: "`nvidia`",
            passed_through: Some("`vendors.nvidia.passthrough`"),
        }],
        preferred: Kind::Aligned,
        preferred_shared: Kind::Distributed,
        uses_nvml: true,
        uses_ways: true,
        ..BLANK
    };
    amd: AmdOptions => |options, _| options.enabled.then(|| Amd::new(options.clone())), Row {
        name: amd::VENDOR,
        title: "AMD GPUs",
        found_in: "/sys/bus/pci/drivers/amdgpu, /sys/class/kfd; for virtual machines: functions of vfio-pci",
        facts: &[
            "product_name", "serial", "partition", "compute_partition", "memory_partition", "cu_count", "simd_count", "num_xcc",
            "gfx_target_version", "vram_bytes", "unique_id", "kfd_node", "card_minor", "render_minor", "iommu_group",
            "physical_function", "driver_version", "driver_src_version", "xgmi_gpus",
        ],
        model: &["product_name"],
        hardware: &[Hardware {
            maker: 0x1002,
            devices: ANY,
            classes: &[0x0300, 0x0302, 0x0380, 0x1200],
            drivers: &["amdgpu"],
            cure: "`amdgpu`",
            passed_through: Some("`vendors.amd.driver_type`"),
        }],
        preferred: Kind::Aligned,
        // The plugin does not share devices; two replicas of one device give no more than one.
        preferred_shared: Kind::Distributed,
        ..BLANK
    };
    intel_gpu: IntelGpuOptions => |options, _| options.enabled.then(|| IntelGpu::new(options.clone())), Row {
        name: intel_gpu::VENDOR,
        title: "Intel GPUs",
        found_in: "/sys/class/drm",
        facts: &["card", "driver", "family", "model", "physfn", "sriov", "sriov_elsewhere", "sriov_numvfs"],
        model: &["model"],
        hardware: &[Hardware {
            maker: 0x8086,
            devices: ANY,
            classes: DISPLAYS,
            drivers: &["i915", "xe"],
            cure: "`i915` or `xe`",
            passed_through: None,
        }],
        preferred: Kind::Distributed,
        preferred_shared: Kind::Distributed,
        cdi_file_a_device: Some("intel.cdi.k8s.io"),
        ..BLANK
    };
    xilinx_fpga: XilinxFpgaOptions => |options, _| options.enabled.then(|| XilinxFpga::new(options.clone())), Row {
        name: xilinx_fpga::VENDOR,
        title: "Xilinx FPGAs",
        found_in: "PCI functions of XRT, /sys/class/misc/ama_transcoder*",
        facts: &[
            "vbnv", "timestamp", "device_type", "logic_uuids", "product_name", "serial_num", "serial", "mgmt_pf", "driver",
            "class", "name",
        ],
        model: &["vbnv", "product_name"],
        // Alveo shells; other Xilinx FPGAs have drivers of their own, as the V80 has: 50b4 to 50b6.
        hardware: &[Hardware {
            maker: 0x10ee,
            devices: &[(0x5000, 0x50b3), (0x50b7, 0x50ff)],
            classes: ACCELERATORS,
            drivers: &["xocl", "xclmgmt"],
            cure: "`xocl` or `xclmgmt` of XRT",
            passed_through: None,
        }],
        ..BLANK
    };
    rdma: RdmaOptions => |options, given| options.enabled.then(|| Rdma::new(options.clone(), &given.ways)), Row {
        name: rdma::VENDOR,
        title: "RDMA devices",
        found_in: "/sys/class/infiniband",
        facts: &[
            "ibdev", "netdev", "link_layer", "port_state", "node_type", "node_guid", "hca_type", "fw_ver", "board_id", "driver", "physfn",
            "pf_name", "vf_index", "virtual", "pf_address", "pf_netdev", "pkey", "sriov_elsewhere", "sriov_numvfs", "subfunction",
        ],
        model: &["hca_type"],
        hardware: &[Hardware {
            maker: 0x15b3,
            devices: ANY,
            classes: &[0x0200, 0x0207],
            drivers: &["mlx5_core"],
            cure: "`mlx5_core`",
            passed_through: None,
        }],
        uses_ways: true,
        ..BLANK
    };
    classes: Vec<DeviceClass> => |classes, _| Some(Classes::new(classes.clone())), Row {
        name: classes::VENDOR,
        title: "Devices by class",
        found_in: "`classes` of the configuration",
        facts: &["class", "name", "iommu_group", "usb_interface", "usb_port"],
        model: &["class"],
        ..BLANK
    };
    generic: Vec<GenericDevice> => |devices, _| Some(Generic::new(devices.clone())), Row {
        name: generic::VENDOR,
        title: "Generic devices",
        found_in: "`generic` of the configuration",
        is_pci: false,
        facts: &["group", "path", "pci_function", "serial", "usb_id", "usb_interface", "usb_port"],
        model: &["usb_id"],
        ..BLANK
    };
    simulated: Vec<SimulatedDevice> => |devices, _| Some(Simulated::new(devices.clone())), Row {
        name: simulated::VENDOR,
        title: "Simulated devices",
        found_in: "`simulated` of the configuration",
        is_pci: false,
        ..BLANK
    };
}

/// Python's defaults with these changes.
#[cfg(test)]
pub(super) fn made(change: &serde_json::Value) -> Options {
    let text = super::testing::json(&serde_json::json!({"vendors": change}));
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    Options::deserialize(&whole["vendors"]).unwrap()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bus::pci;
    use crate::fact_kinds;

    #[test]
    fn every_row_is_named_after_its_section_and_makes_its_vendor() {
        let names: Vec<_> =
            made(&json!({})).vendors(&Surroundings::default()).iter().map(|vendor| vendor.name()).collect();
        assert_eq!(names, ROWS.iter().map(|row| row.name).collect::<Vec<_>>());
        for row in ROWS {
            let section = row.name.replace('-', "_");
            if [generic::VENDOR, classes::VENDOR, simulated::VENDOR].contains(&row.name) {
                continue;
            }
            let switched_off = made(&json!({&section: {"enabled": false}}));
            assert!(
                switched_off.vendors(&Surroundings::default()).iter().all(|vendor| vendor.name() != row.name),
                "{section}"
            );
        }
    }

    #[test]
    fn each_fact_of_a_row_is_declared_and_each_declared_one_is_of_a_row() {
        let of_rows: BTreeSet<&str> = ROWS.iter().flat_map(|row| row.facts).chain(&pci::FACTS).copied().collect();
        assert_eq!(of_rows, fact_kinds::DECLARED.iter().map(|fact| fact.name).collect());
    }

    #[test]
    fn options_agree_on_every_vendor_that_both_say_the_same_of() {
        let one = made(&json!({}));
        let simulated = json!([{"name": "example.com/x", "count": 1, "numa_nodes": 0}]);
        let other = made(&json!({"rdma": {"shared_devices": 2}, "simulated": simulated}));
        for row in ROWS {
            assert!(one.agree_on(&one.clone(), row.name), "{}", row.name);
            assert_eq!(one.agree_on(&other, row.name), !["rdma", "simulated"].contains(&row.name), "{}", row.name);
        }
        assert!(!one.agree_on(&one, "unheard-of"));
    }
}
