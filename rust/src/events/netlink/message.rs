//! Messages of generic netlink and their attributes, read and made.
//!
//! Numbers are in the host's byte order; headers and attributes begin at multiples of four bytes:
//! <https://docs.kernel.org/userspace-api/netlink/intro.html>.

/// Of `linux/netlink.h`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const MULTI: u16 = 0x2;
const INTERRUPTED: u16 = 0x10;
const HEADER: usize = 16;
/// The header of `linux/genetlink.h`: command, version, two bytes without a meaning.
const GENERIC_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;
/// The two highest bits of an attribute's number say how it is built.
const ATTRIBUTE_NUMBER: u16 = 0x3fff;

/// A message of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::events) struct Message<'m> {
    /// The family's number.
    pub(in crate::events) family: u16,
    pub(in crate::events) command: u8,
    attributes: &'m [u8],
}

impl<'m> Message<'m> {
    /// Its attributes, up to the first that is cut off.
    pub(in crate::events) fn attributes(self) -> impl Iterator<Item = (u16, &'m [u8])> {
        attributes(self.attributes)
    }
}

/// What a datagram holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'m> {
    Message {
        message: Message<'m>,
        is_last: bool,
    },
    /// The end of a dump.
    Done,
    /// Zero is none: it was asked to say so.
    Error(i32),
}

/// The messages of a datagram, errors and ends left out.
pub(in crate::events) fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    parts(datagram).filter_map(|(part, _)| match part {
        Part::Message { message, .. } => Some(message),
        Part::Done | Part::Error(_) => None,
    })
}

/// The parts of a datagram, and whether each says that what is dumped has changed meanwhile.
pub(super) fn parts(datagram: &[u8]) -> impl Iterator<Item = (Part<'_>, bool)> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = number(rest, 0).filter(|&length| length >= HEADER && length <= rest.len())?;
        let (kind, flags) = (short(rest, 4)?, short(rest, 6)?);
        let payload = &rest[HEADER..length];
        rest = rest.get(aligned(length)..).unwrap_or_default();
        let part = match kind {
            DONE => Part::Done,
            ERROR => Part::Error(i32::from_ne_bytes(payload.get(..4)?.try_into().ok()?)),
            family => {
                let attributes = payload.get(GENERIC_HEADER..)?;
                let message = Message { family, command: payload[0], attributes };
                Part::Message { message, is_last: flags & MULTI == 0 }
            }
        };
        Some((part, flags & INTERRUPTED != 0))
    })
}

/// The attributes in some bytes, up to the first that is cut off.
pub(in crate::events) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(short(rest, 0)?);
        let value = rest.get(ATTRIBUTE_HEADER..length)?;
        let number = short(rest, 2)? & ATTRIBUTE_NUMBER;
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some((number, value))
    })
}

/// Text that ends with its first NUL.
pub(in crate::events) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

pub(super) fn short(bytes: &[u8], place: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(place..place + 2)?.try_into().ok()?))
}

fn number(bytes: &[u8], place: usize) -> Option<usize> {
    usize::try_from(u32::from_ne_bytes(bytes.get(place..place + 4)?.try_into().ok()?)).ok()
}

/// A message with these flags and attributes.
pub(in crate::events) fn encoded(family: u16, flags: u16, command: u8, given: &[(u16, &[u8])]) -> Vec<u8> {
    let mut payload = vec![command, 1, 0, 0];
    for (number, value) in given {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap_or(u16::MAX);
        payload.extend(length.to_ne_bytes());
        payload.extend(number.to_ne_bytes());
        payload.extend(*value);
        payload.resize(aligned(payload.len()), 0);
    }
    let length = u32::try_from(HEADER + payload.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(HEADER + payload.len());
    message.extend(length.to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]); // number and sender: one request at a time needs neither
    message.extend(payload);
    message
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_encoded_is_read_again() {
        let nested = [(2_u16, &b"x\0"[..]), (3, &[7][..])];
        let message = encoded(0x20, 0, 5, &nested);
        let found: Vec<_> = messages(&message).collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].family, found[0].command), (0x20, 5));
        assert_eq!(found[0].attributes().collect::<Vec<_>>(), nested);
    }

    proptest! {
        #[test]
        fn no_datagram_is_too_odd(datagram: Vec<u8>) {
            messages(&datagram).flat_map(Message::attributes).for_each(drop);
        }

        #[test]
        fn what_is_cut_off_is_left_out(length in 0_usize..100) {
            let whole = [encoded(0x20, 0, 1, &[(1, b"pci\0")]), encoded(0x20, 0, 2, &[(2, b"x\0")])].concat();
            let cut = &whole[..length.min(whole.len())];
            let known: Vec<_> = messages(&whole).collect();
            prop_assert!(messages(cut).zip(known).all(|(found, known)| found == known));
        }
    }
}
