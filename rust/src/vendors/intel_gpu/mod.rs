//! Intel GPUs.

mod options;

use super::Vendor;
use crate::device::Found;
use crate::host::Host;
use crate::probe::Fence;
pub use options::*;

/// The word in `vendor` of JSON, metrics and problems.
const VENDOR: &str = "intel-gpu";

/// Looks for Intel GPUs.
#[derive(Debug)]
pub struct IntelGpu {
    #[expect(dead_code, reason = "nothing is looked for yet")]
    options: IntelGpuOptions,
}

impl IntelGpu {
    /// Advertises what the options say.
    #[must_use]
    pub fn new(options: IntelGpuOptions) -> Self {
        Self { options }
    }
}

impl Vendor for IntelGpu {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, _host: &Host, _fence: &Fence) -> Found {
        Found::default()
    }
}
