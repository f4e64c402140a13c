//! The driver's libraries on the host: files with its version in their name, and a few without, in the directories where
//! packages put them or, where they are in none of these, in those that the dynamic linker's cache names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::Stat;

use super::ld_cache;
use crate::host::Host;
use crate::host::directory::Directory;
use crate::host::resolve;

/// Of the driver root; several may be the same by links. If /usr/lib is a directory of its own, it holds 32-bit libraries.
const DIRECTORIES: [&str; 8] = [
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
];
/// Below each of them: the driver for VDPAU.
pub(super) const VDPAU: &str = "/vdpau";
/// What the names of the driver's libraries in the dynamic linker's cache begin with.
const CACHED: [&str; 2] = ["libcuda.so.", "libnvidia-ml.so."];
/// Libraries that come with the driver under versions of their own: platforms of EGL, an older compiler.
const OTHERWISE_NUMBERED: [&str; 6] = [
    "libnvidia-egl-gbm.so.",
    "libnvidia-egl-wayland.so.",
    "libnvidia-egl-wayland2.so.",
    "libnvidia-egl-xcb.so.",
    "libnvidia-egl-xlib.so.",
    "libnvidia-nvvm70.so.",
];

/// A directory that holds libraries of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    /// Without the driver root.
    pub(super) path: String,
    /// Their names.
    pub(super) libraries: Vec<String>,
    /// Links beside them that lead to them, directly or by one another: name and target.
    pub(super) links: Vec<(String, String)>,
}

impl Folder {
    /// Whether it holds libraries of this version, and not only such as are numbered otherwise.
    pub(super) fn is_of(&self, version: &str) -> bool {
        self.libraries.iter().any(|name| name.ends_with(&format!(".so.{version}")))
    }
}

/// Lists directories once, and again when one has changed: they can have thousands of entries.
#[derive(Debug, Default)]
pub(super) struct Libraries(Mutex<Option<(Key, Arc<Vec<Folder>>)>>);

/// Version of the driver, the directories there are, and the state of the dynamic linker's cache.
type Key = (String, Vec<Found>, Option<State>);

/// Device, inode, and time of the last change in seconds and nanoseconds.
type State = (u64, u64, i64, u64);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    path: String,
    state: State,
}

