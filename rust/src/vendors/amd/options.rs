//! The configuration of AMD GPUs.

use serde::Deserialize;

/// Options of AMD's plugin, under the plugin's names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AmdOptions {
    /// Whether to look for it.
    pub enabled: bool,
    /// Whether it must be there: what is missing is then a problem.
    pub required: bool,
    /// Under which names partitions go.
    pub naming: AmdNaming,
    /// For containers, or for virtual machines.
    pub driver_type: AmdDriverType,
}

impl Default for AmdOptions {
    fn default() -> Self {
        Self { enabled: true, required: false, naming: AmdNaming::default(), driver_type: AmdDriverType::default() }
    }
}

/// Under which names partitions go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmdNaming {
    /// Every device is `amd.com/gpu`.
    #[default]
    Single,
    /// Partitions are named by their kind: `amd.com/cpx_nps4`.
    Mixed,
}

/// Who drives the GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmdDriverType {
    /// Whichever driver is loaded: amdgpu, then gim, then vfio-pci.
    #[default]
    Auto,
    /// amdgpu, for containers.
    Container,
    /// gim: virtual functions for virtual machines.
    VfPassthrough,
    /// vfio-pci: whole GPUs for virtual machines.
    PfPassthrough,
}
