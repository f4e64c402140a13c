//! Marketing names of GPUs whose board has no name in its memory. They come from the list of libdrm, by device and
//! revision, as in AMD's node labeller.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::bus::pci::Function;
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::vendors::gpus;

/// Paths of the list in distributions and in AMD's packages.
const LISTS: [&str; 2] = ["/usr/share/libdrm/amdgpu.ids", "/opt/amdgpu/share/libdrm/amdgpu.ids"];

type Names = HashMap<(u16, u8), String>;

/// The list, read once, when the scan meets the first GPU without a name.
#[derive(Debug, Default)]
pub(super) struct ProductNames(Mutex<Option<(Names, String)>>);

impl ProductNames {
    /// The name of a GPU, and the path of the list that contains it, without the host root.
    pub(super) fn of(&self, host: &Host, function: &Function) -> Option<(String, String)> {
        let device = function.id.as_ref().map(|((_, device), _)| *device)?;
        let revision = Attribute::read(function.path.join("revision")).ok()?.hexadecimal().ok()?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            *known = gpus::text_of_list(host, &LISTS).map(|(text, path)| (names_in(&text), path));
        }
        let (names, path) = known.as_ref()?;
        Some((names.get(&(device, revision.try_into().ok()?))?.clone(), path.clone()))
    }
}

/// Parses lines of `device, revision, name`, with hexadecimal numbers.
fn names_in(list: &str) -> Names {
    let named = |line: &str| {
        let mut parts = line.splitn(3, ',').map(str::trim);
        let device = u16::from_str_radix(parts.next()?, 16).ok()?;
        let revision = u8::from_str_radix(parts.next()?, 16).ok()?;
        Some(((device, revision), parts.next().filter(|name| !name.is_empty())?.to_owned()))
    };
    list.lines().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_go_by_device_and_revision() {
        let list = "# List of AMDGPU IDs\n#\n1.0.0\n1309,\t00,\tAMD Radeon R7 Graphics\n130F,\tD4,\tAMD Radeon R7 (x, y)\nx\n1,2,\n";
        let expected = [((0x1309, 0), "AMD Radeon R7 Graphics"), ((0x130f, 0xd4), "AMD Radeon R7 (x, y)")];
        assert_eq!(names_in(list), expected.map(|(key, name)| (key, name.to_owned())).into());
    }

    proptest! {
        #[test]
        fn any_list_can_be_read(list: String) {
            prop_assert!(names_in(&list).values().all(|name| !name.is_empty()));
        }
    }
}
