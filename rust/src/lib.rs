//! The scan core of devherd: what is on this host, and what is wrong with it.
//!
//! ```text
//! host         where sys, proc and dev are
//! settings     what the config file says
//!   └─► vendors    one file a vendor; a card each behind the fence
//!         ├─ attribute, directory, symlink, glob, order    reading the host's trees
//!         ├─ pci, usb, numa                                facts of a bus
//!         └─ probe                                         deadlines for reads that hang
//!   ─► device, cdi devices, problems, and what could not be seen
//!   ─► scan        runs the vendors, compares with the last scan
//!   ─► check, health    looks again, cheaply, between scans
//! allocation       which free devices fit together
//! uevent, watch    what wakes a scan
//! nvml             what NVIDIA's library tells, asked in a process of its own
//! process          what a forked child asks of the kernel
//! python/          `devherd._native`: the only part that knows Python
//! ```
//!
//! Two rules hold everywhere: one bad device never costs another, and nothing is trusted to be there.

pub mod allocation;
pub mod attribute;
pub mod cdi;
pub mod check;
pub mod device;
pub mod directory;
pub mod glob;
pub mod health;
pub mod host;
pub mod numa;
pub mod nvml;
pub mod order;
pub mod pci;
pub mod probe;
pub mod process;
pub mod scan;
pub mod settings;
pub mod symlink;
pub mod uevent;
pub mod usb;
pub mod vendors;
pub mod watch;

#[cfg(feature = "python")]
mod python;
