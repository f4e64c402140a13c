//! Generic netlink: messages, families by name, and sockets; only the parts that [`devlink`](super::devlink) needs.
//!
//! Numbers are in the host's byte order; headers and attributes begin at multiples of four bytes:
//! <https://docs.kernel.org/userspace-api/netlink/intro.html>,
//! <https://docs.kernel.org/networking/generic_netlink.html>.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Numbers from `linux/netlink.h`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const MULTI: u16 = 0x2;
const INTERRUPTED: u16 = 0x10;
const HEADER: usize = 16;
/// Bytes of the header in `linux/genetlink.h`: command, version, two reserved bytes.
const GENERIC_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;
/// Masks the two highest bits of an attribute's number, which are flags.
const ATTRIBUTE_NUMBER: u16 = 0x3fff;

/// A message of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'m> {
    /// The family's number.
    pub(super) family: u16,
    pub(super) command: u8,
    attributes: &'m [u8],
}

impl<'m> Message<'m> {
    /// Number and value of each attribute, up to the first truncated one.
    pub(super) fn attributes(self) -> impl Iterator<Item = (u16, &'m [u8])> {
        attributes(self.attributes)
    }
}

/// A part of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part<'m> {
    Message {
        message: Message<'m>,
        is_last: bool,
    },
    /// The end of a dump.
    Done,
    /// An error number; zero acknowledges the request.
    Error(i32),
}

/// The messages in a datagram, without errors and ends of dumps.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    parts(datagram).filter_map(|(part, _)| match part {
        Part::Message { message, .. } => Some(message),
        Part::Done | Part::Error(_) => None,
    })
}

/// The parts of a datagram. The flag of each part tells whether the dumped objects changed during the dump.
fn parts(datagram: &[u8]) -> impl Iterator<Item = (Part<'_>, bool)> {
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

/// Number and value of each attribute in `bytes`, up to the first truncated one.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(short(rest, 0)?);
        let value = rest.get(ATTRIBUTE_HEADER..length)?;
        let number = short(rest, 2)? & ATTRIBUTE_NUMBER;
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some((number, value))
    })
}

/// The text before the first NUL.
pub(super) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn short(bytes: &[u8], place: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(place..place + 2)?.try_into().ok()?))
}

fn number(bytes: &[u8], place: usize) -> Option<usize> {
    usize::try_from(u32::from_ne_bytes(bytes.get(place..place + 4)?.try_into().ok()?)).ok()
}

/// Encodes a message with these flags and attributes.
pub(super) fn encoded(family: u16, flags: u16, command: u8, given: &[(u16, &[u8])]) -> Vec<u8> {
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
    message.extend([0; 8]); // sequence number and port: not needed, because there is one request at a time
    message.extend(payload);
    message
}

/// The control family, from `linux/genetlink.h`: it looks up the other families.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const MULTICAST_GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;

/// A family of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Family {
    pub(super) id: u16,
    /// Number of each multicast group by name.
    groups: Vec<(String, u32)>,
}

