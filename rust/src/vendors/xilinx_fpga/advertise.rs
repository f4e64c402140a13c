//! Turns facts into devices: each is named after its shell, as in Xilinx's own plugin. The devices of a U30 card share
//! a serial number and go to one container together.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::card::{Facts, NoShell, Shell};
use super::{U30NameConvention, VENDOR};
use crate::bus::pci;
use crate::device::{Device, Found, HostPath, NotExamined, Problem};
use crate::health::sources::scan;
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::order::natural;

/// A device, with the serial number of its card if the card is a U30.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Advertised {
    pub(super) device: Arc<Device>,
    pub(super) problems: Vec<Problem>,
    /// The serial number of the U30 card.
    u30_serial_number: Option<String>,
}

impl Advertised {
    pub(super) fn is_well(&self) -> bool {
        self.problems.is_empty() && self.device.findings.is_empty()
    }

    /// Whether the card still has the same shell: a card may be flashed while its kernel objects stay.
    pub(super) fn has_its_shell(&self, host: &Host) -> bool {
        ["vbnv", "timestamp"].into_iter().filter_map(|name| self.device.attributes.get(name)).all(|known| {
            let read = Attribute::read(host.absolute(Path::new(&known.source)));
            read.is_ok_and(|now| known.value.as_text() == Some(now.text()))
        })
    }
}

/// Turns these facts into a device.
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
    Advertised { u30_serial_number: u30_serial_number(&facts), device: device.into(), problems }
}

/// Sets the resource name from the shell; without a shell there is no name.
fn entitle<'f>(
    host: &Host,
    device: &mut Device,
    shell: &'f Result<Shell, NoShell>,
    convention: U30NameConvention,
) -> Result<(), &'f NoShell> {
    let shell = shell.as_ref()?;
    let vbnv = shell.vbnv.text();
    note(host, device, "vbnv", &shell.vbnv);
    device.note("device_type", card_type(vbnv), host.own_path(shell.vbnv.path()));
    let timestamp = shell.timestamp.as_ref().inspect(|timestamp| note(host, device, "timestamp", timestamp));
    device.resource_name = name_of_shell(vbnv, timestamp.as_ref().ok().map(|it| it.text()), convention);
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
    for (name, attribute) in
        [("serial_num", &facts.serial_number), ("serial", &facts.serial_number), ("logic_uuids", &facts.logic_uuids)]
    {
        if let Some(attribute) = attribute {
            note(host, device, name, attribute);
        }
    }
}

fn note(host: &Host, device: &mut Device, name: &str, attribute: &Attribute) {
    device.note(name, attribute.text(), host.own_path(attribute.path()));
}

fn u30_serial_number(facts: &Facts) -> Option<String> {
    let is_u30 = facts.shell.as_ref().is_ok_and(|shell| is_u30(shell.vbnv.text()));
    facts.serial_number.as_ref().filter(|_| is_u30).map(|serial_number| serial_number.text().to_owned())
}

const NAMESPACE: &str = "amd.com";
const U30_SHELL: &str = "xilinx_u30";
const U30_NAME: &str = "ama_u30";
/// The longest name after the namespace that the kubelet accepts.
const LONGEST: usize = 63;

/// Whether a shell belongs to a U30 card.
fn is_u30(vbnv: &str) -> bool {
    vbnv.contains(U30_SHELL)
}

/// The resource name of a shell, `amd.com/<VBNV>-<timestamp>`; `None` if the timestamp is needed and unknown.
///
/// If the name is too long for the kubelet, the name of the card's type is used instead.
fn name_of_shell(vbnv: &str, timestamp: Option<&str>, convention: U30NameConvention) -> Option<String> {
    if is_u30(vbnv) && convention == U30NameConvention::CommonName {
        return Some(format!("{NAMESPACE}/{U30_NAME}"));
    }
    let timestamp = timestamp?;
    let full = legal(&format!("{vbnv}-{timestamp}"));
    let name = if full.len() <= LONGEST { full } else { legal(&format!("{}-{timestamp}", card_type(vbnv))) };
    Some(format!("{NAMESPACE}/{name}"))
}

/// The card's type: `u200` in `xilinx_u200_xdma_201830_2`; the whole text if it has no such parts.
fn card_type(vbnv: &str) -> &str {
    vbnv.split('_').nth(1).unwrap_or(vbnv)
}

/// The text, in which each character that is illegal in a resource name is replaced.
fn legal(name: &str) -> String {
    let legal =
        |character: char| if character.is_ascii_alphanumeric() || "-_.".contains(character) { character } else { '_' };
    name.chars().map(legal).collect()
}

/// The number in the name of a function's DMA node: it combines domain, bus, device and function.
pub(super) fn instance_of(address: &str) -> Option<u64> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut parts = address.split([':', '.']);
    let (domain, bus) = (number(parts.next()?)?, number(parts.next()?)?);
    let (device, function) = (number(parts.next()?)?, number(parts.next()?)?);
    Some(domain * 65536 + bus * 256 + device * 8 + function)
}

