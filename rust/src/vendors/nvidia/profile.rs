//! Names of MIG profiles, as NVIDIA's tools and plugin derive them from NVML: `1g.10gb`, `1c.3g.20gb`, `1g.5gb+me`.

use crate::nvml::facts::MigDevice;

const MEBIBYTE: u128 = 1 << 20;
const GIBIBYTE: u128 = 1 << 30;

/// The profile's name on a GPU with this many bytes. Where a figure is missing, it is the one in the device's own name: NVML
/// tells a GPU's memory in MIG mode only to who may monitor all its MIG devices. `None` without either.
pub(super) fn name(device: &MigDevice, gpu_bytes: Option<u64>) -> Option<String> {
    let sizes = gpu_bytes.and_then(|bytes| sizes(device, bytes)).or_else(|| device.profile_sizes.clone())?;
    Some(format!("{sizes}{}", device.profile_suffixes.concat()))
}

fn sizes(device: &MigDevice, gpu_bytes: u64) -> Option<String> {
    if device.gpu_slices == 0 || gpu_bytes == 0 {
        return None;
    }
    let memory = gigabytes(device.memory_mebibytes, gpu_bytes);
    let whole = device.compute_slices == 0 || device.compute_slices == device.gpu_slices;
    let compute = if whole { String::new() } else { format!("{}c.", device.compute_slices) };
    Some(format!("{compute}{}g.{memory}gb", device.gpu_slices))
}

/// `mig-1g.5gb.me`: the profile as the part of a resource name after the slash.
pub(super) fn resource(profile: &str) -> String {
    format!("mig-{}", profile.replace('+', "."))
}

/// Memory of the device in whole eighths of the GPU's, in gigabytes of what the GPU is sold as.
fn gigabytes(mebibytes: u64, gpu_bytes: u64) -> u128 {
    let total = u128::from(gpu_bytes);
    let eighths = (u128::from(mebibytes) * MEBIBYTE * 8).div_ceil(total);
    (eighths * total.div_ceil(GIBIBYTE) + 4) / 8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A100_40: u64 = 42_505_273_344;
    const H100_80: u64 = 85_520_809_984;

    fn device(slices: (u32, u32), memory_mebibytes: u64, profile_suffixes: &[&str]) -> MigDevice {
        let profile_suffixes = profile_suffixes.iter().map(|&suffix| suffix.to_owned()).collect();
        MigDevice {
            compute_slices: slices.0,
            gpu_slices: slices.1,
            memory_mebibytes,
            profile_suffixes,
            ..MigDevice::default()
        }
    }

    #[test]
    fn profiles_have_the_names_of_nvidias_tables() {
        for (slices, mebibytes, gpu, profile_suffixes, expected) in [
            ((1, 1), 4864, A100_40, vec![], "1g.5gb"),
            ((2, 2), 9856, A100_40, vec![], "2g.10gb"),
            ((3, 3), 19968, A100_40, vec![], "3g.20gb"),
            ((4, 4), 19968, A100_40, vec![], "4g.20gb"),
            ((7, 7), 40192, A100_40, vec![], "7g.40gb"),
            ((1, 3), 19968, A100_40, vec![], "1c.3g.20gb"),
            ((1, 1), 4864, A100_40, vec!["+me"], "1g.5gb+me"),
            ((1, 1), 9728, H100_80, vec![], "1g.10gb"),
            ((1, 1), 19968, H100_80, vec![], "1g.20gb"),
            ((3, 3), 40320, H100_80, vec![], "3g.40gb"),
            ((7, 7), 80384, H100_80, vec!["-me"], "7g.80gb-me"),
        ] {
            assert_eq!(name(&device(slices, mebibytes, &profile_suffixes), Some(gpu)).as_deref(), Some(expected));
        }
        assert_eq!(name(&device((0, 0), 4864, &[]), Some(A100_40)), None);
        assert_eq!(name(&device((1, 1), 4864, &[]), None), None);
    }

    #[test]
    fn the_name_of_the_device_says_what_figures_do_not() {
        let profile_sizes = Some("1g.5gb".to_owned());
        let named = MigDevice { profile_sizes, ..device((1, 1), 4864, &["+me"]) };
        assert_eq!(name(&named, None).as_deref(), Some("1g.5gb+me"));
        assert_eq!(name(&named, Some(A100_40)).as_deref(), Some("1g.5gb+me"));
        assert_eq!(name(&MigDevice { gpu_slices: 0, ..named }, Some(A100_40)).as_deref(), Some("1g.5gb+me"));
    }

    #[test]
    fn a_resource_name_has_no_plus() {
        for (profile, expected) in [
            ("1g.5gb", "mig-1g.5gb"),
            ("1g.5gb+me", "mig-1g.5gb.me"),
            ("1g.5gb+me.all", "mig-1g.5gb.me.all"),
            ("1g.24gb+gfx", "mig-1g.24gb.gfx"),
            ("1g.24gb-me", "mig-1g.24gb-me"),
        ] {
            assert_eq!(resource(profile), expected);
        }
    }

    proptest! {
        #[test]
        fn any_figures_have_a_name_or_none(slices: (u32, u32), mebibytes: u64, gpu: u64) {
            let named = name(&device(slices, mebibytes, &[]), Some(gpu));
            prop_assert_eq!(named.is_none(), slices.1 == 0 || gpu == 0);
        }
    }
}
