//! The driver's libraries on the host: files with its version in their name, in the directories where packages put them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::Stat;

use crate::host::Host;
use crate::host::directory::Directory;
use crate::host::resolve;

/// Of the driver root; several may be the same by links. If /usr/lib is a directory of its own, it holds 32-bit libraries.
const DIRECTORIES: [&str; 11] = [
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib64/vdpau",
    "/usr/lib/x86_64-linux-gnu/vdpau",
    "/usr/lib/aarch64-linux-gnu/vdpau",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
];

/// A directory that holds libraries of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    /// Without the driver root.
    pub(super) path: &'static str,
    /// Their names.
    pub(super) libraries: Vec<String>,
}

/// Lists directories once, and again when one has changed: they can have thousands of entries.
#[derive(Debug, Default)]
pub(super) struct Libraries(Mutex<Option<(Key, Arc<Vec<Folder>>)>>);

/// Version of the driver, and the directories there are.
type Key = (String, Vec<Found>);

/// A directory and its state: device, inode, and time of its last change in seconds and nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    path: &'static str,
    state: (u64, u64, i64, u64),
}

impl Libraries {
    /// The libraries of this version below this root, the driver's.
    pub(super) fn find(&self, driver_root: &Host, version: &str) -> Arc<Vec<Folder>> {
        let key = (version.to_owned(), directories(driver_root));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((of, folders)) if *of == key => folders.clone(),
            _ => {
                let folders = Arc::new(folders(driver_root, version, &key.1));
                *known = Some((key, folders.clone()));
                folders
            }
        }
    }
}

fn directories(driver_root: &Host) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for path in DIRECTORIES {
        let Ok(status) = rustix::fs::stat(place(driver_root, path)) else { continue };
        let state = state(&status);
        if !found.iter().any(|other| (other.state.0, other.state.1) == (state.0, state.1)) {
            found.push(Found { path, state });
        }
    }
    found
}

#[expect(clippy::unnecessary_cast, reason = "their types differ from one architecture to the next")]
fn state(status: &Stat) -> (u64, u64, i64, u64) {
    (status.st_dev as u64, status.st_ino as u64, status.st_mtime as i64, status.st_mtime_nsec as u64)
}

fn folders(driver_root: &Host, version: &str, directories: &[Found]) -> Vec<Folder> {
    let folder = |found: &Found| {
        let names = Directory::open(place(driver_root, found.path)).and_then(|directory| directory.names()).ok()?;
        let libraries = of_version(names, version);
        (!libraries.is_empty()).then_some(Folder { path: found.path, libraries })
    };
    directories.iter().filter_map(folder).collect()
}

fn of_version(names: Vec<String>, version: &str) -> Vec<String> {
    let end = format!(".so.{version}");
    names.into_iter().filter(|name| name.ends_with(&end)).collect()
}

fn place(driver_root: &Host, path: &str) -> PathBuf {
    resolve::followed(driver_root, Path::new(path))
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use super::*;

    fn root() -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        create_dir_all(root.path().join("usr/lib64/vdpau")).unwrap();
        for name in ["libcuda.so.580.95.05", "libnvidia-ml.so.580.95.05", "libcuda.so.570.1", "libc.so.6", "libcuda.so"]
        {
            write(root.path().join("usr/lib64").join(name), "").unwrap();
        }
        write(root.path().join("usr/lib64/vdpau/libvdpau_nvidia.so.580.95.05"), "").unwrap();
        symlink("/usr/lib64", root.path().join("lib64")).unwrap();
        let host = Host::new(root.path());
        (root, host)
    }

    #[test]
    fn each_library_of_the_version_is_found_once() {
        let (_root, host) = root();
        let found = Libraries::default().find(&host, "580.95.05");
        let counted: Vec<(&str, usize)> = found.iter().map(|folder| (folder.path, folder.libraries.len())).collect();
        assert_eq!(counted, [("/usr/lib64", 2), ("/usr/lib64/vdpau", 1)]);
        assert_eq!(found[0].libraries, ["libcuda.so.580.95.05", "libnvidia-ml.so.580.95.05"]);
    }

    #[test]
    fn directories_are_listed_again_when_they_or_the_version_change() {
        let (root, host) = root();
        let libraries = Libraries::default();
        let first = libraries.find(&host, "580.95.05");
        assert!(Arc::ptr_eq(&first, &libraries.find(&host, "580.95.05")));
        std::thread::sleep(std::time::Duration::from_millis(20));
        write(root.path().join("usr/lib64/libnvidia-opencl.so.580.95.05"), "").unwrap();
        assert_eq!(libraries.find(&host, "580.95.05")[0].libraries.len(), 3);
        assert_eq!(libraries.find(&host, "570.1")[0].libraries, ["libcuda.so.570.1"]);
        assert!(libraries.find(&host, "1.2").is_empty());
    }
}
