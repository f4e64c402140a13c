//! What a device's facts make: one device under the name of its shell.

use super::VENDOR;
use super::card::{CardNode, Facts, NoShell, Shell};
use super::name;
use super::options::U30NameConvention;
use crate::attribute::Attribute;
use crate::check::Check;
use crate::device::{Device, Node, Problem, Reason};
use crate::host::Host;

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
        checks: facts.checks.clone(),
        ..Device::default()
    };
    describe(host, &facts, &mut device);
    for node in &facts.nodes {
        give(host, &mut device, node);
    }
    if !facts.has_user_node {
        device.reasons.insert(Reason::NodeMissing);
        let error = "the user function has no render node: see whether the driver xocl is bound to it";
        problems.push(Problem::new(VENDOR, host.own_path(&facts.place.path), error).of(&device.id));
    }
    let named = entitle(host, &mut device, &facts.shell, convention);
    if let Err(missing) = named {
        problems.push(blame(host, &mut device, missing));
    }
    Advertised { u30_serial_number: u30_serial_number(&facts), device, problems }
}

/// The resource is called by the shell; nothing else can stand for it.
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
    let (reason, path, error) = match missing {
        NoShell::Absent(path) => {
            let error = "no shell can be told: the card is not flashed, or it is being flashed or reset";
            (Reason::Unprogrammed, path, error.to_owned())
        }
        NoShell::Unreadable(error) => (Reason::FmeError, &error.path, error.cause.to_string()),
    };
    device.reasons.insert(reason);
    Problem::new(VENDOR, host.own_path(path), error).of(&device.id)
}

fn describe(host: &Host, facts: &Facts, device: &mut Device) {
    facts.function.describe(host, device);
    if let Some((driver, source)) = &facts.function.driver {
        device.note("driver", driver, host.own_path(source));
    }
    if let Some(management) = &facts.management {
        device.note("mgmt_pf", &management.address, host.own_path(&management.path));
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

fn give(host: &Host, device: &mut Device, node: &CardNode) {
    let path = host.dev(&node.name);
    if host.lacks_node(&path, node.number) {
        device.reasons.insert(Reason::NodeMissing);
    }
    device.checks.push(Check::NodePresent { path, number: node.number });
    let own = format!("/dev/{}", node.name);
    device.nodes.push(Node { host_path: own.clone(), container_path: own, permissions: "rwm".to_owned() });
}

fn u30_serial_number(facts: &Facts) -> Option<String> {
    let is_u30 = facts.shell.as_ref().is_ok_and(|shell| name::is_u30(shell.vbnv.text()));
    facts.serial_number.as_ref().filter(|_| is_u30).map(|serial_number| serial_number.text().to_owned())
}
