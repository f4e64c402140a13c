//! What NVML tells in numbers and names, in the words of NVIDIA's drivers for Kubernetes: brand, architecture, addressing
//! mode, and the parts of a MIG profile's name.
//!
//! The name of a MIG profile is slices and memory (`1g.5gb`, `1c.3g.20gb`) and suffixes: `+me`, `+me.all`, `+gfx`, `-me`.

use std::ffi::c_uint;

use super::interface::{
    NVML_BRAND_GEFORCE, NVML_BRAND_GEFORCE_RTX, NVML_BRAND_GRID, NVML_BRAND_NVIDIA, NVML_BRAND_NVIDIA_CLOUD_GAMING,
    NVML_BRAND_NVIDIA_RTX, NVML_BRAND_NVIDIA_VAPPS, NVML_BRAND_NVIDIA_VCS, NVML_BRAND_NVIDIA_VPC,
    NVML_BRAND_NVIDIA_VWS, NVML_BRAND_NVS, NVML_BRAND_QUADRO, NVML_BRAND_QUADRO_RTX, NVML_BRAND_TESLA,
    NVML_BRAND_TITAN, NVML_BRAND_TITAN_RTX, NVML_BRAND_UNKNOWN, NVML_DEVICE_ADDRESSING_MODE_ATS,
    NVML_DEVICE_ADDRESSING_MODE_HMM, NVML_DEVICE_ADDRESSING_MODE_NONE, NVML_DEVICE_ARCH_ADA, NVML_DEVICE_ARCH_AMPERE,
    NVML_DEVICE_ARCH_BLACKWELL, NVML_DEVICE_ARCH_HOPPER, NVML_DEVICE_ARCH_KEPLER, NVML_DEVICE_ARCH_MAXWELL,
    NVML_DEVICE_ARCH_PASCAL, NVML_DEVICE_ARCH_RUBIN, NVML_DEVICE_ARCH_TURING, NVML_DEVICE_ARCH_UNKNOWN,
    NVML_DEVICE_ARCH_VOLTA, NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME, NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX,
    NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME, NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1,
    NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME, NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX,
    NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME, NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1,
    NVML_GPU_INSTANCE_PROFILE_3_SLICE_GFX, NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX,
};

/// The word for a brand; `None` for a brand that is newer than this list. The words here are those of NVIDIA's drivers
/// for Kubernetes, `pkg/nvlib/device/device.go` of <https://github.com/NVIDIA/go-nvlib>, commit 3c161560.
pub(super) fn brand(number: c_uint) -> Option<String> {
    let word = match number {
        NVML_BRAND_UNKNOWN => "Unknown",
        NVML_BRAND_QUADRO => "Quadro",
        NVML_BRAND_TESLA => "Tesla",
        NVML_BRAND_NVS => "NVS",
        NVML_BRAND_GRID => "Grid",
        NVML_BRAND_GEFORCE => "GeForce",
        NVML_BRAND_TITAN => "Titan",
        NVML_BRAND_NVIDIA_VAPPS => "NvidiaVApps",
        NVML_BRAND_NVIDIA_VPC => "NvidiaVPC",
        NVML_BRAND_NVIDIA_VCS => "NvidiaVCS",
        NVML_BRAND_NVIDIA_VWS => "NvidiaVWS",
        NVML_BRAND_NVIDIA_CLOUD_GAMING => "NvidiaCloudGaming",
        NVML_BRAND_QUADRO_RTX => "QuadroRTX",
        NVML_BRAND_NVIDIA_RTX => "NvidiaRTX",
        NVML_BRAND_NVIDIA => "Nvidia",
        NVML_BRAND_GEFORCE_RTX => "GeForceRTX",
        NVML_BRAND_TITAN_RTX => "TitanRTX",
        _ => return None,
    };
    Some(word.to_owned())
}

