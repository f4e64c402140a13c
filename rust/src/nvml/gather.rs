//! One pass over everything that NVML reports, from finding the library to the facts. For a process that may hang or
//! crash.
//!
//! A GPU that does not answer does not affect the others.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_uint};
use std::fmt;
use std::path::Path;

use super::facts::{Facts, Gpu, MigDevice};
use super::gpu_health;
use super::interface::{
    NVML_GPU_INSTANCE_PROFILE_COUNT, NVML_NVLINK_DEVICE_TYPE_GPU as LINK_TO_GPU,
    NVML_NVLINK_DEVICE_TYPE_SWITCH as LINK_TO_SWITCH, nvmlDevice_t as Handle,
    nvmlDeviceAddressingMode_v1_t as AddressingMode, nvmlDeviceAttributes_t as Attributes, nvmlGpuInstance_t,
    nvmlGpuInstanceInfo_t as GpuInstanceInfo, nvmlGpuInstanceProfileInfo_t as GpuInstanceProfileInfo,
    nvmlMemory_t as Memory, nvmlPciInfo_t as PciInfo, version,
};
use super::library::{self, Answer, Failure, Library, code, cuda_version};
use super::words::{addressing_mode, architecture, brand, sizes_in, suffixes_in, suffixes_of_profile};

/// Why there are no facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeError {
    /// There is no library: the driver is not installed, or was installed without it.
    NoLibrary,
    /// The library cannot be used: why, and the cure.
    Unusable(String),
    /// The library is of another version than the loaded driver: its version, if its file's name has one.
    OtherVersion(Option<String>),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary => {
                write!(formatter, "{} not found — install it with the driver, or set `driver_root`", library::SONAME)
            }
            Self::Unusable(why) => formatter.write_str(why),
            Self::OtherVersion(version) => write!(
                formatter,
                "driver/library version mismatch — the library{} is of another version than the loaded driver \
                 — reload the nvidia kernel modules or reboot",
                version.as_ref().map(|version| format!(" {version}")).unwrap_or_default()
            ),
        }
    }
}

/// Gathers the facts through the library below the driver root or, if there is none, through `library`: a path, or a
/// bare name that the dynamic loader resolves. Loads the library, initialises it, shuts it down and unloads it.
///
/// # Errors
/// Why there are no facts.
pub fn facts(driver_root: Option<&Path>, library: Option<&Path>) -> Result<Facts, ProbeError> {
    let library = initialised(driver_root, library)?;
    let facts = gathered(&library);
    // Its result does not matter any more.
    let _ = library.act(&["nvmlShutdown"]);
    Ok(facts)
}

/// Loads and initialises the library. The caller shuts it down.
pub(super) fn initialised(driver_root: Option<&Path>, library: Option<&Path>) -> Result<Library, ProbeError> {
    let path = driver_root.and_then(library::below).or_else(|| library.map(Path::to_path_buf));
    let path = path.ok_or(ProbeError::NoLibrary)?;
    if !is_bare(&path) && !path.exists() {
        return Err(ProbeError::NoLibrary);
    }
    let library = Library::load(&path).map_err(|error| not_loaded(&path, &error))?;
    match library.act(&["nvmlInit_v2", "nvmlInit"]) {
        Ok(()) => Ok(library),
        Err(Failure { code: Some(code::LIB_RM_VERSION_MISMATCH), .. }) => Err(ProbeError::OtherVersion(
            library::file_version(&path).or_else(|| library::file_version(&library::loaded_file()?)),
        )),
        Err(failure) => Err(ProbeError::Unusable(refused(&failure))),
    }
}

/// The error for a library that cannot be loaded: a bare name that the dynamic loader does not find means no library;
/// one that it finds and cannot load is broken.
fn not_loaded(path: &Path, error: &str) -> ProbeError {
    if is_bare(path) && error.contains(&format!("{}: ", path.display())) && error.contains("No such file") {
        return ProbeError::NoLibrary;
    }
    ProbeError::Unusable(format!("NVML cannot be loaded — {error} — reinstall the NVIDIA driver libraries"))
}

fn is_bare(path: &Path) -> bool {
    path.components().count() == 1
}

fn refused(failure: &Failure) -> String {
    match failure.code {
        Some(code::DRIVER_NOT_LOADED) => {
            "NVML cannot be initialised — the nvidia kernel driver is not loaded — load it; `dmesg` shows why it fails"
                .to_owned()
        }
        _ => format!("NVML cannot be initialised — {failure} — check nvidia-smi and `dmesg`"),
    }
}

