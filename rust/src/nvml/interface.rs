//! The layouts and numbers of NVIDIA's `nvml.h` that devherd uses, under NVIDIA's names. No other file imports the
//! bindings, and only a layout of this list can be passed to NVML. `described` lists all of it with sizes, offsets and
//! values: `tests/nvml/test_nvml_header.py` has a C compiler compare that with NVIDIA's own header.

#![expect(unsafe_code, reason = "a type that NVML fills in is a promise about its layout")]
#![expect(non_snake_case, non_upper_case_globals, reason = "NVIDIA's names")]

use std::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{self, field_id};
use serde_json::{Map, Value, json};

pub(super) use bindings::{nvmlDevice_t, nvmlEventSet_t, nvmlGpuInstance_t, nvmlReturn_t, nvmlValue_t};

/// A type that NVML reads or fills in: of C layout, and valid when every byte is zero.
///
/// # Safety
/// Both must be true of an implementing type.
pub(super) unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for c_int {}
// SAFETY: integers.
unsafe impl Plain for c_uint {}
// SAFETY: an integer.
unsafe impl Plain for c_ulonglong {}
// SAFETY: a pointer, which may be null; nothing here follows it.
unsafe impl Plain for nvmlDevice_t {}
// SAFETY: a pointer, which may be null; nothing here follows it.
unsafe impl Plain for nvmlEventSet_t {}
// SAFETY: a pointer, which may be null; nothing here follows it.
unsafe impl Plain for nvmlGpuInstance_t {}

/// `nvmlUnrepairableMemoryStatus_v1_t`, which the bindings lack. Unlike others it does not begin with a version.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct nvmlUnrepairableMemoryStatus_v1_t {
    pub(super) bUnrepairableMemory: c_uint,
}

/// Structs with all of their fields: a field that is missing here does not compile.
macro_rules! structs {
    ($($name:ident { $($field:ident)* })*) => {
        $(
            // SAFETY: `repr(C)`, of integers, arrays and unions of them, and pointers that nothing here follows.
            unsafe impl Plain for $name {}
        )*

        fn layouts() -> Map<String, Value> {
            [$((stringify!($name).to_owned(), {
                let _ = |$name { $($field: _),* }: $name| ();
                let fields: Map<String, Value> = [$((
                    stringify!($field).to_owned(),
                    json!([std::mem::offset_of!($name, $field), size_of_field(|it: &$name| &raw const it.$field)]),
                )),*].into_iter().collect();
                json!({"size": size_of::<$name>(), "fields": fields})
            })),*].into_iter().collect()
        }
    };
}

fn size_of_field<T, F>(_: fn(&T) -> *const F) -> usize {
    size_of::<F>()
}

pub(super) use bindings::{
    nvmlDeviceAddressingMode_v1_t, nvmlDeviceAttributes_t, nvmlEccSramErrorStatus_v1_t, nvmlEventData_t,
    nvmlFieldValue_t, nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t, nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t, nvmlMemory_t, nvmlPciInfo_t, nvmlRepairStatus_v1_t,
};

structs! {
    nvmlPciInfo_t { busIdLegacy domain bus device pciDeviceId pciSubSystemId busId }
    nvmlMemory_t { total free used }
    nvmlDeviceAddressingMode_v1_t { version value }
    nvmlDeviceAttributes_t {
        multiprocessorCount sharedCopyEngineCount sharedDecoderCount sharedEncoderCount sharedJpegCount sharedOfaCount
        gpuInstanceSliceCount computeInstanceSliceCount memorySizeMB
    }
    nvmlGpuInstancePlacement_t { start size }
    nvmlGpuInstanceInfo_t { device id profileId placement }
    nvmlGpuInstanceProfileInfo_t {
        id isP2pSupported sliceCount instanceCount multiprocessorCount copyEngineCount decoderCount encoderCount
        jpegCount ofaCount memorySizeMB
    }
    nvmlEventData_t { device eventType eventData gpuInstanceId computeInstanceId }
    nvmlFieldValue_t { fieldId scopeId timestamp latencyUsec valueType nvmlReturn value }
    nvmlGpuFabricInfo_t { clusterUuid status cliqueId state }
    nvmlGpuFabricInfo_v2_t { version clusterUuid status cliqueId state healthMask }
    nvmlGpuFabricInfo_v3_t { version clusterUuid status cliqueId state healthMask healthSummary }
    nvmlEccSramErrorStatus_v1_t {
        version aggregateUncParity aggregateUncSecDed aggregateCor volatileUncParity volatileUncSecDed volatileCor
        aggregateUncBucketL2 aggregateUncBucketSm aggregateUncBucketPcie aggregateUncBucketMcu aggregateUncBucketOther
        bThresholdExceeded
    }
    nvmlRepairStatus_v1_t { version bChannelRepairPending bTpcRepairPending }
    nvmlUnrepairableMemoryStatus_v1_t { bUnrepairableMemory }
}