impl Family {
    /// Looks up a family by name; `None` if the kernel has no such family. Blocks until the kernel answers; the kernel
    /// may be loading the family's module.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(super) fn named(name: &str) -> io::Result<Option<Self>> {
        let name = [name.as_bytes(), b"\0"].concat();
        let mut found = None;
        let take = &mut |message: Message<'_>| found = Self::parsed(message);
        match ask(CONTROL, GET_FAMILY, &[(FAMILY_NAME, &name)], false, take) {
            Ok(_) => Ok(found),
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The number of a multicast group.
    pub(super) fn group(&self, name: &str) -> Option<u32> {
        self.groups.iter().find(|(known, _)| known == name).map(|&(_, number)| number)
    }

    fn parsed(message: Message<'_>) -> Option<Self> {
        let (mut id, mut groups) = (None, Vec::new());
        for (number, value) in message.attributes() {
            match number {
                FAMILY_ID => id = short(value, 0),
                MULTICAST_GROUPS => groups.extend(attributes(value).filter_map(|(_, group)| group_in(group))),
                _ => {}
            }
        }
        Some(Self { id: id?, groups })
    }
}

fn group_in(bytes: &[u8]) -> Option<(String, u32)> {
    let (mut name, mut id) = (None, None);
    for (number, value) in attributes(bytes) {
        match number {
            GROUP_NAME => name = Some(text(value)),
            GROUP_ID => id = value.get(..4).and_then(|id| Some(u32::from_ne_bytes(id.try_into().ok()?))),
            _ => {}
        }
    }
    Some((name?, id?))
}

/// Flags from `linux/netlink.h`.
const REQUEST: u16 = 0x1;
const DUMP: u16 = 0x300;

/// Size in bytes of the largest datagram that the kernel sends in a dump, if the reader has that much room.
pub(super) const LONGEST_DATAGRAM: usize = 32 << 10;

/// Dumps all objects of a command; true if the answer is a consistent snapshot. Blocks until the kernel answers; the
/// kernel may wait for a driver.
pub(super) fn dump(family: u16, command: u8, take: &mut dyn FnMut(Message<'_>)) -> io::Result<bool> {
    ask(family, command, &[], true, take)
}

/// Sends a request and reads the whole answer; true if it is a consistent snapshot.
fn ask(
    family: u16,
    command: u8,
    given: &[(u16, &[u8])],
    is_dump: bool,
    take: &mut dyn FnMut(Message<'_>),
) -> io::Result<bool> {
    let socket = opened(SocketFlags::CLOEXEC)?;
    let flags = if is_dump { REQUEST | DUMP } else { REQUEST };
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &encoded(family, flags, command, given), SendFlags::empty(), &kernel)?;
    let mut buffer = vec![0; LONGEST_DATAGRAM];
    let mut is_whole = true;
    loop {
        let (length, _, sender) = match rustix::net::recvfrom(&socket, &mut buffer[..], RecvFlags::empty()) {
            Err(Errno::INTR) => continue,
            received => received?,
        };
        if !sender.is_some_and(|sender| SocketAddrNetlink::try_from(sender).is_ok_and(|sender| sender.pid() == 0)) {
            continue; // a process with CAP_NET_ADMIN can write to the socket, too
        }
        for (part, is_interrupted) in parts(&buffer[..length]) {
            is_whole &= !is_interrupted;
            match part {
                Part::Done | Part::Error(0) => return Ok(is_whole),
                Part::Error(error) => return Err(io::Error::from_raw_os_error(-error)),
                Part::Message { message, is_last } => {
                    take(message);
                    if is_last {
                        return Ok(is_whole);
                    }
                }
            }
        }
    }
}

/// A non-blocking socket on which messages of this group arrive.
pub(super) fn subscribed(group: u32) -> io::Result<OwnedFd> {
    let socket = opened(SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let size = libc::socklen_t::try_from(size_of_val(&group)).unwrap_or_default();
    // SAFETY: the descriptor is open, and the option's value is a number of that size that lives until the call returns.
    #[expect(unsafe_code, reason = "rustix does not know this option of socket(7)")]
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_NETLINK,
            libc::NETLINK_ADD_MEMBERSHIP,
            std::ptr::from_ref(&group).cast(),
            size,
        )
    };
    if result == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

fn opened(flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(GENERIC))?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
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

    #[test]
    fn the_kernel_knows_the_family_of_families_and_its_group() {
        let family = Family::named("nlctrl").unwrap().unwrap();
        assert_eq!(family.id, CONTROL);
        assert!(family.group("notify").is_some_and(|number| number > 0), "{family:?}");
        subscribed(family.group("notify").unwrap()).unwrap();
    }

    #[test]
    fn a_family_that_the_kernel_has_not_is_no_error() {
        assert_eq!(Family::named("devherd-none").unwrap(), None);
    }

    #[test]
    fn a_dump_of_the_kernel_comes_to_its_end() {
        let mut names = Vec::new();
        let take = &mut |message: Message<'_>| {
            names.extend(message.attributes().filter(|(number, _)| *number == FAMILY_NAME).map(|(_, name)| text(name)));
        };
        assert!(dump(CONTROL, GET_FAMILY, take).unwrap());
        assert!(names.contains(&"nlctrl".to_owned()), "{names:?}");
    }

    #[test]
    fn what_the_kernel_refuses_is_an_error() {
        let error = dump(0x3ff, 1, &mut |_| {}).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOENT.raw_os_error()));
    }
}
