//! The host's trees: where sys, proc and dev are, and how they are read. Nothing else in this crate names them.
//!
//! ```text
//! attribute    one file of sysfs, read and parsed
//! directory    an open directory: entries, links
//! resolve      links followed as the host follows them; the device node at a path
//! read_log     what some work has read, and whether that still looks the same
//! ```

pub mod attribute;
pub mod directory;
pub mod read_log;
pub mod resolve;

use std::any::Any;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use attribute::Attribute;
use directory::normal;
use resolve::Place;

/// `SYSFS_MAGIC` of <https://man7.org/linux/man-pages/man2/statfs.2.html>.
const SYSFS: i64 = 0x6265_6572;

/// A host tree under any prefix: `/` on bare metal, `/host` in a container, a directory in tests.
#[derive(Debug, Clone)]
pub struct Host {
    root: PathBuf,
    simulated: bool,
    /// The result that one scan makes once for all vendors; `None` outside of scans.
    made: Option<Arc<OnceLock<Made>>>,
    /// The open root, during a scan.
    opened: Option<Arc<OnceLock<Opened>>>,
}

type Opened = Result<Arc<OwnedFd>, Errno>;

type Made = Arc<dyn Any + Send + Sync>;

impl Host {
    /// The host whose tree is below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), simulated: false, made: None, opened: None }
    }

    /// The simulated node whose tree is below `root`; plain files may stand for device nodes.
    pub fn simulated(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), simulated: true, made: None, opened: None }
    }

    /// The same host for one scan.
    #[must_use]
    pub fn for_a_scan(&self) -> Self {
        Self { made: Some(Arc::default()), opened: Some(Arc::default()), ..self.clone() }
    }

    /// The result of `make`. A host for one scan keeps the result of the first call and returns it again.
    pub fn once_a_scan(&self, make: impl FnOnce() -> Made) -> Made {
        match &self.made {
            Some(kept) => Arc::clone(kept.get_or_init(make)),
            None => make(),
        }
    }

    /// The root as an open path; a host for one scan keeps it open.
    ///
    /// # Errors
    /// The kernel's error.
    pub(in crate::host) fn open_root(&self) -> Result<Arc<OwnedFd>, Errno> {
        let open = || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            openat(CWD, self.absolute("/"), flags, Mode::empty()).map(Arc::new)
        };
        self.opened.as_ref().map_or_else(open, |kept| kept.get_or_init(open).clone())
    }

    /// `/proc/sys/kernel/random/boot_id`; `None` if it cannot be read.
    #[must_use]
    pub fn boot_id(&self) -> Option<String> {
        Some(Attribute::read(self.proc("sys/kernel/random/boot_id")).ok()?.text().to_owned())
    }

    /// Identifies this machine, also in a container: its firmware's UUID or serial number; `None` if unknown.
    ///
    /// Sources: drivers/firmware/dmi-id.c; the property `serial-number` of the root node in the Devicetree
    /// Specification.
    #[must_use]
    pub fn machine(&self) -> Option<String> {
        let files = ["class/dmi/id/product_uuid", "firmware/devicetree/base/serial-number"];
        let text = |file| Some(Attribute::read(self.sys(file)).ok()?.text().to_owned());
        files.into_iter().filter_map(text).find(|text| !text.is_empty())
    }

    /// A path below /sys.
    #[must_use]
    pub fn sys(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.join("sys").join(below)
    }

    /// A path below /dev.
    #[must_use]
    pub fn dev(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.join("dev").join(below)
    }

    /// A path below /proc.
    #[must_use]
    pub fn proc(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.join("proc").join(below)
    }

    /// The path by which this process reaches an absolute path of the host (`/run/x.sock`).
    #[must_use]
    pub fn absolute(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path.as_ref().strip_prefix("/").unwrap_or(path.as_ref()))
    }

    /// The path as the host itself, and so the kubelet, names it: without the root.
    #[must_use]
    pub fn own_path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        path.strip_prefix(&self.root).map_or_else(|_| path.to_path_buf(), |below| Path::new("/").join(below))
    }

    /// The target of a link in a directory of the kernel's, resolved as text below the host root.
    #[must_use]
    pub fn behind_link(&self, directory: &Path, target: &Path) -> PathBuf {
        self.absolute(normal(&self.own_path(directory).join(target)))
    }

    /// Whether `path`, which includes the root, is not a device node with this number (`None`: any). Costs one stat.
    ///
    /// On a simulated node a plain file counts as a node. A path that this process may not look at does not count as
    /// missing.
    #[must_use]
    pub fn lacks_node(&self, path: &Path, number: Option<(u32, u32)>) -> bool {
        matches!(resolve::judged(self, rustix::fs::stat(path), number), Place::Other(_))
    }

    /// Whether its /sys is the kernel's sysfs, not a tree of files.
    #[must_use]
    pub fn has_kernel_sysfs(&self) -> bool {
        rustix::fs::statfs(self.sys("")).is_ok_and(|found| found.f_type == SYSFS)
    }

    /// Whether it is a tree of `devherd sim node`.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.simulated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_gain_and_lose_the_root() {
        for root in ["/", "/host", "/tmp/node/"] {
            let host = Host::new(root);
            assert_eq!(host.own_path(host.sys("class/fpga")), Path::new("/sys/class/fpga"));
            assert_eq!(host.own_path(host.absolute("/run/x.sock")), Path::new("/run/x.sock"));
            assert_eq!(host.own_path(host.dev("kvm")), Path::new("/dev/kvm"));
            assert!(host.proc("1/stat").starts_with(root));
        }
    }

    #[test]
    fn a_link_leads_to_a_path_of_the_host() {
        for root in ["/", "/host", "/tmp/node/"] {
            let host = Host::new(root);
            let class = host.sys("class/drm");
            for target in ["../../devices/gpu", "/sys/devices/gpu", "../../../../../../sys/devices/./gpu"] {
                assert_eq!(host.behind_link(&class, Path::new(target)), host.sys("devices/gpu"), "{root} {target}");
            }
        }
    }

    #[test]
    fn a_machine_is_known_by_its_firmware() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        assert_eq!(host.machine(), None);
        for (file, content, expected) in [
            ("firmware/devicetree/base/serial-number", "10000000abc\0", "10000000abc"),
            ("class/dmi/id/product_uuid", "\n", "10000000abc"),
            ("class/dmi/id/product_uuid", "4c4c4544-0042\n", "4c4c4544-0042"),
        ] {
            std::fs::create_dir_all(host.sys(file).parent().unwrap()).unwrap();
            std::fs::write(host.sys(file), content).unwrap();
            assert_eq!(host.machine().as_deref(), Some(expected));
        }
    }

    #[test]
    fn only_a_device_node_of_the_right_number_is_a_node() {
        let host = Host::new("/");
        let null = Path::new("/dev/null");
        assert!(!host.lacks_node(null, None) && !host.lacks_node(null, Some((1, 3))));
        assert!(host.lacks_node(null, Some((1, 4))));
        assert!(host.lacks_node(Path::new("/dev"), None));
        assert!(host.lacks_node(Path::new("/proc/self/stat"), None));
        assert!(host.lacks_node(Path::new("/dev/does-not-exist"), None));
    }

    #[test]
    fn a_plain_file_is_a_node_on_a_simulated_host_only() {
        let root = tempfile::tempdir().unwrap();
        let node = root.path().join("node");
        std::fs::write(&node, "").unwrap();
        assert!(Host::new(root.path()).lacks_node(&node, None));
        assert!(!Host::simulated(root.path()).lacks_node(&node, Some((245, 0))));
    }
}
