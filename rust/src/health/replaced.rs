//! Whether open files of a tree may have been replaced by others, as a simulated node's may: asked of the directories
//! that they are in, not of each file at each read.
//!
//! Not of the time of a directory: two changes within a tick of the clock, or within two seconds on some file systems,
//! look like one. inotify(7) queues a change before the call that makes it has returned.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::{Errno, read};

/// The watched directories of open files.
#[derive(Debug, Default)]
pub struct Replaced {
    /// Unset while nothing is watched: a user has only 128 instances (`fs.inotify.max_user_instances`).
    inotify: OnceLock<OwnedFd>,
    /// Whether a directory could not be watched.
    is_blind: AtomicBool,
    changes: AtomicU64,
}

impl Replaced {
    /// Watches directories from now on, if the kernel allows it.
    pub(super) fn start(&self) {
        if self.inotify.get().is_none() {
            if let Ok(inotify) = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC) {
                self.inotify.get_or_init(|| inotify);
                self.changes.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Takes in the changes so far.
    pub(super) fn look(&self) {
        let Some(inotify) = self.inotify.get() else { return };
        let mut events = [MaybeUninit::uninit(); 4096];
        while read(inotify, &mut events[..]).is_ok_and(|(events, _)| !events.is_empty()) {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A number that is another one if a file in a watched directory may have been replaced since: at each call, where
    /// that is not known.
    pub(super) fn changes(&self) -> u64 {
        if self.inotify.get().is_none() || self.is_blind.load(Ordering::Relaxed) {
            return self.changes.fetch_add(1, Ordering::Relaxed);
        }
        self.changes.load(Ordering::Relaxed)
    }

    /// Watches the directory of a file that is going to be opened or checked.
    pub(super) fn watch(&self, file: &Path) {
        let come_and_go = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let (Some(inotify), Some(directory)) = (self.inotify.get(), file.parent()) else { return };
        match inotify::add_watch(inotify, directory, come_and_go) {
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(_) => self.is_blind.store(true, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, remove_dir_all, rename, write};

    use super::*;

    /// Whether `change` is noticed, and that nothing is before and after it.
    fn is_noticed(replaced: &Replaced, change: impl FnOnce()) -> bool {
        let number = || {
            replaced.look();
            replaced.changes()
        };
        let before = number();
        assert_eq!(number(), before);
        change();
        let after = number();
        assert_eq!(number(), after);
        before != after
    }

    #[test]
    fn a_directory_tells_of_every_file_that_comes_or_goes_and_of_no_write() {
        let root = tempfile::tempdir().unwrap();
        let errors = root.path().join("errors");
        let (register, beside) = (errors.join("nonfatal_errors"), errors.join("new"));
        create_dir(&errors).unwrap();
        write(&register, "0x0").unwrap();
        let replaced = Replaced::default();
        replaced.start();
        replaced.watch(&register);
        assert!(!is_noticed(&replaced, || write(&register, "0x1").unwrap()));
        // As often as possible: no clock is asked.
        for _ in 0..1000 {
            write(&beside, "0x2").unwrap();
            replaced.look();
            assert!(is_noticed(&replaced, || rename(&beside, &register).unwrap()));
        }
        assert!(is_noticed(&replaced, || remove_dir_all(&errors).unwrap()));
        create_dir(&errors).unwrap();
        assert!(!is_noticed(&replaced, || write(&register, "0x0").unwrap()), "another directory than the watched one");
        replaced.watch(&register);
        assert!(is_noticed(&replaced, || std::fs::remove_file(&register).unwrap()));
    }

    #[test]
    fn what_is_not_watched_may_have_been_replaced_at_any_time() {
        let root = tempfile::tempdir().unwrap();
        let is_unknown = |replaced: &Replaced| replaced.changes() != replaced.changes();
        let replaced = Replaced::default();
        replaced.watch(&root.path().join("register"));
        assert!(is_unknown(&replaced), "nothing is watched yet");
        replaced.start();
        replaced.watch(&root.path().join("register"));
        replaced.watch(&root.path().join("absent/register"));
        assert!(!is_unknown(&replaced));
        replaced.watch(Path::new(&format!("/{}/register", "x".repeat(300))));
        assert!(is_unknown(&replaced), "a directory cannot be watched");
    }
}
