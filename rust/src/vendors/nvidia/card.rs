//! The GPUs that the driver lists. Each is read separately, from its PCI function and from
//! `/proc/driver/nvidia/gpus/<address>/information`, which has one `Name: value` per line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::mediated::VgpuFunctions;
use super::mig::{self, Capabilities, Instance};
use super::vgpu::{HostDriver, HostDrivers};
use super::{VENDOR, driver};
use crate::bus::pci::{self, Function};
use crate::device::{Found, NotExamined, Problem};
use crate::fence::{Fence, Outcome};
use crate::health::sources::scan;
use crate::host::attribute::{Attribute, AttributeError};
use crate::host::{Host, directory};

/// A GPU and its PCI function.
#[derive(Debug)]
pub(super) struct Card {
    /// The PCI function; if the card hangs, only its path is known.
    pub(super) function: Function,
    /// The GPU; `None` if it cannot be read now.
    pub(super) gpu: Option<Gpu>,
}

impl Card {
    pub(super) fn address(&self) -> &str {
        self.function.address()
    }
}

/// All cards in PCI order. Errors become problems in `found`; `None` if the list of GPUs is unknown.
pub(super) fn read_all(
    host: &Host,
    fence: &Fence,
    host_drivers: &Arc<HostDrivers>,
    found: &mut Found,
) -> Option<Vec<Card>> {
    let addresses = match driver::gpus(host) {
        Ok(addresses) => addresses,
        Err(error) => {
            found.problems.push(problem(host, &error));
            found.unseen.push(NotExamined::new(VENDOR, None));
            return None;
        }
    };
    let mut paths: Vec<PathBuf> = addresses.iter().map(|address| function_path(host, address)).collect();
    paths.retain(|function| {
        let has_left = pci::has_left(host, function);
        found.problems.extend(has_left.then(|| left_behind(host, function)));
        !has_left
    });
    let (behind_fence, host_drivers) = (host.clone(), Arc::clone(host_drivers));
    let key = |path: &PathBuf| pci::address_of(path).unwrap_or_default().to_owned();
    let outcomes = fence.each(paths.clone(), key, move |path| {
        let function = Function::read(&path);
        let gpu = Gpu::read(&behind_fence, function.clone(), &host_drivers);
        (function, gpu)
    });
    let settle = |(path, outcome)| settled((host, fence), path, outcome, found);
    Some(paths.into_iter().zip(outcomes).map(settle).collect())
}

fn settled(
    (host, fence): (&Host, &Fence),
    path: PathBuf,
    outcome: Outcome<(Function, Result<Gpu, AttributeError>)>,
    found: &mut Found,
) -> Card {
    let mut function = Function { path, ..Function::default() };
    let of_gpu = |error: &str| Problem::new(VENDOR, host.own_path(&function.path), error);
    let (problem, finding) = match outcome {
        Outcome::Done((function, Ok(gpu))) => return Card { function, gpu: Some(gpu) },
        Outcome::Done((read, Err(error))) => {
            function = read;
            (problem(host, &error), None)
        }
        Outcome::Overdue => {
            let error = "the GPU does not answer: a read has not come back; look for NVRM in the kernel log";
            let place = host.own_path(&function.path);
            (of_gpu(error), Some(scan::probe_timeout(fence.deadline(), &place.to_string_lossy())))
        }
        Outcome::NotStarted(why) => (of_gpu(&why), None),
        Outcome::Panicked(message) => (of_gpu(&format!("defect in the scan: {message}")), None),
    };
    found.problems.push(problem.of(function.address()));
    found.unseen.push(NotExamined { vendor: VENDOR, class: None, card: Some(function.address().to_owned()), finding });
    Card { function, gpu: None }
}

/// The problem of a GPU that is gone: the driver still lists it, but its PCI function has left the bus.
fn left_behind(host: &Host, function: &Path) -> Problem {
    let address = pci::address_of(function).unwrap_or_default();
    let place = driver::gpus_directory(host).join(address);
    let error = "the driver lists this GPU, but it has left the PCI bus: stop what still uses it, then rescan the bus, or \
        load the driver again";
    Problem::new(VENDOR, host.own_path(place), error).of(address)
}

fn problem(host: &Host, error: &AttributeError) -> Problem {
    Problem::new(VENDOR, host.own_path(&error.path), &error.cause)
}

/// The facts of a GPU.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) function: Function,
    pub(super) information: Information,
    /// The file that the information was read from, with the host root.
    pub(super) source: PathBuf,
    /// Its MIG devices; `None` if the driver shows no capabilities for it.
    pub(super) instances: Option<Vec<Instance>>,
    /// The numbers of the MIG devices' nodes, as far as the driver reports them.
    pub(super) capabilities: BTreeMap<Instance, Capabilities>,
    /// Its virtual functions that can be vGPUs.
    pub(super) vgpu_functions: VgpuFunctions,
    /// The driver of the virtualization host, if this is a virtual GPU in a guest.
    pub(super) host_driver: Option<HostDriver>,
}

