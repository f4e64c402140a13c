//! Where a GPU sits: what its PCI function and all its partitions have in common.

use std::fmt;

use crate::bus::pci;

/// Domain, bus and device of a PCI address. The function is left out: partitions use its bits for their own number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    domain: u64,
    bus: u8,
    device: u8,
}

impl Place {
    /// Of KFD's `domain` and `location_id`: bus, then five bits of device, then three of function.
    #[expect(clippy::cast_possible_truncation, reason = "the bits that are meant")]
    pub(super) fn of_location(domain: u64, location: u64) -> Self {
        Self { domain, bus: (location >> 8) as u8, device: (location >> 3) as u8 & 0x1f }
    }

    /// Of `0000:19:00.0`; domains behind VMD have more than four digits.
    pub(super) fn of_address(address: &str) -> Option<Self> {
        let parts = pci::is_address(address).then(|| address.split([':', '.']).collect::<Vec<_>>())?;
        let [domain, bus, device, _] = parts[..] else { return None };
        Some(Self {
            domain: u64::from_str_radix(domain, 16).ok()?,
            bus: u8::from_str_radix(bus, 16).ok()?,
            device: u8::from_str_radix(device, 16).ok()?,
        })
    }
}

/// The address of its first function.
impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_location_is_bus_and_device_and_the_partition_does_not_count() {
        for (domain, location, address) in [
            (0, 2560, "0000:0a:00.0"),
            (0, 2562, "0000:0a:00.0"),
            (1, 0xc900, "0001:c9:00.0"),
            (0x1_0000, 0x1ffd, "10000:1f:1f.0"),
        ] {
            assert_eq!(Place::of_location(domain, location).to_string(), address);
        }
    }

    #[test]
    fn what_is_no_address_has_no_place() {
        for text in ["", "bind", "0000:0a:00", "0000:0a:00.0.0", "000:0a:00.0", "amdgpu_xcp_1"] {
            assert_eq!(Place::of_address(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn kfd_and_pci_agree(domain in 0_u64..0x10_0000, bus: u8, device in 0_u8..32, function in 0_u8..8) {
            let location = u64::from(bus) << 8 | u64::from(device) << 3 | u64::from(function);
            let address = format!("{domain:04x}:{bus:02x}:{device:02x}.{function}");
            prop_assert_eq!(Place::of_address(&address), Some(Place::of_location(domain, location)));
        }
    }
}
