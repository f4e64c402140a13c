//! Xilinx FPGA cards under XRT.

mod options;

use super::Vendor;
use crate::device::Found;
use crate::host::Host;
use crate::probe::Fence;
pub use options::*;

/// The word in `vendor` of JSON, metrics and problems.
const VENDOR: &str = "xilinx-fpga";

/// Looks for Xilinx FPGA cards under XRT.
#[derive(Debug)]
pub struct XilinxFpga {
    #[expect(dead_code, reason = "nothing is looked for yet")]
    options: XilinxFpgaOptions,
}

impl XilinxFpga {
    /// Advertises what the options say.
    #[must_use]
    pub fn new(options: XilinxFpgaOptions) -> Self {
        Self { options }
    }
}

impl Vendor for XilinxFpga {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, _host: &Host, _fence: &Fence) -> Found {
        Found::default()
    }
}
