//! The health of one GPU as NVML reports it, as plain data; `source:nvml` reads its JSON form and decides on findings.
//!
//! One look costs one `nvmlDeviceGetFieldValues` for the GPU and, if it has NVLinks, one for all of them; and one call
//! each for fabric, clocks, SRAM, repairs and unrepairable memory. Each is an ioctl or a few, under the driver's lock
//! of the GPU; none opens a GPU that sleeps. Queries that the driver or GPU does not support are still made: switching
//! MIG may change that, and a refusal costs no more than an answer. Fields and layouts:
//! <https://docs.nvidia.com/deploy/nvml-api/>, `nvml.h`.

#![expect(unsafe_code, reason = "NVML's handles are pointers, and a field's value is a union")]

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_ulonglong};

use serde::Serialize;

use super::interface::{
    NVML_FI_DEV_ECC_DBE_AGG_TOTAL, NVML_FI_DEV_ECC_DBE_VOL_TOTAL, NVML_FI_DEV_ECC_SBE_AGG_TOTAL,
    NVML_FI_DEV_ECC_SBE_VOL_TOTAL, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS,
    NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS, NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS,
    NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS, NVML_FI_DEV_NVLINK_ERROR_DL_CRC, NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
    NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, NVML_FI_DEV_NVLINK_GET_STATE, NVML_FI_DEV_NVLINK_LINK_COUNT,
    NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID, NVML_FI_DEV_PCIE_REPLAY_COUNTER, NVML_FI_DEV_REMAPPED_COR,
    NVML_FI_DEV_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_PENDING, NVML_FI_DEV_REMAPPED_ROWS_COR_INACTIVE,
    NVML_FI_DEV_REMAPPED_ROWS_UNC_INACTIVE, NVML_FI_DEV_REMAPPED_UNC, NVML_FI_DEV_RETIRED_DBE,
    NVML_FI_DEV_RETIRED_PENDING, NVML_FI_DEV_RETIRED_SBE, NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
    NVML_GPU_FABRIC_STATE_COMPLETED, NVML_NVLINK_MAX_LINKS, NVML_NVLINK_STATE_INACTIVE, NVML_VALUE_TYPE_SIGNED_INT,
    NVML_VALUE_TYPE_SIGNED_LONG_LONG, NVML_VALUE_TYPE_UNSIGNED_INT, NVML_VALUE_TYPE_UNSIGNED_LONG,
    NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, NVML_VALUE_TYPE_UNSIGNED_SHORT, Plain, nvmlDevice_t,
    nvmlEccSramErrorStatus_v1_t, nvmlFieldValue_t, nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t,
    nvmlRepairStatus_v1_t, nvmlUnrepairableMemoryStatus_v1_t, nvmlValue_t, version,
};
use super::library::{Answer, Failure, Library, Names, code};

