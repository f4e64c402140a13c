//! What a device's facts make: one device under the name of its shell.

use super::VENDOR;
use super::card::{Facts, NoShell, Shell};
use super::name;
use super::options::U30NameConvention;
use crate::bus::pci;
use crate::device::{Device, HostPath, Problem};
use crate::health::sources::scan;
use crate::host::Host;
use crate::host::attribute::Attribute;

/// A device, and whether it is one of several on its card.
#[derive(Debug)]
pub(super) struct Advertised {
    pub(super) device: Device,
    pub(super) problems: Vec<Problem>,
    /// The serial number of a U30 card.
    pub(super) u30_serial_number: Option<String>,
}

/// What is advertised of a device.
pub(super) fn advertise(host: &Host, mut facts: Facts, convention: U30NameConvention) -> Advertised {
    let mut problems = std::mem::take(&mut facts.problems);
    let mut device = Device {
        vendor: VENDOR.into(),
        card: facts.place.address.clone(),
        id: facts.place.address.clone(),
        numa_nodes: facts.function.numa_node.iter().map(|(node, _)| *node).collect(),
        ..Device::default()
    };
    describe(host, &facts, &mut device);
    for node in &facts.nodes {
        device.paths.push(HostPath::node(format!("/dev/{}", node.name), node.number));
    }
    if !facts.has_user_node {
        let error = "the user function has no render node: check that the driver xocl is bound to it";
        let path = host.own_path(&facts.place.path);
        device.findings.insert(scan::finding(scan::NODE_MISSING, &path, error));
        problems.push(Problem::new(VENDOR, path, error).of(&device.id));
    }
    let named = entitle(host, &mut device, &facts.shell, convention);
    if let Err(missing) = named {
        problems.push(blame(host, &mut device, missing));
    }
    Advertised { u30_serial_number: u30_serial_number(&facts), device, problems }
}

/// The resource is named after the shell; there is no substitute.
fn entitle<'f>(
    host: &Host,
    device: &mut Device,
    shell: &'f Result<Shell, NoShell>,
    convention: U30NameConvention,
) -> Result<(), &'f NoShell> {
    let shell = shell.as_ref()?;
    let vbnv = shell.vbnv.text();
    note(host, device, "vbnv", &shell.vbnv);
    device.note("device_type", name::card_type(vbnv), host.own_path(shell.vbnv.path()));
    let timestamp = shell.timestamp.as_ref().inspect(|timestamp| note(host, device, "timestamp", timestamp));
    device.resource_name = name::of_shell(vbnv, timestamp.as_ref().ok().map(|it| it.text()), convention);
    timestamp.map(|_| ()).or_else(|missing| if device.resource_name.is_some() { Ok(()) } else { Err(missing) })
}

fn blame(host: &Host, device: &mut Device, missing: &NoShell) -> Problem {
    let (finding, path, error) = match missing {
        NoShell::Absent(path) => {
            let error = "the card has no shell: it is not flashed, or it is being flashed or reset";
            (scan::finding(scan::UNPROGRAMMED, host.own_path(path), error), path, error.to_owned())
        }
        NoShell::Unreadable(error) => {
            (scan::unreadable(scan::SHELL_UNREADABLE, host, error), &error.path, error.cause.to_string())
        }
    };
    device.findings.insert(finding);
    Problem::new(VENDOR, host.own_path(path), error).of(&device.id)
}

fn describe(host: &Host, facts: &Facts, device: &mut Device) {
    facts.function.describe(host, device);
    if let Some((driver, source)) = &facts.function.driver {
        device.note("driver", driver, host.own_path(source));
    }
    if let Some(management) = &facts.management {
        device.note("mgmt_pf", &management.address, host.own_path(&management.path));
        pci::Function::read(&management.path).attach(host, device);
    }
    for (name, attribute) in [("serial_num", &facts.serial_number), ("logic_uuids", &facts.logic_uuids)] {
        if let Some(attribute) = attribute {
            note(host, device, name, attribute);
        }
    }
}

fn note(host: &Host, device: &mut Device, name: &str, attribute: &Attribute) {
    device.note(name, attribute.text(), host.own_path(attribute.path()));
}

fn u30_serial_number(facts: &Facts) -> Option<String> {
    let is_u30 = facts.shell.as_ref().is_ok_and(|shell| name::is_u30(shell.vbnv.text()));
    facts.serial_number.as_ref().filter(|_| is_u30).map(|serial_number| serial_number.text().to_owned())
}
