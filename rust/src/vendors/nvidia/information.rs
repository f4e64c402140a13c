//! `/proc/driver/nvidia/gpus/<address>/information`: what the driver knows of a GPU, one `Name: value` a line.

/// The placeholder for what the driver does not know yet.
const UNKNOWN: char = '?';
/// The model of a GPU for which the kernel module has no name; NVML may have one.
const NAMELESS: &str = "Unknown";

/// The content of a GPU's file; unknown values are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Information {
    /// Marketing name.
    pub(super) model: Option<String>,
    /// `GPU-<uuid>`; unknown until the GPU is opened for the first time, unless PCI configuration has it.
    pub(super) uuid: Option<String>,
    /// Unknown until the GPU is opened for the first time.
    pub(super) video_bios: Option<String>,
    /// N of `/dev/nvidia<N>`.
    pub(super) minor: Option<u32>,
    /// Version of the firmware that runs on the GPU.
    pub(super) firmware: Option<String>,
    /// Kept from all users by an option of the driver.
    pub(super) is_excluded: bool,
}

impl Information {
    /// Unknown lines and placeholders are ignored.
    pub(super) fn parse(text: &str) -> Self {
        let mut information = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.trim() {
                "Model" => information.model = known(value).filter(|model| model != NAMELESS),
                "GPU UUID" => information.uuid = uuid(value),
                "Video BIOS" => information.video_bios = known(value),
                "Device Minor" => information.minor = value.parse().ok(),
                "GPU Firmware" => information.firmware = known(value).filter(|version| version != "N/A"),
                // Older drivers say `Blacklisted`.
                "GPU Excluded" | "Blacklisted" | "GPU Blacklisted" => information.is_excluded = value == "Yes",
                _ => {}
            }
        }
        information
    }
}

fn known(value: &str) -> Option<String> {
    (!value.is_empty() && !value.contains(UNKNOWN)).then(|| value.to_owned())
}

fn uuid(value: &str) -> Option<String> {
    let digits = value.strip_prefix("GPU-")?;
    let plausible = !digits.is_empty() && digits.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    plausible.then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const L4: &str = "Model: \t\t NVIDIA L4\nIRQ:   \t\t 16\nGPU UUID: \t GPU-3291dfa4-fcc4-0110-615b-c894a0d7c689\n\
        Video BIOS: \t 95.04.65.00.13\nBus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\n\
        Bus Location: \t 0000:70:00.0\nDevice Minor: \t 0\nGPU Excluded:\t No\n";

    #[test]
    fn every_field_of_an_initialised_gpu_is_told() {
        let read =
            Information::parse(&L4.replace("Device Minor: \t 0", "Device Minor: \t 12\nGPU Firmware: \t 590.48.01"));
        assert_eq!(
            read,
            Information {
                model: Some("NVIDIA L4".to_owned()),
                uuid: Some("GPU-3291dfa4-fcc4-0110-615b-c894a0d7c689".to_owned()),
                video_bios: Some("95.04.65.00.13".to_owned()),
                minor: Some(12),
                firmware: Some("590.48.01".to_owned()),
                is_excluded: false,
            }
        );
    }

    #[test]
    fn placeholders_are_unknown() {
        let text = L4
            .replace("3291dfa4-fcc4-0110-615b-c894a0d7c689", "????????-????-????-????-????????????")
            .replace("95.04.65.00.13", "??.??.??.??.??");
        let read = Information::parse(&text);
        assert_eq!((read.uuid, read.video_bios, read.minor), (None, None, Some(0)));
        assert_eq!(Information::parse("GPU Firmware: \t N/A").firmware, None);
        assert_eq!(Information::parse("Model: \t\t Unknown").model, None);
    }

    #[test]
    fn an_excluded_gpu_is_told_by_old_and_new_drivers() {
        for (line, expected) in
            [("GPU Excluded:\t Yes", true), ("Blacklisted:\t Yes", true), ("GPU Excluded:\t No", false), ("", false)]
        {
            assert_eq!(Information::parse(line).is_excluded, expected, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text: String) {
            let read = Information::parse(&text);
            prop_assert!(read.uuid.is_none_or(|uuid| uuid.starts_with("GPU-") && !uuid.contains(UNKNOWN)));
        }

        #[test]
        fn white_space_around_values_does_not_matter(gap in "[ \t]{0,5}", minor in 0_u32..248) {
            let text = format!("Model:{gap}NVIDIA X: Y{gap}\nDevice Minor:{gap}{minor}{gap}");
            let read = Information::parse(&text);
            prop_assert_eq!(read.model.as_deref(), Some("NVIDIA X: Y"));
            prop_assert_eq!(read.minor, Some(minor));
        }
    }
}
