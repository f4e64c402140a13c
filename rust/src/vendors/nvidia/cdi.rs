//! CDI edits for NVIDIA's devices: the steps of the container runtime for a container that gets such devices by CDI.
//!
//! The edits that every GPU needs (libraries, programs, control nodes, hooks) belong to the CDI kind, so that a
//! container with several GPUs has them only once; each GPU adds its nodes. Hooks are programs of NVIDIA's container
//! toolkit on the host.

use std::collections::BTreeSet;
use std::path::Path;

use super::installation::{
    CONFIGURATION, CONTROL, DEVICE, DRIVER_STORE, DRIVER_VERSION, FILE, GRAPHICS, LIBRARY, LIBRARY_LINK, LISTED,
    MODULE, SOCKET,
};
use super::libraries::VDPAU;
use super::nodes::in_container;
use super::{NvidiaOptions, driver_files, wsl};
use crate::device::{Device, HostPath, Platform};
use crate::edits::{Edits, Hook, Mount};

/// The vendor part of all CDI names here.
pub(super) const VENDOR: &str = "k8s.device-plugin.nvidia.com";

const READ_ONLY: &[&str] = &["ro", "nosuid", "nodev", "rbind", "rprivate"];
/// Mount options of sockets. `ro` is missing because container runtimes within the container cannot bind a read-only
/// mount again.
const BOUND_SOCKET: &[&str] = &["nosuid", "nodev", "rbind", "rprivate", "noexec"];

pub(super) const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// The value that keeps NVIDIA's runtime from acting; without it, the image's own `all` would apply.
pub(super) const NO_DEVICES: &str = "void";

/// Links that programs need and whose names cannot be derived from the library: library, target, link. `{}` is the
/// driver's version.
const LINKS: [(&str, &str, &str); 6] = [
    ("libcuda.so.", "libcuda.so.1", "libcuda.so"),
    ("libnvidia-opticalflow.so.", "libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so"),
    ("libGLX_nvidia.so.", "libGLX_nvidia.so.{}", "libGLX_indirect.so.0"),
    ("libnvidia-allocator.so.", "../libnvidia-allocator.so.1", "gbm/nvidia-drm_gbm.so"),
    ("libnvidia-vulkan-producer.so.", "libnvidia-vulkan-producer.so.{}", "libnvidia-vulkan-producer.so"),
    ("libglxserver_nvidia.so.", "libglxserver_nvidia.so.{}", "libglxserver_nvidia.so"),
];

/// The CDI kind: `k8s.device-plugin.nvidia.com/gpu`.
pub(super) fn kind(class: &str) -> String {
    format!("{VENDOR}/{class}")
}

/// The edits of every container with a GPU, or with a part of a GPU.
pub(super) fn common(platform: &Platform, options: &NvidiaOptions) -> Edits {
    let root = &options.driver_root;
    let hook = |arguments: Vec<String>| hook(&options.cdi_hook_path, arguments);
    let version = platform.text(DRIVER_VERSION);
    let (folders, of_modules) = (folders(platform, LIBRARY, root), folders(platform, MODULE, root));
    let plain = [LIBRARY, MODULE, FILE].into_iter().flat_map(|role| platform.paths_in(role));
    let plain = plain.map(|path| bound(path, root, READ_ONLY));
    let configurations = platform.paths_in(CONFIGURATION).map(|path| configuration(path, root));
    let sockets = platform.paths_in(SOCKET).map(|path| Mount { read_only: false, ..bound(path, root, BOUND_SOCKET) });
    let mut links: Vec<String> = folders.iter().chain(&of_modules).flat_map(|folder| links(folder, &version)).collect();
    for link in platform.paths_in(LIBRARY_LINK).map(|link| format!("{}::{}", link.target, below(&link.path, root))) {
        if !links.contains(&link) {
            links.push(link);
        }
    }
    let mut hooks = Vec::new();
    if !links.is_empty() {
        hooks.push(hook(create_symlinks(&links)));
    }
    if !folders.is_empty() {
        hooks.push(hook(vec!["enable-cuda-compat".to_owned(), format!("--host-driver-version={version}")]));
        hooks.push(hook(update_ldcache(folders.iter().map(|folder| folder.path))));
    }
    hooks.push(hook(vec!["disable-device-node-modification".to_owned()]));
    hooks.push(hook(vec!["update-application-profile".to_owned()]));
    let of_driver: Vec<&str> =
        folders.iter().filter(|folder| folder.is_of(&version)).map(|folder| folder.path).collect();
    let directories = (!of_driver.is_empty()).then(|| ("NVIDIA_CTK_LIBCUDA_DIR".to_owned(), of_driver.join(":")));
    let own = Edits {
        envs: directories.into_iter().collect(),
        nodes: platform.paths_in(CONTROL).map(|path| in_container(platform, path, "")).collect(),
        mounts: plain.chain(configurations).chain(sockets).collect(),
        hooks,
        ..Edits::default()
    };
    no_devices().and(own)
}

