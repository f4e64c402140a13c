//! What the configuration says about Xilinx FPGA cards under XRT.

use serde::Deserialize;

/// Options of Xilinx FPGA cards.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct XilinxFpgaOptions {
    /// Whether to look for it.
    pub enabled: bool,
}

impl Default for XilinxFpgaOptions {
    fn default() -> Self {
        Self { enabled: true }
    }
}
