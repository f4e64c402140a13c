//! What a directory in memory has in it, told in five system calls, none of which can hang: whether an earlier, closer look
//! still holds.

use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;

use crate::host::listing::entries;
use crate::host::mounts::Mounts;

/// What was seen. Equal sights mean the same files: see [`Mounts::answers_from_memory`] for their numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sight(Vec<Entry>);

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// Which of the questions it answers: the same file may answer several.
    question: usize,
    name: Box<str>,
    inode: u64,
    kind: FileType,
}

/// What is no answer: somewhere else, behind a link, or not to be looked at.
#[derive(Debug, PartialEq, Eq)]
pub struct Untold;

impl Sight {
    /// Adds the entries of a directory, by its whole path, whose names fit. One that does not exist has none.
    ///
    /// # Errors
    /// When it is not in memory, it or an entry that fits is a link, or it cannot be listed.
    pub fn of_directory(
        &mut self,
        question: usize,
        mounts: &Mounts,
        directory: &Path,
        fits: impl Fn(&str) -> bool,
    ) -> Result<(), Untold> {
        let Some(open) = open(mounts, directory)? else { return Ok(()) };
        let mut is_told = true;
        let listed = entries(&open, |name, inode, kind| {
            if fits(name) {
                is_told &= is_itself(kind);
                self.0.push(Entry { question, name: name.into(), inode, kind });
            }
        });
        if is_told && listed.is_ok() { Ok(()) } else { Err(Untold) }
    }

    /// Adds one entry of a directory, or that there is none.
    ///
    /// # Errors
    /// As [`Sight::of_directory`].
    pub fn of_entry(&mut self, question: usize, mounts: &Mounts, directory: &Path, name: &str) -> Result<(), Untold> {
        if !mounts.answers_from_memory(&directory.join(name)) {
            return Err(Untold);
        }
        let Some(open) = open(mounts, directory)? else { return Ok(()) };
        match statat(&open, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT) {
            Ok(found) => {
                let kind = FileType::from_raw_mode(found.st_mode);
                self.0.push(Entry { question, name: name.into(), inode: found.st_ino, kind });
                if is_itself(kind) { Ok(()) } else { Err(Untold) }
            }
            Err(Errno::NOENT) => Ok(()),
            Err(_) => Err(Untold),
        }
    }
}

/// Whether it is what it is, and not what a link leads to.
fn is_itself(kind: FileType) -> bool {
    !matches!(kind, FileType::Symlink | FileType::Unknown)
}

/// `None` where there is nothing. A link on the way is refused: the path is then no longer what the table of mounts is asked
/// about, and it might lead out of the host's root.
fn open(mounts: &Mounts, directory: &Path) -> Result<Option<OwnedFd>, Untold> {
    if !mounts.answers_from_memory(directory) {
        return Err(Untold);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(open) => Ok(Some(open)),
        Err(Errno::NOENT) => Ok(None),
        Err(_) => Err(Untold),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, remove_file, rename, write};
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// A directory in memory with a, b and c, or `None` where this machine has none.
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

    fn listed(mounts: &Mounts, directory: &Path) -> Result<Sight, Untold> {
        let mut sight = Sight::default();
        sight.of_directory(0, mounts, directory, |name| name != "other").map(|()| sight)
    }

    fn looked(mounts: &Mounts, directory: &Path, name: &str) -> Result<Sight, Untold> {
        let mut sight = Sight::default();
        sight.of_entry(0, mounts, directory, name).map(|()| sight)
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
    fn what_comes_goes_or_is_made_anew_looks_different() {
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
        assert_eq!(listed(&mounts, root), Err(Untold));
        assert_eq!(listed(&mounts, &root.join("link")), Err(Untold));
        assert_eq!(looked(&mounts, root, "link"), Err(Untold));
        assert_eq!(looked(&mounts, &root.join("link"), "x"), Err(Untold));
        assert_eq!(listed(&mounts, &root.join("below")), Ok(Sight::default()));
    }

    #[test]
    fn what_is_absent_is_told_and_what_is_on_a_disk_or_elsewhere_is_not() {
        let Some((directory, mounts)) = memory() else { return };
        let missing = directory.path().join("missing");
        assert_eq!(listed(&mounts, &missing), Ok(Sight::default()));
        assert_eq!(looked(&mounts, &missing, "x"), Ok(Sight::default()));
        assert_eq!(looked(&mounts, directory.path(), "missing"), Ok(Sight::default()));
        assert_eq!(listed(&mounts, &directory.path().join("a")), Err(Untold), "a file is no directory");
        assert_eq!(listed(&mounts, Path::new("/proc/self")), Err(Untold));
        assert_eq!(listed(&mounts, Path::new("/")), Err(Untold));
    }
}