/// Edits that keep NVIDIA's own runtime from making the same changes again.
pub(super) fn no_devices() -> Edits {
    Edits { envs: [(VISIBLE_DEVICES.to_owned(), NO_DEVICES.to_owned())].into(), ..Edits::default() }
}

/// The edits of one device: its nodes and the links to them; on Tegra and WSL, the replacements of nodes.
pub(super) fn of_device(device: &Device, platform: &Platform, options: &NvidiaOptions) -> Edits {
    let own = device.paths_in(DEVICE).chain(device.paths_in(GRAPHICS)).map(|path| in_container(platform, path, ""));
    let own = Edits { nodes: own.collect(), ..Edits::default() };
    let links: Vec<String> = device.paths_in(GRAPHICS).filter_map(|path| by_path(path, &device.card)).collect();
    let hook_program = &options.cdi_hook_path;
    let own = own.and(linked(&links, hook_program)).and(listed(platform, hook_program));
    if device.id == wsl::ID { own.and(driver_store(platform, hook_program)) } else { own }
}

/// The edits for nodes and files. A file is bound to its path in the driver root.
pub(super) fn of_paths<'p>(platform: &Platform, paths: impl IntoIterator<Item = &'p HostPath>, root: &str) -> Edits {
    let mut edits = Edits::default();
    for path in paths {
        if path.is_node {
            edits.nodes.push(in_container(platform, path, ""));
        } else {
            edits.mounts.push(bound(path, root, READ_ONLY));
        }
    }
    edits
}

/// The edits for the entries of a Tegra board's lists: nodes, files and directories, and links.
fn listed(platform: &Platform, hook_program: &str) -> Edits {
    let (links, there): (Vec<_>, Vec<_>) = platform.paths_in(LISTED).partition(|path| !path.target.is_empty());
    let links: Vec<String> = links.iter().map(|link| format!("{}::{}", link.target, link.path)).collect();
    let libraries = there.iter().filter(|path| !path.is_node && path.path.contains(".so"));
    let folders: BTreeSet<&str> = libraries.filter_map(|path| Some(path.path.rsplit_once('/')?.0)).collect();
    let edits = of_paths(platform, there, "/").and(linked(&links, hook_program));
    if folders.is_empty() { edits } else { edits.and(searched(folders, hook_program)) }
}

/// The edits for the Windows drivers, a link to their nvidia-smi, and the dynamic linker's search path.
fn driver_store(platform: &Platform, hook_program: &str) -> Edits {
    let (links, there): (Vec<_>, Vec<_>) = platform.paths_in(DRIVER_STORE).partition(|path| !path.target.is_empty());
    let links: Vec<String> = links.iter().map(|link| format!("{}::{}", link.target, link.path)).collect();
    let store = of_paths(platform, there, "/").and(linked(&links, hook_program));
    store.and(searched([wsl::DRIVER_STORE_LIBRARIES], hook_program))
}

fn linked(links: &[String], hook_program: &str) -> Edits {
    let hooks = if links.is_empty() { Vec::new() } else { vec![hook(hook_program, create_symlinks(links))] };
    Edits { hooks, ..Edits::default() }
}

/// The hook that adds directories to the search path of the container's dynamic linker.
fn searched<'f>(folders: impl IntoIterator<Item = &'f str>, hook_program: &str) -> Edits {
    Edits { hooks: vec![hook(hook_program, update_ldcache(folders))], ..Edits::default() }
}

