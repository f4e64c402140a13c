//! Files of the driver on the host, except its libraries: programs, sockets of its daemons, firmware, and files for
//! graphics, OpenCL and ray tracing. The last are configurations by which the loaders of EGL, Vulkan and OpenCL find
//! the driver, the data of OptiX, and modules of the X server.
//!
//! The files and their places in containers follow `internal/discover/graphics.go` of NVIDIA's container toolkit.

use std::path::Path;

use crate::host::attribute::Attribute;
use crate::host::directory::Directory;
use crate::host::{Host, resolve};

const PROGRAMS: [&str; 8] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
];
const PROGRAM_DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
const SOCKETS: [&str; 2] = ["/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket"];
/// Both are the same directory on most hosts, but not if /lib itself is not visible.
const FIRMWARE_DIRECTORIES: [&str; 2] = ["/lib/firmware", "/usr/lib/firmware"];

/// Paths without the driver root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DriverFiles {
    /// Programs and firmware.
    pub(super) plain: Vec<String>,
    /// Sockets of daemons.
    pub(super) sockets: Vec<String>,
}

impl DriverFiles {
    /// The files that exist. The kernel of this `host` may have a firmware directory of its own.
    pub(super) fn find(host: &Host, driver_root: &Host, version: &str) -> Self {
        let is_there = |path: &str| resolve::exists(driver_root, Path::new(path));
        let first = |name: &str| {
            let paths = PROGRAM_DIRECTORIES.map(|directory| format!("{directory}/{name}"));
            paths.into_iter().find(|path| is_there(path))
        };
        let mut plain: Vec<String> = PROGRAMS.into_iter().filter_map(first).collect();
        plain.extend(firmware(driver_root, &firmware_directories(host), version));
        let sockets = SOCKETS.into_iter().filter(|path| is_there(path)).map(str::to_owned).collect();
        Self { plain, sockets }
    }
}

/// The directories that the kernel searches for firmware, in its order: "Firmware search paths" of its documentation.
fn firmware_directories(host: &Host) -> Vec<String> {
    let own = Attribute::read(host.sys("module/firmware_class/parameters/path")).ok();
    let own = own.map(|path| path.text().to_owned()).filter(|path| path.starts_with('/'));
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let below = |base: &str| {
        [format!("{base}/updates/{release}"), format!("{base}/updates"), format!("{base}/{release}"), base.to_owned()]
    };
    own.into_iter().chain(FIRMWARE_DIRECTORIES.into_iter().flat_map(below)).collect()
}

/// The firmware for the GPU's system processor, which the driver loads, from the first directory that has it.
fn firmware(driver_root: &Host, directories: &[String], version: &str) -> Vec<String> {
    let in_directory = |directory: &String| {
        let path = format!("{}/nvidia/{version}", directory.trim_end_matches('/'));
        if !resolve::exists(driver_root, Path::new(&path)) {
            return Vec::new();
        }
        let names = Directory::open(resolve::followed(driver_root, Path::new(&path))).and_then(|open| open.names());
        let names = names.unwrap_or_default().into_iter().filter(|name| name.starts_with("gsp"));
        names.map(|name| format!("{path}/{name}")).filter(|path| is_there(driver_root, path)).collect::<Vec<_>>()
    };
    directories.iter().map(in_directory).find(|found| !found.is_empty()).unwrap_or_default()
}

/// Files that loaders expect at one fixed place, although hosts have them at different places: the fixed place, and the
/// name below it.
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
/// The Vulkan driver's file, under the name that some RPM packages use.
const ICD_OF_ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") {
    "vulkan/icd.d/nvidia_icd.aarch64.json"
} else {
    "vulkan/icd.d/nvidia_icd.x86_64.json"
};
/// Directories in which hosts have these files. The last one is the driver root itself: GKE's installer puts the Vulkan
/// files there.
const PLACES: [&str; 4] = ["/etc", "/usr/local/share", "/usr/share", ""];

const MODULE_DIRECTORIES: [&str; 4] =
    ["modules/drivers", "modules/extensions", "modules/updates/drivers", "modules/updates/extensions"];
const SERVERS: [&str; 4] = ["/usr/lib/xorg", "/usr/lib64/xorg", "/usr/X11R6/lib", "/usr/X11R6/lib64"];

/// The existing files for loaders, each from the first directory that contains it.
pub(super) fn graphics_configurations(driver_root: &Host) -> Vec<String> {
    let first = |(_, name): &(&str, &str)| {
        let places = PLACES.iter().filter(|place| !place.is_empty() || name.starts_with("vulkan/"));
        places.map(|place| format!("{place}/{name}")).find(|path| is_there(driver_root, path))
    };
    CONFIGURATIONS.iter().filter_map(first).collect()
}

/// The path of such a file in a container.
pub(super) fn place_in_container(path: &str) -> Option<String> {
    let is_it = |name: &str| path.strip_suffix(name).is_some_and(|before| before.ends_with('/'));
    let (place, name) = CONFIGURATIONS.iter().find(|(_, name)| is_it(name))?;
    Some(format!("{place}/{name}"))
}

/// The existing modules of the X server, each from the first directory that contains it: next to the driver's
/// libraries, or in the server's own directories.
pub(super) fn x_modules<'f>(
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

    #[test]
    fn what_is_there_is_found_where_it_is_first() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        assert_eq!(DriverFiles::find(&host, &host, "580.1"), DriverFiles::default());
        for file in [
            "usr/bin/nvidia-smi",
            "sbin/nvidia-smi",
            "usr/sbin/nvidia-persistenced",
            "lib/firmware/nvidia/580.1/gsp_ga10x.bin",
            "lib/firmware/nvidia/580.1/other.bin",
            "lib/firmware/nvidia/570.1/gsp_ga10x.bin",
            "run/nvidia-persistenced/socket",
        ] {
            let path = root.path().join(file);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, "").unwrap();
        }
        let found = DriverFiles::find(&host, &host, "580.1");
        let plain =
            ["/usr/bin/nvidia-smi", "/usr/sbin/nvidia-persistenced", "/lib/firmware/nvidia/580.1/gsp_ga10x.bin"];
        assert_eq!(found.plain, plain);
        assert_eq!(found.sockets, ["/run/nvidia-persistenced/socket"]);
    }

    #[test]
    fn firmware_is_where_the_kernel_would_find_it_first() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        let parameter = host.sys("module/firmware_class/parameters/path");
        create_dir_all(parameter.parent().unwrap()).unwrap();
        write(parameter, "/var/lib/firmware\n").unwrap();
        for expected in ["/lib/firmware", "/lib/firmware/updates", "/var/lib/firmware"] {
            let path = format!("{expected}/nvidia/580.1");
            create_dir_all(host.absolute(&path)).unwrap();
            write(host.absolute(&path).join("gsp_ga10x.bin"), "").unwrap();
            assert_eq!(DriverFiles::find(&host, &host, "580.1").plain, [format!("{path}/gsp_ga10x.bin")]);
        }
    }

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
        let found = graphics_configurations(&host);
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
            x_modules(&host, ["/usr/lib64"].into_iter(), "580.1"),
            [
                "/usr/lib64/nvidia/xorg/nvidia_drv.so",
                "/usr/lib/xorg/modules/updates/extensions/libglxserver_nvidia.so.580.1"
            ]
        );
        let without_libraries = x_modules(&host, std::iter::empty(), "1.2");
        assert_eq!(without_libraries, ["/usr/lib64/xorg/modules/drivers/nvidia_drv.so"]);
    }
}
