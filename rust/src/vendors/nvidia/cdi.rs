//! What the container runtime is to do for a container with NVIDIA's devices, when it is told of them by CDI.
//!
//! What every GPU needs (libraries, programs, control nodes, hooks) is of the kind, so that it is done once for a container
//! with several; a GPU adds its nodes. Hooks are programs of NVIDIA's container toolkit on the host.

use std::collections::BTreeSet;
use std::path::Path;

use super::driver_files::DriverFiles;
use super::libraries::Folder;
use crate::cdi::{DeviceNode, Edits, Hook, Mount};
use crate::device::Node;

/// Of all names here.
pub(super) const CDI_VENDOR: &str = "k8s.device-plugin.nvidia.com";

const READ_ONLY: [&str; 5] = ["ro", "nosuid", "nodev", "rbind", "rprivate"];
const SOCKET: [&str; 6] = ["ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"];

/// Links that programs look for and that no library's own name tells: the library, where its link points, the link. `{}`
/// is the driver's version.
const LINKS: [(&str, &str, &str); 4] = [
    ("libcuda.so.", "libcuda.so.1", "libcuda.so"),
    ("libnvidia-opticalflow.so.", "libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so"),
    ("libGLX_nvidia.so.", "libGLX_nvidia.so.{}", "libGLX_indirect.so.0"),
    ("libnvidia-allocator.so.", "../libnvidia-allocator.so.1", "gbm/nvidia-drm_gbm.so"),
];

/// What of the driver containers get, and where it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Installation<'a> {
    /// The driver root, as the host names it.
    pub(super) root: &'a str,
    /// Of the driver.
    pub(super) version: &'a str,
    pub(super) folders: &'a [Folder],
    pub(super) files: &'a DriverFiles,
}

/// For every container with a GPU, or with a part of one.
pub(super) fn common(installation: &Installation, control: &[Node], hook_program: &str) -> Edits {
    let hook = |arguments: Vec<String>| hook(hook_program, arguments);
    let libraries = installation
        .folders
        .iter()
        .flat_map(|folder| folder.libraries.iter().map(|library| format!("{}/{library}", folder.path)));
    let plain = libraries.chain(installation.files.plain.iter().cloned()).map(|path| (path, &READ_ONLY[..]));
    let sockets = installation.files.sockets.iter().cloned().map(|path| (path, &SOCKET[..]));
    let mounts = plain.chain(sockets).map(|(path, options)| bound(installation.root, path, options)).collect();
    let links = links(installation);
    let mut hooks = Vec::new();
    if !links.is_empty() {
        hooks.push(hook(create_symlinks(&links)));
    }
    if !installation.folders.is_empty() {
        let version = format!("--host-driver-version={}", installation.version);
        hooks.push(hook(vec!["enable-cuda-compat".to_owned(), version]));
        hooks.push(hook(update_ldcache(installation.folders.iter().map(|folder| folder.path))));
    }
    hooks.push(hook(vec!["disable-device-node-modification".to_owned()]));
    // Keeps NVIDIA's own runtime from doing it all a second time.
    let env = vec!["NVIDIA_VISIBLE_DEVICES=void".to_owned()];
    Edits { env, device_nodes: of_nodes(control), mounts, hooks }
}

/// For a GPU with these nodes and, below /dev/dri, these; its PCI address names links to them.
pub(super) fn gpu(nodes: &[Node], graphics: &[Node], address: &str, hook_program: &str) -> Edits {
    let links: Vec<String> = graphics.iter().filter_map(|node| by_path(node, address)).collect();
    let hooks = if links.is_empty() { Vec::new() } else { vec![hook(hook_program, create_symlinks(&links))] };
    Edits { device_nodes: of_nodes(nodes.iter().chain(graphics)), hooks, ..Edits::default() }
}

/// For what is nodes, and perhaps files of the host, bound where they are.
pub(super) fn class(nodes: &[Node], root: &str, paths: &[String]) -> Edits {
    let mounts = paths.iter().map(|path| bound(root, path.clone(), &READ_ONLY)).collect();
    Edits { device_nodes: of_nodes(nodes), mounts, ..Edits::default() }
}

