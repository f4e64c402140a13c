//! DRM nodes of a device: <https://docs.kernel.org/gpu/drm-uapi.html#render-nodes>.

use std::path::Path;

use crate::host::attribute::AttributeError;
use crate::host::directory::Directory;

/// `DRM_MAJOR`. The number in a node's name is its minor number, for primary and render nodes alike.
pub(super) const MAJOR: u32 = 226;

/// The numbers in `card1` and `renderD128`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DrmNodes {
    pub(super) card: Option<u32>,
    pub(super) render: Option<u32>,
}

impl DrmNodes {
    /// Of a device's directory.
    pub(super) fn read(device: &Path) -> Result<Self, AttributeError> {
        Directory::open(device.join("drm")).and_then(|open| open.names()).map(|names| Self::among(&names))
    }

    /// Names are matched whole: connectors (`card1-DP-1`) and `controlD64` do not match.
    fn among(names: &[String]) -> Self {
        let number = |prefix: &str| names.iter().find_map(|name| decimal(name.strip_prefix(prefix)?));
        Self { card: number("card"), render: number("renderD") }
    }
}

fn decimal(digits: &str) -> Option<u32> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn among(names: &[&str]) -> (Option<u32>, Option<u32>) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let nodes = DrmNodes::among(&names);
        (nodes.card, nodes.render)
    }

    #[test]
    fn other_entries_are_passed_over() {
        assert_eq!(among(&["card1", "renderD128"]), (Some(1), Some(128)));
        let odd = ["by", "card", "cardX", "card1-DP-1", "card-1", "controlD64", "renderD", "renderD-1", "renderDX"];
        assert_eq!(among(&odd), (None, None));
        assert_eq!(among(&["card1-DP-1", "card7", "controlD64", "renderD130"]), (Some(7), Some(130)));
        assert_eq!(among(&["card99999999999"]), (None, None));
    }

    proptest! {
        #[test]
        fn any_name_can_be_there(names: Vec<String>) {
            DrmNodes::among(&names);
        }
    }
}
