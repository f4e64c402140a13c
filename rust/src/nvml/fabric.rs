//! A GPU's place in the `NVLink` fabric: `nvmlGpuFabricInfo_v3_t`.

use nvml_wrapper_sys::bindings::{
    NVML_GPU_FABRIC_STATE_COMPLETED, nvmlDevice_t as Handle, nvmlGpuFabricInfo_v3_t as Info,
};

use super::library::{Answer, Library, code, version};

/// What the driver knows of it.
pub(super) fn info(library: &Library, gpu: Handle) -> Answer<Info> {
    let asked = Info {
        version: version::<Info>(3),
        clusterUuid: [0; 16],
        status: 0,
        cliqueId: 0,
        state: 0,
        healthMask: 0,
        healthSummary: 0,
    };
    library.filled_of(&["nvmlDeviceGetGpuFabricInfoV"], gpu, asked)
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
        assert_eq!(version::<Info>(3), 0x0300_0028);
    }

    #[test]
    fn a_uuid_has_its_digits_in_the_usual_groups() {
        let bytes: Vec<u8> = (0..16).collect();
        assert_eq!(uuid(bytes.try_into().unwrap()), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
