//! One GPU as read from the driver and its PCI function, without any judgement.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::driver;
use super::information::Information;
use super::mig::{self, Capabilities, Instance};
use crate::bus::pci::Function;
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError};
use crate::host::directory;

/// Everything read of a GPU.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) function: Function,
    pub(super) information: Information,
    /// The file that the information was read from, with the host root.
    pub(super) source: PathBuf,
    /// Its MIG devices; `None` if the driver shows no capabilities for it.
    pub(super) instances: Option<Vec<Instance>>,
    /// The numbers of their nodes, where the driver says them.
    pub(super) capabilities: BTreeMap<Instance, Capabilities>,
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
        let minor = information.minor.unwrap_or_default();
        let numbered = |&instance: &Instance| Some((instance, mig::capabilities(host, minor, instance)?));
        let capabilities = instances.iter().flatten().filter_map(numbered).collect();
        Ok(Self { function, information, source, instances, capabilities })
    }
}

/// The directory of the function that has an address, by the kernel's link to it.
pub(super) fn function_path(host: &Host, address: &str) -> PathBuf {
    let bus = host.sys("bus/pci/devices");
    let target = directory::link(&bus.join(address)).unwrap_or_else(|_| PathBuf::from(address));
    host.behind_link(&bus, &target)
}