/// The word for an architecture; `None` for one that is newer than this list.
pub(super) fn architecture(number: c_uint) -> Option<String> {
    let word = match number {
        NVML_DEVICE_ARCH_KEPLER => "Kepler",
        NVML_DEVICE_ARCH_MAXWELL => "Maxwell",
        NVML_DEVICE_ARCH_PASCAL => "Pascal",
        NVML_DEVICE_ARCH_VOLTA => "Volta",
        NVML_DEVICE_ARCH_TURING => "Turing",
        NVML_DEVICE_ARCH_AMPERE => "Ampere",
        NVML_DEVICE_ARCH_ADA => "Ada Lovelace",
        NVML_DEVICE_ARCH_HOPPER => "Hopper",
        NVML_DEVICE_ARCH_BLACKWELL => "Blackwell",
        NVML_DEVICE_ARCH_RUBIN => "Rubin",
        NVML_DEVICE_ARCH_UNKNOWN => "Unknown",
        _ => return None,
    };
    Some(word.to_owned())
}

/// The word for an addressing mode; `None` for one that is newer than this list.
pub(super) fn addressing_mode(number: c_uint) -> Option<String> {
    let word = match number {
        NVML_DEVICE_ADDRESSING_MODE_ATS => "ATS",
        NVML_DEVICE_ADDRESSING_MODE_HMM => "HMM",
        NVML_DEVICE_ADDRESSING_MODE_NONE => "None",
        _ => return None,
    };
    Some(word.to_owned())
}

/// The suffixes of a GPU instance's profile, by the profile's number.
pub(super) fn suffixes_of_profile(profile: u32) -> Vec<String> {
    let suffix = match profile {
        NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1 | NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1 => "+me",
        NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX
        | NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX
        | NVML_GPU_INSTANCE_PROFILE_3_SLICE_GFX
        | NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX => "+gfx",
        NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME | NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME => "-me",
        NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME | NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME => "+me.all",
        _ => return Vec::new(),
    };
    vec![suffix.to_owned()]
}

/// Slices and memory from NVML's name of a MIG device: `1g.5gb` in `NVIDIA A100-SXM4-40GB MIG 1g.5gb+me`.
pub(super) fn sizes_in(name: &str) -> Option<&str> {
    let (sizes, _) = parts(name)?;
    let (slices, memory) = sizes.rsplit_once("g.")?;
    let slices = slices.split_once("c.").map_or(vec![slices], |(compute, gpu)| vec![compute, gpu]);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (slices.into_iter().all(is_number) && is_number(memory.strip_suffix("gb")?)).then_some(sizes)
}

/// The suffixes from such a name; `None` for any other name.
pub(super) fn suffixes_in(name: &str) -> Option<Vec<String>> {
    let (_, added) = parts(name)?;
    let starts: Vec<usize> = added.match_indices(['+', '-', ',']).map(|(start, _)| start).collect();
    let ends = starts.iter().skip(1).copied().chain([added.len()]);
    let mut sign = '+';
    let mut suffixes = Vec::new();
    for part in starts.iter().zip(ends).filter_map(|(&start, end)| added.get(start..end)) {
        sign = part.chars().next().filter(|&first| first != ',').unwrap_or(sign);
        suffixes.push(format!("{sign}{}", part.get(1..)?.trim()));
    }
    Some(suffixes)
}

