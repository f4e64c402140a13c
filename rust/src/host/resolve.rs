//! Follows symlinks as the host itself would: below another host root, `/run` in a link still means the host's /run.
//! Checks whether a device node is at a path.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, stat};
use rustix::io::Errno;

use super::attribute::{Attribute, AttributeError, Cause, noted, read_open};
use super::{Host, directory, read_log};

/// The number of links that the kernel follows before `ELOOP`.
const MOST_LINKS: usize = 40;

/// Opens only the path, which neither device nor file system notices.
const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The path by which this process reaches a path of the host; all links are followed, including the last one.
///
/// Missing or looping parts are kept, so that users of the path get the kernel's error.
#[must_use]
pub fn followed(host: &Host, path: &Path) -> PathBuf {
    if host.absolute("/") == Path::new("/") {
        return path.to_path_buf();
    }
    by_kernel(host, path, |root, path| openat2(root, path, PATH_ONLY, Mode::empty(), ResolveFlags::IN_ROOT))
        .unwrap_or_else(|| by_hand(host, path))
}

/// The host's own name of what a path leads to; all links are followed. Missing or looping parts are kept.
#[must_use]
pub fn end_of(host: &Host, path: &Path) -> PathBuf {
    host.own_path(by_hand(host, path))
}

/// Whether a path of the host exists; links are followed. If nothing is there, this costs one system call.
#[must_use]
pub fn exists(host: &Host, path: &Path) -> bool {
    let found = openat(CWD, host.absolute("/"), PATH_ONLY | OFlags::DIRECTORY, Mode::empty())
        .and_then(|root| openat2(root, path, PATH_ONLY, Mode::empty(), ResolveFlags::IN_ROOT));
    match found {
        Ok(_) => true,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => false,
        Err(_) => directory::exists(&followed(host, path)),
    }
}

/// Resolves by the kernel. `None` if that is not possible: nothing is there, a kernel before 5.6 (`ENOSYS`), a seccomp
/// filter that does not know the system call (`EPERM`), no /proc to read the result from.
fn by_kernel(
    host: &Host,
    path: &Path,
    open_in_root: impl FnOnce(&OwnedFd, &Path) -> Result<OwnedFd, Errno>,
) -> Option<PathBuf> {
    let root = openat(CWD, host.absolute("/"), PATH_ONLY | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let found = open_in_root(&root, path).ok()?;
    let below = path_of(&found)?.strip_prefix(path_of(&root)?).ok()?.to_path_buf();
    let place = host.absolute(below);
    // A name that the kernel decorates, for example with ` (deleted)`, is not a path.
    let is_it = |there: Stat| fstat(&found).is_ok_and(|it| (it.st_dev, it.st_ino) == (there.st_dev, there.st_ino));
    stat(&place).is_ok_and(is_it).then_some(place)
}

fn path_of(file: &OwnedFd) -> Option<PathBuf> {
    link(&Path::new("/proc/self/fd").join(file.as_raw_fd().to_string()))
}

/// [`followed`], also on the real root, and never a path with a link: what this process opens then lies below the host
/// root. One that has no link costs two cheap
/// system calls during a scan.
///
/// # Errors
/// `ELOOP`.
pub fn in_root(host: &Host, path: &Path) -> Result<PathBuf, Errno> {
    if is_unlinked(host, path, PATH_ONLY) { Ok(host.absolute(path)) } else { walked(host, path) }
}

/// Whether a path is a directory, and has no link on its way.
#[must_use]
pub fn is_unlinked_directory(host: &Host, path: &Path) -> bool {
    is_unlinked(host, path, PATH_ONLY.union(OFlags::DIRECTORY))
}

fn is_unlinked(host: &Host, path: &Path, flags: OFlags) -> bool {
    let below = path.strip_prefix("/").unwrap_or(path);
    let unlinked = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
    host.open_root().and_then(|root| openat2(root, below, flags, Mode::empty(), unlinked)).is_ok()
}

/// Reads an attribute on a path without links, which costs no more than any read. `None` if there is a link on the way, or
/// the kernel cannot tell.
#[must_use]
pub fn read_unlinked(host: &Host, path: &Path) -> Option<Result<Attribute, AttributeError>> {
    read_log::note_file(path);
    let own = host.own_path(path);
    let unlinked = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let below = own.strip_prefix("/").unwrap_or(&own);
    let opened = host.open_root().and_then(|root| openat2(root, below, flags, Mode::empty(), unlinked));
    let content = match opened {
        Ok(file) => read_open(file),
        Err(Errno::LOOP | Errno::XDEV | Errno::NOSYS | Errno::PERM | Errno::INVAL) => return None,
        Err(errno) => Err(Cause::System(noted(errno))),
    };
    let path = path.to_path_buf();
    Some(match content {
        Ok(content) => Ok(Attribute::new(path, content)),
        Err(cause) => Err(AttributeError { path, cause }),
    })
}

/// Resolves link by link, as the kernel does.
fn by_hand(host: &Host, path: &Path) -> PathBuf {
    walked(host, path).unwrap_or_else(|_| host.absolute(path))
}

fn walked(host: &Host, path: &Path) -> Result<PathBuf, Errno> {
    let root = host.absolute("/");
    let mut rest: VecDeque<OsString> = names(path);
    let mut place = root.clone();
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            if place != root {
                place.pop();
            }
            continue;
        }
        let next = place.join(&name);
        match link(&next) {
            Some(_) if links == MOST_LINKS => return Err(Errno::LOOP),
            Some(target) => {
                links += 1;
                if target.is_absolute() {
                    place.clone_from(&root);
                }
                names(&target).into_iter().rev().for_each(|name| rest.push_front(name));
            }
            None => place = next,
        }
    }
    Ok(place)
}

