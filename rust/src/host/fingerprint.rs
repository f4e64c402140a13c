//! A fingerprint of directories in memory, taken in a few system calls that cannot hang: it tells whether an earlier
//! full look at them is still valid.

use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;

use super::directory::entries;
use super::mounts::Mounts;

/// Entries of directories. Equal fingerprints mean the same files: see [`Mounts::answers_from_memory`] about inode
/// numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(Vec<Entry>);

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// The caller's number for the query that the entry answers: one file may answer several.
    question: usize,
    name: Box<str>,
    inode: u64,
    kind: FileType,
}

/// No fingerprint: the path is not in memory, behind a link, or cannot be listed.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown;

impl Fingerprint {
    /// Adds the entries of a directory, given by its full path, whose names fit. A directory that does not exist has
    /// none.
    ///
    /// # Errors
    /// If the directory is not in memory or cannot be listed, or if it or a fitting entry is a link.
    pub fn add_directory(
        &mut self,
        question: usize,
        mounts: &Mounts,
        directory: &Path,
        fits: impl Fn(&str) -> bool,
    ) -> Result<(), Unknown> {
        let Some(open) = open(mounts, directory)? else { return Ok(()) };
        let mut is_known = true;
        let listed = entries(&open, |name, inode, kind| {
            if fits(name) {
                is_known &= is_itself(kind);
                self.0.push(Entry { question, name: name.into(), inode, kind });
            }
        });
        if is_known && listed.is_ok() { Ok(()) } else { Err(Unknown) }
    }

    /// Adds one entry of a directory; nothing if it does not exist.
    ///
    /// # Errors
    /// As [`Fingerprint::add_directory`].
    pub fn add_entry(&mut self, question: usize, mounts: &Mounts, directory: &Path, name: &str) -> Result<(), Unknown> {
        if !mounts.answers_from_memory(&directory.join(name)) {
            return Err(Unknown);
        }
        let Some(open) = open(mounts, directory)? else { return Ok(()) };
        match statat(&open, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT) {
            Ok(found) => {
                let kind = FileType::from_raw_mode(found.st_mode);
                self.0.push(Entry { question, name: name.into(), inode: found.st_ino, kind });
                if is_itself(kind) { Ok(()) } else { Err(Unknown) }
            }
            Err(Errno::NOENT) => Ok(()),
            Err(_) => Err(Unknown),
        }
    }
}

/// Whether the entry is not a link.
fn is_itself(kind: FileType) -> bool {
    !matches!(kind, FileType::Symlink | FileType::Unknown)
}

/// `None` if the directory does not exist. Links in the path are refused: the table of mounts would be asked about
/// another path, and a link might lead out of the host's root.
fn open(mounts: &Mounts, directory: &Path) -> Result<Option<OwnedFd>, Unknown> {
    if !mounts.answers_from_memory(directory) {
        return Err(Unknown);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(open) => Ok(Some(open)),
        Err(Errno::NOENT) => Ok(None),
        Err(_) => Err(Unknown),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, remove_file, rename, write};
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// A directory in memory with a, b and c; `None` if this machine has none.
    fn memory() -> Option<(TempDir, Mounts)> {
        let mounts = Mounts::open().unwrap();
        let directory = tempfile::tempdir_in("/dev/shm").ok().filter(|made| mounts.answers_from_memory(made.path()));
        let Some(directory) = directory else {
            assert!(std::env::var_os("CI").is_none(), "NOT TESTED: /dev/shm is not in memory");
            return None;
        };
        for name in ["a", "b", "c"] {
            write(directory.path().join(name), "").unwrap();
        }
        Some((directory, mounts))
    }

    fn listed(mounts: &Mounts, directory: &Path) -> Result<Fingerprint, Unknown> {
        let mut fingerprint = Fingerprint::default();
        fingerprint.add_directory(0, mounts, directory, |name| name != "other").map(|()| fingerprint)
    }

    fn looked(mounts: &Mounts, directory: &Path, name: &str) -> Result<Fingerprint, Unknown> {
        let mut fingerprint = Fingerprint::default();
        fingerprint.add_entry(0, mounts, directory, name).map(|()| fingerprint)
    }

    #[test]
    fn what_holds_still_looks_the_same() {
        let Some((directory, mounts)) = memory() else { return };
        let before = listed(&mounts, directory.path());
        assert!(before.is_ok());
        write(directory.path().join("other"), "").unwrap();
        assert_eq!(listed(&mounts, directory.path()), before);
        assert_eq!(looked(&mounts, directory.path(), "a"), looked(&mounts, directory.path(), "a"));
    }

    #[test]
    fn an_entry_that_comes_goes_or_is_created_again_changes_the_fingerprint() {
        let Some((directory, mounts)) = memory() else { return };
        let changes: [fn(&Path); 4] = [
            |root| write(root.join("d"), "").unwrap(),
            |root| remove_file(root.join("a")).unwrap(),
            |root| {
                remove_file(root.join("b")).unwrap();
                write(root.join("b"), "").unwrap();
            },
            |root| rename(root.join("c"), root.join("b")).unwrap(),
        ];
        for change in changes {
            let before = (listed(&mounts, directory.path()), looked(&mounts, directory.path(), "b"));
            change(directory.path());
            assert_ne!(listed(&mounts, directory.path()), before.0);
        }
        assert_ne!(looked(&mounts, directory.path(), "b"), looked(&mounts, directory.path(), "a"));
    }

    #[test]
    fn a_link_in_it_or_on_the_way_to_it_tells_nothing() {
        let Some((directory, mounts)) = memory() else { return };
        let root = directory.path();
        create_dir(root.join("below")).unwrap();
        symlink("below", root.join("link")).unwrap();
        assert_eq!(listed(&mounts, root), Err(Unknown));
        assert_eq!(listed(&mounts, &root.join("link")), Err(Unknown));
        assert_eq!(looked(&mounts, root, "link"), Err(Unknown));
        assert_eq!(looked(&mounts, &root.join("link"), "x"), Err(Unknown));
        assert_eq!(listed(&mounts, &root.join("below")), Ok(Fingerprint::default()));
    }

    #[test]
    fn an_absent_path_has_a_fingerprint_and_one_on_a_disk_or_elsewhere_has_none() {
        let Some((directory, mounts)) = memory() else { return };
        let missing = directory.path().join("missing");
        assert_eq!(listed(&mounts, &missing), Ok(Fingerprint::default()));
        assert_eq!(looked(&mounts, &missing, "x"), Ok(Fingerprint::default()));
        assert_eq!(looked(&mounts, directory.path(), "missing"), Ok(Fingerprint::default()));
        assert_eq!(listed(&mounts, &directory.path().join("a")), Err(Unknown), "a file is no directory");
        assert_eq!(listed(&mounts, Path::new("/proc/self")), Err(Unknown));
        assert_eq!(listed(&mounts, Path::new("/")), Err(Unknown));
    }
}
