//! What messages of devlink say of health reporters.
//!
//! <https://docs.kernel.org/networking/devlink/devlink-health.html>

use std::collections::BTreeMap;

use super::super::netlink::{Message, attributes, text};

/// Of `linux/devlink.h`.
pub(super) const NEW: u8 = 3;
const DELETED: u8 = 4;
pub(super) const REPORTER_GET: u8 = 52;
pub(super) const REPORTER_RECOVER: u8 = 54;
const BUS_NAME: u16 = 1;
const DEVICE_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const REPORTER: u16 = 114;
const REPORTER_NAME: u16 = 115;
const REPORTER_STATE: u16 = 116;
const REPORTER_ERRORS: u16 = 117;
/// Only a reporter that can recover has one.
const REPORTER_GRACE: u16 = 120;
pub(super) const STATE_ERROR: u8 = 1;

/// A device and one of its reporters.
type Place = (String, String);

/// What a reporter says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// Whether something is the matter.
    pub is_in_error: bool,
    /// How often something was.
    pub errors: u64,
    /// Whether its driver knows a way out of that: what has none stays in error.
    pub recovers: bool,
}

/// The reporters of devices, as far as they have no port: by device (`pci/0000:3b:00.0`) and name (`fw_fatal`).
pub type Reporters = BTreeMap<Place, State>;

/// Takes in a message; whether there may be reporters by now that nobody has told of.
pub(super) fn take_in(reporters: &mut Reporters, message: Message<'_>) -> bool {
    let Some(device) = device_in(message) else { return false };
    match message.command {
        REPORTER_GET | REPORTER_RECOVER => {
            if let Some((name, state)) = reporter_in(message) {
                reporters.insert((device, name), state);
            }
            false
        }
        DELETED => {
            reporters.retain(|(known, _), _| *known != device);
            false
        }
        command => command == NEW,
    }
}

/// `pci/0000:3b:00.0`; `None` for what is of one of its ports.
fn device_in(message: Message<'_>) -> Option<String> {
    let (mut bus, mut name) = (None, None);
    for (number, value) in message.attributes() {
        match number {
            BUS_NAME => bus = Some(text(value)),
            DEVICE_NAME => name = Some(text(value)),
            PORT_INDEX => return None,
            _ => {}
        }
    }
    Some(format!("{}/{}", bus?, name?))
}

