//! Which MIG devices exist, as procfs shows them without NVML, and the numbers of their nodes.
//!
//! NVIDIA's MIG user guide, "Device nodes and capabilities". A MIG device is a compute instance of a GPU instance;
//! `/proc/driver/nvidia/capabilities/gpu<minor>/mig/gi<g>/ci<c>` is there as long as it is. The files `access` in both
//! directories say the numbers of the nodes by which a process gets at them; so does a table of all possible instances.

use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError};
use crate::host::directory::Directory;
use crate::nvml::facts::MigDevice;

/// The table of all possible instances, below /proc.
const TABLE: &str = "driver/nvidia-caps/mig-minors";

/// One MIG device, by the ids of its GPU instance and of its compute instance below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Instance {
    pub(super) gpu: u32,
    pub(super) compute: u32,
}

impl Instance {
    /// The ids of a MIG device that NVML lists.
    pub(super) fn of(device: &MigDevice) -> Self {
        Self { gpu: device.gpu_instance, compute: device.compute_instance }
    }

    /// Below the directory of its GPU: the directories of the GPU instance and of the compute instance.
    fn directories(self) -> [String; 2] {
        let of_gpu = format!("gi{}", self.gpu);
        [of_gpu.clone(), format!("{of_gpu}/ci{}", self.compute)]
    }
}

/// Numbers of the two capability nodes, of the GPU instance and of the compute instance, of the GPU with this minor.
pub(super) type Capabilities = [u32; 2];

/// As the driver says beside the instance; `None` where it does not.
pub(super) fn capabilities(host: &Host, minor: u32, instance: Instance) -> Option<Capabilities> {
    let [gpu, compute] = instance.directories().map(|below| {
        let access = Attribute::read(directory(host, minor).join(below).join("access")).ok()?;
        let line = access.text().lines().find_map(|line| line.strip_prefix("DeviceFileMinor:"))?;
        line.trim().parse().ok()
    });
    Some([gpu?, compute?])
}

/// As the driver's table says; for instances of which it shows nothing else.
pub(super) fn capabilities_in_table(host: &Host, minor: u32, instance: Instance) -> Option<Capabilities> {
    in_table(&text_of_table(&host.proc(TABLE)), minor, instance)
}

#[expect(clippy::disallowed_methods, reason = "no attribute: thousands of lines")]
fn text_of_table(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Of `gpu0/gi7/access 66` and `gpu0/gi7/ci0/access 67`, the numbers.
fn in_table(table: &str, minor: u32, instance: Instance) -> Option<Capabilities> {
    let [gpu, compute] = instance.directories().map(|below| {
        let begin = format!("gpu{minor}/{below}/access ");
        table.lines().find_map(|line| line.strip_prefix(&begin)?.trim().parse().ok())
    });
    Some([gpu?, compute?])
}

/// `/proc/driver/nvidia/capabilities/gpu<minor>/mig`.
pub(super) fn directory(host: &Host, minor: u32) -> PathBuf {
    host.proc(format!("driver/nvidia/capabilities/gpu{minor}/mig"))
}

/// The MIG devices of a GPU, by its minor; `None` where the driver shows no capabilities of it.
pub(super) fn instances(host: &Host, minor: u32) -> Result<Option<Vec<Instance>>, AttributeError> {
    let listed = |opened: Result<Directory, AttributeError>| match opened
        .and_then(|directory| Ok((directory.names()?, directory)))
    {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    };
    let Some((names, directory)) = listed(Directory::open(directory(host, minor)))? else { return Ok(None) };
    let mut instances = Vec::new();
    for name in names {
        let Some(gpu) = numbered(&name, "gi") else { continue };
        // An instance that goes just now has no compute instances either.
        let below = listed(directory.open_below(&name))?.map(|(names, _)| names).unwrap_or_default();
        let compute = below.iter().filter_map(|name| numbered(name, "ci"));
        instances.extend(compute.map(|compute| Instance { gpu, compute }));
    }
    instances.sort_unstable();
    Ok(Some(instances))
}

/// When an instance was made and as what: another one may have the same ids later. `None` when it is gone.
///
/// procfs reuses inode numbers, and sets times when it first sees a file; both seldom change otherwise.
pub(super) fn birth(host: &Host, minor: u32, instance: Instance) -> Option<(u64, i64, u64)> {
    let path = directory(host, minor).join(format!("gi{}/ci{}", instance.gpu, instance.compute));
    let stat = rustix::fs::stat(path).ok()?;
    Some((stat.st_ino, stat.st_mtime, stat.st_mtime_nsec))
}

fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INSTANCE: Instance = Instance { gpu: 7, compute: 0 };

    #[test]
    fn nodes_have_the_numbers_that_the_driver_says_beside_the_instance() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        let place = directory(&host, 1).join("gi7");
        std::fs::create_dir_all(place.join("ci0")).unwrap();
        std::fs::write(place.join("access"), "DeviceFileMinor: 111\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
            .unwrap();
        assert_eq!(capabilities(&host, 1, INSTANCE), None);
        std::fs::write(place.join("ci0/access"), "DeviceFileMinor: 112\nDeviceFileMode: 292\n").unwrap();
        assert_eq!(capabilities(&host, 1, INSTANCE), Some([111, 112]));
    }

    #[test]
    fn the_drivers_table_has_them_as_well() {
        let table = "config 1\nmonitor 2\ngpu0/gi7/access 66\ngpu0/gi7/ci0/access 67\ngpu0/gi7/ci1/access 68\n\
                     gpu10/gi7/access 111\ngpu10/gi7/ci0/access x\n";
        assert_eq!(in_table(table, 0, INSTANCE), Some([66, 67]));
        assert_eq!(in_table(table, 0, Instance { compute: 1, ..INSTANCE }), Some([66, 68]));
        assert_eq!(in_table(table, 10, INSTANCE), None);
        assert_eq!(in_table("", 0, INSTANCE), None);
    }

    #[test]
    fn instances_are_those_with_a_directory() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        assert_eq!(instances(&host, 2), Ok(None));
        for name in ["gi10/ci0", "gi2/ci1", "gi2/ci0", "gi3", "gi2/access", "monitor", "gi", "gi+1/ci0", "gix"] {
            std::fs::create_dir_all(directory(&host, 2).join(name)).unwrap();
        }
        let found: Vec<_> = instances(&host, 2).unwrap().unwrap().iter().map(|one| (one.gpu, one.compute)).collect();
        assert_eq!(found, [(2, 0), (2, 1), (10, 0)]);
    }

    proptest! {
        #[test]
        fn any_table_can_be_read(table: String, minor: u32, gpu: u32, compute: u32) {
            in_table(&table, minor, Instance { gpu, compute });
        }
    }
}
