//! What NVML says of the health of GPUs, as plain data; `source:nvml` reads its JSON form and decides what is a finding.

use std::collections::BTreeMap;

use serde::Serialize;

/// One look at one GPU. What a driver does not support or answer is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// `0000:3b:00.0`, as sysfs spells it.
    pub pci_address: String,
    /// `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`: what the driver wants done to it; 0 is nothing.
    pub recovery_action: Option<u64>,
    /// `NVML_FI_DEV_REMAPPED_FAILURE`: whether a row of its memory could not be remapped, ever.
    pub remap_failed: Option<bool>,
    /// `NVML_FI_DEV_REMAPPED_PENDING`: whether rows wait for the next reset to be remapped.
    pub remap_pending: Option<bool>,
    /// `NVML_FI_DEV_RETIRED_PENDING`: whether pages of its memory wait for the next reset to be retired.
    pub retirement_pending: Option<bool>,
    /// `NVML_FI_DEV_RETIRED_SBE` and `_DBE`: how many pages are retired.
    pub retired_pages: Option<u64>,
    /// `NVML_FI_DEV_REMAPPED_COR`: how many rows of its memory were remapped because of corrected errors.
    pub remapped_corrected: Option<u64>,
    /// `NVML_FI_DEV_REMAPPED_UNC`: how many because of uncorrected ones.
    pub remapped_uncorrected: Option<u64>,
    /// `NVML_FI_DEV_REMAPPED_ROWS_COR_INACTIVE`: how many such remappings because of corrected errors are not in use.
    pub inactive_remapped_corrected: Option<u64>,
    /// `NVML_FI_DEV_REMAPPED_ROWS_UNC_INACTIVE`: how many because of uncorrected ones.
    pub inactive_remapped_uncorrected: Option<u64>,
    /// `NVML_FI_DEV_ECC_DBE_VOL_TOTAL`: uncorrected memory errors since the driver initialised the GPU.
    pub uncorrected_errors: Option<u64>,
    /// `NVML_FI_DEV_ECC_SBE_VOL_TOTAL`: corrected ones.
    pub corrected_errors: Option<u64>,
    /// `NVML_FI_DEV_ECC_DBE_AGG_TOTAL`: uncorrected memory errors of the board's life.
    pub lifetime_uncorrected_errors: Option<u64>,
    /// `NVML_FI_DEV_ECC_SBE_AGG_TOTAL`: corrected ones.
    pub lifetime_corrected_errors: Option<u64>,
    /// `nvmlDeviceGetSramEccErrorStatus`: whether its SRAM had more uncorrected errors than a board may have.
    pub sram_threshold_exceeded: Option<bool>,
    /// `nvmlDeviceGetUnrepairableMemoryFlag_v1`: whether its memory has what nothing can repair.
    pub unrepairable_memory: Option<bool>,
    /// `nvmlDeviceGetRepairStatus`: whether a repair of a memory channel or a cluster waits for a reset.
    pub repair_pending: Option<bool>,
    /// `NVML_FI_DEV_PCIE_REPLAY_COUNTER`.
    pub pcie_replays: Option<u64>,
    /// `NVML_FI_DEV_NVLINK_GET_STATE`: by number of the NVLink, whether it is up. A card without a bridge has links, too.
    pub links: BTreeMap<u32, bool>,
    /// What all its NVLinks have counted, by kind of error.
    pub link_errors: BTreeMap<&'static str, u64>,
    /// Its place in the NVLink fabric, where it has one.
    pub fabric: Option<Fabric>,
    /// `nvmlDeviceGetCurrentClocksEventReasons`: why its clocks are lower, a bit each.
    pub clock_reasons: Option<u64>,
    /// What could not be read.
    pub failures: Vec<Failed>,
}

/// `nvmlGpuFabricInfo_v3_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Fabric {
    /// `NVML_GPU_FABRIC_STATE_*`: 1 is not started, 2 in progress, 3 completed.
    pub state: u8,
    /// How its registration ended; of state 3 only.
    pub status: u32,
    /// `NVML_GPU_FABRIC_HEALTH_SUMMARY_*`: 1 is healthy, 2 unhealthy, 3 of limited capacity.
    pub summary: u8,
}

/// A call that was answered with an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// `nvmlDeviceGetFieldValues`.
    pub function: &'static str,
    /// What it returned, an `nvmlReturn_t`.
    pub code: u32,
    /// NVML's own words for the code.
    pub meaning: String,
}

/// What happened while it was waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Waited {
    /// Oldest first.
    pub events: Vec<Event>,
    /// Why waiting ended early.
    pub failure: Option<Failed>,
}

/// An event of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// As sysfs spells it; empty where NVML does not say.
    pub pci_address: String,
    /// One of the `nvmlEventType` bits.
    pub kind: u64,
    /// Of an Xid: its number.
    pub data: u64,
    /// The MIG device that it concerns: its GPU instance; absent where it concerns all of the GPU.
    pub gpu_instance: Option<u32>,
    /// Its compute instance; absent where it concerns all of the GPU instance.
    pub compute_instance: Option<u32>,
}