/// Adds one device for each U30 card, with the id of its first device, and adds every other device unchanged.
pub(super) fn add_cards(mut advertised: Vec<Advertised>, found: &mut Found) {
    advertised.sort_by(|left, right| natural(&left.device.id, &right.device.id));
    let mut cards: BTreeMap<String, Vec<Arc<Device>>> = BTreeMap::new();
    for Advertised { device, u30_serial_number, .. } in advertised {
        match u30_serial_number {
            Some(serial_number) => cards.entry(serial_number).or_default().push(device),
            None => found.devices.push(device),
        }
    }
    let unseen = found.unseen.first().map(|unseen| unseen.finding.clone());
    for devices in cards.into_values() {
        match (&unseen, &devices[..]) {
            // The rest of this card may be among the cards that could not be examined; half a card is not offered.
            (Some(finding), [alone]) => {
                let (card, finding) = (Some(alone.card.clone()), finding.clone());
                found.unseen.push(NotExamined { vendor: VENDOR, class: None, card, finding });
            }
            _ => found.devices.extend(
                devices.into_iter().reduce(|card, device| together(Arc::unwrap_or_clone(card), &device).into()),
            ),
        }
    }
}

fn together(mut card: Device, device: &Device) -> Device {
    card.paths.extend(device.paths.iter().cloned());
    card.findings.extend(device.findings.iter().cloned());
    device.functions.iter().cloned().for_each(|function| card.belongs_to(function));
    card.numa_nodes.extend(&device.numa_nodes);
    card.numa_nodes.sort_unstable();
    card.numa_nodes.dedup();
    card
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::health::sources::scan;

    fn exact(vbnv: &str, timestamp: Option<&str>) -> Option<String> {
        name_of_shell(vbnv, timestamp, U30NameConvention::ExactName)
    }

    #[test]
    fn names_are_those_of_the_vendors_plugin() {
        let (u200, u30) = ("xilinx_u200_xdma_201830_2", "xilinx_u30_gen3x4_base_1");
        assert_eq!(exact(u200, Some("1561465320")).unwrap(), "amd.com/xilinx_u200_xdma_201830_2-1561465320");
        assert_eq!(exact(u30, Some("1")).unwrap(), "amd.com/xilinx_u30_gen3x4_base_1-1");
        assert_eq!(name_of_shell(u30, None, U30NameConvention::CommonName).unwrap(), "amd.com/ama_u30");
        assert_eq!(name_of_shell(u200, Some("1"), U30NameConvention::CommonName), exact(u200, Some("1")));
        assert_eq!(exact(u200, None), None);
    }

    #[test]
    fn a_name_that_is_too_long_is_that_of_the_cards_type() {
        let vbnv = format!("xilinx_u200_{}", "x".repeat(52));
        assert_eq!(exact(&vbnv, Some("1561465320")).unwrap(), "amd.com/u200-1561465320");
    }

    #[test]
    fn an_instance_is_the_address_as_a_number() {
        assert_eq!(instance_of("0000:65:00.1"), Some(0x6501));
        assert_eq!(instance_of("0001:02:03.4"), Some(65536 + 2 * 256 + 3 * 8 + 4));
        assert_eq!((instance_of("0000:65:00"), instance_of("x"), instance_of("")), (None, None, None));
    }

    proptest! {
        #[test]
        fn any_shell_has_a_name_of_legal_characters(vbnv in ".{1,80}", timestamp in "[0-9]{1,10}") {
            let name = exact(&vbnv, Some(&timestamp)).unwrap();
            let last = name.strip_prefix("amd.com/").unwrap();
            prop_assert!(last.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
        }
    }

    fn advertised(id: &str, serial_number: Option<&str>) -> Advertised {
        let device = Device { id: id.to_owned(), card: id.to_owned(), ..Device::default() };
        Advertised { device: device.into(), problems: Vec::new(), u30_serial_number: serial_number.map(str::to_owned) }
    }

    fn added(advertised: Vec<Advertised>, unseen: Vec<NotExamined>) -> (Vec<String>, Vec<Option<String>>) {
        let mut found = Found { unseen, ..Found::default() };
        add_cards(advertised, &mut found);
        let ids = found.devices.into_iter().map(|device| device.id.clone()).collect();
        (ids, found.unseen.into_iter().map(|unseen| unseen.card).collect())
    }

    #[test]
    fn devices_of_one_serial_number_are_one_card() {
        let devices = || {
            vec![
                advertised("b", Some("1")),
                advertised("a", Some("1")),
                advertised("c", Some("2")),
                advertised("d", None),
            ]
        };
        assert_eq!(added(devices(), Vec::new()).0, ["d", "a", "c"]);
    }

    #[test]
    fn half_a_card_is_left_as_it_was_known() {
        let overdue = scan::probe_timeout(std::time::Duration::from_secs(2), "/sys/b");
        let hangs = NotExamined { vendor: VENDOR, class: None, card: Some("b".to_owned()), finding: Some(overdue) };
        let (ids, unseen) = added(vec![advertised("a", Some("1")), advertised("d", None)], vec![hangs]);
        assert_eq!(ids, ["d"]);
        assert_eq!(unseen, [Some("b".to_owned()), Some("a".to_owned())]);
    }
}
