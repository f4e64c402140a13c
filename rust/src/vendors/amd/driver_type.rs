//! The use of the GPUs: containers or virtual machines.

use std::path::PathBuf;

use super::locate;
use super::options::AmdDriverType;
use crate::host::Host;

/// Which driver has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// amdgpu.
    Container,
    /// gim: virtual functions for virtual machines.
    VirtualFunctions,
    /// vfio-pci: whole GPUs for virtual machines.
    WholeFunctions,
}

impl Mode {
    /// In the order in which they are looked for.
    pub(super) const ALL: [Self; 3] = [Self::Container, Self::VirtualFunctions, Self::WholeFunctions];

    /// From the option, or the first whose driver is loaded.
    pub(super) fn of(driver_type: AmdDriverType, host: &Host) -> Option<Self> {
        match driver_type {
            AmdDriverType::Container => Some(Self::Container),
            AmdDriverType::VfPassthrough => Some(Self::VirtualFunctions),
            AmdDriverType::PfPassthrough => Some(Self::WholeFunctions),
            AmdDriverType::Auto => {
                let present = Self::ALL.into_iter().find(|mode| mode.directory(host).is_dir());
                // amdgpu without KFD: containers wait for it.
                present.or_else(|| locate::driver_directory(host).is_dir().then_some(Self::Container))
            }
        }
    }

    /// The directory that exists when its driver is loaded.
    pub(super) fn directory(self, host: &Host) -> PathBuf {
        match self {
            Self::Container => host.sys("class/kfd"),
            Self::VirtualFunctions => host.sys("bus/pci/drivers/gim"),
            Self::WholeFunctions => host.sys("bus/pci/drivers/vfio-pci"),
        }
    }
}
