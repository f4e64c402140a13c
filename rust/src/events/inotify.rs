//! Watches on directories whose entries are created and removed:
//! <https://man7.org/linux/man-pages/man7/inotify.7.html>.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::FileType;
use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, WatchFlags};
use rustix::io::Errno;

/// Most changes that one call reads, equal to the kernel's default queue (`fs.inotify.max_queued_events`): a busy
/// writer must not keep [`DirectoryWatch::drain`] from returning. The descriptor stays readable while changes are left.
const MOST_CHANGES: usize = 16_384;

/// One inotify instance and the directories that it watches. Closed when dropped.
#[derive(Debug)]
pub struct DirectoryWatch {
    inotify: OwnedFd,
    /// The watched paths by watch: two paths to one directory (a symlink, a bind mount) share a watch.
    directories: HashMap<i32, Vec<String>>,
}

impl DirectoryWatch {
    /// An instance that watches nothing yet.
    ///
    /// # Errors
    /// `EMFILE` when the user has reached `fs.inotify.max_user_instances`.
    pub fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self { inotify, directories: HashMap::new() })
    }

    /// Watches one more directory. List the directory afterwards: earlier changes are not reported.
    ///
    /// Adding a path again has no effect, unless the path now leads to another directory: then the watch moves there.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR` or `EACCES` for the path; `ENOSPC` when the user has reached `fs.inotify.max_user_watches`.
    pub fn add(&mut self, directory: &Path) -> io::Result<()> {
        // MASK_ADD keeps the mask of a watch from which `hush` has removed events.
        let watch = inotify::add_watch(&self.inotify, directory, come_and_go() | WatchFlags::MASK_ADD)?;
        if !self.directories.contains_key(&watch) {
            inotify::add_watch(&self.inotify, directory, come_and_go() | WatchFlags::CLOSE_WRITE)?;
        }
        self.name(directory, watch);
        Ok(())
    }

    /// Watches a file, or a directory without its entries. If the entries were watched before, they are no longer
    /// reported.
    ///
    /// # Errors
    /// As for `add`, but the path may be a file.
    pub fn add_itself(&mut self, path: &Path) -> io::Result<()> {
        let watch = inotify::add_watch(&self.inotify, path, come_and_go_itself())?;
        self.name(path, watch);
        Ok(())
    }

    /// The changes since the last call as (directory, entry name), without waiting for new ones.
    ///
    /// Reports entries that were created, renamed in or away, deleted, closed after writing, or changed in their
    /// attributes. Writes to device nodes are not reported, because they are normal use. An empty entry name stands for
    /// the added path itself: its attributes changed, or it is gone and must be added again. If the kernel's queue
    /// overflowed, both strings are empty: anything may have changed.
    ///
    /// # Errors
    /// Errors of `read`.
    pub fn drain(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut changes = Vec::new();
        while changes.len() < MOST_CHANGES || !reader.is_buffer_empty() {
            match reader.next() {
                Ok(event) => note(&event, &self.inotify, &mut self.directories, &mut changes),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(changes)
    }

    /// Assigns this path to a watch: events of the watch are reported under the path.
    fn name(&mut self, path: &Path, watch: i32) {
        let name = path.to_string_lossy().into_owned();
        self.forget(&name, watch);
        let names = self.directories.entry(watch).or_default();
        if !names.contains(&name) {
            names.push(name);
        }
    }

    /// Removes the name from every watch except `but`, and ends watches that have no name left.
    fn forget(&mut self, name: &str, but: i32) {
        let inotify = &self.inotify;
        self.directories.retain(|&watch, names| {
            if watch != but {
                names.retain(|other| other != name);
            }
            if names.is_empty() {
                end(inotify, watch);
            }
            !names.is_empty()
        });
    }
}

impl AsFd for DirectoryWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl AsRawFd for DirectoryWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.inotify.as_raw_fd()
    }
}

fn come_and_go() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::ONLYDIR
        | come_and_go_itself()
}

/// Events that show the removal of a file. Removal changes the number of links, which is an attribute; the file itself
/// exists as long as a process has it open.
fn come_and_go_itself() -> WatchFlags {
    WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF
}