fn reporter_in(message: Message<'_>) -> Option<(String, State)> {
    let (_, reporter) = message.attributes().find(|(number, _)| *number == REPORTER)?;
    let (mut name, mut state) = (None, State::default());
    let mut is_stated = false;
    for (number, value) in attributes(reporter) {
        match number {
            REPORTER_NAME => name = Some(text(value)),
            REPORTER_STATE => {
                is_stated = true;
                state.is_in_error = *value.first()? == STATE_ERROR;
            }
            REPORTER_ERRORS => state.errors = u64::from_ne_bytes(value.get(..8)?.try_into().ok()?),
            REPORTER_GRACE => state.recovers = true,
            _ => {}
        }
    }
    Some((name.filter(|_| is_stated)?, state))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::super::netlink::{encoded, messages};
    use super::super::kernel::SIMULATED_FAMILY as FAMILY;
    use super::*;

    pub(in crate::events::devlink) const NIC: &[u8] = b"0000:3b:00.0\0";
    pub(in crate::events::devlink) const OTHER: &[u8] = b"0000:5e:00.0\0";
    pub(in crate::events::devlink) const HEALTHY: u8 = 0;

    fn nested(given: &[(u16, &[u8])]) -> Vec<u8> {
        encoded(0, 0, 0, given)[20..].to_vec()
    }

    /// What the kernel says of a reporter, whose state it is and after how many errors.
    pub(in crate::events::devlink) fn said(command: u8, device: &[u8], name: &[u8], state: u8, errors: u64) -> Vec<u8> {
        let reporter = nested(&[
            (REPORTER_NAME, name),
            (REPORTER_STATE, &[state]),
            (REPORTER_ERRORS, &errors.to_ne_bytes()),
            (REPORTER_GRACE, &[0; 8]),
        ]);
        encoded(FAMILY, 0, command, &[(BUS_NAME, b"pci\0"), (DEVICE_NAME, device), (REPORTER, &reporter)])
    }

    pub(in crate::events::devlink) fn about(command: u8, device: &[u8]) -> Vec<u8> {
        encoded(FAMILY, 0, command, &[(BUS_NAME, b"pci\0"), (DEVICE_NAME, device)])
    }

    fn after(bytes: &[u8]) -> (Reporters, bool) {
        let mut reporters = Reporters::new();
        let is_stale = messages(bytes).fold(false, |news, message| news | take_in(&mut reporters, message));
        (reporters, is_stale)
    }

    pub(in crate::events::devlink) fn place(device: &str, name: &str) -> Place {
        (format!("pci/{device}"), name.to_owned())
    }

    #[test]
    fn a_reporter_is_what_the_last_message_says_of_it() {
        let bytes = [
            said(REPORTER_GET, NIC, b"fw_fatal\0", HEALTHY, 0),
            said(REPORTER_GET, OTHER, b"fw_fatal\0", HEALTHY, 2),
            said(REPORTER_RECOVER, NIC, b"fw_fatal\0", STATE_ERROR, 1),
        ]
        .concat();
        let expected = [
            (place("0000:3b:00.0", "fw_fatal"), State { is_in_error: true, errors: 1, recovers: true }),
            (place("0000:5e:00.0", "fw_fatal"), State { is_in_error: false, errors: 2, recovers: true }),
        ];
        assert_eq!(after(&bytes), (expected.into(), false));
    }

    #[test]
    fn a_reporter_without_a_grace_period_has_no_way_to_recover() {
        let reporter = nested(&[(REPORTER_NAME, b"fw\0"), (REPORTER_STATE, &[STATE_ERROR])]);
        let given = [(BUS_NAME, &b"pci\0"[..]), (DEVICE_NAME, NIC), (REPORTER, &reporter)];
        let (reporters, _) = after(&encoded(FAMILY, 0, REPORTER_RECOVER, &given));
        assert_eq!(reporters[&place("0000:3b:00.0", "fw")], State { is_in_error: true, errors: 0, recovers: false });
    }

    #[test]
    fn a_device_that_goes_takes_its_reporters_along_and_one_that_comes_may_have_some() {
        let known = said(REPORTER_GET, NIC, b"fw_fatal\0", STATE_ERROR, 1);
        assert_eq!(after(&[known.clone(), about(DELETED, NIC)].concat()), (Reporters::new(), false));
        assert_eq!(after(&[known.clone(), about(DELETED, OTHER)].concat()).0.len(), 1);
        assert!(after(&[known, about(NEW, OTHER)].concat()).1);
    }

    #[test]
    fn reporters_of_ports_say_nothing_of_the_device() {
        let reporter = nested(&[(REPORTER_NAME, b"tx\0"), (REPORTER_STATE, &[STATE_ERROR])]);
        let given = [(BUS_NAME, &b"pci\0"[..]), (DEVICE_NAME, NIC), (PORT_INDEX, &[1, 0, 0, 0]), (REPORTER, &reporter)];
        assert_eq!(after(&encoded(FAMILY, 0, REPORTER_GET, &given)), (Reporters::new(), false));
        let of_port = encoded(FAMILY, 0, DELETED, &given[..3]);
        let known = said(REPORTER_GET, NIC, b"fw_fatal\0", HEALTHY, 0);
        assert_eq!(after(&[known, of_port].concat()).0.len(), 1);
    }

    proptest! {
        #[test]
        fn no_message_is_too_odd(command: u8, attributes: Vec<u8>) {
            let mut message = encoded(FAMILY, 0, command, &[]);
            message.extend(attributes);
            let length = u32::try_from(message.len()).unwrap();
            message[..4].copy_from_slice(&length.to_ne_bytes());
            after(&message);
        }
    }
}