/// More than `NVML_NVLINK_MAX_LINKS` of any version so far (6, 12, 18, 36).
const MOST_LINKS: c_uint = 64;

/// NVIDIA's PCI vendor id.
const NVIDIA: c_uint = 0x10de;

/// All facts that an initialised library reports.
fn gathered(library: &Library) -> Facts {
    let mut query = Query { library, problems: Vec::new(), reported: BTreeSet::new() };
    let facts = query.whole();
    Facts { problems: query.problems, ..facts }
}

/// The queries of one pass, and their failures.
struct Query<'library> {
    library: &'library Library,
    problems: Vec<String>,
    /// Subject and failure of each problem so far.
    reported: BTreeSet<(String, String)>,
}

impl Query<'_> {
    fn whole(&mut self) -> Facts {
        let library = self.library;
        let driver_version = self.known("the driver", library.text(&["nvmlSystemGetDriverVersion"]));
        let cuda: Answer<c_int> =
            library.value(&["nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"]);
        let cuda_version = self.known("the driver", cuda).map(cuda_version);
        let count: Answer<c_uint> = library.value(&["nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"]);
        let count = self.needed("the driver", count).unwrap_or_default();
        let handles: Vec<(u32, Handle)> = (0..count).filter_map(|index| Some((index, self.handle(index)?))).collect();
        let places: Vec<Option<PciInfo>> = handles.iter().map(|&(index, gpu)| self.place(index, gpu)).collect();
        let addresses: BTreeSet<String> = places.iter().flatten().map(address).collect();
        let gpus =
            handles.iter().zip(&places).map(|(&(index, gpu), place)| self.gpu(index, gpu, place.as_ref(), &addresses));
        let gpus = gpus.collect();
        Facts { driver_version, cuda_version, gpus, problems: Vec::new() }
    }

    fn handle(&mut self, index: u32) -> Option<Handle> {
        let handle = self.library.at(&["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"], index);
        self.needed(&format!("GPU {index}"), handle)
    }

    fn place(&mut self, index: u32, gpu: Handle) -> Option<PciInfo> {
        let names = &["nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"];
        self.needed(&format!("GPU {index}"), self.library.value_of(names, gpu))
    }

    fn gpu(&mut self, index: u32, gpu: Handle, place: Option<&PciInfo>, addresses: &BTreeSet<String>) -> Gpu {
        let library = self.library;
        let pci_address = place.map(address).unwrap_or_default();
        let subject = format!("GPU {index} ({pci_address})");
        let memory: Option<Memory> = self.permitted(&subject, library.value_of(&["nvmlDeviceGetMemoryInfo"], gpu));
        let capability: Option<(c_int, c_int)> =
            self.known(&subject, library.pair_of(&["nvmlDeviceGetCudaComputeCapability"], gpu));
        let mut facts = Gpu {
            index,
            uuid: self.known(&subject, library.text_of(&["nvmlDeviceGetUUID"], gpu)),
            minor: self.known(&subject, library.value_of(&["nvmlDeviceGetMinorNumber"], gpu)),
            model: self.known(&subject, library.text_of(&["nvmlDeviceGetName"], gpu)),
            brand: self.known(&subject, library.value_of(&["nvmlDeviceGetBrand"], gpu)).and_then(brand),
            architecture: self
                .known(&subject, library.value_of(&["nvmlDeviceGetArchitecture"], gpu))
                .and_then(architecture),
            addressing_mode: self.addressing_mode(&subject, gpu),
            serial: self.known(&subject, library.text_of(&["nvmlDeviceGetSerial"], gpu)),
            memory_bytes: memory.map(|memory| memory.total),
            compute_capability: capability
                .and_then(|(major, minor)| Some((major.try_into().ok()?, minor.try_into().ok()?))),
            mig_mode: self.mig_mode(&subject, gpu),
            pci_address,
            ..Gpu::default()
        };
        facts.fabric_clique = gpu_health::fabric_info(library, gpu).ok().as_ref().and_then(gpu_health::clique);
        if facts.mig_mode == Some(true) {
            facts.mig_devices = self.mig_devices(&subject, gpu);
        }
        self.count_links(&subject, gpu, addresses, &mut facts);
        facts
    }

    fn addressing_mode(&mut self, subject: &str, gpu: Handle) -> Option<String> {
        let asked = AddressingMode { version: version::<AddressingMode>(1), value: 0 };
        let mode = self.library.filled_of(&["nvmlDeviceGetAddressingMode"], gpu, asked);
        addressing_mode(self.known(subject, mode)?.value)
    }

    /// The current mode; a pending one takes effect at the next reset.
    fn mig_mode(&mut self, subject: &str, gpu: Handle) -> Option<bool> {
        let modes: Option<(c_uint, c_uint)> = self.known(subject, self.library.pair_of(&["nvmlDeviceGetMigMode"], gpu));
        modes.map(|(current, _)| current == 1)
    }

    fn mig_devices(&mut self, subject: &str, gpu: Handle) -> Vec<MigDevice> {
        let most: Answer<c_uint> = self.library.value_of(&["nvmlDeviceGetMaxMigDeviceCount"], gpu);
        let most = self.needed(subject, most).unwrap_or_default();
        let profiles = Profiles::of(self.library, gpu);
        let mut devices = Vec::new();
        for index in 0..most {
            match self.library.below(&["nvmlDeviceGetMigDeviceHandleByIndex"], gpu, index) {
                Ok(handle) => {
                    let subject = format!("{subject}, MIG device {index}");
                    devices.extend(self.mig_device(&subject, index, handle, &profiles));
                }
                Err(failure) if failure.is_absent() => {}
                Err(failure) => self.complain(subject, &failure),
            }
        }
        devices
    }

    /// `None` without the ids of its instances, which identify it.
    fn mig_device(&mut self, subject: &str, index: u32, device: Handle, profiles: &Profiles) -> Option<MigDevice> {
        let library = self.library;
        let gpu_instance = self.needed(subject, library.value_of(&["nvmlDeviceGetGpuInstanceId"], device))?;
        let compute_instance = self.needed(subject, library.value_of(&["nvmlDeviceGetComputeInstanceId"], device))?;
        let attributes: Option<Attributes> =
            self.needed(subject, library.value_of(&["nvmlDeviceGetAttributes_v2"], device));
        let name = library.text_of(&["nvmlDeviceGetName"], device).ok();
        let info = profiles.info_of(library, gpu_instance);
        let known = info.as_ref().ok().copied();
        let profile_suffixes = info
            .and_then(|info| profiles.number_of(&info))
            .map(suffixes_of_profile)
            .or_else(|failure| name.as_deref().and_then(suffixes_in).ok_or(failure));
        Some(MigDevice {
            index,
            uuid: self.needed(subject, library.text_of(&["nvmlDeviceGetUUID"], device)),
            gpu_instance,
            compute_instance,
            gpu_slices: attributes.map_or(0, |attributes| attributes.gpuInstanceSliceCount),
            compute_slices: attributes.map_or(0, |attributes| attributes.computeInstanceSliceCount),
            memory_mebibytes: attributes.map_or(0, |attributes| attributes.memorySizeMB),
            multiprocessors: attributes.map_or(0, |attributes| attributes.multiprocessorCount),
            engines: attributes.as_ref().map(engines).unwrap_or_default(),
            profile_sizes: name.as_deref().and_then(sizes_in).map(str::to_owned),
            profile_suffixes: self.needed(subject, profile_suffixes).unwrap_or_default(),
            profile_id: known.map(|info| info.profileId),
            placement_start: known.map(|info| info.placement.start),
            placement_size: known.map(|info| info.placement.size),
        })
    }

    /// Counts the NVLinks that are up, by their other end.
    fn count_links(&mut self, subject: &str, gpu: Handle, gpus: &BTreeSet<String>, facts: &mut Gpu) {
        for link in 0..MOST_LINKS {
            match self.library.below::<c_uint>(&["nvmlDeviceGetNvLinkState"], gpu, link) {
                Ok(1) => self.count_link(subject, gpu, link, gpus, facts),
                Ok(_) => {}
                // A GPU may have some link numbers and not others.
                Err(failure) if failure.code == Some(code::NOT_SUPPORTED) => {}
                Err(failure) if failure.is_absent() || failure.is_unsupported() => return,
                Err(failure) => return self.complain(subject, &failure),
            }
        }
    }

    /// Counts a link as one to a GPU or to a switch: as NVML reports or, where it does not, by whether NVML lists a GPU
    /// at that address.
    fn count_link(&mut self, subject: &str, gpu: Handle, link: u32, gpus: &BTreeSet<String>, facts: &mut Gpu) {
        let end: Answer<c_uint> = self.library.below(&["nvmlDeviceGetNvLinkRemoteDeviceType"], gpu, link);
        let names = &["nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"];
        let remote = self.library.below(names, gpu, link);
        let is_to_switch = matches!(end, Ok(LINK_TO_SWITCH));
        // Blackwell's switches are not PCI functions of the host: an error from NVML about them is no failure.
        let remote: Option<PciInfo> = if is_to_switch { remote.ok() } else { self.known(subject, remote) };
        let there = remote.as_ref().map(address);
        if is_to_switch {
            self.note_switch(gpu, link, there, facts);
            return;
        }
        let (Some(remote), Some(there)) = (remote, there) else { return };
        if matches!(end, Ok(LINK_TO_GPU)) || gpus.contains(&there) {
            *facts.nvlinks.entry(there).or_default() += 1;
        } else if end.is_err() && remote.pciDeviceId & 0xffff == NVIDIA {
            self.note_switch(gpu, link, Some(there), facts);
        }
    }

    fn note_switch(&self, gpu: Handle, link: u32, switch: Option<String>, facts: &mut Gpu) {
        facts.switch_links += 1;
        let port = gpu_health::remote_link(self.library, gpu, link);
        if let (Some(switch), Some(port)) = (switch, port) {
            facts.switch_ports.insert(link, format!("{switch}/{port}"));
        }
    }

    /// The value of a query that may be unsupported.
    fn known<T>(&mut self, subject: &str, answer: Answer<T>) -> Option<T> {
        answer
            .inspect_err(|failure| {
                if !failure.is_unsupported() {
                    self.complain(subject, failure);
                }
            })
            .ok()
    }

    /// The value of a query that NVML may refuse to processes without the right to monitor MIG devices; only GPUs with
    /// MIG devices refuse.
    fn permitted<T>(&mut self, subject: &str, answer: Answer<T>) -> Option<T> {
        if answer.as_ref().is_err_and(Failure::is_forbidden) { None } else { self.known(subject, answer) }
    }

    /// The value of a query that every driver and GPU supports.
    fn needed<T>(&mut self, subject: &str, answer: Answer<T>) -> Option<T> {
        answer.inspect_err(|failure| self.complain(subject, failure)).ok()
    }

    /// Reports a failure once per subject: a lost GPU answers every query with the same error.
    fn complain(&mut self, subject: &str, failure: &Failure) {
        if self.reported.insert((subject.to_owned(), failure.meaning.clone())) {
            self.problems.push(format!("{subject}: {failure}"));
        }
    }
}

