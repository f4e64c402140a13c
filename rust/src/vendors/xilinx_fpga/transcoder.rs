//! Alveo MA35D media cards under the driver `ama_transcoder`: each transcoder is a device of the class `misc`.
//!
//! See `GetAMADevices` in Xilinx's plugin:
//! <https://github.com/Xilinx/FPGA_as_a_Service/blob/master/k8s-device-plugin/fpga.go>

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::VENDOR;
use crate::bus::pci;
use crate::device::{Device, Found, HostPath, NotExamined, Problem};
use crate::fence::Fence;
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError, Cause};
use crate::host::directory::{Directory, is_numbered, link};
use crate::vendors::per_card::per_card;

const RESOURCE_NAME: &str = "amd.com/MA35";
const PREFIX: &str = "ama_transcoder";

/// Adds every transcoder.
pub(super) fn add(host: &Host, fence: &Fence, found: &mut Found) {
    let class = host.sys("class/misc");
    let names = match Directory::open(&class).and_then(|directory| directory.names()) {
        Ok(names) => names,
        Err(error) if error.cause == Cause::System(Errno::NOENT) => return,
        Err(error) => {
            found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause));
            found.unseen.push(NotExamined { vendor: VENDOR, card: None, finding: None });
            return;
        }
    };
    let names = names.into_iter().filter(|name| is_numbered(name, PREFIX));
    let cards = names.map(|name| ((name.clone(), host.own_path(class.join(&name))), name)).collect();
    let behind_fence = host.clone();
    for (card, answer) in per_card(VENDOR, found, fence, cards, move |name| (name.clone(), read(&behind_fence, &name)))
    {
        match answer {
            Ok((device, problem)) => {
                found.devices.push(device.into());
                found.problems.extend(problem);
            }
            Err(error) => {
                found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause));
                found.unseen.push(NotExamined { vendor: VENDOR, card: Some(card), finding: None });
            }
        }
    }
}

/// One device, named after its place on the bus; also a problem if it has no information about its board.
fn read(host: &Host, name: &str) -> Result<(Device, Option<Problem>), AttributeError> {
    let directory = host.sys("class/misc").join(name);
    let bus_id = Attribute::read(directory.join("bus_id"))?;
    if bus_id.text().is_empty() {
        return Err(bus_id.unexpected("a PCI address"));
    }
    let number = Attribute::read(directory.join("dev")).and_then(|dev| dev.device_number()).ok();
    let mut device = Device {
        vendor: VENDOR.into(),
        card: name.to_owned(),
        id: bus_id.text().to_owned(),
        resource_name: Some(RESOURCE_NAME.to_owned()),
        paths: vec![HostPath::node(format!("/dev/{name}"), number)],
        ..Device::default()
    };
    if let Some(function) = function(host, bus_id.text()) {
        device.numa_nodes.extend(function.numa_node.iter().map(|(node, _)| *node));
        function.describe(host, &mut device);
    }
    device.note("device_type", "MA35", host.own_path(bus_id.path()));
    let problem = match Attribute::read(directory.join("device_info")) {
        Ok(information) => {
            describe(host, &mut device, &information);
            None
        }
        Err(error) => Some(Problem::new(VENDOR, host.own_path(&error.path), error.cause).of(&device.id)),
    };
    Ok((device, problem))
}

fn function(host: &Host, address: &str) -> Option<pci::Function> {
    let bus = host.sys("bus/pci/devices");
    let target = link(&bus.join(address)).ok().filter(|_| pci::is_address(address))?;
    let path: PathBuf = host.behind_link(&bus, Path::new(&target));
    Some(pci::Function::read(&path))
}

fn describe(host: &Host, device: &mut Device, information: &Attribute) {
    let serial = "Product serial number";
    for (fact, key) in [("product_name", "Product name"), ("serial_num", serial), ("serial", serial)] {
        if let Some(value) = value_of(information.text(), key) {
            device.note(fact, value, host.own_path(information.path()));
        }
    }
}

/// The text after `Key = `; the case of the key is ignored.
fn value_of<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.trim(), value.trim()))
        .find(|(name, _)| name.eq_ignore_ascii_case(key))
        .map(|it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_behind_its_key() {
        let text = "Board\nProduct Name = Alveo MA35D \nproduct serial number=XFL1\n";
        for (key, expected) in
            [("Product name", Some("Alveo MA35D")), ("Product serial number", Some("XFL1")), ("Board", None)]
        {
            assert_eq!(value_of(text, key), expected, "{key}");
        }
    }
}
