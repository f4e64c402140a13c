//! Files of the driver on the host besides its libraries: programs, sockets of its daemons, firmware.

use std::path::Path;

use crate::host::Host;
use crate::host::directory::{self, Directory};
use crate::host::resolve;

const PROGRAMS: [&str; 7] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
];
const PROGRAM_DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
const SOCKETS: [&str; 3] = ["/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket", "/tmp/nvidia-mps"];
const FIRMWARE_DIRECTORIES: [&str; 2] = ["/usr/lib/firmware/nvidia", "/lib/firmware/nvidia"];

/// Paths without the driver root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DriverFiles {
    /// Programs and firmware.
    pub(super) plain: Vec<String>,
    /// Sockets, and directories of them.
    pub(super) sockets: Vec<String>,
}

impl DriverFiles {
    /// Finds those that exist.
    pub(super) fn find(driver_root: &Host, version: &str) -> Self {
        let is_there = |path: &str| directory::exists(&resolve::followed(driver_root, Path::new(path)));
        let first = |name: &str| {
            let paths = PROGRAM_DIRECTORIES.map(|directory| format!("{directory}/{name}"));
            paths.into_iter().find(|path| is_there(path))
        };
        let mut plain: Vec<String> = PROGRAMS.into_iter().filter_map(first).collect();
        plain.extend(firmware(driver_root, version));
        let sockets = SOCKETS.into_iter().filter(|path| is_there(path)).map(str::to_owned).collect();
        Self { plain, sockets }
    }
}

/// The firmware that the driver loads into the GPU's system processor, from the first directory that has it.
fn firmware(driver_root: &Host, version: &str) -> Vec<String> {
    let in_directory = |directory: &str| {
        let path = format!("{directory}/{version}");
        let names = Directory::open(resolve::followed(driver_root, Path::new(&path))).and_then(|open| open.names());
        let names = names.unwrap_or_default().into_iter().filter(|name| name.starts_with("gsp"));
        names.map(|name| format!("{path}/{name}")).collect::<Vec<_>>()
    };
    FIRMWARE_DIRECTORIES.into_iter().map(in_directory).find(|found| !found.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    #[test]
    fn what_is_there_is_found_where_it_is_first() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        assert_eq!(DriverFiles::find(&host, "580.1"), DriverFiles::default());
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
        let found = DriverFiles::find(&host, "580.1");
        let plain =
            ["/usr/bin/nvidia-smi", "/usr/sbin/nvidia-persistenced", "/lib/firmware/nvidia/580.1/gsp_ga10x.bin"];
        assert_eq!(found.plain, plain);
        assert_eq!(found.sockets, ["/run/nvidia-persistenced/socket"]);
    }
}