/// A mount at the same path as in the driver root, even if the path is a link there.
fn bound(path: &HostPath, root: &str, options: &'static [&'static str]) -> Mount {
    let host_path = if path.target.is_empty() { &path.path } else { &path.target };
    Mount { host_path: host_path.clone(), container_path: below(&path.path, root).to_owned(), read_only: true, options }
}

/// A mount at the path where loaders look for the file.
fn configuration(path: &HostPath, root: &str) -> Mount {
    let bound = bound(path, root, READ_ONLY);
    Mount { container_path: driver_files::place_in_container(&path.path).unwrap_or(bound.container_path), ..bound }
}

/// The path without the driver root.
fn below<'p>(path: &'p str, root: &str) -> &'p str {
    path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path)
}

/// A directory of the driver root with libraries.
struct Folder<'p> {
    path: &'p str,
    libraries: Vec<&'p str>,
}

impl Folder<'_> {
    /// Whether the folder has the driver's own libraries, and not only libraries for VDPAU.
    fn is_of(&self, version: &str) -> bool {
        !self.path.ends_with(VDPAU) && self.libraries.iter().any(|name| name.ends_with(&format!(".so.{version}")))
    }
}

fn folders<'p>(platform: &'p Platform, role: &'static str, root: &str) -> Vec<Folder<'p>> {
    let mut folders: Vec<Folder> = Vec::new();
    for library in platform.paths_in(role) {
        let Some((path, name)) = below(&library.path, root).rsplit_once('/') else { continue };
        match folders.iter_mut().find(|folder| folder.path == path) {
            Some(folder) => folder.libraries.push(name),
            None => folders.push(Folder { path, libraries: vec![name] }),
        }
    }
    folders
}

fn hook(program: &str, arguments: Vec<String>) -> Hook {
    let name = Path::new(program).file_name().map_or(program.into(), |name| name.to_string_lossy());
    // nvidia-ctk has its hooks below the command `hook`; nvidia-cdi-hook and its substitutes have only hooks.
    let command = (name == "nvidia-ctk").then(|| "hook".to_owned());
    let args = std::iter::once(name.into_owned()).chain(command).chain(arguments).collect();
    Hook { hook_name: "createContainer", path: program.to_owned(), args }
}

/// Arguments of a hook, for links written as `target::link`.
fn create_symlinks(links: &[String]) -> Vec<String> {
    let links = links.iter().flat_map(|link| ["--link".to_owned(), link.clone()]);
    std::iter::once("create-symlinks".to_owned()).chain(links).collect()
}

fn update_ldcache<'f>(folders: impl IntoIterator<Item = &'f str>) -> Vec<String> {
    let folders = folders.into_iter().flat_map(|folder| ["--folder".to_owned(), folder.to_owned()]);
    std::iter::once("update-ldcache".to_owned()).chain(folders).collect()
}

/// The links that the folder's libraries need, as `target::link`.
fn links(folder: &Folder, version: &str) -> Vec<String> {
    let wanted = LINKS.iter().filter(|(library, _, _)| folder.libraries.iter().any(|name| name.starts_with(library)));
    wanted.map(|(_, target, link)| format!("{}::{}/{link}", target.replace("{}", version), folder.path)).collect()
}

