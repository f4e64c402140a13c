//! Device events: from the kernel over netlink (<https://man7.org/linux/man-pages/man7/netlink.7.html>,
//! `NETLINK_KOBJECT_UEVENT`), or from a simulated node over a datagram socket in the same format.
//!
//! A message is `ACTION@DEVPATH` and variables, each ended by a NUL (`lib/kobject_uevent.c` of the kernel).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrAny, SocketFlags, SocketType, sockopt};

use super::simulated_node;

/// One event: its variables by name. `ACTION` (`add`, `remove`, `bind`, `unbind`, `change`, …) and `DEVPATH` (below
/// /sys) are always present. The kernel adds `SUBSYSTEM` and `SEQNUM`; drivers add variables of their own
/// (`ERROR_EVENT`, `WEDGED`). `SYNTH_UUID` marks an event that a process requested by writing to a `uevent` file.
pub type Uevent = BTreeMap<String, String>;

/// The events of one drain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drained {
    /// The events in the order in which they were sent.
    pub events: Vec<Uevent>,
    /// Whether the socket's buffer overflowed, so that anything may have changed.
    pub lost: bool,
}

/// The multicast group for the kernel's events; udevd sends its own, later events to group 2.
const KERNEL_GROUP: u32 = 1;

/// Size in bytes: the kernel's `UEVENT_BUFFER_SIZE` allows 2048 bytes of variables, after a header with a path of up to
/// `PATH_MAX`.
const LONGEST_MESSAGE: usize = 8192;

/// Size in bytes, enough for the events of a large card that is torn down and built up again (memory is used only while
/// events wait).
const RECEIVE_BUFFER: usize = 8 << 20;

/// Messages read in one call: a storm of events must not keep [`UeventSocket::drain`] from returning.
const MOST_MESSAGES: usize = 4096;

/// A socket on which device events arrive. Closed when dropped.
#[derive(Debug)]
pub struct UeventSocket {
    socket: OwnedFd,
    sender: Sender,
}

/// The sender whose messages are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    Kernel,
    SimulatedNode,
}

impl UeventSocket {
    /// Subscribes to the kernel's events. They reach every network namespace of the initial user namespace. In a
    /// namespace of another user namespace no events arrive; that is no error.
    ///
    /// # Errors
    /// Errors of `socket` and `bind`: some sandboxes refuse the address family.
    pub fn of_kernel() -> io::Result<Self> {
        Self::with_buffer(RECEIVE_BUFFER)
    }

    /// Subscribes to the events of the simulated node below `root`: its programs send to every socket whose abstract
    /// name is `devherd-uevents-<device>-<inode>-<number>`, with the device and inode of `root`.
    ///
    /// # Errors
    /// Errors of `stat`, `socket` and `bind`; `EADDRINUSE` when too many others listen to this node.
    pub fn of_simulated_node(root: &Path) -> io::Result<Self> {
        Ok(Self { socket: simulated_node::listen("uevents", root)?, sender: Sender::SimulatedNode })
    }

