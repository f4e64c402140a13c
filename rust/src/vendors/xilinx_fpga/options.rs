//! The configuration of Xilinx FPGA cards under XRT.

use serde::Deserialize;

/// Options of Xilinx's FPGA plugin, under the plugin's names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct XilinxFpgaOptions {
    /// Whether to look for it.
    pub enabled: bool,
    /// What the resource of U30 cards is called.
    pub u30_name_convention: U30NameConvention,
    /// How much of a U30 card goes to a container.
    pub u30_alloc_unit: U30AllocUnit,
}

impl Default for XilinxFpgaOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            u30_name_convention: U30NameConvention::default(),
            u30_alloc_unit: U30AllocUnit::default(),
        }
    }
}

/// What the resource of U30 cards is called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum U30NameConvention {
    /// `amd.com/ama_u30`, whatever the shell.
    #[default]
    CommonName,
    /// As of all other cards.
    ExactName,
}

/// How much of a U30 card goes to a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum U30AllocUnit {
    /// All devices of one serial number together.
    #[default]
    Card,
    /// Each device by itself.
    Device,
}
