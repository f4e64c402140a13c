//! The MIG devices of a GPU (procfs shows them without NVML), the numbers of their nodes, the names of their profiles, and
//! their attributes.
//!
//! See NVIDIA's MIG user guide, "Device nodes and capabilities". A MIG device is a compute instance of a GPU instance.
//! The directory `/proc/driver/nvidia/capabilities/gpu<minor>/mig/gi<g>/ci<c>` exists as long as the MIG device. The
//! files `access` in `gi<g>` and `ci<c>` contain the minor numbers of the nodes through which a process uses the two
//! instances; a table of all possible instances contains the same numbers. Profile names are the same as in NVIDIA's
//! tools and plugin, which derive them from NVML: `1g.10gb`, `1c.3g.20gb`, `1g.5gb+me`.

use std::path::{Path, PathBuf};

use super::nvml_facts::FACT_SOURCE;
use crate::device::Device;
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError};
use crate::host::directory::Directory;
use crate::nvml::facts::MigDevice;

/// The table of all possible instances, below /proc.
const TABLE: &str = "driver/nvidia-caps/mig-minors";

/// The attribute that only MIG devices have.
pub(super) const INSTANCE: &str = "gpu_instance";
const COMPUTE_INSTANCE: &str = "compute_instance";

/// One MIG device: the id of its GPU instance, and the id of its compute instance within that.
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

    /// The directories of the GPU instance and the compute instance, relative to the GPU's directory.
    fn directories(self) -> [String; 2] {
        let of_gpu = format!("gi{}", self.gpu);
        [of_gpu.clone(), format!("{of_gpu}/ci{}", self.compute)]
    }
}

/// Minor numbers of the two capability nodes: of the GPU instance, and of the compute instance.
pub(super) type Capabilities = [u32; 2];

/// The numbers in the `access` files of the instance; `None` if the driver shows none.
pub(super) fn capabilities(host: &Host, minor: u32, instance: Instance) -> Option<Capabilities> {
    let [gpu, compute] = instance.directories().map(|below| {
        let access = Attribute::read(directory(host, minor).join(below).join("access")).ok()?;
        let line = access.text().lines().find_map(|line| line.strip_prefix("DeviceFileMinor:"))?;
        line.trim().parse().ok()
    });
    Some([gpu?, compute?])
}

/// The numbers from the driver's table, for instances without `access` files.
pub(super) fn capabilities_in_table(host: &Host, minor: u32, instance: Instance) -> Option<Capabilities> {
    in_table(&text_of_table(&host.proc(TABLE)), minor, instance)
}

#[expect(clippy::disallowed_methods, reason = "no attribute: thousands of lines")]
fn text_of_table(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The numbers in the lines of the table: `gpu0/gi7/access 66` and `gpu0/gi7/ci0/access 67`.
fn in_table(table: &str, minor: u32, instance: Instance) -> Option<Capabilities> {
    let [gpu, compute] = instance.directories().map(|below| {
        let begin = format!("gpu{minor}/{below}/access ");
        table.lines().find_map(|line| line.strip_prefix(&begin)?.trim().parse().ok())
    });
    Some([gpu?, compute?])
}

/// The directory `/proc/driver/nvidia/capabilities/gpu<minor>/mig`.
pub(super) fn directory(host: &Host, minor: u32) -> PathBuf {
    host.proc(format!("driver/nvidia/capabilities/gpu{minor}/mig"))
}

/// The MIG devices of the GPU with this minor number; `None` if the driver shows no capabilities for it.
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
        // A GPU instance that is just being removed no longer has compute instances.
        let below = listed(directory.open_below(&name))?.map(|(names, _)| names).unwrap_or_default();
        let compute = below.iter().filter_map(|name| numbered(name, "ci"));
        instances.extend(compute.map(|compute| Instance { gpu, compute }));
    }
    instances.sort_unstable();
    Ok(Some(instances))
}

