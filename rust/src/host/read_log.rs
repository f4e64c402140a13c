//! Records the files that some work reads, each with its state before: while all are unchanged, the work would return
//! the same.
//!
//! On sysfs the state of a directory stands for its attributes: a kernel object that is created again has another inode
//! number, which counts up (`idr_alloc_cyclic` in <https://github.com/torvalds/linux/blob/master/fs/kernfs/dir.c>), and
//! one that gains or loses a group or a child has another link count. A changed content of an attribute of the same
//! object is not noticed: callers must know which attributes change. The times of a sysfs directory say nothing, so a
//! directory whose links were listed is listed again: a link that is created again has another inode number.
//!
//! On other file systems, such as a simulated tree, each file is looked at by itself. A link cannot be changed, and an
//! absent file has no state: the state of its directory shows whether it was created or replaced.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use super::directory::{Listing, listing, open_directory};

/// Kernels before 6.13 give all changes within one tick, at most 10 ms, the same time.
const TICK: Duration = Duration::from_millis(20);

thread_local! {
    /// What this thread has read since recording began.
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// What is being read, with the state of each file before its first read.
struct Recording {
    is_sysfs: bool,
    began: SystemTime,
    looks: BTreeMap<(PathBuf, Follows), Seen>,
    listings: BTreeMap<PathBuf, Listing>,
}

/// What was read, with the state of each file.
#[derive(Debug)]
pub struct ReadLog {
    is_sysfs: bool,
    began: SystemTime,
    /// The directory that contains all of it: later checks start from there, which shortens their paths.
    within: PathBuf,
    looks: Vec<(PathBuf, Follows, Seen)>,
    listings: Vec<(PathBuf, Listing)>,
}

/// Whether the target of a link is meant, not the link itself.
type Follows = bool;

type Seen = Result<FileState, Errno>;

/// The state of a file, without reading it.
#[derive(Debug, PartialEq, Eq)]
struct FileState {
    file: (u64, u64),
    links: u64,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

/// Runs `work`, and records what this thread reads through `attribute` and `directory`.
pub fn recorded<R>(is_sysfs: bool, work: impl FnOnce() -> R) -> (R, ReadLog) {
    let nothing =
        || Recording { is_sysfs, began: SystemTime::now(), looks: BTreeMap::new(), listings: BTreeMap::new() };
    RECORDING.set(Some(nothing()));
    let _ends = EndRecording;
    let result = work();
    (result, RECORDING.take().unwrap_or_else(nothing).into())
}

/// Runs `work` without recording: its reads are for all threads, and the recorded work does not depend on them.
pub fn unrecorded<R>(work: impl FnOnce() -> R) -> R {
    struct Resume(Option<Recording>);
    impl Drop for Resume {
        fn drop(&mut self) {
            RECORDING.set(self.0.take());
        }
    }
    let _resume = Resume(RECORDING.take());
    work()
}

/// Whether this thread records what it reads: it must then read for itself, not reuse what others have read.
#[must_use]
pub fn is_recording() -> bool {
    RECORDING.with_borrow(Option::is_some)
}

/// Ends the recording also if the work panics: the thread goes on with other work.
struct EndRecording;

impl Drop for EndRecording {
    fn drop(&mut self) {
        RECORDING.set(None);
    }
}

/// Called before a file is read or looked for.
pub(super) fn note_file(path: &Path) {
    #[cfg(test)]
    counting::count(path);
    note(|notes| match path.parent() {
        Some(directory) if notes.is_sysfs => notes.look_at(directory, true),
        _ => notes.look_at_or_above(path),
    });
}

/// Called before a directory is opened.
pub(super) fn note_directory(path: &Path) {
    #[cfg(test)]
    counting::count(path);
    note(|notes| if notes.is_sysfs { notes.look_at(path, true) } else { notes.look_at_or_above(path) });
}

/// Called before a link is read.
pub(super) fn note_link(path: &Path) {
    #[cfg(test)]
    counting::count(path);
    note(|notes| match path.parent() {
        Some(directory) if !notes.is_sysfs => notes.look_at_or_above(directory),
        Some(directory) if notes.listings.contains_key(directory) => {}
        _ => notes.look_at(path, false),
    });
}

/// Called after a directory of links was listed, before they are read.
pub(super) fn note_links(directory: &Path, listed: &Listing) {
    note(|notes| {
        if notes.is_sysfs {
            notes.listings.entry(directory.to_path_buf()).or_insert_with(|| listed.clone());
        }
    });
}

fn note(work: impl FnOnce(&mut Recording)) {
    RECORDING.with_borrow_mut(|notes| notes.as_mut().map(work));
}

impl Recording {
    fn look_at(&mut self, path: &Path, follows: Follows) {
        let key = (path.to_path_buf(), follows);
        self.looks.entry(key).or_insert_with(|| look_at(CWD, path, follows));
    }

    /// Records the state of a path, or of the lowest existing directory above it.
    fn look_at_or_above(&mut self, path: &Path) {
        for path in path.ancestors() {
            let key = (path.to_path_buf(), true);
            if self.looks.contains_key(&key) {
                return;
            }
            let look = look_at(CWD, path, true);
            if look != Err(Errno::NOENT) {
                self.looks.insert(key, look);
                return;
            }
        }
    }
}

impl From<Recording> for ReadLog {
    fn from(notes: Recording) -> Self {
        let within = directory_of_all(notes.looks.keys().map(|(path, _)| path.as_path()));
        let below = |path: PathBuf| path.strip_prefix(&within).map(Path::to_path_buf).unwrap_or(path);
        let looks = notes.looks.into_iter().map(|((path, follows), look)| (below(path), follows, look)).collect();
        Self {
            is_sysfs: notes.is_sysfs,
            began: notes.began,
            within,
            looks,
            listings: notes.listings.into_iter().collect(),
        }
    }
}

/// The lowest directory that holds all these paths, which are in order; it may be one of them.
fn directory_of_all<'p>(mut paths: impl DoubleEndedIterator<Item = &'p Path>) -> PathBuf {
    let last = paths.next_back().map_or(Path::new("/"), |path| path.parent().unwrap_or(path));
    let common = |so_far: &'p Path, path: &'p Path| {
        so_far.ancestors().find(|above| path.starts_with(above)).unwrap_or(Path::new("/"))
    };
    paths.fold(last, common).to_path_buf()
}

impl ReadLog {
    /// Whether the states show changes of contents, too: on sysfs they do not.
    #[must_use]
    pub fn covers_contents(&self) -> bool {
        !self.is_sysfs
    }

    /// Whether a later change would show: every file could be looked at, and none had changed just before.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let before = self.began.checked_sub(TICK).and_then(|before| before.duration_since(UNIX_EPOCH).ok());
        let Some(before) = before else { return false };
        let before = (i64::try_from(before.as_secs()).unwrap_or(i64::MAX), u64::from(before.subsec_nanos()));
        self.looks.iter().all(|(_, _, look)| match look {
            Ok(look) => look.changed < before,
            Err(errno) => matches!(*errno, Errno::NOENT | Errno::NOTDIR),
        })
    }

    /// Whether everything is unchanged.
    #[must_use]
    pub fn still_holds(&self) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(within) = openat(CWD, &self.within, flags, Mode::empty()) else { return false };
        let list = |path: &Path| open_directory(CWD, path).and_then(listing);
        self.looks.iter().all(|(path, follows, look)| look_at(&within, path, *follows) == *look)
            && self.listings.iter().all(|(path, before)| list(path).is_ok_and(|now| now == *before))
    }
}

