//! Each test enters a sandbox in a thread of its own, which alone is held to it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketType};
use tempfile::TempDir;

use super::*;

/// What comes of `work` in a thread that has entered; `None` where this kernel lacks Landlock, which is printed.
fn within<R: Send + 'static>(access: Access, work: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    let lacking = missing();
    if !lacking.is_empty() {
        assert!(std::env::var_os("CI").is_none(), "NOT TESTED: this kernel lacks {lacking:?}");
        return None;
    }
    let thread = std::thread::spawn(move || {
        assert_eq!(enter(&access).unwrap(), Vec::<String>::new());
        work()
    });
    Some(thread.join().unwrap())
}

fn read(path: &Path) -> Result<(), ErrorKind> {
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    opened.map(drop).map_err(|errno| std::io::Error::from(errno).kind())
}

fn write(path: &Path) -> Result<(), ErrorKind> {
    fs::write(path, "x").map_err(|error| error.kind())
}

/// A directory with the directories `mine` and `theirs`, each with a file.
fn directories() -> (TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let [mine, theirs] = ["mine", "theirs"].map(|name| directory.path().join(name));
    for place in [&mine, &theirs] {
        fs::create_dir(place).unwrap();
        fs::write(place.join("file"), "x").unwrap();
    }
    (directory, mine, theirs)
}

#[test]
fn what_may_be_read_is_read_and_nothing_else() {
    let (_kept, mine, theirs) = directories();
    let access = Access { read: vec![mine.clone(), "/nonexistent".into()], ..Access::default() };
    let seen = within(access, move || {
        [read(&mine.join("file")), write(&mine.join("file")), read(&theirs.join("file")), read(Path::new("/dev/zero"))]
    });
    let denied = Err(ErrorKind::PermissionDenied);
    assert!(seen.is_none_or(|seen| seen == [Ok(()), denied, denied, denied]));
}

#[test]
fn what_may_be_written_is_replaced_and_removed() {
    let (_kept, mine, theirs) = directories();
    let access = Access { write: vec![mine.clone()], families: vec![libc::AF_UNIX], ..Access::default() };
    let seen = within(access, move || {
        let beside = mine.join("beside");
        let replaced =
            write(&beside).and_then(|()| fs::rename(&beside, mine.join("file")).map_err(|error| error.kind()));
        let removed = fs::remove_file(mine.join("file")).map_err(|error| error.kind());
        [
            replaced,
            removed,
            write(&theirs.join("file")),
            UnixListener::bind(mine.join("s")).map(drop).map_err(|e| e.kind()),
        ]
    });
    let denied = Err(ErrorKind::PermissionDenied);
    assert!(seen.is_none_or(|seen| seen == [Ok(()), Ok(()), denied, denied]));
}

#[test]
fn a_socket_is_made_and_removed_where_it_may_be_and_no_file() {
    let (_kept, mine, theirs) = directories();
    let access = Access { sockets: vec![mine.clone()], families: vec![libc::AF_UNIX], ..Access::default() };
    let seen = within(access, move || {
        let made = UnixListener::bind(mine.join("s")).map(drop).map_err(|error| error.kind());
        let removed = fs::remove_file(mine.join("s")).map_err(|error| error.kind());
        let elsewhere = UnixListener::bind(theirs.join("s")).map(drop).map_err(|error| error.kind());
        [made, removed, elsewhere, write(&mine.join("new"))]
    });
    let denied = Err(ErrorKind::PermissionDenied);
    assert!(seen.is_none_or(|seen| seen == [Ok(()), Ok(()), denied, denied]));
}

#[test]
fn sockets_are_of_the_families_that_are_allowed() {
    let families = [AddressFamily::UNIX, AddressFamily::INET, AddressFamily::NETLINK];
    for (allowed, expected) in [
        (vec![libc::AF_UNIX], [true, false, false]),
        (vec![libc::AF_UNIX, libc::AF_INET], [true, true, false]),
        (vec![], [false, false, false]),
    ] {
        let seen = within(Access { families: allowed, ..Access::default() }, move || {
            families.map(|family| rustix::net::socket(family, SocketType::DGRAM, None).is_ok())
        });
        assert!(seen.is_none_or(|seen| seen == expected));
    }
}

#[test]
fn capabilities_are_lost_but_those_that_are_kept() {
    let had = rustix::thread::capabilities(None).unwrap().permitted;
    for (kept, left) in [(vec![], CapabilitySet::empty()), (vec![10, 200], CapabilitySet::NET_BIND_SERVICE & had)] {
        let seen = within(Access { capabilities: kept, ..Access::default() }, || {
            let sets = rustix::thread::capabilities(None).unwrap();
            [sets.effective, sets.permitted, sets.inheritable]
        });
        assert!(seen.is_none_or(|seen| seen == [left, left, CapabilitySet::empty()]));
    }
}
