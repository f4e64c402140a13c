//! What can be chosen, in the words of the vendor's plugin.

use serde::Deserialize;

/// Options of the Intel FPGA vendor.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IntelFpgaOptions {
    /// Whether to look for it.
    pub enabled: bool,
    /// What is advertised.
    pub mode: IntelFpgaMode,
}

impl Default for IntelFpgaOptions {
    fn default() -> Self {
        Self { enabled: true, mode: IntelFpgaMode::default() }
    }
}

/// What is advertised of an Intel FPGA.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IntelFpgaMode {
    /// Ports, by the accelerator function loaded in them.
    #[default]
    Af,
    /// Regions, programmed through the OCI hook.
    Region,
    /// Regions with their management engine's node.
    RegionDevel,
}
