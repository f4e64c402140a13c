//! What a bus reports about its devices.

pub mod numa;
pub mod pci;
pub mod usb;