/// The state of a path, or of `below` itself if the path is empty.
fn look_at(below: impl AsFd, path: &Path, follows: Follows) -> Seen {
    let links = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let itself = if path.as_os_str().is_empty() { AtFlags::EMPTY_PATH } else { AtFlags::empty() };
    let found = statat(below, path, links | itself)?;
    let links = found.st_nlink;
    #[allow(clippy::useless_conversion, reason = "it is a smaller number on other architectures")]
    let links = links.into();
    Ok(FileState {
        file: (found.st_dev, found.st_ino),
        links,
        size: found.st_size,
        modified: (found.st_mtime, found.st_mtime_nsec),
        changed: (found.st_ctime, found.st_ctime_nsec),
    })
}

/// Counts what all threads read below one directory, for tests of how much a scan reads.
#[cfg(test)]
pub mod counting {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;

    static COUNTED: Mutex<Vec<(PathBuf, BTreeMap<PathBuf, usize>)>> = Mutex::new(Vec::new());

    /// How often `work` reads each file, link and directory below `root`; whatever link leads there.
    ///
    /// # Panics
    /// If it is called for the same root at the same time.
    pub fn counted(root: &Path, work: impl FnOnce()) -> BTreeMap<PathBuf, usize> {
        COUNTED.lock().unwrap().push((root.to_path_buf(), BTreeMap::new()));
        work();
        let mut all = COUNTED.lock().unwrap();
        let place = all.iter().position(|(own, _)| own == root).unwrap();
        all.remove(place).1
    }