/// One look at one GPU. A field is `None` if the driver does not support or answer it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// `0000:3b:00.0`, as sysfs spells it.
    pub pci_address: String,
    /// `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`: the action that the driver asks for; 0 is none.
    pub recovery_action: Option<u64>,
    /// `NVML_FI_DEV_REMAPPED_FAILURE`: whether a row of its memory could not be remapped, ever.
    pub remap_failed: Option<bool>,
    /// `NVML_FI_DEV_REMAPPED_PENDING`: whether rows wait for the next reset to be remapped.
    pub remap_pending: Option<bool>,
    /// `NVML_FI_DEV_RETIRED_PENDING`: whether pages of its memory wait for the next reset to be retired.
    pub retirement_pending: Option<bool>,
    /// `NVML_FI_DEV_RETIRED_SBE` and `_DBE`: the number of retired pages.
    pub retired_pages: Option<u64>,
    /// `NVML_FI_DEV_REMAPPED_COR`: rows of its memory remapped because of corrected errors.
    pub remapped_corrected: Option<u64>,
    /// `NVML_FI_DEV_REMAPPED_UNC`: rows remapped because of uncorrected errors.
    pub remapped_uncorrected: Option<u64>,
    /// `NVML_FI_DEV_REMAPPED_ROWS_COR_INACTIVE`: remappings because of corrected errors that are not in use.
    pub inactive_remapped_corrected: Option<u64>,
    /// `NVML_FI_DEV_REMAPPED_ROWS_UNC_INACTIVE`: remappings because of uncorrected errors that are not in use.
    pub inactive_remapped_uncorrected: Option<u64>,
    /// `NVML_FI_DEV_ECC_DBE_VOL_TOTAL`: uncorrected memory errors since the driver initialised the GPU.
    pub uncorrected_errors: Option<u64>,
    /// `NVML_FI_DEV_ECC_SBE_VOL_TOTAL`: corrected memory errors since the driver initialised the GPU.
    pub corrected_errors: Option<u64>,
    /// `NVML_FI_DEV_ECC_DBE_AGG_TOTAL`: uncorrected memory errors in the board's life.
    pub lifetime_uncorrected_errors: Option<u64>,
    /// `NVML_FI_DEV_ECC_SBE_AGG_TOTAL`: corrected memory errors in the board's life.
    pub lifetime_corrected_errors: Option<u64>,
    /// `nvmlDeviceGetSramEccErrorStatus`: whether its SRAM had more uncorrected errors than a board may have.
    pub sram_threshold_exceeded: Option<bool>,
    /// `nvmlDeviceGetUnrepairableMemoryFlag_v1`: whether its memory is damaged beyond repair.
    pub unrepairable_memory: Option<bool>,
    /// `nvmlDeviceGetRepairStatus`: whether a repair of a memory channel or a cluster waits for a reset.
    pub repair_pending: Option<bool>,
    /// `NVML_FI_DEV_PCIE_REPLAY_COUNTER`.
    pub pcie_replays: Option<u64>,
    /// `NVML_FI_DEV_NVLINK_GET_STATE`: whether each NVLink is up, by number. A card without a bridge has links, too.
    pub links: BTreeMap<u32, bool>,
    /// Errors of all its NVLinks together, by kind.
    pub link_errors: BTreeMap<&'static str, u64>,
    /// Its place in the NVLink fabric, if it has one.
    pub fabric: Option<Fabric>,
    /// `nvmlDeviceGetCurrentClocksEventReasons`: reasons for lowered clocks, a bit each.
    pub clock_reasons: Option<u64>,
    /// `nvmlDeviceGetMigMode`: whether it is in MIG mode.
    pub mig_mode: Option<bool>,
    /// `nvmlDeviceGetMigMode`: whether a change of the mode has been asked for, and waits for a reset of the GPU.
    pub mig_mode_pending: Option<bool>,
    /// `nvmlDeviceGetPersistenceMode`: whether the driver keeps it initialised when nobody has it open.
    pub is_persistent: Option<bool>,
    /// `NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION`: mJ since the driver was loaded; it begins again when the GPU is started
    /// again.
    pub energy: Option<u64>,
    /// Why NVML does not open the GPU; the other fields are then unknown.
    pub refusal: Option<Failed>,
    /// Calls that failed.
    pub failures: Vec<Failed>,
}

/// `nvmlGpuFabricInfo_v3_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Fabric {
    /// `NVML_GPU_FABRIC_STATE_*`: 1 is not started, 2 in progress, 3 completed.
    pub state: u8,
    /// The result of its registration; valid in state 3 only.
    pub status: u32,
    /// `NVML_GPU_FABRIC_HEALTH_SUMMARY_*`: 1 is healthy, 2 unhealthy, 3 of limited capacity.
    pub summary: u8,
}

/// A call that returned an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// The function, `nvmlDeviceGetFieldValues`.
    pub function: &'static str,
    /// The returned `nvmlReturn_t`.
    pub code: u32,
    /// NVML's own words for the code.
    pub meaning: String,
}

/// Fields of a GPU, read with one call.
const FIELDS: [c_uint; 17] = [
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
    NVML_FI_DEV_REMAPPED_FAILURE,
    NVML_FI_DEV_REMAPPED_PENDING,
    NVML_FI_DEV_REMAPPED_COR,
    NVML_FI_DEV_REMAPPED_UNC,
    NVML_FI_DEV_REMAPPED_ROWS_COR_INACTIVE,
    NVML_FI_DEV_REMAPPED_ROWS_UNC_INACTIVE,
    NVML_FI_DEV_RETIRED_PENDING,
    NVML_FI_DEV_RETIRED_SBE,
    NVML_FI_DEV_RETIRED_DBE,
    NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
    NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
    NVML_FI_DEV_ECC_DBE_AGG_TOTAL,
    NVML_FI_DEV_ECC_SBE_AGG_TOTAL,
    NVML_FI_DEV_PCIE_REPLAY_COUNTER,
    NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
    NVML_FI_DEV_NVLINK_LINK_COUNT,
];

