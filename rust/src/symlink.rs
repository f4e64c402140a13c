//! Follows symlinks as the host itself would: below another host root, `/run` in a link still means the host's /run.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::CWD;

use crate::host::Host;

/// What the kernel follows before it says `ELOOP`.
const MOST_LINKS: usize = 40;

/// A path of the host as this process reaches what is there, links on the way and the last one followed.
///
/// What is missing, or loops, stays as it is: whoever uses the path learns that from the kernel.
#[must_use]
pub fn followed(host: &Host, path: &Path) -> PathBuf {
    let root = host.absolute("/");
    if root == Path::new("/") {
        return path.to_path_buf();
    }
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
            Some(_) if links == MOST_LINKS => return host.absolute(path),
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
    place
}

/// The same, but for the last part of the path: the link itself, where it is one.
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

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use super::*;

    /// A host with /run/x.sock, and links to it by all ways.
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

    #[test]
    fn absolute_links_stay_below_the_root() {
        let (root, host) = host();
        for path in ["/run/x.sock", "/var/run/x.sock", "/var/lib/relative", "/var/lib/too-far-up", "/var/lib/twice"] {
            assert_eq!(followed(&host, Path::new(path)), root.path().join("run/x.sock"), "{path}");
        }
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