    pub(super) fn count(path: &Path) {
        let mut all = COUNTED.lock().unwrap();
        if let Some((_, counts)) = all.iter_mut().find(|(root, _)| path.starts_with(root)) {
            let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
            let path =
                parent.zip(path.file_name()).map_or_else(|| path.to_path_buf(), |(parent, name)| parent.join(name));
            *counts.entry(path).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, remove_file, rename, write};
    use std::os::unix::fs::symlink;
    use std::thread::sleep;

    use super::*;
    use crate::host::attribute::Attribute;
    use crate::host::directory::{self, Directory};

    /// A directory with a file, a link and a directory, and the log of reading all of it and something absent.
    fn read(is_sysfs: bool) -> (tempfile::TempDir, ReadLog) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        write(path.join("file"), "1").unwrap();
        symlink("file", path.join("link")).unwrap();
        create_dir(path.join("below")).unwrap();
        sleep(TICK * 2);
        let (text, reads) = recorded(is_sysfs, || {
            let open = Directory::open(path).unwrap();
            assert!(Attribute::read(path.join("absent")).is_err() && directory::link(&path.join("link")).is_ok());
            (open.open_below("below").unwrap().names().unwrap(), open.attribute("file").unwrap().text().to_owned())
        });
        assert_eq!(text, (vec![], "1".to_owned()));
        (root, reads)
    }

    #[test]
    fn after_work_that_panics_a_thread_notes_nothing() {
        let panicked = std::panic::catch_unwind(|| recorded(false, || panic!("as the work of a card may")).0);
        assert!(panicked.is_err());
        assert!(RECORDING.with_borrow(Option::is_none));
    }

    #[test]
    fn whatever_happens_to_what_was_read_shows() {
        let changes: [fn(&Path); 7] = [
            |root| write(root.join("file"), "2").unwrap(),
            |root| remove_file(root.join("file")).unwrap(),
            |root| {
                write(root.join("new"), "1").unwrap();
                rename(root.join("new"), root.join("file")).unwrap();
            },
            |root| write(root.join("absent"), "").unwrap(),
            |root| write(root.join("below/entry"), "").unwrap(),
            |root| {
                remove_file(root.join("link")).unwrap();
                symlink("file", root.join("link")).unwrap();
            },
            |root| create_dir(root.join("another")).unwrap(),
        ];
        for change in changes {
            let (root, reads) = read(false);
            assert!(reads.is_settled() && reads.still_holds());
            change(root.path());
            assert!(!reads.still_holds());
        }
    }

