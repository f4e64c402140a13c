//! The GPUs of one maker on the PCI bus, whatever drives them.

use crate::host::Host;
use crate::host::directory::Directory;

/// The addresses of functions whose `vendor` is the maker's and whose `class` is one of a GPU. Virtual functions are left
/// out: a driver that serves virtual machines binds to those and lists none.
pub(super) fn gpus_on_the_bus(host: &Host, maker: u64, is_gpu: fn(u64) -> bool) -> Vec<String> {
    let Ok(bus) = Directory::open(host.sys("bus/pci/devices")) else { return Vec::new() };
    let number = |address: &str, name: &str| {
        bus.attribute(&format!("{address}/{name}")).and_then(|attribute| attribute.hexadecimal())
    };
    let wanted = |address: &String| {
        number(address, "vendor") == Ok(maker)
            && number(address, "class").is_ok_and(is_gpu)
            && bus.link(&format!("{address}/physfn")).is_err()
    };
    bus.names().unwrap_or_default().into_iter().filter(wanted).collect()
}