/// Numbers under the names of the header.
macro_rules! numbers {
    ($($name:ident = $value:expr;)*) => {
        $(pub(super) const $name: c_uint = $value;)*

        fn values() -> Map<String, Value> {
            [$((stringify!($name).to_owned(), json!($name))),*].into_iter().collect()
        }
    };
}

numbers! {
    NVML_SUCCESS = bindings::nvmlReturn_enum_NVML_SUCCESS;
    NVML_ERROR_INVALID_ARGUMENT = bindings::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
    NVML_ERROR_NOT_SUPPORTED = bindings::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
    NVML_ERROR_NO_PERMISSION = bindings::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION;
    NVML_ERROR_NOT_FOUND = bindings::nvmlReturn_enum_NVML_ERROR_NOT_FOUND;
    NVML_ERROR_DRIVER_NOT_LOADED = bindings::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED;
    NVML_ERROR_TIMEOUT = bindings::nvmlReturn_enum_NVML_ERROR_TIMEOUT;
    NVML_ERROR_FUNCTION_NOT_FOUND = bindings::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND;
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = bindings::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = bindings::nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    NVML_ERROR_UNKNOWN = bindings::nvmlReturn_enum_NVML_ERROR_UNKNOWN;

    nvmlEventTypeDoubleBitEccError = bindings::nvmlEventTypeDoubleBitEccError;
    nvmlEventTypeXidCriticalError = bindings::nvmlEventTypeXidCriticalError;
    nvmlEventMigConfigChange = bindings::nvmlEventMigConfigChange;
    nvmlEventTypeSingleBitEccErrorStorm = bindings::nvmlEventTypeSingleBitEccErrorStorm;
    nvmlEventTypeDramRetirementEvent = bindings::nvmlEventTypeDramRetirementEvent;
    nvmlEventTypeDramRetirementFailure = bindings::nvmlEventTypeDramRetirementFailure;
    nvmlEventTypeNonFatalPoisonError = bindings::nvmlEventTypeNonFatalPoisonError;
    nvmlEventTypeFatalPoisonError = bindings::nvmlEventTypeFatalPoisonError;
    nvmlEventTypeGpuUnavailableError = bindings::nvmlEventTypeGpuUnavailableError;
    nvmlEventTypeGpuRecoveryAction = bindings::nvmlEventTypeGpuRecoveryAction;

    NVML_FI_DEV_ECC_SBE_VOL_TOTAL = field_id::NVML_FI_DEV_ECC_SBE_VOL_TOTAL;
    NVML_FI_DEV_ECC_DBE_VOL_TOTAL = field_id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL;
    NVML_FI_DEV_ECC_SBE_AGG_TOTAL = field_id::NVML_FI_DEV_ECC_SBE_AGG_TOTAL;
    NVML_FI_DEV_ECC_DBE_AGG_TOTAL = field_id::NVML_FI_DEV_ECC_DBE_AGG_TOTAL;
    NVML_FI_DEV_RETIRED_SBE = field_id::NVML_FI_DEV_RETIRED_SBE;
    NVML_FI_DEV_RETIRED_DBE = field_id::NVML_FI_DEV_RETIRED_DBE;
    NVML_FI_DEV_RETIRED_PENDING = field_id::NVML_FI_DEV_RETIRED_PENDING;
    NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = field_id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION;
    NVML_FI_DEV_NVLINK_LINK_COUNT = field_id::NVML_FI_DEV_NVLINK_LINK_COUNT;
    NVML_FI_DEV_PCIE_REPLAY_COUNTER = field_id::NVML_FI_DEV_PCIE_REPLAY_COUNTER;
    NVML_FI_DEV_REMAPPED_COR = field_id::NVML_FI_DEV_REMAPPED_COR;
    NVML_FI_DEV_REMAPPED_UNC = field_id::NVML_FI_DEV_REMAPPED_UNC;
    NVML_FI_DEV_REMAPPED_PENDING = field_id::NVML_FI_DEV_REMAPPED_PENDING;
    NVML_FI_DEV_REMAPPED_FAILURE = field_id::NVML_FI_DEV_REMAPPED_FAILURE;
    NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID = field_id::NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID;
    NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY = field_id::NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY;
    NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY = field_id::NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY;
    NVML_FI_DEV_NVLINK_ERROR_DL_CRC = field_id::NVML_FI_DEV_NVLINK_ERROR_DL_CRC;
    NVML_FI_DEV_NVLINK_GET_STATE = field_id::NVML_FI_DEV_NVLINK_GET_STATE;
    NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS = field_id::NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS;
    NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS =
        field_id::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS;
    NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS =
        field_id::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS;
    NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS = field_id::NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS;
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
    // Since driver 580; the bindings end before them.
    NVML_FI_DEV_REMAPPED_ROWS_COR_INACTIVE = 301;
    NVML_FI_DEV_REMAPPED_ROWS_UNC_INACTIVE = 302;

    NVML_VALUE_TYPE_UNSIGNED_INT = bindings::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT;
    NVML_VALUE_TYPE_UNSIGNED_LONG = bindings::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG;
    NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = bindings::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    NVML_VALUE_TYPE_SIGNED_LONG_LONG = bindings::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG;
    NVML_VALUE_TYPE_SIGNED_INT = bindings::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT;
    NVML_VALUE_TYPE_UNSIGNED_SHORT = bindings::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_SHORT;

    NVML_BRAND_UNKNOWN = bindings::nvmlBrandType_enum_NVML_BRAND_UNKNOWN;
    NVML_BRAND_QUADRO = bindings::nvmlBrandType_enum_NVML_BRAND_QUADRO;
    NVML_BRAND_TESLA = bindings::nvmlBrandType_enum_NVML_BRAND_TESLA;
    NVML_BRAND_NVS = bindings::nvmlBrandType_enum_NVML_BRAND_NVS;
    NVML_BRAND_GRID = bindings::nvmlBrandType_enum_NVML_BRAND_GRID;
    NVML_BRAND_GEFORCE = bindings::nvmlBrandType_enum_NVML_BRAND_GEFORCE;
    NVML_BRAND_TITAN = bindings::nvmlBrandType_enum_NVML_BRAND_TITAN;
    NVML_BRAND_NVIDIA_VAPPS = bindings::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VAPPS;
    NVML_BRAND_NVIDIA_VPC = bindings::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VPC;
    NVML_BRAND_NVIDIA_VCS = bindings::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VCS;
    NVML_BRAND_NVIDIA_VWS = bindings::nvmlBrandType_enum_NVML_BRAND_NVIDIA_VWS;
    NVML_BRAND_NVIDIA_CLOUD_GAMING = bindings::nvmlBrandType_enum_NVML_BRAND_NVIDIA_CLOUD_GAMING;
    NVML_BRAND_QUADRO_RTX = bindings::nvmlBrandType_enum_NVML_BRAND_QUADRO_RTX;
    NVML_BRAND_NVIDIA_RTX = bindings::nvmlBrandType_enum_NVML_BRAND_NVIDIA_RTX;
    NVML_BRAND_NVIDIA = bindings::nvmlBrandType_enum_NVML_BRAND_NVIDIA;
    NVML_BRAND_GEFORCE_RTX = bindings::nvmlBrandType_enum_NVML_BRAND_GEFORCE_RTX;
    NVML_BRAND_TITAN_RTX = bindings::nvmlBrandType_enum_NVML_BRAND_TITAN_RTX;

    NVML_DEVICE_ARCH_KEPLER = bindings::NVML_DEVICE_ARCH_KEPLER;
    NVML_DEVICE_ARCH_MAXWELL = bindings::NVML_DEVICE_ARCH_MAXWELL;
    NVML_DEVICE_ARCH_PASCAL = bindings::NVML_DEVICE_ARCH_PASCAL;
    NVML_DEVICE_ARCH_VOLTA = bindings::NVML_DEVICE_ARCH_VOLTA;
    NVML_DEVICE_ARCH_TURING = bindings::NVML_DEVICE_ARCH_TURING;
    NVML_DEVICE_ARCH_AMPERE = bindings::NVML_DEVICE_ARCH_AMPERE;
    NVML_DEVICE_ARCH_ADA = bindings::NVML_DEVICE_ARCH_ADA;
    NVML_DEVICE_ARCH_HOPPER = bindings::NVML_DEVICE_ARCH_HOPPER;
    NVML_DEVICE_ARCH_BLACKWELL = bindings::NVML_DEVICE_ARCH_BLACKWELL;
    // The bindings end before it.
    NVML_DEVICE_ARCH_RUBIN = 13;
    NVML_DEVICE_ARCH_UNKNOWN = bindings::NVML_DEVICE_ARCH_UNKNOWN;

    NVML_DEVICE_ADDRESSING_MODE_NONE = bindings::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_NONE;
    NVML_DEVICE_ADDRESSING_MODE_HMM = bindings::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_HMM;
    NVML_DEVICE_ADDRESSING_MODE_ATS = bindings::nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_ATS;

    NVML_GPU_FABRIC_STATE_COMPLETED = bindings::NVML_GPU_FABRIC_STATE_COMPLETED;
    NVML_NVLINK_STATE_INACTIVE = 0;
    NVML_NVLINK_MAX_LINKS = 36;
    NVML_NVLINK_DEVICE_TYPE_GPU = bindings::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU;
    NVML_NVLINK_DEVICE_TYPE_SWITCH = bindings::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH;
    NVML_DEVICE_UUID_V2_BUFFER_SIZE = 96;
    NVML_DEVICE_NAME_V2_BUFFER_SIZE = 96;
    NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE = 80;

    NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1 = 7;
    NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1 = 8;
    NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX = 10;
    NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX = 11;
    NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX = 12;
    NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME = 13;
    NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME = 14;
    NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME = 15;
    NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME = 16;
    NVML_GPU_INSTANCE_PROFILE_3_SLICE_GFX = 17;
    NVML_GPU_INSTANCE_PROFILE_COUNT = 18;
}

/// `NVML_STRUCT_VERSION`: the size and version number of a layout.
pub(super) fn version<T: Plain>(number: c_uint) -> c_uint {
    c_uint::try_from(size_of::<T>()).unwrap_or_default() | number << 24
}

/// All of the above: each struct with its size and the offset and size of each field, each number, and the versions of
/// layouts that are passed to NVML.
#[must_use]
pub fn described() -> Value {
    let versions = json!({
        "nvmlDeviceAddressingMode_v1": version::<nvmlDeviceAddressingMode_v1_t>(1),
        "nvmlGpuFabricInfo_v2": version::<nvmlGpuFabricInfo_v2_t>(2),
        "nvmlGpuFabricInfo_v3": version::<nvmlGpuFabricInfo_v3_t>(3),
        "nvmlEccSramErrorStatus_v1": version::<nvmlEccSramErrorStatus_v1_t>(1),
        "nvmlRepairStatus_v1": version::<nvmlRepairStatus_v1_t>(1),
    });
    json!({"structs": layouts(), "numbers": values(), "versions": versions, "value": size_of::<nvmlValue_t>()})
}
