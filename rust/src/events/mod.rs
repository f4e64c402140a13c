//! The events that wake the scanner.
//!
//! ```text
//! uevents            device events of the kernel
//! inotify            directories whose entries come and go
//! kernel_log         records of /dev/kmsg, matched by kernel_log_rules
//! devlink            health reporters of network cards, over netlink
//! simulated_node     the stand-ins for all of these on a simulated node
//! ```

pub mod devlink;
pub mod inotify;
pub mod kernel_log;
pub mod kernel_log_rules;
mod netlink;
mod simulated_node;
pub mod uevents;
