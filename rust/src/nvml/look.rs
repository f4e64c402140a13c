//! One look at one GPU, by a handle that is kept open.
//!
//! What it costs: one `nvmlDeviceGetFieldValues` for the GPU and, where it has NVLinks, one for all of them; one call each
//! for fabric, clocks, SRAM, repairs and unrepairable memory. Each is an ioctl or a few, under the driver's lock of the
//! GPU; none opens a GPU that sleeps. What driver or GPU do not support is asked all the same: it may be another thing where
//! MIG is switched, and the refusal costs no more than the answer.
//! Fields and layouts are those of <https://docs.nvidia.com/deploy/nvml-api/>, in `nvml.h`.

#![expect(unsafe_code, reason = "NVML's handles are pointers, and a field's value is a union")]

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    field_id, nvmlDevice_t as Handle, nvmlEccSramErrorStatus_v1_t, nvmlFieldValue_t, nvmlRepairStatus_v1_t,
    nvmlValue_t, nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT as SIGNED_INT,
    nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG as SIGNED_LONG_LONG,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT as UNSIGNED_INT,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG as UNSIGNED_LONG,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG as UNSIGNED_LONG_LONG,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_SHORT as UNSIGNED_SHORT,
};

use super::fabric;
use super::library::{Answer, Failure, Library, Names, Plain, UnrepairableMemory, code, version};
use super::reading::{Fabric, Reading};

/// `NVML_FI_DEV_REMAPPED_ROWS_COR_INACTIVE` and `_UNC_INACTIVE`, since driver 580; the bindings end before them.
const REMAPPED_ROWS_COR_INACTIVE: c_uint = 301;
const REMAPPED_ROWS_UNC_INACTIVE: c_uint = 302;

/// What is read of a GPU with one call.
const FIELDS: [c_uint; 16] = [
    field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
    field_id::NVML_FI_DEV_REMAPPED_FAILURE,
    field_id::NVML_FI_DEV_REMAPPED_PENDING,
    field_id::NVML_FI_DEV_REMAPPED_COR,
    field_id::NVML_FI_DEV_REMAPPED_UNC,
    REMAPPED_ROWS_COR_INACTIVE,
    REMAPPED_ROWS_UNC_INACTIVE,
    field_id::NVML_FI_DEV_RETIRED_PENDING,
    field_id::NVML_FI_DEV_RETIRED_SBE,
    field_id::NVML_FI_DEV_RETIRED_DBE,
    field_id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
    field_id::NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
    field_id::NVML_FI_DEV_ECC_DBE_AGG_TOTAL,
    field_id::NVML_FI_DEV_ECC_SBE_AGG_TOTAL,
    field_id::NVML_FI_DEV_PCIE_REPLAY_COUNTER,
    field_id::NVML_FI_DEV_NVLINK_LINK_COUNT,
];

/// What each NVLink counts, by the word for it: the first three until Hopper, the others since Blackwell.
const LINK_ERRORS: [(&str, c_uint); 7] = [
    ("replay", field_id::NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY),
    ("recovery", field_id::NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY),
    ("crc", field_id::NVML_FI_DEV_NVLINK_ERROR_DL_CRC),
    ("receive", field_id::NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS),
    ("recovery", field_id::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS),
    ("recovery-failed", field_id::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS),
    ("effective", field_id::NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS),
];

/// `NVML_NVLINK_MAX_LINKS`, of API 13.
const MOST_LINKS: u64 = 36;

/// `NVML_NVLINK_STATE_INACTIVE`; a link that sleeps is up.
const INACTIVE: u64 = 0;

/// A GPU that is open.
pub(super) struct Gpu {
    pub(super) handle: Handle,
}

