//! Which MIG devices exist, as procfs shows them without NVML, and the numbers of their nodes.
//!
//! NVIDIA's MIG user guide, "Device nodes and capabilities". A MIG device is a compute instance of a GPU instance;
//! `/proc/driver/nvidia/capabilities/gpu<minor>/mig/gi<g>/ci<c>` is there as long as it is.

use std::path::PathBuf;

use crate::host::Host;
use crate::host::attribute::AttributeError;
use crate::host::directory::Directory;
use crate::nvml::facts::MigDevice;

const MOST_GPUS: u32 = 32;
const MOST_GPU_INSTANCES: u32 = 15;
const MOST_COMPUTE_INSTANCES: u32 = 8;

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

    /// Numbers of the two capability nodes, of the GPU instance and of the compute instance, below the GPU of a minor.
    ///
    /// `/proc/driver/nvidia-caps/mig-minors` is the same static table on every host.
    pub(super) fn capabilities(self, minor: u32) -> Option<[u32; 2]> {
        let fits = minor < MOST_GPUS && self.gpu < MOST_GPU_INSTANCES && self.compute < MOST_COMPUTE_INSTANCES;
        let of_gpu = 3 + 135 * minor.min(MOST_GPUS) + 9 * self.gpu.min(MOST_GPU_INSTANCES);
        fits.then_some([of_gpu, of_gpu + 1 + self.compute.min(MOST_COMPUTE_INSTANCES)])
    }
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

    #[test]
    fn nodes_are_numbered_as_in_the_drivers_table() {
        for (minor, gpu, compute, expected) in [
            (0, 0, 0, [3, 4]),
            (0, 0, 1, [3, 5]),
            (0, 1, 0, [12, 13]),
            (1, 0, 0, [138, 139]),
            (31, 14, 7, [4314, 4322]),
        ] {
            assert_eq!(Instance { gpu, compute }.capabilities(minor), Some(expected));
        }
        assert_eq!(Instance { gpu: 0, compute: 0 }.capabilities(32), None);
        assert_eq!(Instance { gpu: 15, compute: 0 }.capabilities(0), None);
        assert_eq!(Instance { gpu: 0, compute: 8 }.capabilities(0), None);
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
        fn no_two_instances_share_a_node(
            a in (0_u32..32, 0_u32..15, 0_u32..8), b in (0_u32..32, 0_u32..15, 0_u32..8)
        ) {
            let number = |(minor, gpu, compute): (u32, u32, u32)| Instance { gpu, compute }.capabilities(minor).unwrap();
            prop_assert_eq!(number(a)[1] == number(b)[1], a == b);
            prop_assert_ne!(number(a)[0], number(b)[1]);
        }

        #[test]
        fn any_ids_have_nodes_or_none(minor: u32, gpu: u32, compute: u32) {
            let numbers = Instance { gpu, compute }.capabilities(minor);
            prop_assert!(numbers.is_none_or(|[of_gpu, of_compute]| of_gpu < of_compute && of_compute <= 4322));
        }
    }
}
