//! The ports of an RDMA device: where they are, and when they may be asked. Much of what they say comes from the firmware.

use std::path::{Path, PathBuf};

use crate::bus::pci;
use crate::device::Device;
use crate::health::kept_file::Keeping;
use crate::health::power::Power;
use crate::host::Host;
use crate::host::attribute::AttributeError;
use crate::host::directory::Directory;

pub(super) const DOCUMENT: &str = "https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband";

/// Whose ports say how it goes to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// Its own.
    Own,
    /// Of a virtual function those of its physical one, which has the cable; its own where that is not on this host.
    Physical,
}

/// All ports of a device.
#[derive(Debug)]
pub(super) struct Ports {
    directory: PathBuf,
    power: Option<Power>,
}

impl Ports {
    /// Of an RDMA device with ports, with the directory as the host itself names it.
    pub(super) fn of(host: &Host, device: &Device, whose: Whose) -> Option<(String, Self)> {
        let ports = device.attributes.get("port_state").filter(|_| device.vendor == "rdma")?;
        let own = host.absolute(&ports.source);
        let physical = || physical_ports(host, &own);
        let directory = (whose == Whose::Physical).then(physical).flatten().unwrap_or(own);
        let power = pci::function_of(&directory).map(Power::of);
        let source = host.own_path(&directory).to_string_lossy().into_owned();
        Some((source, Self { directory, power }))
    }

    /// Why they must be left alone; `None` where they need not.
    pub(super) fn asleep(&mut self, keeping: Keeping) -> Option<String> {
        self.power.as_mut()?.asleep(keeping)
    }

    /// Their directory and their names.
    ///
    /// # Errors
    /// The kernel's error, with the path: a device that was moved to a container's network namespace has none here.
    pub(super) fn open(&self) -> Result<(Directory, Vec<String>), AttributeError> {
        let directory = Directory::open(&self.directory)?;
        let names = directory.names()?;
        Ok((directory, names))
    }

    /// The address of the PCI function, and the name of the RDMA device; empty where it is on no PCI function.
    pub(super) fn whose(&self) -> (String, String) {
        let address = pci::function_of(&self.directory).and_then(pci::address_of).unwrap_or_default();
        let ibdev = self.directory.parent().and_then(Path::file_name).unwrap_or_default();
        (address.to_owned(), ibdev.to_string_lossy().into_owned())
    }
}

/// Why a counter at the end of its range tells nothing.
pub(super) fn full_counter(port: &str, name: &str, most: u64) -> String {
    format!("{name} of port {port} is at {most} and cannot rise; `perfquery -R` sets it back")
}

fn physical_ports(host: &Host, own: &Path) -> Option<PathBuf> {
    let physical = pci::physical_function(host, pci::function_of(own)?)?;
    let devices = physical.join("infiniband");
    let name = Directory::open(&devices).ok()?.names().ok()?.into_iter().next()?;
    Some(devices.join(name).join("ports"))
}
