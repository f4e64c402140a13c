//! What a MIG profile's name adds to slices and memory: `+me`, `+me.all`, `+gfx`, `-me`.

/// GPU instance profiles, `NVML_GPU_INSTANCE_PROFILE_*`, by number.
pub(super) const PROFILES: u32 = 17;

/// By the number of the GPU instance's profile.
pub(super) fn of_profile(profile: u32) -> Vec<String> {
    let suffix = match profile {
        7 | 8 => "+me",
        10..=12 => "+gfx",
        13 | 14 => "-me",
        15 | 16 => "+me.all",
        _ => return Vec::new(),
    };
    vec![suffix.to_owned()]
}

/// By the name that NVML gives a MIG device: `NVIDIA A100-SXM4-40GB MIG 1g.5gb+me`. `None` for any other name.
pub(super) fn of_name(name: &str) -> Option<Vec<String>> {
    let (_, profile) = name.rsplit_once(" MIG ")?;
    let (_, added) = profile.split_once("gb")?;
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
            assert_eq!(of_name(name), expected, "{name}");
        }
    }

    #[test]
    fn each_profile_number_has_its_suffix() {
        let found: Vec<String> = (0..PROFILES).map(|profile| of_profile(profile).concat()).collect();
        let expected = "         +me +me  +gfx +gfx +gfx -me -me +me.all +me.all";
        assert_eq!(
            found.join(" ").split_whitespace().collect::<Vec<_>>(),
            expected.split_whitespace().collect::<Vec<_>>()
        );
        assert!(found[..7].concat().is_empty() && found[9].is_empty());
    }

    proptest! {
        #[test]
        fn no_name_is_too_strange(name: String, added: String) {
            let _ = of_name(&name);
            if let Some(suffixes) = of_name(&format!("{name} MIG 1g.5gb{added}")) {
                prop_assert!(suffixes.iter().all(|suffix| suffix.starts_with(['+', '-'])));
            }
        }
    }
}