/// NVML's profile numbers by the profile ids that a GPU uses.
struct Profiles {
    gpu: Handle,
    numbers: Vec<(c_uint, u32)>,
}

impl Profiles {
    fn of(library: &Library, gpu: Handle) -> Self {
        let info = |number| {
            let info: Answer<GpuInstanceProfileInfo> =
                library.below(&["nvmlDeviceGetGpuInstanceProfileInfo"], gpu, number);
            info.ok().map(|info| (info.id, number))
        };
        Self { gpu, numbers: (0..NVML_GPU_INSTANCE_PROFILE_COUNT).filter_map(info).collect() }
    }

    /// A GPU instance's profile and placement. NVML may require more rights for it than for any other query here.
    fn info_of(&self, library: &Library, gpu_instance: u32) -> Answer<GpuInstanceInfo> {
        let instance: nvmlGpuInstance_t = library.below(&["nvmlDeviceGetGpuInstanceById"], self.gpu, gpu_instance)?;
        library.value_of(&["nvmlGpuInstanceGetInfo"], instance)
    }

    /// The number of a GPU instance's profile.
    fn number_of(&self, info: &GpuInstanceInfo) -> Answer<u32> {
        let found = self.numbers.iter().find(|(id, _)| *id == info.profileId).map(|&(_, number)| number);
        found.ok_or_else(|| Failure {
            function: "nvmlDeviceGetGpuInstanceProfileInfo",
            code: Some(code::NOT_FOUND),
            meaning: format!("no profile has the id {}", info.profileId),
        })
    }
}

/// The PCI address as sysfs spells it; GPUs are functions 0.
pub(super) fn address(place: &PciInfo) -> String {
    format!("{:04x}:{:02x}:{:02x}.0", place.domain, place.bus, place.device)
}

/// The engines of a MIG device, by the words of GPU feature discovery.
fn engines(attributes: &Attributes) -> BTreeMap<String, u32> {
    let engines = [
        ("copy", attributes.sharedCopyEngineCount),
        ("decoder", attributes.sharedDecoderCount),
        ("encoder", attributes.sharedEncoderCount),
        ("jpeg", attributes.sharedJpegCount),
        ("ofa", attributes.sharedOfaCount),
    ];
    engines.map(|(kind, count)| (kind.to_owned(), count)).into()
}
