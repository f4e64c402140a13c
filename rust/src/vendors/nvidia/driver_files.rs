//! Files of the driver on the host besides its libraries: programs, sockets of its daemons, firmware.

use std::path::Path;

use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::host::directory::Directory;
use crate::host::resolve;

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
/// The same directory, but on a host whose /lib is none of its own to be seen.
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
    /// Finds those that exist. The kernel of this `host` may have a directory of its own for firmware.
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

/// Where the kernel looks for firmware, in its order: "Firmware search paths" of its documentation.
fn firmware_directories(host: &Host) -> Vec<String> {
    let own = Attribute::read(host.sys("module/firmware_class/parameters/path")).ok();
    let own = own.map(|path| path.text().to_owned()).filter(|path| path.starts_with('/'));
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let below = |base: &str| {
        [format!("{base}/updates/{release}"), format!("{base}/updates"), format!("{base}/{release}"), base.to_owned()]
    };
    own.into_iter().chain(FIRMWARE_DIRECTORIES.into_iter().flat_map(below)).collect()
}

/// The firmware that the driver loads into the GPU's system processor, from the first directory that has it.
fn firmware(driver_root: &Host, directories: &[String], version: &str) -> Vec<String> {
    let in_directory = |directory: &String| {
        let path = format!("{}/nvidia/{version}", directory.trim_end_matches('/'));
        if !resolve::exists(driver_root, Path::new(&path)) {
            return Vec::new();
        }
        let names = Directory::open(resolve::followed(driver_root, Path::new(&path))).and_then(|open| open.names());
        let names = names.unwrap_or_default().into_iter().filter(|name| name.starts_with("gsp"));
        names.map(|name| format!("{path}/{name}")).collect::<Vec<_>>()
    };
    directories.iter().map(in_directory).find(|found| !found.is_empty()).unwrap_or_default()
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
}
