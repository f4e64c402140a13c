//! NVML kept initialised, to hear its events and look at the health of GPUs again and again.
//!
//! Every function may be missing; then nothing is said about what it would tell. Layouts and meanings are those of
//! <https://docs.nvidia.com/deploy/nvml-api/>. NVML says of itself that it may be called from any thread.

#![expect(unsafe_code, reason = "NVML's handles are pointers, and a field's value is a union")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_uint, c_ulonglong};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::time::Duration;

use nvml_wrapper_sys::bindings::{
    field_id, nvmlDevice_t as Handle, nvmlEventData_t, nvmlEventMigConfigChange, nvmlEventSet_t,
    nvmlEventTypeDoubleBitEccError, nvmlEventTypeDramRetirementEvent, nvmlEventTypeDramRetirementFailure,
    nvmlEventTypeFatalPoisonError, nvmlEventTypeGpuRecoveryAction, nvmlEventTypeGpuUnavailableError,
    nvmlEventTypeNonFatalPoisonError, nvmlEventTypeXidCriticalError, nvmlFieldValue_t, nvmlGpuFabricInfo_v3_t,
    nvmlPciInfo_t, nvmlValue_t, nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT as SIGNED_INT,
    nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG as SIGNED_LONG_LONG,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT as UNSIGNED_INT,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG as UNSIGNED_LONG,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG as UNSIGNED_LONG_LONG,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_SHORT as UNSIGNED_SHORT,
};

use super::gather::address;
use super::library::{Answer, Failure, Library, code};
use super::probe::{self, ProbeError};
use super::reading::{Event, Fabric, Failed, Reading, Waited};

/// Events after which a GPU is worth a look; P-states, clocks and power sources are not.
const EVENTS: c_ulonglong = (nvmlEventTypeDoubleBitEccError
    | nvmlEventTypeXidCriticalError
    | nvmlEventMigConfigChange
    | nvmlEventTypeDramRetirementEvent
    | nvmlEventTypeDramRetirementFailure
    | nvmlEventTypeNonFatalPoisonError
    | nvmlEventTypeFatalPoisonError
    | nvmlEventTypeGpuUnavailableError
    | nvmlEventTypeGpuRecoveryAction) as c_ulonglong;

/// Events taken at once: a storm of them must not keep the caller waiting.
const MOST_EVENTS: usize = 64;

/// The id of an instance where an event concerns all of them.
const ALL: c_uint = c_uint::MAX;

/// What is read of a GPU with one call.
const FIELDS: [c_uint; 7] = [
    field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
    field_id::NVML_FI_DEV_REMAPPED_FAILURE,
    field_id::NVML_FI_DEV_REMAPPED_PENDING,
    field_id::NVML_FI_DEV_RETIRED_PENDING,
    field_id::NVML_FI_DEV_RETIRED_SBE,
    field_id::NVML_FI_DEV_RETIRED_DBE,
    field_id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
];

/// An initialised library and the GPUs whose events it tells.
///
/// Dropped without `close` it stays as it is until the process ends: shutting it down may hang.
pub struct Watch {
    library: ManuallyDrop<Library>,
    /// By PCI address: the handle, or why there is none.
    gpus: BTreeMap<String, Answer<Handle>>,
    /// Absent where the driver has no events, or no GPU has any.
    set: Option<nvmlEventSet_t>,
    /// By PCI address: why a GPU's events cannot be heard.
    deaf: BTreeMap<String, Failure>,
}

// SAFETY: the handles are NVML's, which may be called from any thread with them; nothing here follows them.
unsafe impl Send for Watch {}

impl Watch {
    /// Loads and initialises the library, as [`probe::facts`] does, and registers for the events of these GPUs: none else is
    /// opened.
    ///
    /// # Errors
    /// Why the library cannot be used. A GPU that does not answer is no error.
    pub fn open(driver_root: Option<&Path>, library: Option<&Path>, gpus: &[String]) -> Result<Self, ProbeError> {
        let library = probe::initialised(driver_root, library)?;
        let names = &["nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId"];
        let gpus = gpus.iter().map(|gpu| (gpu.clone(), library.named(names, gpu))).collect();
        let mut watch = Self { library: ManuallyDrop::new(library), gpus, set: None, deaf: BTreeMap::new() };
        watch.listen();
        Ok(watch)
    }