/// For what a list names: nodes, files and directories where the host has them, and links.
pub(super) fn listed(nodes: &[Node], paths: &[String], links: &[String], hook_program: &str) -> Edits {
    let mut edits = class(nodes, "/", paths);
    if !links.is_empty() {
        edits.hooks.push(hook(hook_program, create_symlinks(links)));
    }
    let is_library = |path: &&String| path.contains(".so");
    let folders: BTreeSet<&str> =
        paths.iter().filter(is_library).filter_map(|path| Some(path.rsplit_once('/')?.0)).collect();
    if !folders.is_empty() {
        edits.hooks.push(hook(hook_program, update_ldcache(folders)));
    }
    edits
}

/// For a directory that the dynamic linker of a container is to search.
pub(super) fn searched(folder: &str, hook_program: &str) -> Edits {
    Edits { hooks: vec![hook(hook_program, update_ldcache([folder]))], ..Edits::default() }
}

fn of_nodes<'n>(nodes: impl IntoIterator<Item = &'n Node>) -> Vec<DeviceNode> {
    nodes.into_iter().map(DeviceNode::from).collect()
}

/// A container has it where the driver root has it.
fn bound(root: &str, path: String, options: &[&'static str]) -> Mount {
    Mount {
        host_path: format!("{}{path}", root.trim_end_matches('/')),
        container_path: path,
        options: options.to_vec(),
    }
}

fn hook(program: &str, arguments: Vec<String>) -> Hook {
    let name = Path::new(program).file_name().map_or(program.into(), |name| name.to_string_lossy());
    // nvidia-ctk has its hooks below a command of that name; nvidia-cdi-hook has nothing else.
    let command = (name != "nvidia-cdi-hook").then(|| "hook".to_owned());
    let args = std::iter::once(name.into_owned()).chain(command).chain(arguments).collect();
    Hook { hook_name: "createContainer", path: program.to_owned(), args }
}

/// `target::link`, each.
fn create_symlinks(links: &[String]) -> Vec<String> {
    let links = links.iter().flat_map(|link| ["--link".to_owned(), link.clone()]);
    std::iter::once("create-symlinks".to_owned()).chain(links).collect()
}

fn update_ldcache<'f>(folders: impl IntoIterator<Item = &'f str>) -> Vec<String> {
    let folders = folders.into_iter().flat_map(|folder| ["--folder".to_owned(), folder.to_owned()]);
    std::iter::once("update-ldcache".to_owned()).chain(folders).collect()
}

fn links(installation: &Installation) -> Vec<String> {
    let in_folder = |folder: &Folder| {
        let wanted =
            LINKS.iter().filter(|(library, _, _)| folder.libraries.iter().any(|name| name.starts_with(library)));
        let spelt = wanted
            .map(|(_, target, link)| format!("{}::{}/{link}", target.replace("{}", installation.version), folder.path));
        spelt.collect::<Vec<_>>()
    };
    installation.folders.iter().flat_map(in_folder).collect()
}