/// Whether the driver lists the instances of the GPU, but not this one.
pub(super) fn is_gone(host: &Host, minor: u32, instance: Instance) -> bool {
    matches!(instances(host, minor), Ok(Some(there)) if !there.contains(&instance))
}

/// Inode and modification time of an instance's directory. They distinguish the instance from a later one with the same
/// ids. `None` if the instance is gone.
///
/// procfs reuses inode numbers, and sets times when it first shows a file; apart from that, both seldom change.
pub(super) fn birth(host: &Host, minor: u32, instance: Instance) -> Option<(u64, i64, u64)> {
    let path = directory(host, minor).join(format!("gi{}/ci{}", instance.gpu, instance.compute));
    let stat = rustix::fs::stat(path).ok()?;
    Some((stat.st_ino, stat.st_mtime, stat.st_mtime_nsec))
}

fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

const MEBIBYTE: u128 = 1 << 20;
const GIBIBYTE: u128 = 1 << 30;

/// The profile's name on a GPU with this many bytes. If NVML's figures are incomplete, the sizes in the device's own
/// name are used: NVML reports a GPU's memory in MIG mode only to processes that may monitor all its MIG devices.
/// `None` if both are missing.
pub(super) fn profile_name(device: &MigDevice, gpu_bytes: Option<u64>) -> Option<String> {
    let sizes = gpu_bytes.and_then(|bytes| sizes(device, bytes)).or_else(|| device.profile_sizes.clone())?;
    Some(format!("{sizes}{}", device.profile_suffixes.concat()))
}

fn sizes(device: &MigDevice, gpu_bytes: u64) -> Option<String> {
    if device.gpu_slices == 0 || gpu_bytes == 0 {
        return None;
    }
    let memory = gigabytes(device.memory_mebibytes, gpu_bytes);
    let whole = device.compute_slices == 0 || device.compute_slices == device.gpu_slices;
    let compute = if whole { String::new() } else { format!("{}c.", device.compute_slices) };
    Some(format!("{compute}{}g.{memory}gb", device.gpu_slices))
}

/// The profile as the part of a resource name after the slash: `mig-1g.5gb.me`.
pub(super) fn profile_resource(profile: &str) -> String {
    format!("mig-{}", profile.replace('+', "."))
}

/// The device's share of the GPU's memory in whole eighths, in gigabytes of the GPU's nominal size.
fn gigabytes(mebibytes: u64, gpu_bytes: u64) -> u128 {
    let total = u128::from(gpu_bytes);
    let eighths = (u128::from(mebibytes) * MEBIBYTE * 8).div_ceil(total);
    (eighths * total.div_ceil(GIBIBYTE) + 4) / 8
}

/// Adds NVML's attributes of a MIG device; its memory replaces the GPU's.
pub(super) fn describe(device: &mut Device, mig: &MigDevice, index: &str, profile: &str) {
    for (name, count) in [
        ("gpu_slices", mig.gpu_slices),
        ("compute_slices", mig.compute_slices),
        ("multiprocessors", mig.multiprocessors),
    ] {
        if mig.gpu_slices > 0 {
            device.note(name, count, FACT_SOURCE);
        }
    }
    for (name, number) in [
        ("mig_profile_id", mig.profile_id),
        ("mig_placement_start", mig.placement_start),
        ("mig_placement_size", mig.placement_size),
    ] {
        if let Some(number) = number {
            device.note(name, number, FACT_SOURCE);
        }
    }
    for (kind, count) in &mig.engines {
        device.note(&format!("engines_{kind}"), *count, FACT_SOURCE);
    }
    device.note("mig_index", index, FACT_SOURCE);
    device.note("mig_profile", profile, FACT_SOURCE);
    device.note("memory_bytes", mig.memory_mebibytes << 20, FACT_SOURCE);
}

/// Adds the ids of a MIG device within the GPU.
pub(super) fn describe_instance(host: &Host, device: &mut Device, minor: u32, instance: Instance) {
    let source = host.own_path(directory(host, minor));
    device.note(INSTANCE, instance.gpu, &source);
    device.note(COMPUTE_INSTANCE, instance.compute, source);
}