    /// Waits until something happens, so many milliseconds at most, and takes what has happened.
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

    /// Looks at these GPUs; those that it was not opened for are left out.
    #[must_use]
    pub fn look(&self, gpus: &[String]) -> Vec<Reading> {
        let known = gpus.iter().filter_map(|gpu| Some((gpu, self.gpus.get(gpu)?)));
        known.map(|(gpu, handle)| self.reading(gpu, handle)).collect()
    }

    /// Lets go of the GPUs, shuts the library down and unloads it.
    pub fn close(mut self) {
        self.forget_events();
        // Its result no longer matters.
        let _ = self.library.act(&["nvmlShutdown"]);
        drop(ManuallyDrop::into_inner(self.library));
    }

    /// Registers all GPUs. After the error "unknown" NVML wants the whole set freed: the others are registered again.
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

    /// How many GPUs have events.
    fn register_all(&mut self, set: nvmlEventSet_t) -> Result<usize, ()> {
        let mut registered = 0;
        for (gpu, handle) in &self.gpus {
            let Ok(handle) = handle else { continue };
            if self.deaf.contains_key(gpu) {
                continue;
            }
            match self.register(*handle, set) {
                Ok(is_registered) => registered += usize::from(is_registered),
                Err(failure) => {
                    let spoils_the_set = failure.code == Some(code::UNKNOWN);
                    self.deaf.insert(gpu.clone(), failure);
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
            // Its result no longer matters.
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
        let is_it = |(gpu, handle): (&String, &Answer<Handle>)| (*handle.as_ref().ok()? == device).then(|| gpu.clone());
        self.gpus.iter().find_map(is_it).unwrap_or_else(|| {
            let place: Answer<nvmlPciInfo_t> = self.library.value_of(&["nvmlDeviceGetPciInfo_v3"], device);
            place.as_ref().map(address).unwrap_or_default()
        })
    }

    fn reading(&self, gpu: &str, handle: &Answer<Handle>) -> Reading {
        let mut failures: Vec<Failure> = self.deaf.get(gpu).cloned().into_iter().collect();
        let mut reading = Reading { pci_address: gpu.to_owned(), ..Reading::default() };
        match handle {
            Err(failure) => failures.push(failure.clone()),
            Ok(handle) => self.read(*handle, &mut reading, &mut failures),
        }
        let mut told = BTreeSet::new();
        let new = failures.iter().filter_map(failed).filter(|failed| told.insert((failed.function, failed.code)));
        Reading { failures: new.collect(), ..reading }
    }

    fn read(&self, handle: Handle, reading: &mut Reading, failures: &mut Vec<Failure>) {
        let fields = self.fields(handle, failures);
        let number = |id| fields.get(&id).copied();
        let is_set = |id| number(id).map(|value| value != 0);
        let (single, double) = (number(field_id::NVML_FI_DEV_RETIRED_SBE), number(field_id::NVML_FI_DEV_RETIRED_DBE));
        reading.recovery_action = number(field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION);
        reading.remap_failed = is_set(field_id::NVML_FI_DEV_REMAPPED_FAILURE);
        reading.remap_pending = is_set(field_id::NVML_FI_DEV_REMAPPED_PENDING);
        reading.retirement_pending = is_set(field_id::NVML_FI_DEV_RETIRED_PENDING);
        reading.retired_pages = single.map_or(double, |single| Some(single.saturating_add(double.unwrap_or_default())));
        reading.uncorrected_errors = number(field_id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL);
        reading.fabric = taken(self.fabric(handle), failures);
        let names = &["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"];
        reading.clock_reasons = taken(self.library.value_of::<_, c_ulonglong>(names, handle), failures);
    }

    /// The values that could be read, by field.
    fn fields(&self, handle: Handle, failures: &mut Vec<Failure>) -> BTreeMap<c_uint, u64> {
        let mut values = FIELDS.map(unread);
        if let Err(failure) = self.library.fields(handle, &mut values) {
            failures.push(failure);
            return BTreeMap::new();
        }
        let mut read = BTreeMap::new();
        for value in &values {
            match value.nvmlReturn {
                code::SUCCESS => read.extend(number(value).map(|number| (value.fieldId, number))),
                returned => failures.push(self.library.failure("nvmlDeviceGetFieldValues", returned)),
            }
        }
        read
    }

    fn fabric(&self, handle: Handle) -> Answer<Fabric> {
        let asked = nvmlGpuFabricInfo_v3_t {
            version: version::<nvmlGpuFabricInfo_v3_t>(3),
            clusterUuid: [0; 16],
            status: 0,
            cliqueId: 0,
            state: 0,
            healthMask: 0,
            healthSummary: 0,
        };
        let info = self.library.filled_of(&["nvmlDeviceGetGpuFabricInfoV"], handle, asked)?;
        Ok(Fabric { state: info.state, status: info.status, summary: info.healthSummary })
    }
}

/// What is said of a failure: nothing where the driver or the GPU does not support what was asked.
fn failed(failure: &Failure) -> Option<Failed> {
    let code = failure.code.filter(|_| !failure.is_unsupported())?;
    Some(Failed { function: failure.function, code, meaning: failure.meaning.clone() })
}

fn taken<T>(answer: Answer<T>, failures: &mut Vec<Failure>) -> Option<T> {
    answer.map_err(|failure| failures.push(failure)).ok()
}

/// A field that has not been read: NVML fills in the rest.
fn unread(field: c_uint) -> nvmlFieldValue_t {
    nvmlFieldValue_t {
        fieldId: field,
        scopeId: 0,
        timestamp: 0,
        latencyUsec: 0,
        valueType: UNSIGNED_INT,
        nvmlReturn: code::UNKNOWN,
        value: nvmlValue_t { ullVal: 0 },
    }
}

/// `None` for what is no whole number.
fn number(field: &nvmlFieldValue_t) -> Option<u64> {
    let value = field.value;
    // SAFETY: every member is a number, of which each pattern of bits is one, and all bytes were written before.
    unsafe {
        match field.valueType {
            UNSIGNED_INT => Some(value.uiVal.into()),
            UNSIGNED_LONG => Some(value.ulVal),
            UNSIGNED_LONG_LONG => Some(value.ullVal),
            UNSIGNED_SHORT => Some(value.usVal.into()),
            SIGNED_INT => u64::try_from(value.siVal).ok(),
            SIGNED_LONG_LONG => u64::try_from(value.sllVal).ok(),
            _ => None,
        }
    }
}

/// `NVML_STRUCT_VERSION`: size and number of a layout.
fn version<T>(number: c_uint) -> c_uint {
    c_uint::try_from(size_of::<T>()).unwrap_or_default() | number << 24
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_interface() {
        assert_eq!((size_of::<nvmlEventData_t>(), size_of::<nvmlFieldValue_t>()), (32, 40));
        assert_eq!(version::<nvmlGpuFabricInfo_v3_t>(3), 0x0300_0028);
    }

    #[test]
    fn a_fields_value_is_read_by_its_type() {
        let of = |kind, value| number(&nvmlFieldValue_t { valueType: kind, value, ..unread(230) });
        assert_eq!(of(UNSIGNED_INT, nvmlValue_t { ullVal: 0xffff_ffff_0000_0002 }), Some(2));
        assert_eq!(of(UNSIGNED_LONG_LONG, nvmlValue_t { ullVal: 1 << 40 }), Some(1 << 40));
        assert_eq!(of(SIGNED_INT, nvmlValue_t { siVal: -1 }), None);
        assert_eq!(of(0, nvmlValue_t { dVal: 1.0 }), None);
    }
}
