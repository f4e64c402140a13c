//! The device nodes of the driver on the host, and the nodes that a container needs.

use std::path::{Path, PathBuf};

use super::mig::Capabilities;
use super::{NvidiaOptions, installation};
use crate::device::{Access, HostPath, Platform};
use crate::edits::Node;
use crate::host::Host;
use crate::host::directory::{self, Directory};

/// The major number of `/dev/nvidia<N>`; the minor number is N.
const MAJOR: u32 = 195;

const IMEX_CHANNELS: &str = "/dev/nvidia-caps-imex-channels/channel";
/// Nodes that every container with a GPU needs.
const CONTROL: [&str; 4] = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"];

/// The directory, without the host root, whose `dev` holds the driver's nodes.
#[derive(Debug, Clone)]
pub(super) struct DevRoot(PathBuf);

impl DevRoot {
    /// The root from the options; by default the driver root, if it has a `dev` directory.
    pub(super) fn of(host: &Host, options: &NvidiaOptions) -> Self {
        let driver_root = || {
            let root = Path::new(&options.driver_root);
            if host.absolute(root).join("dev").is_dir() { root } else { Path::new("/") }
        };
        Self(options.dev_root.as_deref().map_or_else(driver_root, Path::new).to_path_buf())
    }

    /// The path on the host of a node that containers see at `path`.
    pub(super) fn place(&self, path: &str) -> String {
        self.0.join(path.trim_start_matches('/')).to_string_lossy().into_owned()
    }

    /// The root as a path on the host.
    pub(super) fn text(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }

    /// The directory of the nodes, with the host root.
    pub(super) fn directory(&self, host: &Host) -> PathBuf {
        host.absolute(self.0.join("dev"))
    }

    /// The existing nodes that every GPU needs.
    pub(super) fn control(&self, host: &Host) -> Vec<HostPath> {
        let node = |path| HostPath::node(self.place(path), None).in_role(installation::CONTROL).required(false);
        CONTROL.map(node).into_iter().filter(|node| is_there(host, node)).map(|node| as_found(host, node)).collect()
    }
}

/// The problem of a host on which no GPU has its node: no program has made the nodes since the driver was loaded.
pub(super) const NONE_MADE: &str = "no GPU has its device node: nobody has made them since the driver was loaded; run \
    nvidia-smi or start nvidia-persistenced, or `nvidia-modprobe -c0 -u`, with a `-c` for each GPU";

/// Whether the nodes of GPUs with these minor numbers are all missing.
pub(super) fn none_is_made(host: &Host, dev_root: &DevRoot, minors: &[u32]) -> bool {
    let is_missing = |&minor: &u32| host.lacks_node(&host.absolute(dev_root.place(&of_gpu(minor).path)), None);
    !minors.is_empty() && minors.iter().all(is_missing)
}

pub(super) fn is_there(host: &Host, node: &HostPath) -> bool {
    directory::exists(&host.absolute(&node.path))
}

/// The node with its group, if it has one: nodes below /dev/dri have one, and all nodes if driver options set one.
pub(super) fn as_found(host: &Host, node: HostPath) -> HostPath {
    const ALL_MAY: u32 = 0o006;
    let Ok(status) = rustix::fs::stat(host.absolute(&node.path)) else { return node };
    let (group, mode) = (status.st_gid, status.st_mode & 0o7777);
    let is_for_group = group != 0 && mode & ALL_MAY != ALL_MAY;
    HostPath { access: is_for_group.then_some(Access { group, mode }), ..node }
}

impl Default for DevRoot {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

/// A node that a device requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Needed {
    /// The path in the container.
    pub(super) path: String,
    /// Major and minor number; `None` if the kernel chooses the number.
    pub(super) number: Option<(u32, u32)>,
}

/// The GPU's own node.
pub(super) fn of_gpu(minor: u32) -> Needed {
    Needed { path: format!("/dev/nvidia{minor}"), number: Some((MAJOR, minor)) }
}

/// The nodes for a MIG device: the node of the whole GPU and two capability nodes.
pub(super) fn of_instance(minor: u32, capabilities: Capabilities) -> [Needed; 3] {
    let [of_instance, of_compute] =
        capabilities.map(|number| Needed { path: format!("/dev/nvidia-caps/nvidia-cap{number}"), number: None });
    [of_gpu(minor), of_instance, of_compute]
}

/// The path of a node in a directory below /dev, or in /dev itself.
pub(super) fn below_dev(directory: &str, name: &str) -> String {
    let separator = if directory.is_empty() { "" } else { "/" };
    format!("/dev/{directory}{separator}{name}")
}

/// Names of a GPU's nodes below /dev/dri.
pub(super) fn graphics(host: &Host, address: &str) -> Vec<String> {
    let names = Directory::open(host.sys(format!("bus/pci/devices/{address}/drm"))).and_then(|open| open.names());
    let is_node = |name: &String| name.starts_with("card") || name.starts_with("renderD");
    names.unwrap_or_default().into_iter().filter(is_node).collect()
}

/// Path of an IMEX channel's node.
pub(super) fn of_imex_channel(channel: u32) -> String {
    format!("{IMEX_CHANNELS}{channel}")
}

/// The number of the IMEX channel, from the path of its node below any root.
pub(super) fn imex_channel_of(path: &str) -> &str {
    path.rsplit_once(IMEX_CHANNELS).map_or(path, |(_, number)| number)
}

/// A node at the path that it has in containers.
pub(super) fn in_container(platform: &Platform, path: &HostPath, permissions: &str) -> Node {
    let dev_root = platform.text(installation::DEV_ROOT);
    let below = path.path.strip_prefix(dev_root.trim_end_matches('/')).filter(|below| below.starts_with('/'));
    let container_path = below.unwrap_or(&path.path).to_owned();
    Node { container_path, access: path.access, ..Node::same(&path.path, permissions) }
}
