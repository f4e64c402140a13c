//! Facts that the buses report about their devices: PCI, USB, and the NUMA nodes of both.

pub mod functions;
pub mod numa;
pub mod pci;
pub mod usb;
