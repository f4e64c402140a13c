//! The information of a virtual GPU about its host, read in a guest: a vendor-specific capability of its PCI
//! configuration space. The layout is defined in NVIDIA/k8s-device-plugin, internal/vgpu.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{pread, retry_on_intr};

use crate::bus::pci::Function;
use crate::host::attribute::Attribute;

/// The driver of the host that provides a virtual GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostDriver {
    /// The driver's version: `460.16`.
    pub(super) version: String,
    /// The driver's branch: `r460_00`.
    pub(super) branch: String,
}

/// The host driver of each GPU, by address: it stays the same as long as the GPU is present.
#[derive(Debug, Default)]
pub(super) struct HostDrivers(Mutex<BTreeMap<String, Option<HostDriver>>>);

impl HostDrivers {
    /// The host's driver. `None` if the GPU is not virtual, or if its whole configuration space may not be read, which
    /// needs `CAP_SYS_ADMIN`. A sleeping GPU is not woken for this. May hang if the GPU hangs.
    pub(super) fn of(&self, function: &Function) -> Option<HostDriver> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known().get(function.address()) {
            return known.clone();
        }
        if !is_awake(&function.path) {
            return None;
        }
        let read = whole_configuration(&function.path).and_then(|configuration| host_driver(&configuration));
        known().insert(function.address().to_owned(), read.clone());
        read
    }
}

/// Whether the GPU is awake: reading the configuration space would wake a sleeping GPU.
fn is_awake(function: &Path) -> bool {
    let says = |name: &str, awake: &[&str]| match Attribute::read(function.join(name)) {
        Ok(state) => awake.contains(&state.text()),
        Err(error) => error.is_absent(),
    };
    says("power/runtime_status", &["active", "unsupported"]) && says("power_state", &["D0", "unknown"])
}

const LENGTH: usize = 256;

fn whole_configuration(function: &Path) -> Option<[u8; LENGTH]> {
    let file =
        open(function.join("config"), OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).ok()?;
    let mut bytes = [0; LENGTH];
    let length = retry_on_intr(|| pread(&file, &mut bytes[..], 0)).ok()?;
    (length == LENGTH).then_some(bytes)
}

const STATUS: usize = 0x06;
const HAS_CAPABILITIES: u8 = 0x10;
const FIRST_CAPABILITY: usize = 0x34;
const VENDOR_SPECIFIC: u8 = 0x09;

/// The vendor-specific capability: id, next, length, content.
fn vendor_capability(configuration: &[u8; LENGTH]) -> Option<&[u8]> {
    if configuration[STATUS] & HAS_CAPABILITIES == 0 {
        return None;
    }
    let mut place = usize::from(configuration[FIRST_CAPABILITY]);
    // A chain with more steps than bytes would be a circle.
    for _ in 0..LENGTH {
        let &[id, next, length] = configuration.get(place..place + 3)? else { return None };
        match id {
            _ if place == 0 => return None,
            0xff => return None,
            VENDOR_SPECIFIC => return configuration.get(place..place + usize::from(length)),
            _ => place = usize::from(next),
        }
    }
    None
}

const SIGNATURE: &[u8] = b"VF";
/// Number of the record with the driver. A record is its number, its length including these two bytes, and its content.
const DRIVER_RECORD: u8 = 0;
const WORD: usize = 10;

fn host_driver(configuration: &[u8; LENGTH]) -> Option<HostDriver> {
    let mut records = vendor_capability(configuration)?.get(3..)?.strip_prefix(SIGNATURE)?;
    loop {
        let &[number, length] = records.get(..2)? else { return None };
        let record = records.get(2..usize::from(length))?;
        if number == DRIVER_RECORD {
            let word = |start: usize| {
                Some(String::from_utf8_lossy(record.get(start..start + WORD)?).trim_matches('\0').to_owned())
            };
            return Some(HostDriver { version: word(0)?, branch: word(WORD)? });
        }
        records = records.get(usize::from(length)..)?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_capability(capability: &[u8]) -> [u8; LENGTH] {
        let mut configuration = [0; LENGTH];
        configuration[STATUS] = HAS_CAPABILITIES;
        configuration[FIRST_CAPABILITY] = 0x68;
        configuration[0x68..0x6b].copy_from_slice(&[0x05, 0xd0, 0x81]);
        configuration[0xd0..0xd0 + capability.len()].copy_from_slice(capability);
        configuration
    }

    fn driver_of(capability: &[u8]) -> Option<(String, String)> {
        host_driver(&with_capability(capability)).map(|driver| (driver.version, driver.branch))
    }

    /// `vgpuConfig` of `internal/vgpu/pciutil.go`, and what `vgpu_test.go` expects of it.
    const OF_VGPU: &[u8] = b"\x09\x00\x1bVF\x00\x16460.16\0\0\0\0r460_00\0\0\0";

    #[test]
    fn a_vgpu_names_the_driver_of_its_host() {
        let expected = Some(("460.16".to_owned(), "r460_00".to_owned()));
        assert_eq!(driver_of(OF_VGPU), expected);
        let behind_another = [b"\x09\x00\x1eVF\x01\x03\xff".as_slice(), &OF_VGPU[5..]].concat();
        assert_eq!(driver_of(&behind_another), expected, "vgpu_test.go, TestVGPUGetInfoSkipsUnknownRecords");
    }

    #[test]
    fn what_is_malformed_or_none_of_a_host_says_nothing() {
        // `gpuPassThroughConfig` of pciutil.go, and the cases of TestVGPUGetInfoRejectsMalformedRecords.
        for capability in [
            b"\x09\x00\x14\x01\x00\x00".as_slice(),
            b"\x09\x00\x05VF",
            b"\x09\x00\x06VF\x01",
            b"\x09\x00\x07VF\x01\x00",
            b"\x09\x00\x07VF\x01\x01",
            b"\x09\x00\x07VF\x01\xff",
            b"\x09\x00\x06VF\x00",
            b"\x09\x00\x07VF\x00\x02",
            b"\x09\x00\x07VF\x00\x16",
        ] {
            assert_eq!(driver_of(capability), None, "{capability:?}");
        }
        assert_eq!(host_driver(&[0; LENGTH]), None);
        assert_eq!(host_driver(&[0xff; LENGTH]), None);
    }

    proptest! {
        #[test]
        fn any_configuration_can_be_read(bytes in proptest::collection::vec(any::<u8>(), LENGTH)) {
            host_driver(&bytes.try_into().unwrap());
        }
    }
}
