//! The kubelet's list of a resource's devices, from the resource as its child reads it: both encoded.

use std::collections::BTreeSet;

use super::Message;
use crate::order::natural;

/// A field of a message: a number, or what has a length.
#[derive(Clone, Copy)]
enum Field<'m> {
    Number(u64),
    Bytes(&'m [u8]),
}

/// The fields of a message, each with its number.
struct Fields<'m>(&'m [u8]);

/// The bytes are no message.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

impl<'m> Fields<'m> {
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: u64) -> Result<&'m [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn field(&mut self) -> Result<(u64, Field<'m>), Malformed> {
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Bytes(self.take(8)?),
            2 => {
                let length = self.varint()?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Bytes(self.take(4)?),
            _ => return Err(Malformed),
        };
        Ok((tag >> 3, field))
    }
}

impl<'m> Iterator for Fields<'m> {
    type Item = Result<(u64, Field<'m>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.field())
    }
}

/// What the list says of a `devherd.spool.ListedDevice`.
#[derive(Default)]
struct Listed<'m> {
    id: &'m str,
    replicas: u64,
    is_unhealthy: bool,
    numa_nodes: Vec<u64>,
    shares: Vec<&'m str>,
}

impl<'m> Listed<'m> {
    fn read(message: &'m [u8]) -> Result<Self, Malformed> {
        let mut listed = Self::default();
        for field in Fields(message) {
            match field? {
                (1, Field::Bytes(id)) => listed.id = text(id)?,
                (2, Field::Number(replicas)) => listed.replicas = replicas,
                (3, _) => listed.is_unhealthy = true,
                (4, nodes) => add_numbers(nodes, &mut listed.numa_nodes)?,
                (9, Field::Bytes(share)) => listed.shares.push(text(share)?),
                _ => {}
            }
        }
        Ok(listed)
    }

    fn add_to<'d>(&'d self, ids: &mut Vec<(String, &'d Self)>, own: &str) {
        if self.replicas == 0 {
            ids.push((own.to_owned(), self));
        }
        ids.extend((0..self.replicas).map(|number| (format!("{own}::{number}"), self)));
    }
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed)
}

fn add_numbers(field: Field<'_>, numbers: &mut Vec<u64>) -> Result<(), Malformed> {
    match field {
        Field::Number(number) => numbers.push(number),
        Field::Bytes(packed) => {
            let mut packed = Fields(packed);
            while !packed.0.is_empty() {
                numbers.push(packed.varint()?);
            }
        }
    }
    Ok(())
}

/// The list of a `devherd.spool.Resource`, in natural order of ids. A device whose NUMA nodes are unknown has each that
/// it may be on, if those of others are known: the topology manager never allocates devices with and without nodes
/// together. Also the ids that are Unhealthy.
///
/// # Errors
/// If it is no such message.
pub fn device_list(resource: &[u8]) -> Result<(Vec<u8>, Vec<String>), Malformed> {
    let (mut devices, mut processor_nodes) = (Vec::new(), Vec::new());
    for field in Fields(resource) {
        match field? {
            (2, Field::Bytes(device)) => devices.push(Listed::read(device)?),
            (6, nodes) => add_numbers(nodes, &mut processor_nodes)?,
            _ => {}
        }
    }
    let mut possible: BTreeSet<u64> = devices.iter().flat_map(|device| device.numa_nodes.iter().copied()).collect();
    if !possible.is_empty() {
        possible.extend(processor_nodes);
    }
    let possible: Vec<u64> = possible.into_iter().collect();
    let mut ids = Vec::with_capacity(devices.len());
    for device in &devices {
        match &*device.shares {
            [] => device.add_to(&mut ids, device.id),
            shares => shares.iter().for_each(|share| device.add_to(&mut ids, share)),
        }
    }
    if devices.iter().any(|device| !device.shares.is_empty()) {
        ids.sort_by(|(left, _), (right, _)| natural(left, right));
    }
    let mut list = Message::default();
    for (id, device) in &ids {
        list.message(1, |message| {
            message.text(1, id);
            message.text(2, if device.is_unhealthy { "Unhealthy" } else { "Healthy" });
            let nodes = if device.numa_nodes.is_empty() { &possible } else { &device.numa_nodes };
            if !nodes.is_empty() {
                message.message(3, |topology| {
                    for &node in nodes {
                        topology.message(1, |message| message.number(1, node));
                    }
                });
            }
        });
    }
    let unhealthy = ids.into_iter().filter(|(_, device)| device.is_unhealthy).map(|(id, _)| id);
    Ok((list.0, unhealthy.collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_that_are_no_message_are_refused_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = device_list(&bytes);
        }
    }

    #[test]
    fn a_message_that_is_cut_off_is_refused() {
        let resource = [0x12, 0x06, 0x0a, 0x01, b'x', 0x1a, 0x01, b'y'];
        let list = [&[10, 14, 10, 1, b'x', 18, 9][..], b"Unhealthy"].concat();
        assert_eq!(device_list(&resource), Ok((list, vec!["x".to_owned()])));
        for length in 1..resource.len() {
            assert_eq!(device_list(&resource[..length]), Err(Malformed), "{length}");
        }
    }
}
