//! RDMA devices.

mod options;

use super::Vendor;
use crate::device::Found;
use crate::host::Host;
use crate::probe::Fence;
pub use options::*;

/// The word in `vendor` of JSON, metrics and problems.
const VENDOR: &str = "rdma";

/// Looks for RDMA devices.
#[derive(Debug)]
pub struct Rdma {
    #[expect(dead_code, reason = "nothing is looked for yet")]
    options: RdmaOptions,
}

impl Rdma {
    /// Advertises what the options say.
    #[must_use]
    pub fn new(options: RdmaOptions) -> Self {
        Self { options }
    }
}

impl Vendor for Rdma {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, _host: &Host, _fence: &Fence) -> Found {
        Found::default()
    }
}
