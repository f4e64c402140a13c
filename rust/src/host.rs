//! Where the host's sys, proc and dev are. Nothing else in this crate names them.

use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::directory::normal;

/// The file that `devherd sim node` leaves in its tree: plain files may stand for device nodes there.
const SIMULATED_MARK: &str = ".devherd-simulated-node";

/// A host tree under any prefix: `/` on bare metal, `/host` in a container, a directory in tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    root: PathBuf,
    simulated: bool,
}

impl Host {
    /// The host whose tree is below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let simulated = root.join(SIMULATED_MARK).exists();
        Self { root, simulated }
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

    /// An absolute path of the host (`/run/x.sock`), as this process reaches it.
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

    /// Where a link in a directory of the kernel's leads. It is resolved as text, below the root: what it names is then the
    /// host's own path.
    #[must_use]
    pub fn behind_link(&self, directory: &Path, target: &Path) -> PathBuf {
        self.absolute(normal(&self.own_path(directory).join(target)))
    }

    /// Whether no device node of this number (`None`: any) is at a path, which includes the root. Costs one stat.
    ///
    /// On a simulated node a plain file will do. Who may not look cannot tell that something is missing.
    #[must_use]
    pub fn lacks_node(&self, path: &Path, number: Option<(u32, u32)>) -> bool {
        match rustix::fs::stat(path) {
            Ok(found) => !self.is_node(&found, number),
            Err(error) => !matches!(error, Errno::ACCESS | Errno::PERM),
        }
    }

    fn is_node(&self, found: &Stat, number: Option<(u32, u32)>) -> bool {
        let own = (rustix::fs::major(found.st_rdev), rustix::fs::minor(found.st_rdev));
        match FileType::from_raw_mode(found.st_mode) {
            FileType::CharacterDevice | FileType::BlockDevice => number.is_none_or(|number| number == own),
            FileType::RegularFile => self.simulated,
            _ => false,
        }
    }

    /// Whether plain files may stand for device nodes: only in a tree written by `devherd sim node`.
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
        std::fs::write(root.path().join(SIMULATED_MARK), "").unwrap();
        assert!(!Host::new(root.path()).lacks_node(&node, Some((245, 0))));
    }
}