/// Adds an event to the changes. One write causes several events with the same name; they are reported once.
fn note(
    event: &Event<'_>,
    inotify: &OwnedFd,
    directories: &mut HashMap<i32, Vec<String>>,
    changes: &mut Vec<(String, String)>,
) {
    let mut report = |directory: &str, entry: &str| {
        if !changes.last().is_some_and(|(last, name)| last == directory && name == entry) {
            changes.push((directory.to_owned(), entry.to_owned()));
        }
    };
    if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
        return report("", "");
    }
    let entry = event.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    for directory in directories.get(&event.wd()).into_iter().flatten() {
        if event.events() == ReadFlags::CLOSE_WRITE && is_device_node(&Path::new(directory).join(&entry)) {
            return hush(inotify, directory);
        }
        report(directory, &entry);
    }
    if event.events().contains(ReadFlags::MOVE_SELF) {
        // Otherwise the watch would follow the directory to its new place and report changes there under the old name.
        end(inotify, event.wd());
    }
    if event.events().intersects(ReadFlags::IGNORED | ReadFlags::MOVE_SELF) {
        directories.remove(&event.wd());
    }
}

fn is_device_node(path: &Path) -> bool {
    let kind = rustix::fs::stat(path).map(|found| FileType::from_raw_mode(found.st_mode));
    matches!(kind, Ok(FileType::CharacterDevice | FileType::BlockDevice))
}

/// Stops watching for writes: in /dev every use of /dev/null is a write, several hundred per second on a busy host.
fn hush(inotify: &OwnedFd, directory: &str) {
    // If this fails, the directory is no longer watched, so there is nothing left to stop.
    let _ = inotify::add_watch(inotify, directory, come_and_go());
}

