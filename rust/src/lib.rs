//! The scan core of devherd: what is on this host, and what is wrong with it.
//!
//! ```text
//! host/        where sys, proc and dev are, and how they are read
//! bus/         facts from PCI, USB and NUMA
//! settings     the configuration, parsed
//!   └─► vendors/   one folder a vendor; a card each behind the fence (per_card, fence)
//!   ─► device      facts of devices, problems, and what was not examined
//!   ─► edits       what a container gets for a device
//!   ─► scan/       runs the vendors, compares with the last scan
//!   ─► health/     looks again, cheaply, between scans: one file a source of findings
//! allocation/  which free devices fit together
//! events/      what wakes a scan
//! nvml/        facts from NVIDIA's library
//! library_pages   what a start leaves in memory
//! prctl        what a forked child asks of the kernel
//! sandbox/     what a forked child may still touch
//! python/      `devherd._native`: the only part that knows Python
//! ```
//!
//! Two rules hold everywhere: one bad device never affects another, and every file may be missing.

pub mod allocation;
pub mod bus;
pub mod device;
pub mod edits;
pub mod events;
pub mod fence;
pub mod health;
pub mod host;
pub mod library_pages;
pub mod nvml;
pub mod order;
pub mod prctl;
pub mod sandbox;
pub mod scan;
pub mod settings;
pub mod vendors;

#[cfg(feature = "python")]
mod python;
