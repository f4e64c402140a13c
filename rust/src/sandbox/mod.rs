//! What a process gives up for good, together with everything that it will start: files, sockets, capabilities, programs.
//!
//! [`enter`] is for a process with one thread, right after its fork. What the kernel does not know is left out and named, so
//! that it can be said once; what it knows and refuses is an error.

mod files;
mod system_calls;

use std::io;
use std::path::PathBuf;

use rustix::thread::{CapabilitySet, CapabilitySets};

/// What remains allowed. Paths are files, or directories with everything beneath them; absent ones allow nothing.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// To be listed and read.
    pub read: Vec<PathBuf>,
    /// To be read, and files and directories made, changed, renamed and removed.
    pub write: Vec<PathBuf>,
    /// Directories in which sockets may be made, and any file unlinked.
    pub sockets: Vec<PathBuf>,
    /// To be opened for writing and controlled by `ioctl`.
    pub devices: Vec<PathBuf>,
    /// Programs that may be started; none means that no program at all can be.
    pub execute: Vec<PathBuf>,
    /// Whether it may change modes of files.
    pub modes: bool,
    /// Address families of sockets, as in `socket(2)`.
    pub families: Vec<i32>,
    /// Whether it may listen on TCP ports.
    pub listens: bool,
    /// Whether it may connect to TCP ports.
    pub connects: bool,
    /// Capabilities that it keeps, of those that it has, by their numbers in `capabilities(7)`.
    pub capabilities: Vec<u8>,
}

/// Gives up all but `access`; what this kernel cannot enforce, in words for people.
///
/// # Errors
/// What the kernel refuses: its message names the step.
pub fn enter(access: &Access) -> io::Result<Vec<String>> {
    rustix::thread::set_no_new_privs(true)?;
    let mut missing = files::restrict(access)?;
    drop_capabilities(&access.capabilities)?;
    missing.extend(system_calls::restrict(access)?);
    Ok(missing)
}

/// What Landlock cannot enforce on this kernel, asked without giving anything up.
#[must_use]
pub fn missing() -> Vec<String> {
    files::missing()
}

fn drop_capabilities(kept: &[u8]) -> io::Result<()> {
    let wanted = kept.iter().filter_map(|&number| 1_u64.checked_shl(number.into())).fold(0, |bits, bit| bits | bit);
    let kept = CapabilitySet::from_bits_retain(wanted) & rustix::thread::capabilities(None)?.permitted;
    rustix::thread::clear_ambient_capability_set()?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

#[cfg(test)]
mod tests;
