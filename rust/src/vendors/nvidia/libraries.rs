//! The driver's libraries on the host: files whose name contains the driver's version, and a few others. They are in
//! the directories of the usual packages; if these do not exist, in the directories of the dynamic linker's cache. A
//! driver root of its own may have them in `lib` or `usr/lib`: /run/opengl-driver of NixOS, /usr/local/glibc of Talos.
//!
//! `/etc/ld.so.cache` lists the libraries that the dynamic linker finds outside its built-in directories. The layout is
//! defined in glibc's `sysdeps/generic/dl-cache.h`: a header, entries of fixed size, and their texts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::Stat;

use crate::host::directory::{self, Directory};
use crate::host::{Host, resolve};
use crate::nvml::library::is_of_64_bits;

/// Directories below the driver root; because of links, several may be the same. If /usr/lib is a separate directory,
/// it holds 32-bit libraries.
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
/// Further directories below a driver root other than `/`, if their libraries are of 64 bits.
const PLAIN_DIRECTORIES: [&str; 2] = ["/usr/lib", "/lib"];
/// The directory of the VDPAU driver, below each of `DIRECTORIES`.
pub(super) const VDPAU: &str = "/vdpau";
/// Prefixes of the driver's libraries in the dynamic linker's cache.
const CACHED: [&str; 2] = ["libcuda.so.", "libnvidia-ml.so."];
/// Libraries that come with the driver but have versions of their own: platforms of EGL, an older compiler.
const OTHERWISE_NUMBERED: [&str; 6] = [
    "libnvidia-egl-gbm.so.",
    "libnvidia-egl-wayland.so.",
    "libnvidia-egl-wayland2.so.",
    "libnvidia-egl-xcb.so.",
    "libnvidia-egl-xlib.so.",
    "libnvidia-nvvm70.so.",
];

/// Where the driver's libraries are: a directory of the host, which may have links to other directories of the host.
#[derive(Debug, Clone)]
pub(super) struct DriverRoot {
    host: Host,
    path: String,
    /// The directory, as a host of its own: links within it count from there, as for a program that has it as its root.
    pub(super) below: Host,
}

impl DriverRoot {
    pub(super) fn of(host: &Host, path: &str) -> Self {
        let below = Host::new(resolve::followed(host, Path::new(path)));
        Self { host: host.clone(), path: path.trim_end_matches('/').to_owned(), below }
    }

    /// Whether it is a directory of the driver's own, and not the host's root.
    fn is_its_own(&self) -> bool {
        !self.path.is_empty()
    }

    /// The path by which this process reaches a path below the root. What a link leads to is looked for on the host if
    /// it is not below the root: NixOS has links to its store.
    pub(super) fn place(&self, path: &str) -> PathBuf {
        let below = resolve::followed(&self.below, Path::new(path));
        if self.is_its_own() && !directory::exists(&below) {
            return resolve::followed(&self.host, Path::new(&format!("{}{path}", self.path)));
        }
        below
    }
}

/// A directory with libraries of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    /// The path without the driver root.
    pub(super) path: String,
    /// Names of the libraries.
    pub(super) libraries: Vec<String>,
    /// Name and target of links next to the libraries that lead to them, directly or through other links.
    pub(super) links: Vec<(String, String)>,
}

impl Folder {
    /// Whether the folder has libraries of this version, and not only libraries with versions of their own.
    pub(super) fn is_of(&self, version: &str) -> bool {
        self.libraries.iter().any(|name| name.ends_with(&format!(".so.{version}")))
    }
}

/// A cache of the directories' contents, which can be thousands of entries: listed once, and again after a change.
#[derive(Debug, Default)]
pub(super) struct Libraries(Mutex<Option<(Key, Arc<Vec<Folder>>)>>);

/// Version of the driver, the existing directories, and the state of the dynamic linker's cache.
type Key = (String, Vec<Found>, Option<State>);

/// Device, inode, and time of the last change in seconds and nanoseconds.
type State = (u64, u64, i64, u64);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    path: String,
    state: State,
}

