//! The configuration of NVIDIA GPUs.

use serde::Deserialize;

/// Options of NVIDIA's plugin, under the plugin's names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "one field for each option of the vendor's plugin")]
pub struct NvidiaOptions {
    /// Whether to look for it.
    pub enabled: bool,
    /// Under which names MIG devices go.
    pub mig_strategy: MigStrategy,
    /// How the container runtime learns which devices a container gets; strategies combine.
    pub device_list_strategy: Vec<DeviceListStrategy>,
    /// By what devices are named to the container runtime.
    pub device_id_strategy: DeviceIdStrategy,
    /// Whether device nodes are passed as well.
    pub pass_device_specs: bool,
    /// Where the host's driver libraries are.
    pub driver_root: String,
    /// Where the host's device nodes are; the driver root when absent.
    pub dev_root: Option<String>,
    /// What the annotation of `cdi-annotations` begins with.
    pub cdi_annotation_prefix: String,
    /// The program that CDI hooks run, on the host.
    pub cdi_hook_path: String,
    /// Whether containers get GDRCopy.
    pub gdrcopy_enabled: bool,
    /// Whether containers get GPUDirect Storage.
    pub gds_enabled: bool,
    /// Whether containers get the InfiniBand nodes.
    pub mofed_enabled: bool,
    /// IMEX channels given to every container.
    pub imex_channel_ids: Vec<u32>,
    /// Whether a missing IMEX channel makes devices unusable.
    pub imex_required: bool,
    /// Whether whoever watches the GPUs keeps them open.
    pub keep_open: bool,
    /// What containers get besides the device.
    pub device_discovery_strategy: DeviceDiscoveryStrategy,
}

impl Default for NvidiaOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            mig_strategy: MigStrategy::default(),
            device_list_strategy: vec![DeviceListStrategy::Envvar],
            device_id_strategy: DeviceIdStrategy::default(),
            pass_device_specs: false,
            driver_root: "/".to_owned(),
            dev_root: None,
            cdi_annotation_prefix: "cdi.k8s.io/".to_owned(),
            cdi_hook_path: "/usr/bin/nvidia-ctk".to_owned(),
            gdrcopy_enabled: false,
            gds_enabled: false,
            mofed_enabled: false,
            imex_channel_ids: Vec::new(),
            imex_required: false,
            keep_open: true,
            device_discovery_strategy: DeviceDiscoveryStrategy::default(),
        }
    }
}

impl NvidiaOptions {
    /// Whether devices are given by CDI.
    pub(super) fn asks_for_cdi(&self) -> bool {
        self.device_list_strategy.iter().any(|strategy| strategy.is_cdi())
    }

    /// What containers may get beside GPUs, and whether they do.
    pub(super) fn classes(&self) -> [(bool, &'static str); 3] {
        [(self.gdrcopy_enabled, "gdrcopy"), (self.gds_enabled, "gds"), (self.mofed_enabled, "mofed")]
    }
}

impl DeviceListStrategy {
    /// Whether it names devices to the runtime by CDI.
    pub(super) fn is_cdi(self) -> bool {
        matches!(self, Self::CdiAnnotations | Self::CdiCri)
    }
}

/// Under which names MIG devices go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigStrategy {
    /// A GPU in MIG mode is one whole GPU.
    #[default]
    None,
    /// MIG devices are `nvidia.com/gpu`.
    Single,
    /// MIG devices are `nvidia.com/mig-<profile>`.
    Mixed,
}

/// One way to name devices to the container runtime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceListStrategy {
    /// `NVIDIA_VISIBLE_DEVICES`.
    #[default]
    Envvar,
    /// Mounts of /dev/null below a directory.
    VolumeMounts,
    /// CDI names in an annotation.
    CdiAnnotations,
    /// CDI names in the kubelet's own field.
    CdiCri,
}

/// By what devices are named to the container runtime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceIdStrategy {
    /// By UUID.
    #[default]
    Uuid,
    /// By their place in the PCI order.
    Index,
}

/// What containers get besides the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceDiscoveryStrategy {
    /// Tegra's files if present, else the driver's, with NVML if it can be loaded.
    #[default]
    Auto,
    /// The driver's files and NVML.
    Nvml,
    /// The driver's files alone.
    Procfs,
    /// Tegra's files.
    Tegra,
}
