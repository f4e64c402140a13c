//! A U30 card has several devices, which have its serial number in common and go to one container together.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::VENDOR;
use super::advertise::Advertised;
use crate::device::{Device, Found, NotExamined};
use crate::order::natural;

/// Adds one device a card, called as its first; each device of another kind as it is.
pub(super) fn add_cards(mut advertised: Vec<Advertised>, found: &mut Found) {
    advertised.sort_by(|left, right| natural(&left.device.id, &right.device.id));
    let mut cards: BTreeMap<String, Vec<Device>> = BTreeMap::new();
    for Advertised { device, u30_serial_number, .. } in advertised {
        match u30_serial_number {
            Some(serial_number) => cards.entry(serial_number).or_default().push(device),
            None => found.devices.push(device.into()),
        }
    }
    let unseen = found.unseen.first().map(|unseen| unseen.finding.clone());
    for devices in cards.into_values() {
        match (&unseen, &devices[..]) {
            // The rest of this card may be what was not examined: half a card is not offered.
            (Some(finding), [alone]) => {
                let (card, finding) = (Some(alone.card.clone()), finding.clone());
                found.unseen.push(NotExamined { vendor: VENDOR, card, finding });
            }
            _ => found.devices.extend(devices.into_iter().reduce(together).map(Arc::new)),
        }
    }
}

fn together(mut card: Device, device: Device) -> Device {
    card.paths.extend(device.paths);
    card.findings.extend(device.findings);
    device.functions.into_iter().for_each(|function| card.belongs_to(function));
    card.numa_nodes.extend(device.numa_nodes);
    card.numa_nodes.sort_unstable();
    card.numa_nodes.dedup();
    card
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::sources::probe;

    fn advertised(id: &str, serial_number: Option<&str>) -> Advertised {
        let device = Device { id: id.to_owned(), card: id.to_owned(), ..Device::default() };
        Advertised { device, problems: Vec::new(), u30_serial_number: serial_number.map(str::to_owned) }
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
        let overdue = probe::timeout(std::time::Duration::from_secs(2), "/sys/b");
        let hangs = NotExamined { vendor: VENDOR, card: Some("b".to_owned()), finding: Some(overdue) };
        let (ids, unseen) = added(vec![advertised("a", Some("1")), advertised("d", None)], vec![hangs]);
        assert_eq!(ids, ["d"]);
        assert_eq!(unseen, [Some("b".to_owned()), Some("a".to_owned())]);
    }
}
