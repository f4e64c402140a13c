//! Every fact that a device may have: its kind, its unit and its meaning, once for all vendors.
//!
//! A name has the same kind for every vendor: rules and metrics show facts as text, but whoever publishes a device's
//! attributes needs types. Which vendor's devices have which facts: [`table`](crate::vendors::table).

use crate::device::Value;

/// The kind of a fact's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactKind {
    /// See [`Value::Text`].
    Text,
    /// See [`Value::Number`].
    Number,
    /// See [`Value::Boolean`].
    Boolean,
    /// See [`Value::Version`].
    Version,
}

impl FactKind {
    /// The kind of a value.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Text(_) => Self::Text,
            Value::Number(_) => Self::Number,
            Value::Boolean(_) => Self::Boolean,
            Value::Version(_) => Self::Version,
        }
    }

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Version => "version",
        }
    }

    /// The value that a text shows; `None` if it shows none of this kind.
    #[must_use]
    pub fn parse(self, text: &str) -> Option<Value> {
        match self {
            Self::Text => Some(Value::Text(text.to_owned())),
            Self::Number => text.parse().ok().map(Value::Number),
            Self::Boolean => text.parse().ok().map(Value::Boolean),
            Self::Version => Some(Value::Version(text.to_owned())),
        }
    }

    /// The kind with this word; `None` for other words.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        [Self::Text, Self::Number, Self::Boolean, Self::Version].into_iter().find(|kind| kind.as_str() == word)
    }
}

/// What a fact is, for every device that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declared {
    /// Its name in JSON and rules.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: FactKind,
    /// The unit of a number: `bytes`; empty for others, and for counts.
    pub unit: &'static str,
    /// What it is and where it is read.
    pub about: &'static str,
}

const fn text(name: &'static str, about: &'static str) -> Declared {
    Declared { name, kind: FactKind::Text, unit: "", about }
}

const fn number(name: &'static str, about: &'static str) -> Declared {
    Declared { name, kind: FactKind::Number, unit: "", about }
}

const fn bytes(name: &'static str, about: &'static str) -> Declared {
    Declared { name, kind: FactKind::Number, unit: "bytes", about }
}

const fn boolean(name: &'static str, about: &'static str) -> Declared {
    Declared { name, kind: FactKind::Boolean, unit: "", about }
}

const fn version(name: &'static str, about: &'static str) -> Declared {
    Declared { name, kind: FactKind::Version, unit: "", about }
}

