//! Asks a loaded library for everything. A GPU that does not answer does not affect the others.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t as Handle, nvmlDeviceAttributes_t as Attributes, nvmlGpuInstance_t,
    nvmlGpuInstanceInfo_t as GpuInstanceInfo, nvmlGpuInstanceProfileInfo_t as GpuInstanceProfileInfo,
    nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU as LINK_TO_GPU,
    nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH as LINK_TO_SWITCH, nvmlMemory_t as Memory,
    nvmlPciInfo_t as PciInfo,
};

use super::fabric;
use super::facts::{Facts, Gpu, MigDevice};
use super::library::{Answer, Failure, Library, code, cuda_version};
use super::profile_name;

/// More than `NVML_NVLINK_MAX_LINKS` of any version so far (6, 12, 18, 36).
const MOST_LINKS: c_uint = 64;

/// NVIDIA, as a PCI vendor.
const NVIDIA: c_uint = 0x10de;

/// All facts that an initialised library has.
pub(super) fn facts(library: &Library) -> Facts {
    let mut query = Query { library, problems: Vec::new(), reported: BTreeSet::new() };
    let facts = query.whole();
    Facts { problems: query.problems, ..facts }
}

/// The questions, and what could not be answered.
struct Query<'library> {
    library: &'library Library,
    problems: Vec<String>,
    /// Subject and failure of each problem.
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
            memory_bytes: memory.map(|memory| memory.total),
            compute_capability: capability
                .and_then(|(major, minor)| Some((major.try_into().ok()?, minor.try_into().ok()?))),
            mig_mode: self.mig_mode(&subject, gpu),
            pci_address,
            ..Gpu::default()
        };
        facts.fabric_clique = fabric::info(library, gpu).ok().as_ref().and_then(fabric::clique);
        if facts.mig_mode == Some(true) {
            facts.mig_devices = self.mig_devices(&subject, gpu);
        }
        self.count_links(&subject, gpu, addresses, &mut facts);
        facts
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
        let profile_suffixes = profiles
            .number_of(library, gpu_instance)
            .map(profile_name::suffixes_of_profile)
            .or_else(|failure| name.as_deref().and_then(profile_name::suffixes_in).ok_or(failure));
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
            profile_sizes: name.as_deref().and_then(profile_name::sizes_in).map(str::to_owned),
            profile_suffixes: self.needed(subject, profile_suffixes).unwrap_or_default(),
        })
    }

    /// NVLinks that are up, by what is at their other end.
    fn count_links(&mut self, subject: &str, gpu: Handle, gpus: &BTreeSet<String>, facts: &mut Gpu) {
        for link in 0..MOST_LINKS {
            match self.library.below::<c_uint>(&["nvmlDeviceGetNvLinkState"], gpu, link) {
                Ok(1) => self.count_link(subject, gpu, link, gpus, facts),
                Ok(_) => {}
                // A link that the GPU does not have, among others that it has.
                Err(failure) if failure.code == Some(code::NOT_SUPPORTED) => {}
                Err(failure) if failure.is_absent() || failure.is_unsupported() => return,
                Err(failure) => return self.complain(subject, &failure),
            }
        }
    }

    /// GPU or switch: as NVML reports or, where it does not, by whether it lists a GPU at that address.
    fn count_link(&mut self, subject: &str, gpu: Handle, link: u32, gpus: &BTreeSet<String>, facts: &mut Gpu) {
        let end: Answer<c_uint> = self.library.below(&["nvmlDeviceGetNvLinkRemoteDeviceType"], gpu, link);
        if matches!(end, Ok(LINK_TO_SWITCH)) {
            facts.switch_links += 1;
            return;
        }
        let names = &["nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"];
        let Some(remote) = self.known::<PciInfo>(subject, self.library.below(names, gpu, link)) else { return };
        let there = address(&remote);
        if matches!(end, Ok(LINK_TO_GPU)) || gpus.contains(&there) {
            *facts.nvlinks.entry(there).or_default() += 1;
        } else if end.is_err() && remote.pciDeviceId & 0xffff == NVIDIA {
            facts.switch_links += 1;
        }
    }

    /// What may be unsupported.
    fn known<T>(&mut self, subject: &str, answer: Answer<T>) -> Option<T> {
        answer
            .inspect_err(|failure| {
                if !failure.is_unsupported() {
                    self.complain(subject, failure);
                }
            })
            .ok()
    }

    /// What NVML keeps from processes without the right to monitor MIG devices, where there are any.
    fn permitted<T>(&mut self, subject: &str, answer: Answer<T>) -> Option<T> {
        if answer.as_ref().is_err_and(Failure::is_forbidden) { None } else { self.known(subject, answer) }
    }

    /// What must be there.
    fn needed<T>(&mut self, subject: &str, answer: Answer<T>) -> Option<T> {
        answer.inspect_err(|failure| self.complain(subject, failure)).ok()
    }

    /// A lost GPU answers every question with the same error: report it once.
    fn complain(&mut self, subject: &str, failure: &Failure) {
        if self.reported.insert((subject.to_owned(), failure.meaning.clone())) {
            self.problems.push(format!("{subject}: {failure}"));
        }
    }
}

/// Which of NVML's profile numbers a GPU's own profile ids stand for.
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
        Self { gpu, numbers: (0..profile_name::PROFILES).filter_map(info).collect() }
    }

    /// The number of a GPU instance's profile. NVML may want more rights for it than for anything else here.
    fn number_of(&self, library: &Library, gpu_instance: u32) -> Answer<u32> {
        let instance: nvmlGpuInstance_t = library.below(&["nvmlDeviceGetGpuInstanceById"], self.gpu, gpu_instance)?;
        let info: GpuInstanceInfo = library.value_of(&["nvmlGpuInstanceGetInfo"], instance)?;
        let found = self.numbers.iter().find(|(id, _)| *id == info.profileId).map(|&(_, number)| number);
        found.ok_or_else(|| Failure {
            function: "nvmlDeviceGetGpuInstanceProfileInfo",
            code: Some(code::NOT_FOUND),
            meaning: format!("no profile has the id {}", info.profileId),
        })
    }
}

/// As sysfs spells it; GPUs are functions 0.
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