/// [`followed`], except that the last part of the path is not followed if it is a link.
#[must_use]
pub fn followed_to_last(host: &Host, path: &Path) -> PathBuf {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => followed(host, parent).join(name),
        _ => host.absolute(path),
    }
}

fn link(path: &Path) -> Option<PathBuf> {
    let target = rustix::fs::readlinkat(CWD, path, Vec::new()).ok()?;
    Some(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

/// What is at a path where a device node should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The device node, or on a simulated node a plain file in its place.
    Node,
    /// Unknown: this process may not look at it.
    Hidden(Errno),
    /// Nothing, or something else; a description.
    Other(String),
}

/// Whether a device node with this number (`None`: any) is at a path of the host; links are followed.
#[must_use]
pub fn node_at(host: &Host, path: &Path, number: Option<(u32, u32)>) -> Place {
    let place = host.absolute(path);
    // Most nodes are not links; then this is the only system call.
    match rustix::fs::lstat(&place) {
        Ok(found) if !is_link(&found) => judged(host, Ok(found), number),
        Ok(_) => match rustix::fs::stat(followed(host, path)) {
            Err(Errno::NOENT) => Place::Other("a link that leads nowhere".to_owned()),
            found => judged(host, found, number),
        },
        Err(_) => judged(host, rustix::fs::stat(followed(host, path)), number),
    }
}

fn is_link(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Symlink
}

/// The kernel's answer for a path, links followed, as a [`Place`].
#[must_use]
pub fn judged(host: &Host, found: Result<Stat, Errno>, number: Option<(u32, u32)>) -> Place {
    let found = match found {
        Ok(found) => found,
        Err(errno @ (Errno::ACCESS | Errno::PERM)) => return Place::Hidden(errno),
        Err(Errno::NOENT | Errno::NOTDIR) => return Place::Other("absent".to_owned()),
        Err(errno) => return Place::Other(errno.to_string()),
    };
    let own = (rustix::fs::major(found.st_rdev), rustix::fs::minor(found.st_rdev));
    let instead = match FileType::from_raw_mode(found.st_mode) {
        FileType::CharacterDevice | FileType::BlockDevice if number.is_none_or(|number| number == own) => {
            return Place::Node;
        }
        FileType::CharacterDevice | FileType::BlockDevice => format!("number {}:{}", own.0, own.1),
        FileType::RegularFile if host.is_simulated() => return Place::Node,
        FileType::RegularFile => "a regular file".to_owned(),
        FileType::Directory => "a directory".to_owned(),
        FileType::Fifo => "a FIFO".to_owned(),
        FileType::Socket => "a socket".to_owned(),
        _ => "no device node".to_owned(),
    };
    Place::Other(instead)
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use super::*;

    /// A host with /run/x.sock, and links of all kinds to it.
    fn host() -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        create_dir_all(root.path().join("run")).unwrap();
        create_dir_all(root.path().join("var/lib")).unwrap();
        write(root.path().join("run/x.sock"), "").unwrap();
        symlink("/run", root.path().join("var/run")).unwrap();
        symlink("../../run/x.sock", root.path().join("var/lib/relative")).unwrap();
        symlink("../../../../../../run/x.sock", root.path().join("var/lib/too-far-up")).unwrap();
        symlink("/var/lib/relative", root.path().join("var/lib/twice")).unwrap();
        symlink("loop", root.path().join("var/lib/loop")).unwrap();
        let host = Host::new(root.path());
        (root, host)
    }

    const LINKS: [&str; 5] =
        ["/run/x.sock", "/var/run/x.sock", "/var/lib/relative", "/var/lib/too-far-up", "/var/lib/twice"];

    #[test]
    fn absolute_links_stay_below_the_root() {
        let (root, host) = host();
        for path in LINKS {
            assert_eq!(followed(&host, Path::new(path)), root.path().join("run/x.sock"), "{path}");
            assert_eq!(by_hand(&host, Path::new(path)), root.path().join("run/x.sock"), "{path}");
        }
    }

    #[test]
    fn a_path_in_the_root_has_no_link_or_there_is_none() {
        let (root, host) = host();
        for path in LINKS {
            assert_eq!(in_root(&host, Path::new(path)), Ok(root.path().join("run/x.sock")), "{path}");
        }
        assert_eq!(in_root(&host, Path::new("/var/lib/loop")), Err(Errno::LOOP));
        assert_eq!(in_root(&host, Path::new("/var/missing/x")), Ok(root.path().join("var/missing/x")));
        assert_eq!(in_root(&Host::new("/"), Path::new("/proc/self/fd")).unwrap().iter().count(), 4);
    }

    #[test]
    fn what_a_link_leads_to_exists_where_the_host_has_it() {
        let (_root, host) = host();
        for path in LINKS {
            assert!(exists(&host, Path::new(path)), "{path}");
        }
        // The last one is a file of this machine, not of the host.
        for path in ["/var/lib/loop", "/var/missing/x", "/run/x.sock/below", "/proc/self/stat"] {
            assert!(!exists(&host, Path::new(path)), "{path}");
        }
        assert!(exists(&Host::new("/"), Path::new("/proc/self/stat")));
    }

    #[test]
    fn the_kernel_resolves_what_is_there_and_nothing_else() {
        let (root, host) = host();
        let open = |root: &OwnedFd, path: &Path| openat2(root, path, PATH_ONLY, Mode::empty(), ResolveFlags::IN_ROOT);
        if openat2(CWD, root.path(), PATH_ONLY, Mode::empty(), ResolveFlags::empty()).is_err() {
            assert!(std::env::var_os("CI").is_none(), "NOT TESTED: this kernel, or the sandbox, has no openat2");
            return;
        }
        for path in LINKS {
            assert_eq!(by_kernel(&host, Path::new(path), open), Some(root.path().join("run/x.sock")), "{path}");
        }
        assert_eq!(by_kernel(&host, Path::new("/"), open), Some(root.path().to_path_buf()));
        for path in ["/var/lib/loop", "/var/missing/x", "/etc/passwd"] {
            assert_eq!(by_kernel(&host, Path::new(path), open), None, "{path}");
        }
    }

    #[test]
    fn a_kernel_without_the_call_or_a_filter_that_forbids_it_leaves_the_work_to_us() {
        let (_root, host) = host();
        for refusal in [Errno::NOSYS, Errno::PERM] {
            assert_eq!(by_kernel(&host, Path::new("/run/x.sock"), |_, _| Err(refusal)), None);
        }
    }

    #[test]
    fn a_root_that_is_reached_by_a_link_keeps_its_name() {
        let (root, _) = host();
        let elsewhere = tempfile::tempdir().unwrap();
        let linked = elsewhere.path().join("host");
        symlink(root.path(), &linked).unwrap();
        assert_eq!(followed(&Host::new(&linked), Path::new("/var/run/x.sock")), linked.join("run/x.sock"));
    }

    #[test]
    fn the_last_link_may_be_left_alone() {
        let (root, host) = host();
        assert_eq!(followed_to_last(&host, Path::new("/var/lib/twice")), root.path().join("var/lib/twice"));
        assert_eq!(followed_to_last(&host, Path::new("/var/run/x.sock")), root.path().join("run/x.sock"));
        assert_eq!(followed_to_last(&host, Path::new("/")), root.path());
    }

    #[test]
    fn what_is_missing_or_loops_is_left_to_the_kernel() {
        let (root, host) = host();
        for path in ["var/lib/loop", "var/missing/x"] {
            assert_eq!(followed(&host, Path::new("/").join(path).as_path()), root.path().join(path));
        }
    }

    #[test]
    fn the_kernel_itself_follows_on_the_real_root() {
        assert_eq!(followed(&Host::new("/"), Path::new("/var/run/x")), Path::new("/var/run/x"));
    }
}
