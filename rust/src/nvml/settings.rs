//! Where the scan finds the facts of NVML.

use std::path::PathBuf;

use serde::Deserialize;

/// Where NVML's facts come from, and what depends on them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NvmlSettings {
    /// Answer files (see [`answer`](super::answer)); the first that exists is used. If empty, NVML is not asked.
    pub answers: Vec<PathBuf>,
    /// Whether a rule matches a fact that only NVML reports: GPUs must not be offered before it has answered.
    pub needed: bool,
}
