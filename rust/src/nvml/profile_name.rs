//! A MIG profile's name: slices and memory (`1g.5gb`, `1c.3g.20gb`), and the suffixes that some have behind these: `+me`,
//! `+me.all`, `+gfx`, `-me`.

/// GPU instance profiles, `NVML_GPU_INSTANCE_PROFILE_*`, by number.
pub(super) const PROFILES: u32 = 18;

/// The suffixes, by the number of the GPU instance's profile.
pub(super) fn suffixes_of_profile(profile: u32) -> Vec<String> {
    let suffix = match profile {
        7 | 8 => "+me",
        10..=12 | 17 => "+gfx",
        13 | 14 => "-me",
        15 | 16 => "+me.all",
        _ => return Vec::new(),
    };
    vec![suffix.to_owned()]
}

/// Slices and memory by the name that NVML gives a MIG device: `1g.5gb` in `NVIDIA A100-SXM4-40GB MIG 1g.5gb+me`.
pub(super) fn sizes_in(name: &str) -> Option<&str> {
    let (sizes, _) = parts(name)?;
    let (slices, memory) = sizes.rsplit_once("g.")?;
    let slices = slices.split_once("c.").map_or(vec![slices], |(compute, gpu)| vec![compute, gpu]);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (slices.into_iter().all(is_number) && is_number(memory.strip_suffix("gb")?)).then_some(sizes)
}

/// The suffixes by the same name. `None` for any other name.
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

/// Up to `gb`, and behind it.
fn parts(name: &str) -> Option<(&str, &str)> {
    let (_, profile) = name.rsplit_once(" MIG ")?;
    profile.split_at_checked(profile.find("gb")? + "gb".len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        let found: Vec<String> = (0..PROFILES).map(|profile| suffixes_of_profile(profile).concat()).collect();
        let expected = "         +me +me  +gfx +gfx +gfx -me -me +me.all +me.all +gfx";
        assert_eq!(
            found.join(" ").split_whitespace().collect::<Vec<_>>(),
            expected.split_whitespace().collect::<Vec<_>>()
        );
        assert!(found[..7].concat().is_empty() && found[9].is_empty());
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
