//! NVML kept initialised, to receive its events and read the health of GPUs again and again.
//!
//! Any function may be missing; its part of the result is then absent. Layouts and meanings:
//! <https://docs.nvidia.com/deploy/nvml-api/>, which documents NVML as safe to call from any thread.

#![expect(unsafe_code, reason = "NVML's handles are pointers")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_uint, c_ulonglong};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::gather::{self, ProbeError, address};
use super::gpu_health::{Failed, OpenGpu, Reading};
use super::interface::{
    nvmlDevice_t as Handle, nvmlEventData_t, nvmlEventMigConfigChange, nvmlEventSet_t, nvmlEventTypeDoubleBitEccError,
    nvmlEventTypeDramRetirementEvent, nvmlEventTypeDramRetirementFailure, nvmlEventTypeFatalPoisonError,
    nvmlEventTypeGpuRecoveryAction, nvmlEventTypeGpuUnavailableError, nvmlEventTypeNonFatalPoisonError,
    nvmlEventTypeSingleBitEccErrorStorm, nvmlEventTypeXidCriticalError, nvmlPciInfo_t,
};
use super::library::{Answer, Failure, Library, code};

/// Events after which a GPU is worth a look; P-states, clocks and power sources are not.
const EVENTS: c_ulonglong = (nvmlEventTypeDoubleBitEccError
    | nvmlEventTypeXidCriticalError
    | nvmlEventMigConfigChange
    | nvmlEventTypeSingleBitEccErrorStorm
    | nvmlEventTypeDramRetirementEvent
    | nvmlEventTypeDramRetirementFailure
    | nvmlEventTypeNonFatalPoisonError
    | nvmlEventTypeFatalPoisonError
    | nvmlEventTypeGpuUnavailableError
    | nvmlEventTypeGpuRecoveryAction) as c_ulonglong;

/// Events taken at once: a storm of them must not keep the caller waiting.
const MOST_EVENTS: usize = 64;

/// The instance id of an event that concerns all instances.
const ALL: c_uint = c_uint::MAX;

/// The events during one wait.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Waited {
    /// Events, oldest first.
    pub events: Vec<Event>,
    /// Why the wait ended early.
    pub failure: Option<Failed>,
}

/// An event of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// The PCI address as sysfs spells it; empty if NVML does not report it.
    pub pci_address: String,
    /// One of the `nvmlEventType` bits.
    pub kind: u64,
    /// The number of an Xid, for events of that kind.
    pub data: u64,
    /// The GPU instance of the concerned MIG device; absent if the event concerns the whole GPU.
    pub gpu_instance: Option<u32>,
    /// The compute instance; absent if the event concerns the whole GPU instance.
    pub compute_instance: Option<u32>,
}

/// An initialised library, and the GPUs whose events it reports.
///
/// Dropped without `close`, the library stays initialised until the process ends, because shutting it down may hang.
pub struct Watch {
    library: ManuallyDrop<Library>,
    /// Each GPU's handle by PCI address, or why there is none.
    gpus: BTreeMap<String, Answer<OpenGpu>>,
    /// Absent where the driver has no events, or no GPU has any.
    set: Option<nvmlEventSet_t>,
    /// Why a GPU's events cannot be received, by PCI address.
    unregistered: BTreeMap<String, Failure>,
}

// SAFETY: the handles are NVML's, which may be called from any thread with them; nothing here follows them.
unsafe impl Send for Watch {}

impl Watch {
    /// Loads and initialises the library, as [`gather::facts`] does, and registers for the events of these GPUs. No
    /// other GPU is opened.
    ///
    /// # Errors
    /// Why the library cannot be used. A GPU that does not answer is no error.
    pub fn open(driver_root: Option<&Path>, library: Option<&Path>, gpus: &[String]) -> Result<Self, ProbeError> {
        let library = gather::initialised(driver_root, library)?;
        let names = &["nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId"];
        let gpus = gpus.iter().map(|gpu| (gpu.clone(), library.named(names, gpu).map(OpenGpu::new))).collect();
        let mut watch = Self { library: ManuallyDrop::new(library), gpus, set: None, unregistered: BTreeMap::new() };
        watch.listen();
        Ok(watch)
    }

    /// Waits for events for at most this many milliseconds, and returns the received ones.
    #[must_use]
    pub fn wait(&self, milliseconds: u32) -> Waited {
        let Some(set) = self.set else {
            std::thread::sleep(Duration::from_millis(milliseconds.into()));
            return Waited::default();
        };
        let mut waited = Waited::default();
        let mut patience = milliseconds;
        while waited.events.len() < MOST_EVENTS {
            match self.library.wait(set, patience) {
                Ok(Some(event)) => waited.events.push(self.event(&event)),
                Ok(None) => break,
                Err(failure) => {
                    waited.failure = failed(&failure);
                    break;
                }
            }
            patience = 0;
        }
        waited
    }