/// Error counters of each NVLink, with the word for each: the first three until Hopper, the others since Blackwell.
const LINK_ERRORS: [(&str, c_uint); 7] = [
    ("replay", NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY),
    ("recovery", NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY),
    ("crc", NVML_FI_DEV_NVLINK_ERROR_DL_CRC),
    ("receive", NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS),
    ("recovery", NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS),
    ("recovery-failed", NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS),
    ("effective", NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS),
];

/// A link that sleeps is up.
const INACTIVE: u64 = NVML_NVLINK_STATE_INACTIVE as u64;

/// An open GPU.
pub(super) struct OpenGpu {
    pub(super) handle: nvmlDevice_t,
}

impl OpenGpu {
    pub(super) fn new(handle: nvmlDevice_t) -> Self {
        Self { handle }
    }

    /// Reads the GPU's health into `reading`, and adds the calls that it answers with an error to `failures`.
    pub(super) fn read(&self, library: &Library, reading: &mut Reading, failures: &mut Vec<Failure>) {
        let fields = self.fields(library, &FIELDS.map(|field| (field, 0)), failures);
        let number = |id| fields.get(&(id, 0)).copied();
        let is_set = |id| number(id).map(|value| value != 0);
        let (single, double) = (number(NVML_FI_DEV_RETIRED_SBE), number(NVML_FI_DEV_RETIRED_DBE));
        reading.recovery_action = number(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION);
        reading.remap_failed = is_set(NVML_FI_DEV_REMAPPED_FAILURE);
        reading.remap_pending = is_set(NVML_FI_DEV_REMAPPED_PENDING);
        reading.remapped_corrected = number(NVML_FI_DEV_REMAPPED_COR);
        reading.remapped_uncorrected = number(NVML_FI_DEV_REMAPPED_UNC);
        reading.inactive_remapped_corrected = number(NVML_FI_DEV_REMAPPED_ROWS_COR_INACTIVE);
        reading.inactive_remapped_uncorrected = number(NVML_FI_DEV_REMAPPED_ROWS_UNC_INACTIVE);
        reading.retirement_pending = is_set(NVML_FI_DEV_RETIRED_PENDING);
        reading.retired_pages = single.map_or(double, |single| Some(single.saturating_add(double.unwrap_or_default())));
        reading.uncorrected_errors = number(NVML_FI_DEV_ECC_DBE_VOL_TOTAL);
        reading.corrected_errors = number(NVML_FI_DEV_ECC_SBE_VOL_TOTAL);
        reading.lifetime_uncorrected_errors = number(NVML_FI_DEV_ECC_DBE_AGG_TOTAL);
        reading.lifetime_corrected_errors = number(NVML_FI_DEV_ECC_SBE_AGG_TOTAL);
        reading.pcie_replays = number(NVML_FI_DEV_PCIE_REPLAY_COUNTER);
        reading.energy = number(NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION);
        self.read_links(library, number(NVML_FI_DEV_NVLINK_LINK_COUNT), reading, failures);
        self.read_memory(library, reading, failures);
        let fabric = noted(fabric_info(library, self.handle), failures);
        reading.fabric = fabric.map(|it| Fabric { state: it.state, status: it.status, summary: it.healthSummary });
        let names = &["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"];
        let modes = noted(library.pair_of::<c_uint>(&["nvmlDeviceGetMigMode"], self.handle), failures);
        let persistence = library.value_of::<_, c_uint>(&["nvmlDeviceGetPersistenceMode"], self.handle);
        reading.is_persistent = noted(persistence, failures).map(|mode| mode == 1);
        reading.mig_mode = modes.map(|(current, _)| current == 1);
        reading.mig_mode_pending = modes.map(|(current, pending)| current != pending);
        reading.clock_reasons = noted(library.value_of::<_, c_ulonglong>(names, self.handle), failures);
    }

    /// Reads the states and error counters of all its links, with one call.
    fn read_links(&self, library: &Library, links: Option<u64>, reading: &mut Reading, failures: &mut Vec<Failure>) {
        let links =
            0..c_uint::try_from(links.unwrap_or_default().min(NVML_NVLINK_MAX_LINKS.into())).unwrap_or_default();
        let of_link = |link| {
            let errors = LINK_ERRORS.iter().map(move |(_, field)| (*field, link));
            errors.chain([(NVML_FI_DEV_NVLINK_GET_STATE, link)])
        };
        let asked: Vec<_> = links.flat_map(of_link).collect();
        for ((field, link), value) in self.fields(library, &asked, failures) {
            if field == NVML_FI_DEV_NVLINK_GET_STATE {
                reading.links.insert(link, value != INACTIVE);
            } else if let Some((word, _)) = LINK_ERRORS.iter().find(|(_, known)| *known == field) {
                let errors = reading.link_errors.entry(word).or_default();
                *errors = errors.saturating_add(value);
            }
        }
    }

