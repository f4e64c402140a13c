//! Health reporters of devlink: what drivers of network cards say of their firmware.
//!
//! <https://docs.kernel.org/networking/devlink/devlink-health.html>; a dump has the state of each, and a message to the
//! group `config` each change. Both are of the network namespace that devherd runs in.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SocketAddrAny};

use super::netlink::{self, Family, LONGEST_DATAGRAM, Message, attributes, messages, text};
use super::simulated;
use crate::fence::{Fence, Outcome};

/// Of `linux/devlink.h`.
const NAME: &str = "devlink";
const GROUP: &str = "config";
const NEW: u8 = 3;
const DELETED: u8 = 4;
const REPORTER_GET: u8 = 52;
const REPORTER_RECOVER: u8 = 54;
const BUS_NAME: u16 = 1;
const DEVICE_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const REPORTER: u16 = 114;
const REPORTER_NAME: u16 = 115;
const REPORTER_STATE: u16 = 116;
const REPORTER_ERRORS: u16 = 117;
/// Only a reporter that can recover has one.
const REPORTER_GRACE: u16 = 120;
const STATE_ERROR: u8 = 1;

/// Of a simulated node, where the kernel gives a number of its own.
const SIMULATED_FAMILY: u16 = 0x20;
/// What a dump of a simulated node is read from, below its root.
const SIMULATED_DUMP: &str = ".devherd-devlink";

/// Messages taken in one go.
const MOST_MESSAGES: usize = 4096;

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

/// What the kernel says of reporters, and its socket. It is closed when dropped.
#[derive(Debug)]
pub struct Devlink {
    socket: OwnedFd,
    kernel: Kernel,
    fence: Fence,
    reporters: Reporters,
    is_stale: bool,
}

/// Who is asked.
#[derive(Debug, Clone)]
enum Kernel {
    /// The kernel, by the family's number.
    Real(u16),
    /// A simulated node.
    Simulated(PathBuf),
}

impl Devlink {
    /// Listens from now on; `None` where the kernel has no devlink.
    ///
    /// # Errors
    /// Those of `socket`, `bind` and `setsockopt`: some sandboxes refuse the family.
    pub fn of_kernel(deadline: Duration) -> io::Result<Option<Self>> {
        let Some(family) = Family::named(NAME)? else { return Ok(None) };
        let Some((_, group)) = family.groups.iter().find(|(name, _)| name == GROUP) else { return Ok(None) };
        Ok(Some(Self::new(netlink::listening(*group)?, Kernel::Real(family.id), deadline)))
    }

    /// Listens to the simulated node below `root` from now on.
    ///
    /// # Errors
    /// Those of [`simulated::listen`].
    pub fn of_simulated_node(root: &Path, deadline: Duration) -> io::Result<Self> {
        Ok(Self::new(simulated::listen(NAME, root)?, Kernel::Simulated(root.to_owned()), deadline))
    }

    fn new(socket: OwnedFd, kernel: Kernel, deadline: Duration) -> Self {
        Self { socket, kernel, fence: Fence::new(deadline), reporters: Reporters::new(), is_stale: true }
    }

    /// What is known by now.
    #[must_use]
    pub fn reporters(&self) -> &Reporters {
        &self.reporters
    }