/// The GPU's minor number and the ids of a MIG device within the GPU; `None` for a whole GPU.
pub(super) fn instance_of(device: &Device) -> Option<(u32, Instance)> {
    let number = |name: &str| device.text(name)?.parse().ok();
    Some((number("minor")?, Instance { gpu: number(INSTANCE)?, compute: number(COMPUTE_INSTANCE)? }))
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

    const A100_40: u64 = 42_505_273_344;
    const H100_80: u64 = 85_520_809_984;

    fn device(slices: (u32, u32), memory_mebibytes: u64, profile_suffixes: &[&str]) -> MigDevice {
        let profile_suffixes = profile_suffixes.iter().map(|&suffix| suffix.to_owned()).collect();
        MigDevice {
            compute_slices: slices.0,
            gpu_slices: slices.1,
            memory_mebibytes,
            profile_suffixes,
            ..MigDevice::default()
        }
    }

    #[test]
    fn profiles_have_the_names_of_nvidias_tables() {
        for (slices, mebibytes, gpu, profile_suffixes, expected) in [
            ((1, 1), 4864, A100_40, vec![], "1g.5gb"),
            ((2, 2), 9856, A100_40, vec![], "2g.10gb"),
            ((3, 3), 19968, A100_40, vec![], "3g.20gb"),
            ((4, 4), 19968, A100_40, vec![], "4g.20gb"),
            ((7, 7), 40192, A100_40, vec![], "7g.40gb"),
            ((1, 3), 19968, A100_40, vec![], "1c.3g.20gb"),
            ((1, 1), 4864, A100_40, vec!["+me"], "1g.5gb+me"),
            ((1, 1), 9728, H100_80, vec![], "1g.10gb"),
            ((1, 1), 19968, H100_80, vec![], "1g.20gb"),
            ((3, 3), 40320, H100_80, vec![], "3g.40gb"),
            ((7, 7), 80384, H100_80, vec!["-me"], "7g.80gb-me"),
        ] {
            assert_eq!(
                profile_name(&device(slices, mebibytes, &profile_suffixes), Some(gpu)).as_deref(),
                Some(expected)
            );
        }
        assert_eq!(profile_name(&device((0, 0), 4864, &[]), Some(A100_40)), None);
        assert_eq!(profile_name(&device((1, 1), 4864, &[]), None), None);
    }

    #[test]
    fn the_name_of_the_device_says_what_figures_do_not() {
        let profile_sizes = Some("1g.5gb".to_owned());
        let named = MigDevice { profile_sizes, ..device((1, 1), 4864, &["+me"]) };
        assert_eq!(profile_name(&named, None).as_deref(), Some("1g.5gb+me"));
        assert_eq!(profile_name(&named, Some(A100_40)).as_deref(), Some("1g.5gb+me"));
        assert_eq!(profile_name(&MigDevice { gpu_slices: 0, ..named }, Some(A100_40)).as_deref(), Some("1g.5gb+me"));
    }

    #[test]
    fn a_resource_name_has_no_plus() {
        for (profile, expected) in [
            ("1g.5gb", "mig-1g.5gb"),
            ("1g.5gb+me", "mig-1g.5gb.me"),
            ("1g.5gb+me.all", "mig-1g.5gb.me.all"),
            ("1g.24gb+gfx", "mig-1g.24gb.gfx"),
            ("1g.24gb-me", "mig-1g.24gb-me"),
        ] {
            assert_eq!(profile_resource(profile), expected);
        }
    }

    proptest! {
        #[test]
        fn any_figures_have_a_name_or_none(slices: (u32, u32), mebibytes: u64, gpu: u64) {
            let named = profile_name(&device(slices, mebibytes, &[]), Some(gpu));
            prop_assert_eq!(named.is_none(), slices.1 == 0 || gpu == 0);
        }
    }
}