    fn read_memory(&self, library: &Library, reading: &mut Reading, failures: &mut Vec<Failure>) {
        let asked = nvmlEccSramErrorStatus_v1_t {
            version: version::<nvmlEccSramErrorStatus_v1_t>(1),
            aggregateUncParity: 0,
            aggregateUncSecDed: 0,
            aggregateCor: 0,
            volatileUncParity: 0,
            volatileUncSecDed: 0,
            volatileCor: 0,
            aggregateUncBucketL2: 0,
            aggregateUncBucketSm: 0,
            aggregateUncBucketPcie: 0,
            aggregateUncBucketMcu: 0,
            aggregateUncBucketOther: 0,
            bThresholdExceeded: 0,
        };
        let sram = self.filled(library, &["nvmlDeviceGetSramEccErrorStatus"], asked, failures);
        reading.sram_threshold_exceeded = sram.map(|sram| sram.bThresholdExceeded != 0);
        let asked = nvmlRepairStatus_v1_t {
            version: version::<nvmlRepairStatus_v1_t>(1),
            bChannelRepairPending: 0,
            bTpcRepairPending: 0,
        };
        let repair = self.filled(library, &["nvmlDeviceGetRepairStatus"], asked, failures);
        reading.repair_pending = repair.map(|it| it.bChannelRepairPending != 0 || it.bTpcRepairPending != 0);
        let names = &["nvmlDeviceGetUnrepairableMemoryFlag_v1"];
        let memory = noted(library.value_of::<_, nvmlUnrepairableMemoryStatus_v1_t>(names, self.handle), failures);
        reading.unrepairable_memory = memory.map(|memory| memory.bUnrepairableMemory != 0);
    }

    fn filled<T: Plain>(&self, library: &Library, names: Names, asked: T, failures: &mut Vec<Failure>) -> Option<T> {
        noted(library.filled_of(names, self.handle, asked), failures)
    }

    /// The values that could be read, by field and link.
    fn fields(
        &self,
        library: &Library,
        asked: &[(c_uint, c_uint)],
        failures: &mut Vec<Failure>,
    ) -> BTreeMap<(c_uint, c_uint), u64> {
        let mut values: Vec<_> = asked.iter().map(|(field, link)| unread(*field, *link)).collect();
        let mut read = BTreeMap::new();
        if values.is_empty() {
            return read;
        }
        let answer = noted(library.fields(self.handle, &mut values), failures);
        for value in answer.iter().flat_map(|()| &values) {
            match value.nvmlReturn {
                code::SUCCESS => read.extend(number(value).map(|number| ((value.fieldId, value.scopeId), number))),
                // A driver that is older than the field reports an invalid argument.
                code::NOT_SUPPORTED | code::INVALID_ARGUMENT => {}
                returned => failures.push(library.failure(GET_FIELDS, returned)),
            }
        }
        read
    }
}

/// The number of a link at its other end; `None` where the driver does not report it.
pub(super) fn remote_link(library: &Library, gpu: nvmlDevice_t, link: c_uint) -> Option<u64> {
    let mut values = [unread(NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID, link)];
    library.fields(gpu, &mut values).ok()?;
    let [value] = values;
    if value.nvmlReturn == code::SUCCESS { number(&value) } else { None }
}

fn noted<T>(answer: Answer<T>, failures: &mut Vec<Failure>) -> Option<T> {
    answer.map_err(|failure| failures.push(failure)).ok()
}

const GET_FIELDS: &str = "nvmlDeviceGetFieldValues";

/// An unread field: NVML fills in the rest.
fn unread(field: c_uint, link: c_uint) -> nvmlFieldValue_t {
    nvmlFieldValue_t {
        fieldId: field,
        scopeId: link,
        timestamp: 0,
        latencyUsec: 0,
        valueType: NVML_VALUE_TYPE_UNSIGNED_INT,
        nvmlReturn: code::UNKNOWN,
        value: nvmlValue_t { ullVal: 0 },
    }
}