    fn with_buffer(size: usize) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(KOBJECT_UEVENT))?;
        // Forcing the size needs CAP_NET_ADMIN. A smaller buffer only makes an overflow more likely, and overflows are
        // detected.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, size)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, size));
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        Ok(Self { socket, sender: Sender::Kernel })
    }

    /// The events since the last call, without waiting for new ones.
    ///
    /// # Errors
    /// Errors of `recvfrom`.
    pub fn drain(&self) -> io::Result<Drained> {
        let mut buffer = [0; LONGEST_MESSAGE];
        let mut drained = Drained::default();
        for _ in 0..MOST_MESSAGES {
            match rustix::net::recvfrom(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _, sender)) if self.trusts(sender.as_ref()) => {
                    drained.events.extend(parsed(&buffer[..length]));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => drained.lost = true,
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(drained)
    }

    /// Whether a message comes from the kernel, whose port is 0. A process with `CAP_NET_ADMIN` can also send to a
    /// netlink socket, but from another port.
    fn trusts(&self, sender: Option<&SocketAddrAny>) -> bool {
        let address = || sender.and_then(|sender| SocketAddrNetlink::try_from(sender.clone()).ok());
        self.sender == Sender::SimulatedNode || address().is_some_and(|sender| sender.pid() == 0)
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

/// Parses a message; `None` if its header is not the kernel's (udevd's header begins with `libudev`).
fn parsed(message: &[u8]) -> Option<Uevent> {
    let mut fields = message.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    let header = fields.next()?;
    let (action, path) = header.split_once('@').filter(|(action, path)| !action.is_empty() && path.starts_with('/'))?;
    let variables = fields.filter_map(|field| field.split_once('=').map(|(name, value)| (name.into(), value.into())));
    let mut event: Uevent = variables.collect();
    event.insert("ACTION".into(), action.into());
    event.insert("DEVPATH".into(), path.into());
    Some(event)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::net::{SendFlags, SocketAddrUnix};

    use super::*;

    /// A device that every kernel has, whose `uevent` file requests an event.
    const ASK_FOR_EVENT: &str = "/sys/devices/virtual/mem/null/uevent";
    const ASKED_PATH: &str = "/devices/virtual/mem/null";

    /// Makes the kernel send an event; false where it refuses (no root, or sysfs mounted read-only), which fails the
    /// test with `CI=true` and is printed otherwise.
    #[expect(clippy::print_stderr, reason = "a test that cannot test anything says so")]
    fn provoke() -> bool {
        let Err(error) = std::fs::write(ASK_FOR_EVENT, "change") else { return true };
        let refusals = [Errno::ROFS, Errno::ACCESS, Errno::PERM].map(Errno::raw_os_error);
        assert!(error.raw_os_error().is_some_and(|number| refusals.contains(&number)), "{error}");
        assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "{ASK_FOR_EVENT}: {error}");
        eprintln!("NOT TESTED: events of the kernel: {ASK_FOR_EVENT}: {error}");
        false
    }

    /// The requested event; other devices of the machine may have events of their own.
    fn asked(drained: &Drained) -> Option<&Uevent> {
        drained.events.iter().find(|event| event["DEVPATH"] == ASKED_PATH)
    }

    fn variables(pairs: &[(&str, &str)]) -> Uevent {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn a_message_is_a_header_and_variables() {
        let recovery =
            b"change@/devices/pci0000:80/0000:80:02.0\0ACTION=change\0DEVPATH=/devices/pci0000:80/0000:80:02.0\0\
            SUBSYSTEM=pci\0ERROR_EVENT=BEGIN_RECOVERY\0DEVICE_ONLINE=0\0MODALIAS=pci:v=1\0SEQNUM=7\0";
        assert_eq!(
            parsed(recovery),
            Some(variables(&[
                ("ACTION", "change"),
                ("DEVPATH", "/devices/pci0000:80/0000:80:02.0"),
                ("SUBSYSTEM", "pci"),
                ("ERROR_EVENT", "BEGIN_RECOVERY"),
                ("DEVICE_ONLINE", "0"),
                ("MODALIAS", "pci:v=1"),
                ("SEQNUM", "7"),
            ]))
        );
        assert_eq!(
            parsed(b"remove@/class/x\0no variable\0ACTION=add"),
            Some(variables(&[("ACTION", "remove"), ("DEVPATH", "/class/x")]))
        );
    }

    #[test]
    fn what_has_no_header_of_the_kernel_is_no_event() {
        for message in [&b"libudev\0\xfe\xed\xca\xfe"[..], b"\0add@/x\0", b"", b"add", b"@/x", b"add@x"] {
            assert_eq!(parsed(message), None);
        }
    }

    proptest! {
        #[test]
        fn no_message_is_too_odd(message: Vec<u8>) {
            prop_assert!(parsed(&message).is_none_or(|event| event["DEVPATH"].starts_with('/')));
        }
    }

    #[test]
    fn an_event_of_the_kernel_arrives_with_its_variables() {
        let socket = UeventSocket::of_kernel().unwrap();
        if !provoke() {
            return;
        }
        let drained = socket.drain().unwrap();
        let event = asked(&drained).unwrap();
        let expected =
            [("ACTION", "change"), ("SUBSYSTEM", "mem"), ("DEVNAME", "null"), ("MAJOR", "1"), ("SYNTH_UUID", "0")];
        assert_eq!(expected.map(|(name, _)| (name, event[name].as_str())), expected);
    }

    #[test]
    fn an_event_forged_by_a_process_does_not_count() {
        let socket = UeventSocket::of_kernel().unwrap();
        let address = SocketAddrNetlink::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
        let forger = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, Some(KOBJECT_UEVENT)).unwrap();
        let target = SocketAddrNetlink::new(address.pid(), 0);
        match rustix::net::sendto(&forger, b"remove@/devices/forged\0", SendFlags::empty(), &target) {
            Ok(_) => assert!(!socket.drain().unwrap().events.iter().any(|event| event["DEVPATH"].contains("forged"))),
            Err(error) => assert_eq!(error, Errno::PERM),
        }
    }

    #[test]
    fn a_buffer_that_overflows_is_noticed_and_later_events_still_come() {
        let socket = UeventSocket::with_buffer(1).unwrap();
        if !(0..64).all(|_| provoke()) {
            return;
        }
        assert!(socket.drain().unwrap().lost);
        provoke();
        assert!(asked(&socket.drain().unwrap()).is_some());
    }

    fn listeners(root: &Path) -> Vec<SocketAddrUnix> {
        let root = rustix::fs::stat(root).unwrap();
        let name = |number| format!("devherd-uevents-{}-{}-{number}", root.st_dev, root.st_ino);
        (0..2).map(|number| SocketAddrUnix::new_abstract_name(name(number).as_bytes()).unwrap()).collect()
    }

    #[test]
    fn every_listener_to_a_simulated_node_hears_its_events_and_no_other_node_s() {
        let (node, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = UeventSocket::of_simulated_node(node.path()).unwrap();
        let second = UeventSocket::of_simulated_node(node.path()).unwrap();
        let elsewhere = UeventSocket::of_simulated_node(other.path()).unwrap();
        let sender = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
        for address in listeners(node.path()) {
            rustix::net::sendto(&sender, b"add@/devices/gpu\0SUBSYSTEM=pci\0", SendFlags::empty(), &address).unwrap();
        }
        let event = variables(&[("ACTION", "add"), ("DEVPATH", "/devices/gpu"), ("SUBSYSTEM", "pci")]);
        let expected = Drained { events: vec![event], lost: false };
        assert_eq!([&first, &second].map(|socket| socket.drain().unwrap()), [expected.clone(), expected]);
        assert_eq!(elsewhere.drain().unwrap(), Drained::default());
    }
}
