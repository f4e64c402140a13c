//! The scan core of devherd: the devices of this host, and their faults.
//!
//! ```text
//! what everybody stands on, each room on those before it
//!   order        natural order of names
//!   host/        where sys, proc and dev are, and how they are read
//!   fence        deadlines for reads that can hang
//!   finding      what one source saw of one device
//!   device       facts of devices, problems, and what was not examined
//!   fact_kinds   what each fact is: its kind, its unit, its meaning
//!   bus/         facts from PCI, USB and NUMA
//!   edits        what a container gets for a device
//!   spool        both as parts of the messages in the run directory
//! what a forked child does to itself
//!   sandbox      what it may still use
//!   prctl        its name, and the signal at the end of its parent
//! what other processes do
//!   processes    which of them have a device open
//! from sysfs to the answer
//!   settings   the configuration, parsed
//!     └─► vendors/     table (one row a vendor), per_card (cards behind the fence), one folder a vendor
//!     ─► scan/         runs the vendors, compares with the last scan
//!     ─► health/       polls the devices between scans: one file a source of findings
//!   nvml/        NVIDIA's library: facts, health and events of GPUs
//!   events/      uevents, inotify, kernel log, devlink: what wakes the scanner
//!   allocation/  which free devices fit together
//! python/      `devherd._native`: the binding, the only room that names pyo3
//! ```
//!
//! A room is a folder or a file here. Files of one room may use each other, rooms never in a circle:
//! `tests/house/test_rust_rooms.py` checks it.
//!
//! Two rules hold everywhere: one bad device never affects another, and every file may be missing.

pub mod allocation;
pub mod bus;
pub mod device;
pub mod edits;
pub mod events;
pub mod fact_kinds;
pub mod fence;
pub mod finding;
pub mod health;
pub mod host;
pub mod nvml;
pub mod order;
pub mod prctl;
pub mod processes;
pub mod sandbox;
pub mod scan;
pub mod settings;
pub mod spool;
pub mod vendors;

#[cfg(feature = "python")]
mod python;