/// Ends a watch. Also succeeds if the kernel has already ended it because the directory is gone.
fn end(inotify: &OwnedFd, watch: i32) {
    let _ = inotify::remove_watch(inotify, watch);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn watching(directory: &Path) -> DirectoryWatch {
        let mut watch = DirectoryWatch::new().unwrap();
        watch.add(directory).unwrap();
        watch
    }

    fn entries(watch: &mut DirectoryWatch) -> Vec<String> {
        watch.drain().unwrap().into_iter().map(|(_, entry)| entry).collect()
    }

    #[test]
    fn nothing_happened_is_an_empty_answer_at_once() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(watching(directory.path()).drain().unwrap(), []);
    }

    #[test]
    fn a_written_renamed_and_removed_entry_is_reported_with_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let mut watch = watching(directory.path());
        let name = directory.path().to_string_lossy().into_owned();

        fs::write(directory.path().join(".new"), "x").unwrap();
        assert_eq!(watch.drain().unwrap(), [(name.clone(), ".new".into())]);
        fs::rename(directory.path().join(".new"), directory.path().join("kept")).unwrap();
        assert_eq!(watch.drain().unwrap(), [(name.clone(), ".new".into()), (name.clone(), "kept".into())]);
        fs::remove_file(directory.path().join("kept")).unwrap();
        assert_eq!(watch.drain().unwrap(), [(name, "kept".into())]);
    }

    #[test]
    fn adding_twice_tells_a_change_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut watch = watching(directory.path());
        watch.add(directory.path()).unwrap();
        fs::create_dir(directory.path().join("port.0")).unwrap();
        assert_eq!(entries(&mut watch), ["port.0"]);
    }

    #[test]
    fn a_directory_removed_and_made_again_can_be_added_again() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("device-plugins");
        fs::create_dir(&directory).unwrap();
        let mut watch = watching(&directory);

        fs::remove_dir(&directory).unwrap();
        assert_eq!(entries(&mut watch), [""]);
        assert_eq!(watch.add(&directory).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir(&directory).unwrap();
        watch.add(&directory).unwrap();
        fs::write(directory.join("kubelet.sock"), "").unwrap();
        assert_eq!(entries(&mut watch), ["kubelet.sock"]);
    }

    #[test]
    fn a_directory_made_again_before_its_end_was_read_is_watched_alone() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("resources");
        fs::create_dir(&directory).unwrap();
        let mut watch = watching(&directory);

        fs::rename(&directory, parent.path().join("old")).unwrap();
        fs::create_dir(&directory).unwrap();
        watch.add(&directory).unwrap();
        watch.drain().unwrap();
        fs::write(parent.path().join("old/stale"), "").unwrap();
        fs::write(directory.join("fresh"), "").unwrap();
        assert_eq!(entries(&mut watch), ["fresh"]);
    }

    #[test]
    fn a_directory_renamed_away_is_reported_and_no_longer_watched() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("resources");
        fs::create_dir(&directory).unwrap();
        let mut watch = watching(&directory);

        fs::rename(&directory, parent.path().join("old")).unwrap();
        assert_eq!(entries(&mut watch), [""]);
        fs::write(parent.path().join("old/stale"), "").unwrap();
        assert_eq!(watch.drain().unwrap(), []);
    }

    #[test]
    fn two_paths_to_one_directory_are_both_reported() {
        let parent = tempfile::tempdir().unwrap();
        let (directory, link) = (parent.path().join("real"), parent.path().join("link"));
        fs::create_dir(&directory).unwrap();
        std::os::unix::fs::symlink(&directory, &link).unwrap();
        let mut watch = watching(&directory);
        watch.add(&link).unwrap();

        fs::create_dir(directory.join("entry")).unwrap();
        let reported: Vec<String> = watch.drain().unwrap().into_iter().map(|(directory, _)| directory).collect();
        assert_eq!(reported, [directory.to_string_lossy(), link.to_string_lossy()]);
    }

    #[test]
    fn a_file_cannot_be_watched() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(DirectoryWatch::new().unwrap().add(&file).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn what_is_watched_itself_tells_its_own_end_and_nothing_of_its_neighbours() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("kubelet.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let mut watch = watching(directory.path());
        watch.add_itself(directory.path()).unwrap();
        watch.add_itself(&socket).unwrap();
        fs::write(directory.path().join("of-another"), "").unwrap();
        assert_eq!(watch.drain().unwrap(), []);

        fs::remove_file(&socket).unwrap();
        assert_eq!(watch.drain().unwrap(), [(socket.to_string_lossy().into_owned(), String::new())]);
        drop(listener);
        watch.drain().unwrap();
        watch.add(directory.path()).unwrap();
        fs::write(directory.path().join("of-another-again"), "").unwrap();
        assert_eq!(entries(&mut watch), ["of-another-again"]);
    }

    #[test]
    fn a_name_that_is_not_text_is_reported_legibly() {
        use std::os::unix::ffi::OsStrExt;
        let directory = tempfile::tempdir().unwrap();
        let mut watch = watching(directory.path());
        fs::write(directory.path().join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
        assert_eq!(entries(&mut watch), ["\u{fffd}"]);
    }

    #[test]
    fn the_use_of_a_device_node_is_no_change_and_wakes_nobody_twice() {
        let mut watch = watching(Path::new("/dev"));
        for added_again in [false, true] {
            fs::write("/dev/null", "x").unwrap();
            assert!(!entries(&mut watch).contains(&"null".to_owned()), "{added_again}");
            watch.add(Path::new("/dev")).unwrap();
        }
        fs::write("/dev/null", "x").unwrap();
        let mut reader = [MaybeUninit::uninit(); 8192];
        let mut events = inotify::Reader::new(&watch.inotify, &mut reader);
        while let Ok(event) = events.next() {
            assert_ne!(event.file_name(), Some(c"null"));
        }
    }

    #[test]
    fn an_overflown_queue_is_reported_as_a_change_anywhere() {
        #[expect(clippy::disallowed_methods, reason = "the kernel's own limit, in a test")]
        let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let renames = limit.trim().parse::<usize>().unwrap() / 2 + 1;
        let directory = tempfile::tempdir().unwrap();
        let mut watch = watching(directory.path());
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        fs::write(&one, "").unwrap();
        for _ in 0..=renames / 2 {
            fs::rename(&one, &other).unwrap();
            fs::rename(&other, &one).unwrap();
        }
        let reported = std::iter::from_fn(|| watch.drain().ok().filter(|changes| !changes.is_empty()));
        assert!(reported.flatten().any(|change| change == (String::new(), String::new())));
    }
}
