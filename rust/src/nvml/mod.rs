//! NVIDIA's management library. It may hang or crash: a process of its own (`source:nvml`) loads it, and the scan reads
//! a file.
//!
//! ```text
//! facts        request, facts and answer, as plain data
//!              request: the state of the driver   [scanner]      ─► <run-dir>/sources/nvml.json
//!              answer: the facts, or the failure  [source:nvml]  ─► <run-dir>/facts/nvml.json
//! gather       one pass over all facts            [source:nvml]
//!   ├─► library    finds and loads NVML, calls its functions
//!   └─► words      brands, architectures, profiles: numbers and names in NVIDIA's words
//! watch        keeps NVML loaded, for its events and the health of GPUs  [source:nvml]  ─► <run-dir>/findings/nvml
//!   └─► gpu_health one look at one GPU
//! interface    the layouts and numbers of nvml.h
//! ```

pub mod facts;
pub mod gather;
pub mod gpu_health;
pub mod interface;
pub mod library;
pub mod watch;
mod words;

use std::path::PathBuf;

use serde::Deserialize;

/// Where the scan finds NVML's facts, and whether its rules need them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmlSettings {
    /// Answer files (see [`Answer`](facts::Answer)); the first that exists is used. If empty, NVML is not asked.
    pub answers: Vec<PathBuf>,
    /// Whether a rule matches a fact that only NVML reports: GPUs must not be offered before it has answered.
    pub needed: bool,
}