    /// The number of GPUs that NVML lists; `None` if it does not answer. A GPU that the driver cannot start is not among
    /// them.
    #[must_use]
    pub fn count(&self) -> Option<u32> {
        self.library.value(&["nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"]).ok()
    }

    /// Reads the health of these GPUs; GPUs that were not passed to `open` are left out.
    #[must_use]
    pub fn look(&self, gpus: &[String]) -> Vec<Reading> {
        gpus.iter().filter_map(|gpu| self.reading(gpu)).collect()
    }

    /// Releases the GPUs, shuts the library down and unloads it.
    pub fn close(mut self) {
        self.forget_events();
        // Its result does not matter any more.
        let _ = self.library.act(&["nvmlShutdown"]);
        drop(ManuallyDrop::into_inner(self.library));
    }

    /// Registers all GPUs for events. After the error "unknown" NVML requires the whole set to be freed: the others are
    /// registered again.
    fn listen(&mut self) {
        loop {
            let Ok(set) = self.library.value(&["nvmlEventSetCreate"]) else { return };
            self.set = Some(set);
            match self.register_all(set) {
                Ok(0) => return self.forget_events(),
                Ok(_) => return,
                Err(()) => self.forget_events(),
            }
        }
    }

    /// Registers the GPUs; returns how many have events, or an error if the set must be freed.
    fn register_all(&mut self, set: nvmlEventSet_t) -> Result<usize, ()> {
        let mut registered = 0;
        for (gpu, opened) in &self.gpus {
            let Ok(opened) = opened else { continue };
            if self.unregistered.contains_key(gpu) {
                continue;
            }
            match self.register(opened.handle, set) {
                Ok(is_registered) => registered += usize::from(is_registered),
                Err(failure) => {
                    let spoils_the_set = failure.code == Some(code::UNKNOWN);
                    self.unregistered.insert(gpu.clone(), failure);
                    if spoils_the_set {
                        return Err(());
                    }
                }
            }
        }
        Ok(registered)
    }

    fn register(&self, handle: Handle, set: nvmlEventSet_t) -> Answer<bool> {
        let supported: c_ulonglong = self.library.value_of(&["nvmlDeviceGetSupportedEventTypes"], handle)?;
        let types = EVENTS & supported;
        if types != 0 {
            self.library.register(handle, types, set)?;
        }
        Ok(types != 0)
    }

    fn forget_events(&mut self) {
        if let Some(set) = self.set.take() {
            // Its result does not matter any more.
            let _ = self.library.act_on(&["nvmlEventSetFree"], set);
        }
    }

    fn event(&self, event: &nvmlEventData_t) -> Event {
        let instance = |id: c_uint| (id != ALL).then_some(id);
        Event {
            pci_address: self.address_of(event.device),
            kind: event.eventType,
            data: event.eventData,
            gpu_instance: instance(event.gpuInstanceId),
            compute_instance: instance(event.computeInstanceId),
        }
    }

    fn address_of(&self, device: Handle) -> String {
        let is_it =
            |(gpu, opened): (&String, &Answer<OpenGpu>)| (opened.as_ref().ok()?.handle == device).then(|| gpu.clone());
        self.gpus.iter().find_map(is_it).unwrap_or_else(|| {
            let place: Answer<nvmlPciInfo_t> = self.library.value_of(&["nvmlDeviceGetPciInfo_v3"], device);
            place.as_ref().map(address).unwrap_or_default()
        })
    }

    /// The health of a GPU; `None` if the GPU was not passed to `open`.
    fn reading(&self, gpu: &str) -> Option<Reading> {
        let mut failures: Vec<Failure> = self.unregistered.get(gpu).cloned().into_iter().collect();
        let mut reading = Reading { pci_address: gpu.to_owned(), ..Reading::default() };
        match self.gpus.get(gpu)? {
            Err(failure) => {
                reading.refusal = told(failure);
                failures.push(failure.clone());
            }
            Ok(opened) => opened.read(&self.library, &mut reading, &mut failures),
        }
        let mut reported = BTreeSet::new();
        let new = failures.iter().filter_map(failed).filter(|failed| reported.insert((failed.function, failed.code)));
        Some(Reading { failures: new.collect(), ..reading })
    }
}

/// The failure to report; `None` if the driver or the GPU does not support the call.
fn failed(failure: &Failure) -> Option<Failed> {
    told(failure).filter(|_| !failure.is_unsupported())
}

/// The failure with its code; `None` if the library has no such function.
fn told(failure: &Failure) -> Option<Failed> {
    Some(Failed { function: failure.function, code: failure.code?, meaning: failure.meaning.clone() })
}