/// The link that udev would make, as `target::link`: `../card0::/dev/dri/by-path/pci-0000:3b:00.0-card`.
fn by_path(node: &HostPath, address: &str) -> Option<String> {
    let name = node.path.rsplit('/').next()?;
    let kind = if name.starts_with("renderD") { "render" } else { "card" };
    Some(format!("../{name}::/dev/dri/by-path/pci-{address}-{kind}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::vendors::nvidia::installation::DEV_ROOT;
    use crate::vendors::table::made;

    fn options(root: &str, hook_program: &str) -> NvidiaOptions {
        NvidiaOptions {
            driver_root: root.to_owned(),
            cdi_hook_path: hook_program.to_owned(),
            ..made(&json!({})).nvidia
        }
    }

    fn platform(root: &str, libraries: &[String]) -> Platform {
        let mut platform = Platform::default();
        platform.note(DEV_ROOT, root, "");
        platform.note(DRIVER_VERSION, "580.1", "");
        let paths = libraries.iter().map(|path| format!("{}{path}", root.trim_end_matches('/')));
        platform.paths = paths.map(|path| HostPath::file(path).in_role(LIBRARY)).collect();
        platform
    }

    fn hooks(edits: &Edits) -> Vec<String> {
        edits.hooks.iter().map(|hook| hook.args.join(" ")).collect()
    }

    #[test]
    fn edits_that_all_gpus_need_are_made_once() {
        let root = "/run/nvidia/driver";
        let libraries = [
            "/usr/lib64/libGLX_nvidia.so.580.1",
            "/usr/lib64/libcuda.so.580.1",
            "/usr/lib64/libnvidia-allocator.so.580.1",
            "/usr/lib64/vdpau/libvdpau_nvidia.so.580.1",
        ];
        let mut platform = platform(root, &libraries.map(str::to_owned));
        for (path, role) in [
            ("/usr/lib64/nvidia/xorg/libglxserver_nvidia.so.580.1", MODULE),
            ("/usr/share/vulkan/icd.d/nvidia_icd.json", CONFIGURATION),
            ("/usr/bin/nvidia-smi", FILE),
            ("/run/nvidia-persistenced/socket", SOCKET),
        ] {
            platform.paths.push(HostPath::file(format!("{root}{path}")).in_role(role));
        }
        for (name, target) in [("libcuda.so", "libcuda.so.1"), ("libcuda.so.1", "libcuda.so.580.1")] {
            let link = HostPath::file(format!("{root}/usr/lib64/{name}")).in_role(LIBRARY_LINK);
            platform.paths.push(HostPath { target: target.to_owned(), ..link });
        }
        platform.paths.push(HostPath::node(format!("{root}/dev/nvidiactl"), None).in_role(CONTROL));
        let edits = common(&platform, &options(root, "/usr/bin/nvidia-ctk"));
        let mounts: Vec<String> =
            edits.mounts.iter().map(|mount| format!("{}={}", mount.host_path, mount.container_path)).collect();
        assert_eq!(
            mounts,
            [
                "/run/nvidia/driver/usr/lib64/libGLX_nvidia.so.580.1=/usr/lib64/libGLX_nvidia.so.580.1",
                "/run/nvidia/driver/usr/lib64/libcuda.so.580.1=/usr/lib64/libcuda.so.580.1",
                "/run/nvidia/driver/usr/lib64/libnvidia-allocator.so.580.1=/usr/lib64/libnvidia-allocator.so.580.1",
                "/run/nvidia/driver/usr/lib64/vdpau/libvdpau_nvidia.so.580.1=/usr/lib64/vdpau/libvdpau_nvidia.so.580.1",
                "/run/nvidia/driver/usr/lib64/nvidia/xorg/libglxserver_nvidia.so.580.1\
                 =/usr/lib64/nvidia/xorg/libglxserver_nvidia.so.580.1",
                "/run/nvidia/driver/usr/bin/nvidia-smi=/usr/bin/nvidia-smi",
                "/run/nvidia/driver/usr/share/vulkan/icd.d/nvidia_icd.json=/etc/vulkan/icd.d/nvidia_icd.json",
                "/run/nvidia/driver/run/nvidia-persistenced/socket=/run/nvidia-persistenced/socket",
            ]
        );
        assert!(edits.mounts[..7].iter().all(|mount| mount.options == READ_ONLY && mount.read_only));
        assert!(edits.mounts[7].options == BOUND_SOCKET && !edits.mounts[7].read_only);
        assert_eq!(edits.nodes[0].host_path, "/run/nvidia/driver/dev/nvidiactl");
        assert_eq!(edits.nodes[0].container_path, "/dev/nvidiactl");
        assert_eq!(edits.envs["NVIDIA_VISIBLE_DEVICES"], "void");
        assert_eq!(edits.envs["NVIDIA_CTK_LIBCUDA_DIR"], "/usr/lib64");
        assert_eq!(
            hooks(&edits),
            [
                "nvidia-ctk hook create-symlinks --link libcuda.so.1::/usr/lib64/libcuda.so --link \
                 libGLX_nvidia.so.580.1::/usr/lib64/libGLX_indirect.so.0 --link \
                 ../libnvidia-allocator.so.1::/usr/lib64/gbm/nvidia-drm_gbm.so --link \
                 libglxserver_nvidia.so.580.1::/usr/lib64/nvidia/xorg/libglxserver_nvidia.so --link \
                 libcuda.so.580.1::/usr/lib64/libcuda.so.1",
                "nvidia-ctk hook enable-cuda-compat --host-driver-version=580.1",
                "nvidia-ctk hook update-ldcache --folder /usr/lib64 --folder /usr/lib64/vdpau",
                "nvidia-ctk hook disable-device-node-modification",
                "nvidia-ctk hook update-application-profile",
            ]
        );
        assert!(
            edits.hooks.iter().all(|hook| hook.path == "/usr/bin/nvidia-ctk" && hook.hook_name == "createContainer")
        );
    }

    #[test]
    fn without_libraries_there_are_no_hooks_for_them() {
        let edits = common(&platform("/", &[]), &options("/", "/usr/bin/nvidia-cdi-hook"));
        assert_eq!(edits.mounts, []);
        assert_eq!(
            hooks(&edits),
            ["nvidia-cdi-hook disable-device-node-modification", "nvidia-cdi-hook update-application-profile"]
        );
        assert!(!edits.envs.contains_key("NVIDIA_CTK_LIBCUDA_DIR"));
    }

    #[test]
    fn only_nvidia_ctk_has_its_hooks_below_a_command() {
        for (program, begin) in [
            ("/usr/bin/nvidia-ctk", "nvidia-ctk hook disable"),
            ("/opt/toolkit/nvidia-ctk.real", "nvidia-ctk.real disable"),
            ("/opt/toolkit/toolkit-hook", "toolkit-hook disable"),
        ] {
            let edits = common(&platform("/", &[]), &options("/", program));
            assert!(hooks(&edits)[0].starts_with(begin), "{program}");
        }
    }

    #[test]
    fn a_gpu_adds_its_nodes_and_the_links_by_its_address() {
        let node = |path: &str, role| HostPath::node(path, None).in_role(role);
        let mut device = Device { card: "0000:3b:00.0".to_owned(), ..Device::default() };
        device.paths.push(node("/dev/nvidia0", DEVICE));
        let options = options("/", "/usr/bin/nvidia-ctk");
        assert!(of_device(&device, &platform("/", &[]), &options).hooks.is_empty());
        device.paths.extend([node("/dev/dri/card1", GRAPHICS), node("/dev/dri/renderD129", GRAPHICS)]);
        let edits = of_device(&device, &platform("/", &[]), &options);
        let paths: Vec<&str> = edits.nodes.iter().map(|node| node.container_path.as_str()).collect();
        assert_eq!(paths, ["/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD129"]);
        assert_eq!(
            hooks(&edits),
            ["nvidia-ctk hook create-symlinks --link ../card1::/dev/dri/by-path/pci-0000:3b:00.0-card --link \
              ../renderD129::/dev/dri/by-path/pci-0000:3b:00.0-render"]
        );
    }

    proptest! {
        #[test]
        fn every_library_is_bound_from_the_driver_root_to_where_the_container_looks(
            names in prop::collection::vec("lib[a-z]{1,8}", 0..8), root in prop::sample::select(vec!["/", "/run/nvidia/driver"]),
        ) {
            let libraries: Vec<String> = names.iter().map(|name| format!("/usr/lib64/{name}.so.580.1")).collect();
            let edits = common(&platform(root, &libraries), &options(root, "/usr/bin/nvidia-ctk"));
            let bound: Vec<String> = edits.mounts.iter().map(|mount| mount.container_path.clone()).collect();
            prop_assert_eq!(bound, libraries);
            for mount in edits.mounts {
                let under_root = Path::new(root).join(mount.container_path.trim_start_matches('/'));
                prop_assert_eq!(Path::new(&mount.host_path), under_root);
            }
        }
    }
}
