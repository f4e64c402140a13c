//! What wakes the scanner: the kernel's device events and its log, and directories whose entries come and go.

pub mod devlink;
pub mod inotify;
pub mod kernel_log;
pub mod kernel_log_record;
pub mod kernel_log_rules;
mod netlink;
mod simulated;
mod simulated_kernel_log;
pub mod uevents;
