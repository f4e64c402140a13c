//! One GPU as the driver and its PCI function show it, read and not yet judged.

use std::path::{Path, PathBuf};

use super::driver;
use super::information::Information;
use super::mig::{self, Instance};
use crate::attribute::{self, Attribute, AttributeError};
use crate::directory::{self, normal};
use crate::host::Host;
use crate::pci::Function;

/// Everything read of a GPU.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) function: Function,
    pub(super) information: Information,
    /// The file that the information was read from, with the host root.
    pub(super) source: PathBuf,
    /// The MIG devices there are; `None` where the driver shows none of its capabilities.
    pub(super) instances: Option<Vec<Instance>>,
    pub(super) is_off_bus: bool,
}

impl Gpu {
    /// May hang with the GPU.
    pub(super) fn read(host: &Host, function: Function) -> Result<Self, AttributeError> {
        let source = driver::gpus_directory(host).join(function.address()).join("information");
        let information = Information::parse(Attribute::read(&source)?.text());
        let instances = match information.minor {
            Some(minor) => mig::instances(host, minor)?,
            None => None,
        };
        let is_off_bus = is_off_bus(&function.path);
        Ok(Self { function, information, source, instances, is_off_bus })
    }
}

/// The function of an address, by the kernel's link to it. Nothing here is asked of the hardware.
pub(super) fn function(host: &Host, address: &str) -> Function {
    let bus = host.sys("bus/pci/devices");
    let target = directory::link(&bus.join(address)).unwrap_or_else(|_| PathBuf::from(address));
    Function::read(&host.absolute(normal(&host.own_path(bus).join(target))))
}

/// All ones where the configuration space begins: nothing answers there any more. A function that sleeps is left asleep,
/// since reading would wake it.
fn is_off_bus(function: &Path) -> bool {
    let is_awake = Attribute::read(function.join("power/runtime_status")).is_ok_and(|status| status.text() == "active");
    is_awake && vendor_and_device(function) == Some([0xff; 4])
}

fn vendor_and_device(function: &Path) -> Option<[u8; 4]> {
    let file = attribute::open(rustix::fs::CWD, function.join("config")).ok()?;
    let mut bytes = [0; 4];
    let length = rustix::io::pread(&file, &mut bytes[..], 0).ok()?;
    (length == bytes.len()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_sleeps_is_not_asked_whether_it_is_on_the_bus() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("power")).unwrap();
        for (status, config, expected) in [
            ("active\n", &[0xff_u8; 64][..], true),
            ("active\n", &[0xde, 0x10, 0x35, 0x23], false),
            ("active\n", &[0xff; 3], false),
            ("suspended\n", &[0xff; 64], false),
            ("", &[0xff; 64], false),
        ] {
            std::fs::write(root.path().join("power/runtime_status"), status).unwrap();
            std::fs::write(root.path().join("config"), config).unwrap();
            assert_eq!(is_off_bus(root.path()), expected, "{status:?}");
        }
        assert!(!is_off_bus(&root.path().join("missing")));
    }
}