/// The value as a number; `None` if it is not a whole number.
fn number(field: &nvmlFieldValue_t) -> Option<u64> {
    let value = field.value;
    // SAFETY: every member is a number, for which each pattern of bits is valid, and all bytes were written before.
    unsafe {
        match field.valueType {
            NVML_VALUE_TYPE_UNSIGNED_INT => Some(value.uiVal.into()),
            NVML_VALUE_TYPE_UNSIGNED_LONG => Some(value.ulVal),
            NVML_VALUE_TYPE_UNSIGNED_LONG_LONG => Some(value.ullVal),
            NVML_VALUE_TYPE_UNSIGNED_SHORT => Some(value.usVal.into()),
            NVML_VALUE_TYPE_SIGNED_INT => u64::try_from(value.siVal).ok(),
            NVML_VALUE_TYPE_SIGNED_LONG_LONG => u64::try_from(value.sllVal).ok(),
            _ => None,
        }
    }
}

/// The driver's information on the GPU's place in the `NVLink` fabric. The summary is 0 ("not supported") where the
/// driver reports no health.
///
/// A driver refuses versions that are newer than itself; version 2 has no summary of the health, version 1 no health at
/// all.
pub(super) fn fabric_info(library: &Library, gpu: nvmlDevice_t) -> Answer<nvmlGpuFabricInfo_v3_t> {
    const VERSIONED: &[&str] = &["nvmlDeviceGetGpuFabricInfoV"];
    let (uuid, third) = ([0; 16], version::<nvmlGpuFabricInfo_v3_t>(3));
    let nothing = nvmlGpuFabricInfo_v3_t {
        version: third,
        clusterUuid: uuid,
        status: 0,
        cliqueId: 0,
        state: 0,
        healthMask: 0,
        healthSummary: 0,
    };
    let newest = library.filled_of(VERSIONED, gpu, nothing);
    if !newest.as_ref().is_err_and(Failure::is_of_another_version) {
        return newest;
    }
    let second = version::<nvmlGpuFabricInfo_v2_t>(2);
    let asked =
        nvmlGpuFabricInfo_v2_t { version: second, clusterUuid: uuid, status: 0, cliqueId: 0, state: 0, healthMask: 0 };
    if let Ok(nvmlGpuFabricInfo_v2_t { clusterUuid, status, cliqueId, state, healthMask, .. }) =
        library.filled_of(VERSIONED, gpu, asked)
    {
        return Ok(nvmlGpuFabricInfo_v3_t { clusterUuid, status, cliqueId, state, healthMask, ..nothing });
    }
    let asked = nvmlGpuFabricInfo_t { clusterUuid: uuid, status: 0, cliqueId: 0, state: 0 };
    let nvmlGpuFabricInfo_t { clusterUuid, status, cliqueId, state } =
        library.filled_of(&["nvmlDeviceGetGpuFabricInfo"], gpu, asked)?;
    Ok(nvmlGpuFabricInfo_v3_t { clusterUuid, status, cliqueId, state, ..nothing })
}

/// Cluster and clique of a GPU that has joined one: `8f5c…-…-….32766`.
pub(super) fn clique(info: &nvmlGpuFabricInfo_v3_t) -> Option<String> {
    let has_joined = u32::from(info.state) == NVML_GPU_FABRIC_STATE_COMPLETED && info.status == code::SUCCESS;
    let cluster = uuid(info.clusterUuid.map(|byte| byte.to_ne_bytes()[0]));
    (has_joined && info.clusterUuid != [0; 16]).then(|| format!("{cluster}.{}", info.cliqueId))
}

fn uuid(bytes: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fields_value_is_read_by_its_type() {
        let of = |kind, value| number(&nvmlFieldValue_t { valueType: kind, value, ..unread(230, 0) });
        assert_eq!(of(NVML_VALUE_TYPE_UNSIGNED_INT, nvmlValue_t { ullVal: 0xffff_ffff_0000_0002 }), Some(2));
        assert_eq!(of(NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, nvmlValue_t { ullVal: 1 << 40 }), Some(1 << 40));
        assert_eq!(of(NVML_VALUE_TYPE_SIGNED_INT, nvmlValue_t { siVal: -1 }), None);
        assert_eq!(of(0, nvmlValue_t { dVal: 1.0 }), None);
    }

    #[test]
    fn a_uuid_has_its_digits_in_the_usual_groups() {
        let bytes: Vec<u8> = (0..16).collect();
        assert_eq!(uuid(bytes.try_into().unwrap()), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