    /// Whether only a dump tells how things are: none was taken, or messages were lost.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Takes in the messages since the last call, without waiting for any.
    ///
    /// # Errors
    /// Those of `recvfrom`.
    pub fn hear(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; LONGEST_DATAGRAM];
        for _ in 0..MOST_MESSAGES {
            match rustix::net::recvfrom(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _, sender)) if self.trusts(sender.as_ref()) => {
                    let own = messages(&buffer[..length]).filter(|message| message.family == self.kernel.family());
                    self.is_stale |= own.fold(false, |news, message| news | take_in(&mut self.reporters, message));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => self.is_stale = true,
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Asks for the state of every reporter, behind the fence: the kernel waits for a driver that is being reloaded. What has
    /// changed meanwhile is heard after it. `beat` is called every half second while it is waited.
    ///
    /// # Errors
    /// What the kernel refuses with; `TimedOut` where it does not answer in time, and what is known stays.
    pub fn dump(&mut self, beat: &dyn Fn()) -> io::Result<()> {
        self.hear()?;
        let work = |kernel: Kernel| kernel.dump();
        let key = |_: &Kernel| NAME.to_owned();
        let outcome = self.fence.each_within(self.fence.deadline(), vec![self.kernel.clone()], key, work, beat).pop();
        match outcome {
            Some(Outcome::Done(dumped)) => (self.reporters, self.is_stale) = dumped?,
            Some(Outcome::Panicked(message)) => return Err(io::Error::other(message)),
            Some(Outcome::Overdue | Outcome::NotStarted) | None => return Err(io::ErrorKind::TimedOut.into()),
        }
        self.hear()
    }

    /// A process with `CAP_NET_ADMIN` may send to a netlink socket too, under its own port: the kernel's is 0.
    fn trusts(&self, sender: Option<&SocketAddrAny>) -> bool {
        let address = || sender.and_then(|sender| SocketAddrNetlink::try_from(sender.clone()).ok());
        matches!(self.kernel, Kernel::Simulated(_)) || address().is_some_and(|sender| sender.pid() == 0)
    }
}

impl Kernel {
    fn family(&self) -> u16 {
        match self {
            Self::Real(family) => *family,
            Self::Simulated(_) => SIMULATED_FAMILY,
        }
    }

    /// All reporters, and whether something has changed while they were listed.
    fn dump(&self) -> io::Result<(Reporters, bool)> {
        let mut reporters = Reporters::new();
        match self {
            Self::Real(family) => {
                let mut news = false;
                let take = &mut |message: Message<'_>| news |= take_in(&mut reporters, message);
                let is_whole = netlink::dump(*family, REPORTER_GET, take)?;
                Ok((reporters, news || !is_whole))
            }
            Self::Simulated(root) => {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "no attribute: a file of the simulated node's own, of any size"
                )]
                let dump = match std::fs::read(root.join(SIMULATED_DUMP)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                    dump => dump?,
                };
                let news = messages(&dump).fold(false, |news, message| news | take_in(&mut reporters, message));
                Ok((reporters, news))
            }
        }
    }
}

