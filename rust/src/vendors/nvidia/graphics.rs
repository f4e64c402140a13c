//! What of the driver graphics, OpenCL and ray tracing need beside libraries: files that name the driver to the loaders of
//! EGL, Vulkan and OpenCL, the data of OptiX, and modules of the X server.
//!
//! Which, and where containers have them: `internal/discover/graphics.go` of NVIDIA's container toolkit.

use std::path::Path;

use crate::host::Host;
use crate::host::resolve;

/// Files that loaders look for at one place, wherever the host has them: that place, and the name below it.
const CONFIGURATIONS: [(&str, &str); 14] = [
    ("/usr/share", "glvnd/egl_vendor.d/10_nvidia.json"),
    ("/usr/share", "egl/egl_external_platform.d/15_nvidia_gbm.json"),
    ("/usr/share", "egl/egl_external_platform.d/10_nvidia_wayland.json"),
    ("/usr/share", "egl/egl_external_platform.d/09_nvidia_wayland2.json"),
    ("/usr/share", "egl/egl_external_platform.d/20_nvidia_xcb.json"),
    ("/usr/share", "egl/egl_external_platform.d/20_nvidia_xlib.json"),
    ("/usr/share", "nvidia/nvoptix.bin"),
    ("/usr/share", "X11/xorg.conf.d/10-nvidia.conf"),
    ("/usr/share", "X11/xorg.conf.d/nvidia-drm-outputclass.conf"),
    ("/etc", "OpenCL/vendors/nvidia.icd"),
    ("/etc", "vulkan/icd.d/nvidia_icd.json"),
    ("/etc", "vulkan/icd.d/nvidia_layers.json"),
    ("/etc", "vulkan/implicit_layer.d/nvidia_layers.json"),
    ("/etc", ICD_OF_ARCHITECTURE),
];
/// The Vulkan driver's file as some RPM packages name it.
const ICD_OF_ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") {
    "vulkan/icd.d/nvidia_icd.aarch64.json"
} else {
    "vulkan/icd.d/nvidia_icd.x86_64.json"
};
/// Where the host has them. The last one is the driver root itself: GKE's installer puts Vulkan's files there.
const PLACES: [&str; 4] = ["/etc", "/usr/local/share", "/usr/share", ""];

const MODULE_DIRECTORIES: [&str; 4] =
    ["modules/drivers", "modules/extensions", "modules/updates/drivers", "modules/updates/extensions"];
const SERVERS: [&str; 4] = ["/usr/lib/xorg", "/usr/lib64/xorg", "/usr/X11R6/lib", "/usr/X11R6/lib64"];

/// The files for loaders that are there, each where it is first.
pub(super) fn configurations(driver_root: &Host) -> Vec<String> {
    let first = |(_, name): &(&str, &str)| {
        let places = PLACES.iter().filter(|place| !place.is_empty() || name.starts_with("vulkan/"));
        places.map(|place| format!("{place}/{name}")).find(|path| is_there(driver_root, path))
    };
    CONFIGURATIONS.iter().filter_map(first).collect()
}

/// Where a container has one of these files.
pub(super) fn place_in_container(path: &str) -> Option<String> {
    let is_it = |name: &str| path.strip_suffix(name).is_some_and(|before| before.ends_with('/'));
    let (place, name) = CONFIGURATIONS.iter().find(|(_, name)| is_it(name))?;
    Some(format!("{place}/{name}"))
}

/// The modules of the X server that are there, each where it is first: beside the driver's libraries, or where the server has
/// its own.
pub(super) fn modules<'f>(
    driver_root: &Host,
    library_folders: impl Iterator<Item = &'f str>,
    version: &str,
) -> Vec<String> {
    let below = |server: &str| MODULE_DIRECTORIES.map(|directory| format!("{server}/{directory}"));
    let beside = library_folders
        .flat_map(|folder| std::iter::once(format!("{folder}/nvidia/xorg")).chain(below(&format!("{folder}/xorg"))));
    let directories: Vec<String> = beside.chain(SERVERS.iter().flat_map(|server| below(server))).collect();
    let first = |name: &String| {
        directories.iter().map(|directory| format!("{directory}/{name}")).find(|path| is_there(driver_root, path))
    };
    ["nvidia_drv.so".to_owned(), format!("libglxserver_nvidia.so.{version}")].iter().filter_map(first).collect()
}

fn is_there(driver_root: &Host, path: &str) -> bool {
    resolve::exists(driver_root, Path::new(path))
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    fn root(files: &[&str]) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, "").unwrap();
        }
        let host = Host::new(root.path());
        (root, host)
    }

    #[test]
    fn a_file_is_where_loaders_look_wherever_the_host_has_it() {
        let files = [
            "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
            "usr/share/OpenCL/vendors/nvidia.icd",
            "etc/vulkan/icd.d/nvidia_icd.json",
            "usr/share/vulkan/icd.d/nvidia_icd.json",
            "vulkan/implicit_layer.d/nvidia_layers.json",
            "nvidia/nvoptix.bin",
            "usr/share/egl/egl_external_platform.d/99_other.json",
        ];
        let (_root, host) = root(&files);
        let found = configurations(&host);
        let placed: Vec<(&str, String)> =
            found.iter().map(|path| (path.as_str(), place_in_container(path).unwrap())).collect();
        assert_eq!(
            placed,
            [
                (
                    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
                    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json".to_owned()
                ),
                ("/usr/share/OpenCL/vendors/nvidia.icd", "/etc/OpenCL/vendors/nvidia.icd".to_owned()),
                ("/etc/vulkan/icd.d/nvidia_icd.json", "/etc/vulkan/icd.d/nvidia_icd.json".to_owned()),
                (
                    "/vulkan/implicit_layer.d/nvidia_layers.json",
                    "/etc/vulkan/implicit_layer.d/nvidia_layers.json".to_owned()
                ),
            ]
        );
        assert_eq!(place_in_container("/usr/bin/nvidia-smi"), None);
    }

    #[test]
    fn modules_of_the_x_server_are_found_beside_the_libraries_or_with_the_server() {
        let (_root, host) = root(&[
            "usr/lib64/nvidia/xorg/nvidia_drv.so",
            "usr/lib64/xorg/modules/drivers/nvidia_drv.so",
            "usr/lib/xorg/modules/updates/extensions/libglxserver_nvidia.so.580.1",
            "usr/lib/xorg/modules/extensions/libglxserver_nvidia.so.570.1",
        ]);
        assert_eq!(
            modules(&host, ["/usr/lib64"].into_iter(), "580.1"),
            [
                "/usr/lib64/nvidia/xorg/nvidia_drv.so",
                "/usr/lib/xorg/modules/updates/extensions/libglxserver_nvidia.so.580.1"
            ]
        );
        let without_libraries = modules(&host, std::iter::empty(), "1.2");
        assert_eq!(without_libraries, ["/usr/lib64/xorg/modules/drivers/nvidia_drv.so"]);
    }
}
