//! NVIDIA's management library. It may hang or crash: a process of its own (`source:nvml`) loads it, and the scan reads a file.
//!
//! ```text
//! request    what the scan asks for                                  [scanner]  ─► <run-dir>/sources/nvml.json
//! probe      finds the library, loads it, asks it                    [source:nvml]
//!   └─► locate ─► library ─► gather (profile_name, fabric)
//! facts      what it reports
//! watch      keeps it loaded: its events, and looks at the GPUs' health  [source:nvml]  ─► <run-dir>/findings/nvml
//!   └─► look  one look at one GPU: what is asked, and not asked again
//! reading    what such a look comes to
//! answer     the facts or the failure, and for which request [source:nvml]  ─► <run-dir>/facts/nvml.json
//! ```

pub mod answer;
mod fabric;
pub mod facts;
mod gather;
mod library;
pub mod locate;
mod look;
pub mod probe;
mod profile_name;
pub mod reading;
pub mod request;
mod settings;
pub mod watch;

pub use settings::NvmlSettings;