/// Such a name split behind `gb`.
fn parts(name: &str) -> Option<(&str, &str)> {
    let (_, profile) = name.rsplit_once(" MIG ")?;
    profile.split_at_checked(profile.find("gb")? + "gb".len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::nvml::interface::NVML_GPU_INSTANCE_PROFILE_COUNT;

    #[test]
    fn names_of_mig_devices_end_with_their_suffixes() {
        for (name, expected) in [
            ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", Some(vec![])),
            ("NVIDIA A100-SXM4-40GB MIG 1g.5gb+me", Some(vec!["+me"])),
            ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", Some(vec![])),
            ("NVIDIA RTX PRO 6000 MIG 1g.24gb+me.all", Some(vec!["+me.all"])),
            ("NVIDIA RTX PRO 6000 MIG 1g.24gb-me", Some(vec!["-me"])),
            ("NVIDIA RTX PRO 6000 MIG 1g.24gb+gfx,me", Some(vec!["+gfx", "+me"])),
            ("NVIDIA RTX PRO 6000 MIG 1g.24gb+gfx-me", Some(vec!["+gfx", "-me"])),
            ("NVIDIA A100-SXM4-40GB", None),
            ("", None),
        ] {
            let expected = expected.map(|suffixes| suffixes.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(suffixes_in(name), expected, "{name}");
        }
    }

    #[test]
    fn names_of_mig_devices_have_slices_and_memory() {
        for (name, expected) in [
            ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", Some("1g.5gb")),
            ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", Some("1c.3g.40gb")),
            ("NVIDIA RTX PRO 6000 MIG 1g.24gb+me.all", Some("1g.24gb")),
            ("NVIDIA A100-SXM4-40GB MIG g.5gb", None),
            ("NVIDIA A100-SXM4-40GB MIG 1g.5g/../gb", None),
            ("NVIDIA A100-SXM4-40GB", None),
        ] {
            assert_eq!(sizes_in(name), expected, "{name}");
        }
    }

    #[test]
    fn each_profile_number_has_its_suffix() {
        let found: Vec<String> =
            (0..NVML_GPU_INSTANCE_PROFILE_COUNT).map(|profile| suffixes_of_profile(profile).concat()).collect();
        let expected = "         +me +me  +gfx +gfx +gfx -me -me +me.all +me.all +gfx";
        assert_eq!(
            found.join(" ").split_whitespace().collect::<Vec<_>>(),
            expected.split_whitespace().collect::<Vec<_>>()
        );
        assert!(found[..7].concat().is_empty() && found[9].is_empty());
    }

    /// Each number that has a word, with its word.
    fn words(word: fn(c_uint) -> Option<String>) -> Vec<(c_uint, String)> {
        (0..64).chain([c_uint::MAX]).filter_map(|number| Some((number, word(number)?))).collect()
    }

    /// The numbers are those of `nvml.h`, the words those of the functions `GetBrandAsString`,
    /// `GetArchitectureAsString` and `GetAddressingModeAsString` of
    /// <https://github.com/NVIDIA/go-nvlib/blob/3c161560521e3208792199f2ed0d559a5f3ae4f4/pkg/nvlib/device/device.go>.
    #[test]
    fn brands_architectures_and_addressing_modes_have_the_vendors_words_and_newer_numbers_none() {
        let as_text = |words: &[(c_uint, &str)]| -> Vec<(c_uint, String)> {
            words.iter().map(|&(number, word)| (number, word.to_owned())).collect()
        };
        let brands = [
            (0, "Unknown"),
            (1, "Quadro"),
            (2, "Tesla"),
            (3, "NVS"),
            (4, "Grid"),
            (5, "GeForce"),
            (6, "Titan"),
            (7, "NvidiaVApps"),
            (8, "NvidiaVPC"),
            (9, "NvidiaVCS"),
            (10, "NvidiaVWS"),
            (11, "NvidiaCloudGaming"),
            (12, "QuadroRTX"),
            (13, "NvidiaRTX"),
            (14, "Nvidia"),
            (15, "GeForceRTX"),
            (16, "TitanRTX"),
        ];
        assert_eq!(words(brand), as_text(&brands));
        let architectures = [
            (2, "Kepler"),
            (3, "Maxwell"),
            (4, "Pascal"),
            (5, "Volta"),
            (6, "Turing"),
            (7, "Ampere"),
            (8, "Ada Lovelace"),
            (9, "Hopper"),
            (10, "Blackwell"),
            (13, "Rubin"),
            (c_uint::MAX, "Unknown"),
        ];
        assert_eq!(words(architecture), as_text(&architectures));
        assert_eq!(words(addressing_mode), as_text(&[(0, "None"), (1, "HMM"), (2, "ATS")]));
    }

    proptest! {
        #[test]
        fn no_name_is_too_strange(name: String, added: String) {
            let _ = suffixes_in(&name);
            if let Some(suffixes) = suffixes_in(&format!("{name} MIG 1g.5gb{added}")) {
                prop_assert!(suffixes.iter().all(|suffix| suffix.starts_with(['+', '-'])));
            }
        }
    }
}
