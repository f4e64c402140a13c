//! What the buses report about their devices: PCI, USB, and the NUMA nodes behind them.

pub mod functions;
pub mod numa;
pub mod pci;
pub mod usb;