impl Gpu {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Fills in what it says of its health; `failures` are the calls that it answers with an error.
    pub(super) fn read(&self, library: &Library, reading: &mut Reading, failures: &mut Vec<Failure>) {
        let fields = self.fields(library, &FIELDS.map(|field| (field, 0)), failures);
        let number = |id| fields.get(&(id, 0)).copied();
        let is_set = |id| number(id).map(|value| value != 0);
        let (single, double) = (number(field_id::NVML_FI_DEV_RETIRED_SBE), number(field_id::NVML_FI_DEV_RETIRED_DBE));
        reading.recovery_action = number(field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION);
        reading.remap_failed = is_set(field_id::NVML_FI_DEV_REMAPPED_FAILURE);
        reading.remap_pending = is_set(field_id::NVML_FI_DEV_REMAPPED_PENDING);
        reading.remapped_corrected = number(field_id::NVML_FI_DEV_REMAPPED_COR);
        reading.remapped_uncorrected = number(field_id::NVML_FI_DEV_REMAPPED_UNC);
        reading.inactive_remapped_corrected = number(REMAPPED_ROWS_COR_INACTIVE);
        reading.inactive_remapped_uncorrected = number(REMAPPED_ROWS_UNC_INACTIVE);
        reading.retirement_pending = is_set(field_id::NVML_FI_DEV_RETIRED_PENDING);
        reading.retired_pages = single.map_or(double, |single| Some(single.saturating_add(double.unwrap_or_default())));
        reading.uncorrected_errors = number(field_id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL);
        reading.corrected_errors = number(field_id::NVML_FI_DEV_ECC_SBE_VOL_TOTAL);
        reading.lifetime_uncorrected_errors = number(field_id::NVML_FI_DEV_ECC_DBE_AGG_TOTAL);
        reading.lifetime_corrected_errors = number(field_id::NVML_FI_DEV_ECC_SBE_AGG_TOTAL);
        reading.pcie_replays = number(field_id::NVML_FI_DEV_PCIE_REPLAY_COUNTER);
        self.read_links(library, number(field_id::NVML_FI_DEV_NVLINK_LINK_COUNT), reading, failures);
        self.read_memory(library, reading, failures);
        let fabric = noted(fabric::info(library, self.handle), failures);
        reading.fabric = fabric.map(|it| Fabric { state: it.state, status: it.status, summary: it.healthSummary });
        let names = &["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"];
        reading.clock_reasons = noted(library.value_of::<_, c_ulonglong>(names, self.handle), failures);
    }

    /// Of all its links with one call.
    fn read_links(&self, library: &Library, links: Option<u64>, reading: &mut Reading, failures: &mut Vec<Failure>) {
        let links = 0..c_uint::try_from(links.unwrap_or_default().min(MOST_LINKS)).unwrap_or_default();
        let of_link = |link| {
            let errors = LINK_ERRORS.iter().map(move |(_, field)| (*field, link));
            errors.chain([(field_id::NVML_FI_DEV_NVLINK_GET_STATE, link)])
        };
        let asked: Vec<_> = links.flat_map(of_link).collect();
        for ((field, link), value) in self.fields(library, &asked, failures) {
            if field == field_id::NVML_FI_DEV_NVLINK_GET_STATE {
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
        let asked = UnrepairableMemory { version: version::<UnrepairableMemory>(1), is_unrepairable: 0 };
        let memory = self.filled(library, &["nvmlDeviceGetUnrepairableMemoryFlag_v1"], asked, failures);
        reading.unrepairable_memory = memory.map(|memory| memory.is_unrepairable != 0);
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
                // A field that is newer than the driver is an invalid argument to it.
                code::NOT_SUPPORTED | code::INVALID_ARGUMENT => {}
                returned => failures.push(library.failure(GET_FIELDS, returned)),
            }
        }
        read
    }
}

fn noted<T>(answer: Answer<T>, failures: &mut Vec<Failure>) -> Option<T> {
    answer.map_err(|failure| failures.push(failure)).ok()
}

const GET_FIELDS: &str = "nvmlDeviceGetFieldValues";

/// A field that has not been read: NVML fills in the rest.
fn unread(field: c_uint, link: c_uint) -> nvmlFieldValue_t {
    nvmlFieldValue_t {
        fieldId: field,
        scopeId: link,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_interface() {
        assert_eq!(size_of::<nvmlFieldValue_t>(), 40);
        assert_eq!(version::<nvmlEccSramErrorStatus_v1_t>(1), 0x0100_0068);
        assert_eq!(version::<nvmlRepairStatus_v1_t>(1), 0x0100_000c);
        assert_eq!(version::<UnrepairableMemory>(1), 0x0100_0008);
    }

    #[test]
    fn a_fields_value_is_read_by_its_type() {
        let of = |kind, value| number(&nvmlFieldValue_t { valueType: kind, value, ..unread(230, 0) });
        assert_eq!(of(UNSIGNED_INT, nvmlValue_t { ullVal: 0xffff_ffff_0000_0002 }), Some(2));
        assert_eq!(of(UNSIGNED_LONG_LONG, nvmlValue_t { ullVal: 1 << 40 }), Some(1 << 40));
        assert_eq!(of(SIGNED_INT, nvmlValue_t { siVal: -1 }), None);
        assert_eq!(of(0, nvmlValue_t { dVal: 1.0 }), None);
    }
}
