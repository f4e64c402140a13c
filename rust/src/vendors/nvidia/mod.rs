//! NVIDIA GPUs.

mod options;

use super::Vendor;
use crate::device::Found;
use crate::host::Host;
use crate::probe::Fence;
pub use options::*;

/// The word in `vendor` of JSON, metrics and problems.
const VENDOR: &str = "nvidia";

/// Looks for NVIDIA GPUs.
#[derive(Debug)]
pub struct Nvidia {
    #[expect(dead_code, reason = "nothing is looked for yet")]
    options: NvidiaOptions,
}

impl Nvidia {
    /// Advertises what the options say.
    #[must_use]
    pub fn new(options: NvidiaOptions) -> Self {
        Self { options }
    }
}

impl Vendor for Nvidia {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, _host: &Host, _fence: &Fence) -> Found {
        Found::default()
    }
}