impl Libraries {
    /// The libraries of this version below the driver root.
    pub(super) fn find(&self, driver_root: &DriverRoot, version: &str) -> Arc<Vec<Folder>> {
        let cache = rustix::fs::stat(driver_root.place(LD_CACHE)).ok().map(|status| state(&status));
        let plain: &[&str] = if driver_root.is_its_own() { &PLAIN_DIRECTORIES } else { &[] };
        let directories = DIRECTORIES.iter().chain(plain).copied();
        let key = (version.to_owned(), with_vdpau(driver_root, directories), cache);
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

/// The existing directories, without duplicates.
fn with_vdpau<'d>(driver_root: &DriverRoot, directories: impl IntoIterator<Item = &'d str> + Clone) -> Vec<Found> {
    let plain = directories.clone().into_iter().map(str::to_owned);
    let mut found: Vec<Found> = Vec::new();
    for path in plain.chain(directories.into_iter().map(|path| format!("{path}{VDPAU}"))) {
        let Ok(status) = rustix::fs::stat(driver_root.place(&path)) else { continue };
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

fn folders(driver_root: &DriverRoot, version: &str, directories: &[Found]) -> Vec<Folder> {
    let mut folders = listed(driver_root, version, directories);
    if !folders.iter().any(|folder| folder.is_of(version)) {
        let cached = cached_directories(&driver_root.below, &CACHED);
        let cached = with_vdpau(driver_root, cached.iter().map(String::as_str));
        let new: Vec<Found> = cached.into_iter().filter(|found| !directories.contains(found)).collect();
        folders.extend(listed(driver_root, version, &new));
    }
    folders
}

fn listed(driver_root: &DriverRoot, version: &str, directories: &[Found]) -> Vec<Folder> {
    let folder = |found: &Found| {
        let directory = Directory::open(driver_root.place(&found.path)).ok()?;
        let names = directory.names().ok()?;
        let libraries: Vec<String> = names.iter().filter(|name| is_of_driver(name, version)).cloned().collect();
        let first = libraries.first()?;
        let is_plain = PLAIN_DIRECTORIES.iter().any(|plain| found.path.trim_end_matches(VDPAU) == *plain);
        if is_plain && !is_of_64_bits(&driver_root.place(&format!("{}/{first}", found.path))) {
            return None;
        }
        let target = |name: &str| {
            let target = directory.link(name).ok()?;
            // The store of NixOS has the same names; what the link leads to in the end is beside it.
            let last = || driver_root.place(&format!("{}/{name}", found.path)).canonicalize().ok();
            let target = if target.is_absolute() { last()?.file_name()?.into() } else { target };
            target.to_str().map(str::to_owned)
        };
        let links = links(&names, &libraries, target);
        Some(Folder { path: found.path.clone(), libraries, links })
    };
    directories.iter().filter_map(folder).collect()
}

fn is_of_driver(name: &str, version: &str) -> bool {
    let own_version = |start: &&str| name.strip_prefix(*start);
    // For the platforms of EGL, `.so.1` is a link to the library.
    let is_numbered = |number: &str| number.contains('.') || name.starts_with("libnvidia-nvvm70.so.");
    name.ends_with(&format!(".so.{version}"))
        || OTHERWISE_NUMBERED.iter().find_map(own_version).is_some_and(is_numbered)
}

/// The links that a library needs: `libcuda.so.1` for `libcuda.so.580.1`, and `libcuda.so` for `libcuda.so.1`.
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

const LD_CACHE: &str = "/etc/ld.so.cache";
/// `CACHEMAGIC` of the format before glibc 2.2: a cache may begin with entries in this format.
const OLD: &[u8] = b"ld.so-1.7.0";
/// `CACHEMAGIC_NEW` and `CACHE_VERSION`.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const OLD_HEADER: usize = 16;
const OLD_ENTRY: usize = 12;
const HEADER: usize = 48;
const ENTRY: usize = 24;
/// `_DL_CACHE_DEFAULT_ID` of the architectures for which NVIDIA has drivers: a 64-bit library for libc 6.
const KINDS: [u32; 2] = [0x0303, 0x0a03];

/// The directories of 64-bit libraries that have one of these prefixes in a host's cache; empty without a cache.
#[expect(clippy::disallowed_methods, reason = "no attribute, and larger than one")]
fn cached_directories(host: &Host, names: &[&str]) -> Vec<String> {
    let cache = std::fs::read(resolve::followed(host, Path::new(LD_CACHE))).unwrap_or_default();
    let wanted =
        cached_libraries(&cache).into_iter().filter(|(name, _)| names.iter().any(|start| name.starts_with(start)));
    let directories: BTreeSet<String> =
        wanted.filter_map(|(_, path)| Some(path.rsplit_once('/')?.0.to_owned())).collect();
    directories.into_iter().collect()
}

/// Name and path of each 64-bit library; damaged entries are left out.
fn cached_libraries(file: &[u8]) -> Vec<(&str, &str)> {
    let Some(cache) = newer_part(file) else { return Vec::new() };
    let count = number(cache, MAGIC.len()).unwrap_or_default();
    let entries = (0..count).map_while(|index| {
        let start = index.checked_mul(ENTRY)?.checked_add(HEADER)?;
        cache.get(start..start.checked_add(ENTRY)?)
    });
    let of_kind =
        entries.filter(|entry| number(entry, 0).is_some_and(|kind| KINDS.iter().any(|&one| one as usize == kind)));
    of_kind.filter_map(|entry| Some((text(cache, number(entry, 4)?)?, text(cache, number(entry, 8)?)?))).collect()
}

/// The part of the cache after the entries of the old format, if there are any. Offsets are relative to its start.
fn newer_part(file: &[u8]) -> Option<&[u8]> {
    let start = if file.starts_with(OLD) {
        let entries = number(file, OLD_HEADER - size_of::<u32>())?.checked_mul(OLD_ENTRY)?;
        OLD_HEADER.checked_add(entries)?.checked_next_multiple_of(align_of::<u64>())?
    } else {
        0
    };
    file.get(start..).filter(|cache| cache.starts_with(MAGIC))
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let number = bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)?;
    usize::try_from(number).ok()
}

fn text(cache: &[u8], at: usize) -> Option<&str> {
    let rest = cache.get(at..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(rest.get(..end)?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    fn root() -> (tempfile::TempDir, DriverRoot) {
        let root = tempfile::tempdir().unwrap();
        create_dir_all(root.path().join("usr/lib64/vdpau")).unwrap();
        for name in ["libcuda.so.580.95.05", "libnvidia-ml.so.580.95.05", "libcuda.so.570.1", "libc.so.6", "libcuda.so"]
        {
            write(root.path().join("usr/lib64").join(name), "").unwrap();
        }
        write(root.path().join("usr/lib64/vdpau/libvdpau_nvidia.so.580.95.05"), "").unwrap();
        symlink("/usr/lib64", root.path().join("lib64")).unwrap();
        let host = DriverRoot::of(&Host::new(root.path()), "/");
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

    /// The first bytes of a library for x86-64, and of one for i386.
    const ELF: [&[u8]; 2] = [b"\x7fELF\x02\x01\x01\x00", b"\x7fELF\x01\x01\x01\x00"];

    #[test]
    fn a_driver_root_of_its_own_may_have_its_libraries_in_lib_with_links_to_the_store() {
        let root = tempfile::tempdir().unwrap();
        let (store, lib) = ("nix/store/abc-nvidia-x11/lib", "nix/store/xyz-graphics-drivers/lib");
        for directory in [store, lib, "run", "lib"] {
            create_dir_all(root.path().join(directory)).unwrap();
        }
        symlink("/nix/store/xyz-graphics-drivers", root.path().join("run/opengl-driver")).unwrap();
        write(root.path().join(store).join("libcuda.so.580.1"), ELF[0]).unwrap();
        symlink("libcuda.so.580.1", root.path().join(store).join("libcuda.so.1")).unwrap();
        write(root.path().join("lib/libcuda.so.580.1"), ELF[1]).unwrap();
        for name in ["libcuda.so.580.1", "libcuda.so.1"] {
            symlink(format!("/{store}/{name}"), root.path().join(lib).join(name)).unwrap();
        }
        let host = Host::new(root.path());
        let found = Libraries::default().find(&DriverRoot::of(&host, "/run/opengl-driver"), "580.1");
        let folder = Folder {
            path: "/lib".to_owned(),
            libraries: vec!["libcuda.so.580.1".to_owned()],
            links: vec![("libcuda.so.1".to_owned(), "libcuda.so.580.1".to_owned())],
        };
        assert_eq!(*found, [folder]);
        assert!(Libraries::default().find(&DriverRoot::of(&host, "/"), "580.1").is_empty());
    }

    #[test]
    fn libraries_of_32_bits_in_the_lib_of_a_driver_root_are_none_for_containers() {
        for (start, path, number) in
            [(ELF[0], "usr/lib", 1), (ELF[1], "usr/lib", 0), (ELF[1], "lib", 0), (b"", "lib", 0)]
        {
            let root = tempfile::tempdir().unwrap();
            let directory = root.path().join("opt/nvidia").join(path);
            create_dir_all(&directory).unwrap();
            write(directory.join("libcuda.so.580.1"), start).unwrap();
            let driver_root = DriverRoot::of(&Host::new(root.path()), "/opt/nvidia/");
            assert_eq!(Libraries::default().find(&driver_root, "580.1").len(), number, "{path}");
        }
    }

    const X86_64: u32 = 0x0303;
    const I386: u32 = 0x0003;

    /// A cache as ldconfig writes it.
    fn cache(entries: &[(u32, &str)]) -> Vec<u8> {
        let mut texts = Vec::new();
        let mut written = MAGIC.to_vec();
        written.extend(u32::try_from(entries.len()).unwrap().to_ne_bytes());
        written.resize(HEADER, 0);
        let base = HEADER + entries.len() * ENTRY;
        for (kind, path) in entries {
            let value = base + texts.len();
            let key = value + path.rfind('/').unwrap() + 1;
            texts.extend(path.bytes().chain([0]));
            for word in [*kind, u32::try_from(key).unwrap(), u32::try_from(value).unwrap(), 0, 0, 0] {
                written.extend(word.to_ne_bytes());
            }
        }
        written.extend(texts);
        written
    }

    fn with_old_entries(newer: &[u8], count: usize) -> Vec<u8> {
        let mut written = OLD.to_vec();
        written.push(0);
        written.extend(u32::try_from(count).unwrap().to_ne_bytes());
        written.resize((OLD_HEADER + count * OLD_ENTRY).next_multiple_of(8), 0);
        written.extend(newer);
        written
    }

    #[test]
    fn libraries_of_64_bits_are_listed_in_both_formats() {
        let newer = cache(&[
            (X86_64, "/opt/nvidia/libcuda.so.1"),
            (I386, "/usr/lib32/libcuda.so.1"),
            (X86_64, "/lib/libc.so.6"),
        ]);
        for file in [newer.clone(), with_old_entries(&newer, 3), with_old_entries(&newer, 4)] {
            assert_eq!(
                cached_libraries(&file),
                [("libcuda.so.1", "/opt/nvidia/libcuda.so.1"), ("libc.so.6", "/lib/libc.so.6")]
            );
        }
        assert_eq!(cached_libraries(b"glibc-ld.so.cache1.0"), []);
    }

    #[test]
    fn directories_are_those_of_the_libraries_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        assert!(cached_directories(&host, &["libcuda.so."]).is_empty());
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let paths = ["/opt/nvidia/libcuda.so.1", "/opt/nvidia/libnvidia-ml.so.1", "/lib/libc.so.6"];
        std::fs::write(root.path().join("etc/ld.so.cache"), cache(&paths.map(|path| (X86_64, path)))).unwrap();
        assert_eq!(cached_directories(&host, &["libcuda.so.", "libnvidia-ml.so."]), ["/opt/nvidia"]);
    }

    #[test]
    fn this_machines_own_cache_can_be_read() {
        let is_there = Path::new(LD_CACHE).exists();
        assert_eq!(is_there, !cached_directories(&Host::new("/"), &["libc.so."]).is_empty());
    }

    proptest! {
        #[test]
        fn any_file_can_be_read(bytes: Vec<u8>, count: u32, old: bool) {
            let mut file = MAGIC.to_vec();
            file.extend(count.to_ne_bytes());
            file.extend(bytes);
            cached_libraries(&if old { with_old_entries(&file, 1) } else { file });
        }
    }
}
