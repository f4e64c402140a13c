//! A GPU's place in the `NVLink` fabric: `nvmlGpuFabricInfo_v3_t`, and what older drivers know of it.

use nvml_wrapper_sys::bindings::{
    NVML_GPU_FABRIC_STATE_COMPLETED, nvmlDevice_t as Handle, nvmlGpuFabricInfo_t as First,
    nvmlGpuFabricInfo_v2_t as Second, nvmlGpuFabricInfo_v3_t as Info,
};

use super::library::{Answer, Failure, Library, code, version};

/// What the driver knows of it; its health is 0, which is "not supported", where it says nothing of that.
///
/// A driver refuses a version that is newer than itself; the second has no summary of the health, the first no health at all.
pub(super) fn info(library: &Library, gpu: Handle) -> Answer<Info> {
    const VERSIONED: &[&str] = &["nvmlDeviceGetGpuFabricInfoV"];
    let (uuid, third) = ([0; 16], version::<Info>(3));
    let nothing =
        Info { version: third, clusterUuid: uuid, status: 0, cliqueId: 0, state: 0, healthMask: 0, healthSummary: 0 };
    let newest = library.filled_of(VERSIONED, gpu, nothing);
    if !newest.as_ref().is_err_and(Failure::is_of_another_version) {
        return newest;
    }
    let second = version::<Second>(2);
    let asked = Second { version: second, clusterUuid: uuid, status: 0, cliqueId: 0, state: 0, healthMask: 0 };
    if let Ok(Second { clusterUuid, status, cliqueId, state, healthMask, .. }) =
        library.filled_of(VERSIONED, gpu, asked)
    {
        return Ok(Info { clusterUuid, status, cliqueId, state, healthMask, ..nothing });
    }
    let asked = First { clusterUuid: uuid, status: 0, cliqueId: 0, state: 0 };
    let First { clusterUuid, status, cliqueId, state } =
        library.filled_of(&["nvmlDeviceGetGpuFabricInfo"], gpu, asked)?;
    Ok(Info { clusterUuid, status, cliqueId, state, ..nothing })
}

/// Cluster and clique of a GPU that has joined one: `8f5c…-…-….32766`.
pub(super) fn clique(info: &Info) -> Option<String> {
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
    fn its_layout_is_that_of_the_interface() {
        assert_eq!((version::<Info>(3), version::<Second>(2)), (0x0300_0028, 0x0200_0024));
        assert_eq!(size_of::<First>(), 28);
    }

    #[test]
    fn a_uuid_has_its_digits_in_the_usual_groups() {
        let bytes: Vec<u8> = (0..16).collect();
        assert_eq!(uuid(bytes.try_into().unwrap()), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
