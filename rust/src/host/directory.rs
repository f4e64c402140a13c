//! An open directory: lists its entries without a stat, reads attributes and links relative to itself.
//!
//! The methods of [`Directory`] record what they read (`read_log`); `listing` and `open_directory` do not.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::attribute::{Attribute, AttributeError, Cause, noted};
use super::read_log;
use crate::order::natural;

/// An open directory and its path.
#[derive(Debug)]
pub struct Directory {
    file: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory by its full path.
    ///
    /// # Errors
    /// The kernel's error, with the path.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, AttributeError> {
        let path = path.into();
        read_log::note_directory(&path);
        match open_directory(CWD, &path) {
            Ok(file) => Ok(Self { file, path }),
            Err(errno) => Err(AttributeError { path, cause: Cause::System(errno) }),
        }
    }

    /// Opens a directory below this one.
    ///
    /// # Errors
    /// The kernel's error, with the path.
    pub fn open_below(&self, name: impl AsRef<Path>) -> Result<Self, AttributeError> {
        let path = self.path.join(&name);
        read_log::note_directory(&path);
        match open_directory(self.file.as_fd(), name.as_ref()) {
            Ok(file) => Ok(Self { file, path }),
            Err(errno) => Err(AttributeError { path, cause: Cause::System(errno) }),
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of all entries except `.` and `..`, in natural order. Names that are not UTF-8 are left out: the kernel
    /// makes none.
    ///
    /// # Errors
    /// The kernel's error, with the path.
    pub fn names(&self) -> Result<Vec<String>, AttributeError> {
        let mut names = self.unsorted_names()?;
        names.sort_by(|left, right| natural(left, right));
        Ok(names)
    }

    /// [`Directory::names`] in the kernel's order.
    ///
    /// # Errors
    /// The kernel's error, with the path.
    pub fn unsorted_names(&self) -> Result<Vec<String>, AttributeError> {
        let listing = listing(&self.file).map_err(|errno| self.failure(errno))?;
        Ok(listing.into_iter().map(|(name, _)| name).collect())
    }

    /// [`Directory::names`] of a directory of links that are read next: a read log records the listing in place of each
    /// link.
    ///
    /// # Errors
    /// The kernel's error, with the path.
    pub fn names_of_links(&self) -> Result<Vec<String>, AttributeError> {
        let listing = listing(&self.file).map_err(|errno| self.failure(errno))?;
        read_log::note_links(&self.path, &listing);
        let mut names: Vec<String> = listing.into_iter().map(|(name, _)| name).collect();
        names.sort_by(|left, right| natural(left, right));
        Ok(names)
    }

    /// Reads an attribute in or below this directory.
    ///
    /// # Errors
    /// See [`Attribute::read_at`].
    pub fn attribute(&self, name: &str) -> Result<Attribute, AttributeError> {
        Attribute::read_at(&self.file, &self.path, name)
    }

    /// The target of a link in this directory, as written in the link.
    ///
    /// # Errors
    /// The kernel's error, with the path: `EINVAL` if it is not a link.
    pub fn link(&self, name: &str) -> Result<PathBuf, AttributeError> {
        read_log::note_link(&self.path.join(name));
        read_link(&self.file, Path::new(name)).map_err(|mut error| {
            error.path = self.path.join(name);
            error
        })
    }

    /// Whether an entry with this name exists in or below this directory.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        read_log::note_file(&self.path.join(name));
        rustix::fs::accessat(&self.file, name, Access::EXISTS, AtFlags::empty()).is_ok()
    }

    fn failure(&self, errno: Errno) -> AttributeError {
        AttributeError { path: self.path.clone(), cause: Cause::System(errno) }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The target of a link, as written in the link.
///
/// # Errors
/// The kernel's error, with the path: `EINVAL` if it is not a link.
pub fn link(path: &Path) -> Result<PathBuf, AttributeError> {
    read_log::note_link(path);
    read_link(CWD, path)
}

/// Whether a path exists; links are followed.
#[must_use]
pub fn exists(path: &Path) -> bool {
    read_log::note_file(path);
    rustix::fs::access(path, Access::EXISTS).is_ok()
}

fn read_link(below: impl AsFd, path: &Path) -> Result<PathBuf, AttributeError> {
    match rustix::fs::readlinkat(below, path, Vec::new()) {
        Ok(target) => Ok(PathBuf::from(OsString::from_vec(target.into_bytes()))),
        Err(errno) => Err(AttributeError { path: path.to_path_buf(), cause: Cause::System(errno) }),
    }
}

/// Whether a name is the prefix followed by decimal digits and nothing else.
#[must_use]
pub fn is_numbered(name: &str, prefix: &str) -> bool {
    let digits = name.strip_prefix(prefix).unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The path without `.` and `..`, resolved as text: correct for the kernel's own links, whose directories are not
/// links.
#[must_use]
pub fn normal(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// Buffer of getdents64: a directory with this much data is read in two calls.
const BUFFER: usize = 16 * 1024;

/// Names and inode numbers of all entries except `.` and `..`, in the kernel's order.
pub(super) type Listing = Vec<(String, u64)>;

pub(super) fn listing(open: impl AsFd) -> Result<Listing, Errno> {
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut entries = RawDir::new(open, &mut buffer);
    let mut listing = Listing::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        match entry.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => listing.push((name.to_owned(), entry.ino())),
        }
    }
    Ok(listing)
}

pub(super) fn open_directory(below: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::openat(&below, path, flags, Mode::empty())).map_err(noted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_in_natural_order_without_dots() {
        let root = tempfile::tempdir().unwrap();
        for number in [10, 9, 100] {
            std::fs::write(root.path().join(format!("entry{number}")), "").unwrap();
        }
        let directory = Directory::open(root.path()).unwrap();
        assert_eq!(directory.names().unwrap(), ["entry9", "entry10", "entry100"]);
    }

    #[test]
    fn a_directory_larger_than_the_buffer_is_listed_whole() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..1500 {
            std::fs::write(root.path().join(format!("a-rather-long-entry-name-{number}")), "").unwrap();
        }
        assert_eq!(Directory::open(root.path()).unwrap().names().unwrap().len(), 1500);
    }

    #[test]
    fn attributes_and_links_are_relative_to_it() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("card")).unwrap();
        std::fs::write(root.path().join("card/id"), "7\n").unwrap();
        std::os::unix::fs::symlink("../elsewhere", root.path().join("card/link")).unwrap();
        let card = Directory::open(root.path()).unwrap().open_below("card").unwrap();
        assert_eq!(card.attribute("id").unwrap().decimal(), Ok(7));
        assert_eq!(card.link("link").unwrap(), Path::new("../elsewhere"));
        assert_eq!(card.link("id").unwrap_err().cause, Cause::System(Errno::INVAL));
        assert!(card.has("id") && !card.has("link") && !card.has("missing"));
    }

    #[test]
    fn a_link_is_resolved_as_text() {
        assert_eq!(normal(Path::new("/h/sys/class/fpga/../../devices/./pci/x")), Path::new("/h/sys/devices/pci/x"));
        assert_eq!(normal(Path::new("/../a")), Path::new("/a"));
    }
}