impl Libraries {
    /// The libraries of this version below this root, the driver's.
    pub(super) fn find(&self, driver_root: &Host, version: &str) -> Arc<Vec<Folder>> {
        let cache = rustix::fs::stat(place(driver_root, ld_cache::PATH)).ok().map(|status| state(&status));
        let key = (version.to_owned(), with_vdpau(driver_root, DIRECTORIES), cache);
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

/// Those of the directories that are there, each once.
fn with_vdpau<'d>(driver_root: &Host, directories: impl IntoIterator<Item = &'d str> + Clone) -> Vec<Found> {
    let plain = directories.clone().into_iter().map(str::to_owned);
    let mut found: Vec<Found> = Vec::new();
    for path in plain.chain(directories.into_iter().map(|path| format!("{path}{VDPAU}"))) {
        let Ok(status) = rustix::fs::stat(place(driver_root, &path)) else { continue };
        let state = state(&status);
        if !found.iter().any(|other| (other.state.0, other.state.1) == (state.0, state.1)) {
            found.push(Found { path, state });
        }
    }
    found
}

#[expect(clippy::unnecessary_cast, reason = "their types differ from one architecture to the next")]
fn state(status: &Stat) -> State {
    (status.st_dev as u64, status.st_ino as u64, status.st_mtime as i64, status.st_mtime_nsec as u64)
}

fn folders(driver_root: &Host, version: &str, directories: &[Found]) -> Vec<Folder> {
    let mut folders = listed(driver_root, version, directories);
    if !folders.iter().any(|folder| folder.is_of(version)) {
        let cached = ld_cache::directories(driver_root, &CACHED);
        let cached = with_vdpau(driver_root, cached.iter().map(String::as_str));
        let new: Vec<Found> = cached.into_iter().filter(|found| !directories.contains(found)).collect();
        folders.extend(listed(driver_root, version, &new));
    }
    folders
}

fn listed(driver_root: &Host, version: &str, directories: &[Found]) -> Vec<Folder> {
    let folder = |found: &Found| {
        let directory = Directory::open(place(driver_root, &found.path)).ok()?;
        let names = directory.names().ok()?;
        let libraries: Vec<String> = names.iter().filter(|name| is_of_driver(name, version)).cloned().collect();
        let links = links(&names, &libraries, |name| directory.link(name).ok()?.to_str().map(str::to_owned));
        (!libraries.is_empty()).then_some(Folder { path: found.path.clone(), libraries, links })
    };
    directories.iter().filter_map(folder).collect()
}

fn is_of_driver(name: &str, version: &str) -> bool {
    let own_version = |start: &&str| name.strip_prefix(*start);
    // `.so.1` of the platforms of EGL is a link to the library.
    let is_numbered = |number: &str| number.contains('.') || name.starts_with("libnvidia-nvvm70.so.");
    name.ends_with(&format!(".so.{version}"))
        || OTHERWISE_NUMBERED.iter().find_map(own_version).is_some_and(is_numbered)
}

/// `libcuda.so.1` for `libcuda.so.580.1`, and `libcuda.so` for that.
fn links(names: &[String], libraries: &[String], target: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let stem = |name: &str| name.split_once(".so").map(|(stem, _)| stem.to_owned());
    let stems: BTreeSet<String> = libraries.iter().filter_map(|name| stem(name)).collect();
    let beside =
        names.iter().filter(|name| !libraries.contains(name) && stem(name).is_some_and(|stem| stems.contains(&stem)));
    let links: BTreeMap<String, String> = beside.filter_map(|name| Some((name.clone(), target(name)?))).collect();
    let leads_to_library = |first: &String| {
        let chain = std::iter::successors(Some(first), |target| links.get(*target));
        chain.take(links.len() + 1).any(|target| libraries.contains(target))
    };
    links
        .iter()
        .filter(|(_, target)| leads_to_library(target))
        .map(|(name, target)| (name.clone(), target.clone()))
        .collect()
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
        let counted: Vec<(&str, usize)> =
            found.iter().map(|folder| (folder.path.as_str(), folder.libraries.len())).collect();
        assert_eq!(counted, [("/usr/lib64", 2), ("/usr/lib64/vdpau", 1)]);
        assert_eq!(found[0].libraries, ["libcuda.so.580.95.05", "libnvidia-ml.so.580.95.05"]);
    }

    #[test]
    fn libraries_with_versions_of_their_own_come_along() {
        let (root, host) = root();
        for name in
            ["libnvidia-egl-gbm.so.1.1.2", "libnvidia-egl-wayland.so.1", "libnvidia-nvvm70.so.4", "libegl.so.1.2"]
        {
            write(root.path().join("usr/lib64").join(name), "").unwrap();
        }
        let found = Libraries::default().find(&host, "580.95.05");
        let own = ["libnvidia-egl-gbm.so.1.1.2", "libnvidia-nvvm70.so.4"];
        assert_eq!(found[0].libraries.iter().filter(|name| !name.ends_with("580.95.05")).collect::<Vec<_>>(), own);
        assert!(found[0].is_of("580.95.05") && !found[0].is_of("1.1.2.3"));
    }

    #[test]
    fn links_that_lead_to_a_library_are_known() {
        let names = ["libcuda.so", "libcuda.so.1", "libcuda.so.580.1", "libcuda.so.2", "libcuda.so.3", "libm.so"];
        let target = |name: &str| match name {
            "libcuda.so" => Some("libcuda.so.1".to_owned()),
            "libcuda.so.1" | "libm.so" => Some("libcuda.so.580.1".to_owned()),
            "libcuda.so.2" => Some("libcuda.so.3".to_owned()),
            "libcuda.so.3" => Some("libcuda.so.2".to_owned()),
            _ => None,
        };
        let found = links(&names.map(str::to_owned), &["libcuda.so.580.1".to_owned()], target);
        let expected = [("libcuda.so", "libcuda.so.1"), ("libcuda.so.1", "libcuda.so.580.1")];
        assert_eq!(found, expected.map(|(name, target)| (name.to_owned(), target.to_owned())));
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