impl AsFd for Devlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Devlink {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Takes in a message; whether there may be reporters by now that nobody has told of.
fn take_in(reporters: &mut Reporters, message: Message<'_>) -> bool {
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
mod tests {
    use proptest::prelude::*;
    use rustix::net::{SendFlags, SocketAddrUnix, SocketType};

    use super::super::netlink::encoded;
    use super::*;

    const NIC: &[u8] = b"0000:3b:00.0\0";
    const OTHER: &[u8] = b"0000:5e:00.0\0";
    const HEALTHY: u8 = 0;

    fn nested(given: &[(u16, &[u8])]) -> Vec<u8> {
        encoded(0, 0, 0, given)[20..].to_vec()
    }

    /// What the kernel says of a reporter, whose state it is and after how many errors.
    fn said(command: u8, device: &[u8], name: &[u8], state: u8, errors: u64) -> Vec<u8> {
        let reporter = nested(&[
            (REPORTER_NAME, name),
            (REPORTER_STATE, &[state]),
            (REPORTER_ERRORS, &errors.to_ne_bytes()),
            (REPORTER_GRACE, &[0; 8]),
        ]);
        encoded(SIMULATED_FAMILY, 0, command, &[(BUS_NAME, b"pci\0"), (DEVICE_NAME, device), (REPORTER, &reporter)])
    }

    fn about(command: u8, device: &[u8]) -> Vec<u8> {
        encoded(SIMULATED_FAMILY, 0, command, &[(BUS_NAME, b"pci\0"), (DEVICE_NAME, device)])
    }

    fn after(bytes: &[u8]) -> (Reporters, bool) {
        let mut reporters = Reporters::new();
        let is_stale = messages(bytes).fold(false, |news, message| news | take_in(&mut reporters, message));
        (reporters, is_stale)
    }

    fn place(device: &str, name: &str) -> Place {
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
        let (reporters, _) = after(&encoded(SIMULATED_FAMILY, 0, REPORTER_RECOVER, &given));
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
        assert_eq!(after(&encoded(SIMULATED_FAMILY, 0, REPORTER_GET, &given)), (Reporters::new(), false));
        let of_port = encoded(SIMULATED_FAMILY, 0, DELETED, &given[..3]);
        let known = said(REPORTER_GET, NIC, b"fw_fatal\0", HEALTHY, 0);
        assert_eq!(after(&[known, of_port].concat()).0.len(), 1);
    }

    proptest! {
        #[test]
        fn no_message_is_too_odd(command: u8, attributes: Vec<u8>) {
            let mut message = encoded(SIMULATED_FAMILY, 0, command, &[]);
            message.extend(attributes);
            let length = u32::try_from(message.len()).unwrap();
            message[..4].copy_from_slice(&length.to_ne_bytes());
            after(&message);
        }
    }

    fn simulated() -> (tempfile::TempDir, Devlink) {
        let root = tempfile::tempdir().unwrap();
        let devlink = Devlink::of_simulated_node(root.path(), Duration::from_secs(5)).unwrap();
        (root, devlink)
    }

    fn send(root: &Path, message: &[u8]) {
        let status = rustix::fs::stat(root).unwrap();
        let name = format!("devherd-devlink-{}-{}-0", status.st_dev, status.st_ino);
        let sender = rustix::net::socket(rustix::net::AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        rustix::net::sendto(&sender, message, SendFlags::empty(), &address).unwrap();
    }

    #[test]
    fn a_dump_is_the_state_and_what_was_said_since_then_changes_it() {
        let (root, mut devlink) = simulated();
        assert!(devlink.is_stale());
        std::fs::write(root.path().join(SIMULATED_DUMP), said(REPORTER_GET, NIC, b"fw_fatal\0", HEALTHY, 0)).unwrap();
        devlink.dump(&|| {}).unwrap();
        assert!(!devlink.is_stale() && !devlink.reporters()[&place("0000:3b:00.0", "fw_fatal")].is_in_error);
        send(root.path(), &said(REPORTER_RECOVER, NIC, b"fw_fatal\0", STATE_ERROR, 1));
        send(root.path(), &about(NEW, OTHER));
        devlink.hear().unwrap();
        assert!(devlink.is_stale() && devlink.reporters()[&place("0000:3b:00.0", "fw_fatal")].is_in_error);
        std::fs::write(root.path().join(SIMULATED_DUMP), "").unwrap();
        devlink.dump(&|| {}).unwrap();
        assert_eq!((devlink.is_stale(), devlink.reporters().len()), (false, 0), "a dump has all there are");
    }

    #[test]
    fn a_dump_that_hangs_leaves_what_is_known_and_is_not_waited_for_twice() {
        let root = tempfile::tempdir().unwrap();
        let deadline = Duration::from_millis(20);
        let mut devlink = Devlink::of_simulated_node(root.path(), deadline).unwrap();
        let file = root.path().join(SIMULATED_DUMP);
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        send(root.path(), &said(REPORTER_RECOVER, NIC, b"fw_fatal\0", STATE_ERROR, 1));
        for _ in 0..2 {
            assert_eq!(devlink.dump(&|| {}).unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(devlink.reporters().len(), 1);
        std::fs::write(&file, said(REPORTER_GET, NIC, b"fw_fatal\0", HEALTHY, 0)).unwrap(); // the reader comes back
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn the_kernel_of_this_machine_answers_a_dump_or_has_no_devlink() {
        if let Some(mut devlink) = Devlink::of_kernel(Duration::from_secs(5)).unwrap() {
            devlink.dump(&|| {}).unwrap();
        }
    }
}
