//! The kernel's own device events: <https://man7.org/linux/man-pages/man7/netlink.7.html>, `NETLINK_KOBJECT_UEVENT`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrAny, SocketFlags, SocketType, sockopt};

/// What a loss of events is told as: look everywhere.
pub const OVERFLOW: &str = "overflow@";

/// The multicast group that the kernel sends to; udevd sends its own, later ones to group 2.
const KERNEL_GROUP: u32 = 1;

/// The kernel's `UEVENT_BUFFER_SIZE` is 2048 bytes of variables, after a header with a path of up to `PATH_MAX`.
const LONGEST_MESSAGE: usize = 8192;

/// Room for the events of a large card being torn down and built up again (memory is taken only while they wait).
const RECEIVE_BUFFER: usize = 8 << 20;

/// Messages taken in one go: a storm of events must not keep [`UeventSocket::drain`] from returning.
const MOST_MESSAGES: usize = 4096;

/// A socket on which the kernel tells of devices that come, go and change. It is closed when dropped.
#[derive(Debug)]
pub struct UeventSocket {
    socket: OwnedFd,
}

impl UeventSocket {
    /// Listens from now on. The kernel tells every network namespace of the initial user namespace; in that of another
    /// user namespace nothing is heard, and that is no error.
    ///
    /// # Errors
    /// Those of `socket` and `bind`: some sandboxes refuse the family.
    pub fn open() -> io::Result<Self> {
        Self::with_buffer(RECEIVE_BUFFER)
    }

    fn with_buffer(size: usize) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(KOBJECT_UEVENT))?;
        // A smaller buffer only makes an overflow likelier, and an overflow is told: forcing needs CAP_NET_ADMIN.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, size)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, size));
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        Ok(Self { socket })
    }

    /// The events since the last call as `ACTION@DEVPATH`, without waiting for any; [`OVERFLOW`] where some were lost.
    ///
    /// # Errors
    /// Those of `recvfrom`.
    pub fn drain(&self) -> io::Result<Vec<String>> {
        let mut buffer = [0; LONGEST_MESSAGE];
        let mut events = Vec::new();
        for _ in 0..MOST_MESSAGES {
            match rustix::net::recvfrom(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _, sender)) if is_kernel(sender.as_ref()) => events.extend(event(&buffer[..length])),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => events.push(OVERFLOW.to_owned()),
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(events)
    }
}

impl AsFd for UeventSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for UeventSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Whether the kernel sent it: a process with `CAP_NET_ADMIN` may send to this socket too, under its own port.
fn is_kernel(sender: Option<&SocketAddrAny>) -> bool {
    sender.and_then(|sender| SocketAddrNetlink::try_from(sender.clone()).ok()).is_some_and(|sender| sender.pid() == 0)
}

/// The header of a message: `ACTION@DEVPATH`, ended by a NUL; the variables that follow repeat it.
fn event(message: &[u8]) -> Option<String> {
    let header = message.split(|&byte| byte == 0).next()?;
    header.contains(&b'@').then(|| String::from_utf8_lossy(header).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::net::SendFlags;

    use super::*;

    /// A device of every kernel, which can be asked for an event.
    const ASK_FOR_EVENT: &str = "/sys/devices/virtual/mem/null/uevent";
    const ASKED_EVENT: &str = "change@/devices/virtual/mem/null";

    /// Has the kernel send an event; false where it will not: no root, or sysfs mounted read-only.
    fn provoke() -> bool {
        match std::fs::write(ASK_FOR_EVENT, "change") {
            Ok(()) => true,
            Err(error) => {
                let refusals = [Errno::ROFS, Errno::ACCESS, Errno::PERM].map(Errno::raw_os_error);
                assert!(error.raw_os_error().is_some_and(|number| refusals.contains(&number)), "{error}");
                false
            }
        }
    }

    /// How often the asked event is among these; other devices of the machine may have events of their own.
    fn asked(events: &[String]) -> bool {
        events.iter().any(|event| event == ASKED_EVENT)
    }

    #[test]
    fn the_header_of_a_message_is_the_event() {
        for (message, expected) in [
            (
                &b"add@/devices/pci0000:80/dfl-port.0\0ACTION=add\0SEQNUM=7\0"[..],
                Some("add@/devices/pci0000:80/dfl-port.0"),
            ),
            (b"remove@/class/x", Some("remove@/class/x")),
            (b"libudev\0\xfe\xed\xca\xfe", None),
            (b"\0add@/x\0", None),
            (b"", None),
        ] {
            assert_eq!(event(message).as_deref(), expected);
        }
    }

    proptest! {
        #[test]
        fn no_message_is_too_odd(message: Vec<u8>) {
            prop_assert!(event(&message).is_none_or(|event| event.contains('@')));
        }
    }

    #[test]
    fn an_event_of_the_kernel_is_told() {
        let socket = UeventSocket::open().unwrap();
        let provoked = provoke();
        assert_eq!(asked(&socket.drain().unwrap()), provoked);
    }

    #[test]
    fn an_event_forged_by_a_process_is_not_told() {
        let socket = UeventSocket::open().unwrap();
        let address = SocketAddrNetlink::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
        let forger = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, Some(KOBJECT_UEVENT)).unwrap();
        let target = SocketAddrNetlink::new(address.pid(), 0);
        match rustix::net::sendto(&forger, b"remove@/devices/forged\0", SendFlags::empty(), &target) {
            Ok(_) => assert!(!socket.drain().unwrap().iter().any(|event| event.contains("forged"))),
            Err(error) => assert_eq!(error, Errno::PERM),
        }
    }

    #[test]
    fn lost_events_are_told_and_later_ones_still_come() {
        let socket = UeventSocket::with_buffer(1).unwrap();
        let mut provoked = false;
        for _ in 0..64 {
            provoked = provoke();
        }
        assert_eq!(socket.drain().unwrap().iter().any(|event| event == OVERFLOW), provoked);
        provoke();
        assert_eq!(asked(&socket.drain().unwrap()), provoked);
    }
}