/// `../card0::/dev/dri/by-path/pci-0000:3b:00.0-card`, as udev would make it.
fn by_path(node: &Node, address: &str) -> Option<String> {
    let name = node.container_path.rsplit('/').next()?;
    let kind = if name.starts_with("renderD") { "render" } else { "card" };
    Some(format!("../{name}::/dev/dri/by-path/pci-{address}-{kind}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CTK: &str = "/usr/bin/nvidia-ctk";

    fn node(root: &str, path: &str) -> Node {
        Node { host_path: format!("{root}{path}"), container_path: path.to_owned(), permissions: "rw".to_owned() }
    }

    fn folder(path: &'static str, libraries: &[&str]) -> Folder {
        Folder { path, libraries: libraries.iter().map(|&name| name.to_owned()).collect() }
    }

    #[test]
    fn what_all_gpus_need_is_said_once() {
        let folders = [
            folder("/usr/lib64", &["libGLX_nvidia.so.580.1", "libcuda.so.580.1", "libnvidia-allocator.so.580.1"]),
            folder("/usr/lib64/vdpau", &["libvdpau_nvidia.so.580.1"]),
        ];
        let files = DriverFiles {
            plain: vec!["/usr/bin/nvidia-smi".to_owned()],
            sockets: vec!["/run/nvidia-persistenced/socket".to_owned()],
        };
        let installation =
            Installation { root: "/run/nvidia/driver", version: "580.1", folders: &folders, files: &files };
        let edits = common(&installation, &[node("/run/nvidia/driver", "/dev/nvidiactl")], CTK);
        let mounts: Vec<String> =
            edits.mounts.iter().map(|mount| format!("{}={}", mount.host_path, mount.container_path)).collect();
        assert_eq!(
            mounts,
            [
                "/run/nvidia/driver/usr/lib64/libGLX_nvidia.so.580.1=/usr/lib64/libGLX_nvidia.so.580.1",
                "/run/nvidia/driver/usr/lib64/libcuda.so.580.1=/usr/lib64/libcuda.so.580.1",
                "/run/nvidia/driver/usr/lib64/libnvidia-allocator.so.580.1=/usr/lib64/libnvidia-allocator.so.580.1",
                "/run/nvidia/driver/usr/lib64/vdpau/libvdpau_nvidia.so.580.1=/usr/lib64/vdpau/libvdpau_nvidia.so.580.1",
                "/run/nvidia/driver/usr/bin/nvidia-smi=/usr/bin/nvidia-smi",
                "/run/nvidia/driver/run/nvidia-persistenced/socket=/run/nvidia-persistenced/socket",
            ]
        );
        assert!(edits.mounts[4].options == READ_ONLY && edits.mounts[5].options.contains(&"noexec"));
        assert_eq!(edits.device_nodes[0].host_path.as_deref(), Some("/run/nvidia/driver/dev/nvidiactl"));
        assert_eq!(edits.env, ["NVIDIA_VISIBLE_DEVICES=void"]);
        let hooks: Vec<String> = edits.hooks.iter().map(|hook| hook.args.join(" ")).collect();
        assert_eq!(
            hooks,
            [
                "nvidia-ctk hook create-symlinks --link libcuda.so.1::/usr/lib64/libcuda.so --link \
                 libGLX_nvidia.so.580.1::/usr/lib64/libGLX_indirect.so.0 --link \
                 ../libnvidia-allocator.so.1::/usr/lib64/gbm/nvidia-drm_gbm.so",
                "nvidia-ctk hook enable-cuda-compat --host-driver-version=580.1",
                "nvidia-ctk hook update-ldcache --folder /usr/lib64 --folder /usr/lib64/vdpau",
                "nvidia-ctk hook disable-device-node-modification",
            ]
        );
        assert!(edits.hooks.iter().all(|hook| hook.path == CTK && hook.hook_name == "createContainer"));
    }

    #[test]
    fn without_libraries_there_are_no_hooks_for_them() {
        let files = DriverFiles::default();
        let installation = Installation { root: "/", version: "", folders: &[], files: &files };
        let edits = common(&installation, &[], "/usr/bin/nvidia-cdi-hook");
        assert_eq!(edits.mounts, []);
        let hooks: Vec<String> = edits.hooks.iter().map(|hook| hook.args.join(" ")).collect();
        assert_eq!(hooks, ["nvidia-cdi-hook disable-device-node-modification"]);
    }

    #[test]
    fn a_gpu_adds_its_nodes_and_the_links_by_its_address() {
        let graphics = [node("", "/dev/dri/card1"), node("", "/dev/dri/renderD129")];
        let edits = gpu(&[node("", "/dev/nvidia0")], &graphics, "0000:3b:00.0", CTK);
        let paths: Vec<&str> = edits.device_nodes.iter().map(|node| node.path.as_str()).collect();
        assert_eq!(paths, ["/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD129"]);
        assert_eq!(
            edits.hooks[0].args.join(" "),
            "nvidia-ctk hook create-symlinks --link ../card1::/dev/dri/by-path/pci-0000:3b:00.0-card --link \
             ../renderD129::/dev/dri/by-path/pci-0000:3b:00.0-render"
        );
        assert!(gpu(&[node("", "/dev/nvidia0")], &[], "0000:3b:00.0", CTK).hooks.is_empty());
    }

    proptest! {
        #[test]
        fn every_library_is_bound_from_the_driver_root_to_where_the_container_looks(
            names in prop::collection::vec("lib[a-z]{1,8}", 0..8), root in prop::sample::select(vec!["/", "/run/nvidia/driver"]),
        ) {
            let libraries = names.iter().map(|name| format!("{name}.so.580.1")).collect();
            let folders = [Folder { path: "/usr/lib64", libraries }];
            let files = DriverFiles::default();
            let edits = common(&Installation { root, version: "580.1", folders: &folders, files: &files }, &[], CTK);
            prop_assert_eq!(edits.mounts.len(), names.len());
            for mount in edits.mounts {
                let under_root = Path::new(root).join(mount.container_path.trim_start_matches('/'));
                prop_assert_eq!(Path::new(&mount.host_path), under_root);
            }
        }
    }
}