impl Gpu {
    /// Reads the GPU. The read may hang if the GPU hangs.
    pub(super) fn read(host: &Host, function: Function, host_drivers: &HostDrivers) -> Result<Self, AttributeError> {
        let source = driver::gpus_directory(host).join(function.address()).join("information");
        let information = Information::parse(Attribute::read(&source)?.text());
        let instances = match information.minor {
            Some(minor) => mig::instances(host, minor)?,
            None => None,
        };
        let minor = information.minor.unwrap_or_default();
        let numbered = |&instance: &Instance| Some((instance, mig::capabilities(host, minor, instance)?));
        let capabilities = instances.iter().flatten().filter_map(numbered).collect();
        let host_driver = host_drivers.of(&function);
        let vgpu_functions = VgpuFunctions::of(&function.path);
        Ok(Self { function, information, source, instances, capabilities, vgpu_functions, host_driver })
    }
}

/// The directory of the function with this address: the target of the kernel's link.
fn function_path(host: &Host, address: &str) -> PathBuf {
    let bus = host.sys("bus/pci/devices");
    let target = directory::link(&bus.join(address)).unwrap_or_else(|_| PathBuf::from(address));
    host.behind_link(&bus, &target)
}

/// The placeholder for values that the driver does not know yet.
const UNKNOWN: char = '?';
/// The model of a GPU whose name the kernel module does not know; NVML may know it.
const NAMELESS: &str = "Unknown";

/// The content of a GPU's `information` file; unknown values are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Information {
    /// Marketing name.
    pub(super) model: Option<String>,
    /// `GPU-<uuid>`; unknown until the GPU is first opened, unless PCI configuration has it.
    pub(super) uuid: Option<String>,
    /// Version of the video BIOS; unknown until the GPU is first opened.
    pub(super) video_bios: Option<String>,
    /// N of `/dev/nvidia<N>`.
    pub(super) minor: Option<u32>,
    /// Version of the firmware that runs on the GPU.
    pub(super) firmware: Option<String>,
    /// Whether an option of the driver excludes the GPU from use.
    pub(super) is_excluded: bool,
}

impl Information {
    /// Parses the file; unknown lines and placeholders are ignored.
    pub(super) fn parse(text: &str) -> Self {
        let mut information = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.trim() {
                "Model" => information.model = known(value).filter(|model| model != NAMELESS),
                "GPU UUID" => information.uuid = uuid_in(value),
                "Video BIOS" => information.video_bios = known(value),
                "Device Minor" => information.minor = value.parse().ok(),
                "GPU Firmware" => information.firmware = known(value).filter(|version| version != "N/A"),
                // Older drivers write `Blacklisted`.
                "GPU Excluded" | "Blacklisted" | "GPU Blacklisted" => information.is_excluded = value == "Yes",
                _ => {}
            }
        }
        information
    }
}

fn known(value: &str) -> Option<String> {
    (!value.is_empty() && !value.contains(UNKNOWN)).then(|| value.to_owned())
}

fn uuid_in(value: &str) -> Option<String> {
    let digits = value.strip_prefix("GPU-")?;
    let plausible = !digits.is_empty() && digits.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    plausible.then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const L4: &str = "Model: \t\t NVIDIA L4\nIRQ:   \t\t 16\nGPU UUID: \t GPU-3291dfa4-fcc4-0110-615b-c894a0d7c689\n\
        Video BIOS: \t 95.04.65.00.13\nBus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\n\
        Bus Location: \t 0000:70:00.0\nDevice Minor: \t 0\nGPU Excluded:\t No\n";

    #[test]
    fn every_field_of_an_initialised_gpu_is_read() {
        let read =
            Information::parse(&L4.replace("Device Minor: \t 0", "Device Minor: \t 12\nGPU Firmware: \t 590.48.01"));
        assert_eq!(
            read,
            Information {
                model: Some("NVIDIA L4".to_owned()),
                uuid: Some("GPU-3291dfa4-fcc4-0110-615b-c894a0d7c689".to_owned()),
                video_bios: Some("95.04.65.00.13".to_owned()),
                minor: Some(12),
                firmware: Some("590.48.01".to_owned()),
                is_excluded: false,
            }
        );
    }

    #[test]
    fn placeholders_are_unknown() {
        let text = L4
            .replace("3291dfa4-fcc4-0110-615b-c894a0d7c689", "????????-????-????-????-????????????")
            .replace("95.04.65.00.13", "??.??.??.??.??");
        let read = Information::parse(&text);
        assert_eq!((read.uuid, read.video_bios, read.minor), (None, None, Some(0)));
        assert_eq!(Information::parse("GPU Firmware: \t N/A").firmware, None);
        assert_eq!(Information::parse("Model: \t\t Unknown").model, None);
    }

    #[test]
    fn an_excluded_gpu_is_known_from_old_and_new_drivers() {
        for (line, expected) in
            [("GPU Excluded:\t Yes", true), ("Blacklisted:\t Yes", true), ("GPU Excluded:\t No", false), ("", false)]
        {
            assert_eq!(Information::parse(line).is_excluded, expected, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text: String) {
            let read = Information::parse(&text);
            prop_assert!(read.uuid.is_none_or(|uuid| uuid.starts_with("GPU-") && !uuid.contains(UNKNOWN)));
        }

        #[test]
        fn white_space_around_values_does_not_matter(gap in "[ \t]{0,5}", minor in 0_u32..248) {
            let text = format!("Model:{gap}NVIDIA X: Y{gap}\nDevice Minor:{gap}{minor}{gap}");
            let read = Information::parse(&text);
            prop_assert_eq!(read.model.as_deref(), Some("NVIDIA X: Y"));
            prop_assert_eq!(read.minor, Some(minor));
        }
    }
}
