//! AMD GPUs.

mod options;

use super::Vendor;
use crate::device::Found;
use crate::host::Host;
use crate::probe::Fence;
pub use options::*;

/// The word in `vendor` of JSON, metrics and problems.
const VENDOR: &str = "amd";

/// Looks for AMD GPUs.
#[derive(Debug)]
pub struct Amd {
    #[expect(dead_code, reason = "nothing is looked for yet")]
    options: AmdOptions,
}

impl Amd {
    /// Advertises what the options say.
    #[must_use]
    pub fn new(options: AmdOptions) -> Self {
        Self { options }
    }
}

impl Vendor for Amd {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, _host: &Host, _fence: &Fence) -> Found {
        Found::default()
    }
}
