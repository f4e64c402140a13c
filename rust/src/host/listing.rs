//! What is in a directory, as the kernel tells it: what is above notes what it reads (reads.rs), this does not.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

/// The entries of a directory this large come in two calls of getdents64.
const BUFFER: usize = 16 * 1024;

/// Calls `each` with name, inode number and kind of every entry but `.` and `..`, in the kernel's order.
///
/// # Errors
/// The kernel's error.
pub(super) fn entries(open: impl AsFd, mut each: impl FnMut(&str, u64, FileType)) -> Result<(), Errno> {
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut entries = RawDir::new(open, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        match entry.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => each(name, entry.ino(), entry.file_type()),
        }
    }
    Ok(())
}

/// Names and inode numbers of all entries but `.` and `..`, in the kernel's order.
pub(super) type Listing = Vec<(String, u64)>;

pub(super) fn listing(open: impl AsFd) -> Result<Listing, Errno> {
    let mut listing = Listing::new();
    entries(open, |name, inode, _| listing.push((name.to_owned(), inode)))?;
    Ok(listing)
}

pub(super) fn open_directory(below: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::openat(&below, path, flags, Mode::empty()))
}