    #[test]
    fn of_sysfs_the_directory_stands_for_its_attributes() {
        let (root, reads) = read(true);
        assert!(reads.still_holds());
        write(root.path().join("file"), "2").unwrap();
        assert!(reads.still_holds(), "the same object");
        create_dir(root.path().join("group")).unwrap();
        assert!(!reads.still_holds(), "another group of attributes");
    }

    #[test]
    fn of_sysfs_a_directory_of_links_is_listed_again() {
        let root = tempfile::tempdir().unwrap();
        let link = |name: &str| symlink("../devices/card", root.path().join(name)).unwrap();
        link("region0");
        let ((), reads) = recorded(true, || {
            let open = Directory::open(root.path()).unwrap();
            assert_eq!(open.names_of_links().unwrap(), ["region0"]);
            assert_eq!(open.link("region0").unwrap(), Path::new("../devices/card"));
        });
        assert!(reads.still_holds() && reads.looks.len() == 1, "the link has no look of its own");
        link("region1");
        assert!(!reads.still_holds());
        rename(root.path().join("region1"), root.path().join("region0")).unwrap();
        assert!(!reads.still_holds(), "another link of the same name");
    }

    #[test]
    fn what_the_kernels_own_sysfs_says_of_a_class_holds_still() {
        let class = Path::new("/sys/class/mem");
        let ((), reads) = recorded(true, || {
            let open = Directory::open(class).unwrap();
            for name in open.names_of_links().unwrap() {
                open.link(&name).unwrap();
            }
        });
        assert!(reads.still_holds() && !reads.listings[0].1.is_empty());
    }

    #[test]
    fn what_is_read_for_all_is_not_recorded_and_the_rest_is() {
        let (root, _) = read(false);
        let look = |name: &str| Attribute::read(root.path().join(name)).is_ok();
        let ((), reads) = recorded(false, || assert!(look("file") && !unrecorded(|| look("below/absent"))));
        write(root.path().join("below/absent"), "").unwrap();
        assert!(reads.still_holds());
        write(root.path().join("file"), "2").unwrap();
        assert!(!reads.still_holds());
    }

    #[test]
    fn what_has_just_changed_may_change_again_unseen() {
        let root = tempfile::tempdir().unwrap();
        write(root.path().join("file"), "1").unwrap();
        let ((), reads) = recorded(false, || note_file(&root.path().join("file")));
        assert!(!reads.is_settled());
    }

    #[test]
    fn nothing_is_noted_of_what_other_work_reads() {
        let (root, _) = read(false);
        let ((), reads) = recorded(false, || {});
        assert!(Attribute::read(root.path().join("file")).is_ok());
        assert!(reads.looks.is_empty() && RECORDING.with_borrow(Option::is_none));
    }

    #[test]
    fn what_is_looked_at_again_is_looked_for_from_the_directory_that_all_of_it_is_in() {
        for (paths, expected) in [
            (&["/sys/a/b/c", "/sys/a/b/d/e"][..], "/sys/a/b"),
            (&["/sys/a/b", "/sys/a/b/c", "/sys/a/b/c/d"], "/sys/a/b"),
            (&["/sys/a/b", "/sys/a/bc"], "/sys/a"),
            (&["/sys/a/b", "/sys/a/b"], "/sys/a"),
            (&["/dev/a", "/sys/a"], "/"),
            (&["/"], "/"),
            (&[], "/"),
        ] {
            assert_eq!(directory_of_all(paths.iter().map(Path::new)), Path::new(expected), "{paths:?}");
        }
    }

    #[test]
    fn a_directory_that_is_another_one_by_now_shows() {
        let (root, reads) = read(false);
        let moved = root.path().with_extension("moved");
        rename(root.path(), &moved).unwrap();
        assert!(!reads.still_holds());
        rename(&moved, root.path()).unwrap();
    }
}
