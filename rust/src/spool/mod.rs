//! Devices, what those of a vendor share, and what containers get for them, as parts of the messages in the run directory
//! (`proto/`), and the kubelet's list of devices.
//!
//! Ten thousand devices are as many messages at each start, and Python takes ten times as long for one. Everything else
//! is encoded there; `tests/offers/test_encoding.py` compares both. Equal devices are encoded alike: maps are in the
//! order of their keys.

mod device_list;

use std::collections::BTreeMap;

use crate::device::{Attributes, Device, Fact, HostPath, Platform, Value};
use crate::edits::Edits;

pub use device_list::{Malformed, device_list};

/// A message that is being written.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    /// A field that is written also if it has its default.
    fn present_number(&mut self, field: u64, number: u64) {
        self.varint(field << 3);
        self.varint(number);
    }

    fn number(&mut self, field: u64, number: impl Into<u64>) {
        let number = number.into();
        if number != 0 {
            self.present_number(field, number);
        }
    }

    /// Likewise.
    fn present_bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        if !text.is_empty() {
            self.present_bytes(field, text.as_bytes());
        }
    }

    fn texts(&mut self, field: u64, texts: &[String]) {
        for text in texts {
            self.present_bytes(field, text.as_bytes());
        }
    }

    fn numbers(&mut self, field: u64, numbers: &[u32]) {
        if !numbers.is_empty() {
            let mut packed = Self::default();
            for &number in numbers {
                packed.varint(number.into());
            }
            self.present_bytes(field, &packed.0);
        }
    }

    fn message(&mut self, field: u64, fill: impl FnOnce(&mut Self)) {
        let mut message = Self::default();
        fill(&mut message);
        self.present_bytes(field, &message.0);
    }

    fn texts_by_name<'t>(&mut self, field: u64, entries: impl Iterator<Item = (&'t String, &'t String)>) {
        for (name, text) in entries {
            self.message(field, |entry| {
                entry.present_bytes(1, name.as_bytes());
                entry.present_bytes(2, text.as_bytes());
            });
        }
    }

    fn numbers_by_name(&mut self, field: u64, entries: &BTreeMap<String, u32>) {
        for (name, &number) in entries {
            self.message(field, |entry| {
                entry.present_bytes(1, name.as_bytes());
                entry.present_number(2, number.into());
            });
        }
    }
}

/// A device in a `devherd.devices.Inventory`, and after it `more` fields of what is known of it.
#[must_use]
pub fn in_inventory(device: &Device, more: &[u8]) -> Vec<u8> {
    let mut inventory = Message::default();
    inventory.message(1, |known| {
        known.message(1, |message| fill(message, device));
        known.0.extend_from_slice(more);
    });
    inventory.0
}

/// What the devices of a vendor share, in a `devherd.devices.Inventory`.
#[must_use]
pub fn platform_in_inventory(vendor: &str, platform: &Platform) -> Vec<u8> {
    let mut inventory = Message::default();
    inventory.message(2, |entry| {
        entry.present_bytes(1, vendor.as_bytes());
        entry.message(2, |message| {
            facts(message, 1, &platform.attributes);
            host_paths(message, 2, &platform.paths);
        });
    });
    inventory.0
}

fn fill(message: &mut Message, device: &Device) {
    message.text(1, &device.vendor);
    message.text(2, &device.card);
    message.text(3, &device.id);
    message.text(4, device.resource_name.as_deref().unwrap_or_default());
    message.text(5, device.first_sight_resource_name.as_deref().unwrap_or_default());
    message.numbers(6, &device.numa_nodes);
    message.text(7, &device.numa_source);
    host_paths(message, 8, &device.paths);
    facts(message, 9, &device.attributes);
    message.numbers_by_name(10, &device.distances);
    message.texts(11, &device.shares);
}

fn host_paths(message: &mut Message, field: u64, paths: &[HostPath]) {
    for path in paths {
        message.message(field, |message| host_path(message, path));
    }
}

fn host_path(message: &mut Message, path: &HostPath) {
    message.text(1, &path.path);
    message.text(2, &path.role);
    message.number(3, path.is_node);
    if let Some((major, minor)) = path.number {
        message.message(4, |number| {
            number.number(1, major);
            number.number(2, minor);
        });
    }
    message.number(5, path.is_required);
    message.text(6, &path.target);
    if let Some(allowed) = path.access {
        message.message(7, |access| {
            access.number(1, allowed.group);
            access.number(2, allowed.mode);
        });
    }
}

fn facts(message: &mut Message, field: u64, attributes: &Attributes) {
    for (name, one) in attributes {
        message.message(field, |entry| {
            entry.present_bytes(1, name.as_bytes());
            entry.message(2, |message| fact(message, one));
        });
    }
}

fn fact(message: &mut Message, fact: &Fact) {
    match &fact.value {
        Value::Text(text) => message.present_bytes(1, text.as_bytes()),
        Value::Integer(number) => message.present_number(2, *number),
        Value::Version(text) => message.present_bytes(3, text.as_bytes()),
    }
    message.text(4, &fact.source);
}

/// A `devherd.spool.Edits`: what the kubelet's API can carry.
#[must_use]
pub fn edits(edits: &Edits) -> Vec<u8> {
    let mut message = Message::default();
    for node in &edits.nodes {
        message.message(1, |message| {
            message.text(1, &node.host_path);
            message.text(2, &node.container_path);
            message.text(3, &node.permissions);
        });
    }
    for mount in &edits.mounts {
        message.message(2, |message| {
            message.text(1, &mount.host_path);
            message.text(2, &mount.container_path);
            message.number(3, mount.read_only);
        });
    }
    message.texts_by_name(3, edits.envs.iter());
    message.texts_by_name(4, edits.annotations.iter());
    message.texts(5, &edits.cdi_devices);
    message.0
}

/// A device in a `devherd.spool.Offer`, with its edits, and after that `more` fields of it.
#[must_use]
pub fn in_offer(device: &Device, edits: &[u8], more: &[u8]) -> Vec<u8> {
    let mut offer = Message::default();
    offer.message(4, |message| {
        message.text(1, &device.id);
        message.numbers(3, &device.numa_nodes);
        message.present_bytes(4, edits);
        for (name, fact) in &device.attributes {
            message.message(6, |entry| {
                entry.present_bytes(1, name.as_bytes());
                entry.present_bytes(2, fact.value.to_string().as_bytes());
            });
        }
        message.text(7, &device.card);
        message.text(9, &device.vendor);
        message.numbers_by_name(10, &device.distances);
        message.0.extend_from_slice(more);
    });
    offer.0
}

/// A device in a `devherd.spool.Resource`, likewise.
#[must_use]
pub fn in_resource(device: &Device, edits: &[u8], more: &[u8]) -> Vec<u8> {
    let mut resource = Message::default();
    resource.message(2, |message| {
        message.text(1, &device.id);
        message.numbers(4, &device.numa_nodes);
        message.present_bytes(5, edits);
        message.text(6, &device.vendor);
        message.text(7, &device.card);
        message.numbers_by_name(8, &device.distances);
        message.0.extend_from_slice(more);
    });
    resource.0
}
