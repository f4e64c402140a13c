//! NVML's C interface, as far as it is used: <https://docs.nvidia.com/deploy/nvml-api/>.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::NonNull;

/// `nvmlReturn_t`.
pub(super) type Code = c_int;

/// Values of `nvmlReturn_t` that are told apart.
pub(super) mod code {
    use super::Code;

    pub(in crate::nvml) const SUCCESS: Code = 0;
    pub(in crate::nvml) const INVALID_ARGUMENT: Code = 2;
    pub(in crate::nvml) const NOT_SUPPORTED: Code = 3;
    pub(in crate::nvml) const NOT_FOUND: Code = 6;
    pub(in crate::nvml) const DRIVER_NOT_LOADED: Code = 9;
    pub(in crate::nvml) const FUNCTION_NOT_FOUND: Code = 13;
    pub(in crate::nvml) const LIB_RM_VERSION_MISMATCH: Code = 18;
}

/// `nvmlDevice_t` or `nvmlGpuInstance_t`: valid from initialisation to shutdown, by the library's own word.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Handle(Option<NonNull<c_void>>);

/// `NVML_DEVICE_NAME_V2_BUFFER_SIZE` and `NVML_DEVICE_UUID_V2_BUFFER_SIZE`; version texts have 80.
pub(super) const TEXT_SIZE: usize = 96;

/// More than `NVML_NVLINK_MAX_LINKS` of any version so far (6, 12, 18, 36).
pub(super) const MOST_LINKS: c_uint = 64;

/// `nvmlIntNvLinkDeviceType_t`.
pub(super) mod link_end {
    use std::ffi::c_uint;

    pub(in crate::nvml) const GPU: c_uint = 0;
    pub(in crate::nvml) const SWITCH: c_uint = 2;
}

/// `nvmlPciInfo_t`. Earlier versions have reserved words in place of the second bus id.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct PciInfo {
    legacy_bus_id: [c_char; 16],
    pub(super) domain: c_uint,
    pub(super) bus: c_uint,
    pub(super) device: c_uint,
    /// Device id in the upper half, vendor id in the lower.
    pub(super) device_id: c_uint,
    subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlDeviceAttributes_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct Attributes {
    multiprocessors: c_uint,
    copy_engines: c_uint,
    decoders: c_uint,
    encoders: c_uint,
    jpeg_engines: c_uint,
    optical_flow_engines: c_uint,
    pub(super) gpu_slices: c_uint,
    pub(super) compute_slices: c_uint,
    pub(super) memory_mebibytes: c_ulonglong,
}

/// `nvmlGpuInstanceInfo_t`, with its `nvmlGpuInstancePlacement_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct GpuInstanceInfo {
    device: Handle,
    id: c_uint,
    pub(super) profile_id: c_uint,
    placement_start: c_uint,
    placement_size: c_uint,
}

/// `nvmlGpuInstanceProfileInfo_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub(super) struct GpuInstanceProfileInfo {
    pub(super) id: c_uint,
    peer_to_peer: c_uint,
    slices: c_uint,
    instances: c_uint,
    multiprocessors: c_uint,
    copy_engines: c_uint,
    decoders: c_uint,
    encoders: c_uint,
    jpeg_engines: c_uint,
    optical_flow_engines: c_uint,
    memory_mebibytes: c_ulonglong,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn layouts_have_the_sizes_of_nvidias_header() {
        assert_eq!(size_of::<PciInfo>(), 68);
        assert_eq!(offset_of!(PciInfo, domain), 16);
        assert_eq!(offset_of!(PciInfo, bus_id), 36);
        assert_eq!(size_of::<Memory>(), 24);
        assert_eq!(size_of::<Attributes>(), 40);
        assert_eq!(offset_of!(Attributes, memory_mebibytes), 32);
        assert_eq!(size_of::<GpuInstanceInfo>(), 24);
        assert_eq!(size_of::<GpuInstanceProfileInfo>(), 48);
        assert_eq!(size_of::<Handle>(), size_of::<*mut c_void>());
    }
}