/// All facts, sorted by name.
pub const DECLARED: &[Declared] = &[
    text("addressing_mode", "how an NVIDIA GPU reaches the host's memory: `HMM`, `ATS` or `None`: NVML"),
    text("afu_id", "UUID of the accelerator in an FPGA's port: `afu_id`"),
    text("architecture", "generation of an NVIDIA GPU: `Hopper`: NVML"),
    text("bitstream_id", "number of an FPGA's static region: `bitstream_id` of the FME"),
    text("board_id", "an RDMA card's board: `board_id`"),
    text("brand", "product line of an NVIDIA GPU: `Nvidia`, `GeForce`: NVML"),
    text("card", "name of the DRM card: `card0`"),
    number("card_minor", "minor number of the DRM card's node"),
    text("class", "the class that describes the device"),
    version("compute_capability", "NVIDIA's compute capability: NVML"),
    number("compute_instance", "a MIG device's compute instance: /proc/driver/nvidia/capabilities"),
    text("compute_partition", "an AMD GPU's compute partition mode: `current_compute_partition`"),
    number("compute_slices", "compute slices of a MIG device: NVML"),
    number("cu_count", "compute units of an AMD GPU: `simd_count` by `simd_per_cu` of KFD's topology"),
    version("cuda_version", "the newest CUDA that NVIDIA's driver serves: NVML"),
    text("device_id", "PCI device id"),
    text("device_type", "type of an Alveo card, from its shell's name"),
    text("driver", "the driver that serves the device"),
    text("driver_src_version", "checksum of amdgpu's source: `srcversion` of the module"),
    version("driver_version", "version of the vendor's driver: its module, or NVML"),
    number("engines_copy", "copy engines of a MIG device: NVML"),
    number("engines_decoder", "video decoders of a MIG device: NVML"),
    number("engines_encoder", "video encoders of a MIG device: NVML"),
    number("engines_jpeg", "JPEG decoders of a MIG device: NVML"),
    number("engines_ofa", "optical flow accelerators of a MIG device: NVML"),
    text("excluded_gpus", "addresses of the GPUs that NVIDIA's driver excludes from use: procfs"),
    text("fabric_clique", "cluster and clique of NVLink's fabric: NVML"),
    text("family", "family of an Intel GPU, by its PCI device id"),
    text("fme", "name of the FME that the port belongs to"),
    text("fw_ver", "an RDMA card's firmware: `fw_ver`"),
    number("gfx_target_version", "an AMD GPU's instruction set, as KFD numbers it"),
    text("gpu_firmware", "firmware of an NVIDIA GPU: procfs"),
    number("gpu_index", "number of the GPU that the device is or belongs to: NVML, else the order of addresses"),
    number("gpu_instance", "a MIG device's GPU instance: /proc/driver/nvidia/capabilities"),
    number("gpu_slices", "GPU slices of a MIG device: NVML"),
    text("gpu_uuid", "UUID of the GPU that the device is or belongs to: procfs, NVML"),
    number("group", "number of the group in the configuration that found a generic device"),
    text("hca_type", "type of an RDMA card: `hca_type`"),
    text("ibdev", "name of the InfiniBand device"),
    text("index", "index of a GPU, `0`, or of a MIG device on it, `0:1`"),
    text("interface_id", "UUID of the interface that bitstreams of an FPGA must fit"),
    text("iommu_group", "number of the IOMMU group"),
    number("kfd_node", "number of the node in KFD's topology"),
    text("link_layer", "`InfiniBand` or `Ethernet`; of each port if they differ"),
    text("logic_uuids", "UUID of an Alveo card's logic"),
    text("mdev_uuid", "UUID of the mediated device of a vGPU"),
    bytes("memory_bytes", "memory of an NVIDIA GPU or MIG device: NVML"),
    text("memory_partition", "an AMD GPU's memory partition mode: `current_memory_partition`"),
    text("mgmt_pf", "PCI address of an Alveo card's management function"),
    number("mig_devices", "MIG devices of a GPU"),
    text("mig_index", "index of a MIG device on its GPU, `0:1`: NVML"),
    text("mig_mode", "`enabled` or `disabled`: NVML, procfs"),
    number("mig_placement_size", "memory slices of a MIG device's GPU instance: NVML"),
    number("mig_placement_start", "first memory slice of a MIG device's GPU instance: NVML"),
    text("mig_profile", "profile of a MIG device: `1g.10gb`"),
    number("mig_profile_id", "the GPU's id of that profile, as `nvidia-smi mig -lgip` lists it: NVML"),
    number("minor", "minor number of an NVIDIA GPU's node"),
    text("mode", "`compute` or `graphics`, from the PCI class"),
    text("model", "name of a GPU: NVML, procfs; of an Intel GPU by its PCI device id"),
    number("multiprocessors", "multiprocessors of a MIG device: NVML"),
    text("name", "the kernel's name of a device of a class: its entry in sysfs"),
    text("netdev", "network interfaces of an RDMA card"),
    text("node_guid", "GUID of an RDMA card"),
    text("node_type", "node type of an RDMA card: `1: CA`"),
    number("num_xcc", "accelerator complexes of an AMD GPU"),
    number("numa_node", "NUMA node of the PCI function; absent where the firmware names none"),
    text("nvlink_gpus", "addresses of the GPUs that are linked without a switch, each as often as it has links: NVML"),
    text("nvswitch_ports", "switch ports that the GPU's links lead to: NVML"),
    number("partition", "number of the partition on its AMD GPU"),
    text("path", "device nodes of a generic device"),
    text("pci_address", "PCI address; several of one device are separated by commas"),
    text("pci_class", "PCI class with programming interface: `0x030200`"),
    text("pci_driver", "driver that is bound to the PCI function"),
    text("pci_function", "PCI function that a generic device belongs to"),
    text("pcie_root", "PCIe root complex that the function is below: `pci0000:00`"),
    text("pf_address", "PCI address of the physical function, which an RDMA device may be itself"),
    text("pf_name", "network interface of the physical function of a virtual one"),
    text("pf_netdev", "network interface of the physical function, which an RDMA device may be itself"),
    text("physfn", "PCI address of the physical function of a virtual one"),
    text("physical_function", "PCI address of the GPU under AMD's host driver"),
    text("pkey", "InfiniBand partition key of the first port"),
    text("port", "name of the FPGA's port"),
    number("port_id", "number of the FPGA's port: `id`"),
    text("port_state", "state of each port of an RDMA card"),
    text("ports", "names of the FPGA's ports"),
    text("product_name", "the vendor's name for the card"),
    number("render_minor", "minor number of the DRM render node"),
    text("serial", "serial number"),
    text("serial_num", "serial number of an Alveo card, in XRT's word"),
    number("simd_count", "SIMD units of an AMD GPU"),
    text("slot", "the machine's slot that holds the card: /sys/bus/pci/slots"),
    boolean(
        "sriov",
        "whether virtual functions of an Intel GPU would be cards: `sriov_totalvfs`, `sriov_drivers_autoprobe`",
    ),
    text("sriov_elsewhere", "drivers of the virtual functions, if none of these is a device here"),
    number("sriov_numvfs", "virtual functions of the physical function: `sriov_numvfs`"),
    text("subfunction", "auxiliary device of an RDMA subfunction"),
    text("subsystem_device_id", "PCI subsystem device id"),
    text("subsystem_vendor_id", "PCI subsystem vendor id"),
    text("timestamp", "time stamp of an Alveo card's shell"),
    text("unique_id", "an AMD GPU's unique id, hexadecimal"),
    text("usb_id", "USB vendor and product id"),
    text("usb_interface", "USB interface of the device node"),
    text("usb_port", "USB port that the device is plugged into"),
    text("uuid", "the UUID that names an NVIDIA device"),
    text("vbnv", "name of an Alveo card's shell: `VBNV`"),
    text("vendor_id", "PCI vendor id"),
    number("vf_index", "number of the virtual function"),
    number("vgpu_functions", "virtual functions of a GPU that can be vGPUs"),
    text("vgpu_host_driver_branch", "branch of the driver on a vGPU's host"),
    version("vgpu_host_driver_version", "version of the driver on a vGPU's host"),
    text("vgpu_type", "type of a vGPU"),
    number("vgpus", "vGPUs of a GPU"),
    text("video_bios", "video BIOS of an NVIDIA GPU: procfs"),
    boolean("virtual", "whether an RDMA device is a virtual function"),
    bytes("vram_bytes", "memory of an AMD GPU or partition: KFD's memory banks"),
    text("xgmi_gpus", "addresses of the GPUs that are linked by XGMI: KFD"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_sorted_and_each_is_there_once() {
        assert!(DECLARED.is_sorted_by(|one, next| one.name < next.name));
    }

    #[test]
    fn a_value_is_of_the_kind_that_parses_it() {
        for (kind, text) in [
            (FactKind::Text, "x"),
            (FactKind::Number, "-1"),
            (FactKind::Boolean, "true"),
            (FactKind::Version, "570.195.03"),
        ] {
            let value = kind.parse(text).unwrap();
            assert_eq!((FactKind::of(&value), value.to_string().as_str()), (kind, text));
            assert_eq!(FactKind::named(kind.as_str()), Some(kind));
        }
        assert_eq!(FactKind::Number.parse("0x1"), None);
        assert_eq!(FactKind::named("integer"), None);
    }
}
