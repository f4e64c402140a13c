//! What wakes a scan: the kernel's device events, and directories whose entries come and go.

pub mod inotify;
pub mod uevents;
