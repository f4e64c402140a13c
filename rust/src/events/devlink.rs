//! Health reporters of devlink: drivers of network cards use them to report the state of their firmware.
//! <https://docs.kernel.org/networking/devlink/devlink-health.html>
//!
//! A dump lists the state of every reporter; the kernel sends each later change to the multicast group `config`. Both
//! cover only the network namespace that devherd runs in. On a simulated node, a file and datagrams stand in for the
//! kernel.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SocketAddrAny};

use super::netlink::{self, Family, LONGEST_DATAGRAM, Message, attributes, messages, text};
use super::simulated_node;
use crate::fence::{Fence, Outcome};

/// Messages read in one call.
const MOST_MESSAGES: usize = 4096;

/// The fence's key for requests to the kernel.
const KERNEL: &str = "devlink";

/// The known health reporters, and the socket on which their changes arrive.
#[derive(Debug)]
pub struct Devlink {
    kernel: Kernel,
    /// Guards every call that waits for the kernel.
    fence: Fence,
    subscription: Option<Subscription>,
    reporters: Reporters,
    is_stale: bool,
}

impl Devlink {
    /// The reporters of this kernel. Sends no request yet; each answer must arrive within the deadline.
    #[must_use]
    pub fn of_kernel(deadline: Duration) -> Self {
        Self::new(Kernel::Real, deadline)
    }

    /// The reporters of the simulated node below `root`.
    #[must_use]
    pub fn of_simulated_node(root: &Path, deadline: Duration) -> Self {
        Self::new(Kernel::Simulated(root.to_owned()), deadline)
    }

    fn new(kernel: Kernel, deadline: Duration) -> Self {
        Self { kernel, fence: Fence::new(deadline), subscription: None, reporters: Reporters::new(), is_stale: true }
    }

    /// The reporters known from dumps and messages so far.
    #[must_use]
    pub fn reporters(&self) -> &Reporters {
        &self.reporters
    }

    /// Whether the known reporters are out of date until the next dump: no dump was taken, or messages were lost.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// The socket, readable when a message is waiting; `None` while there is no subscription.
    #[must_use]
    pub fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.subscription.as_ref().map(|subscription| subscription.socket.as_fd())
    }

    /// Ends the subscription and forgets all reporters; the next dump subscribes again.
    pub fn close(&mut self) {
        self.subscription = None;
        self.reporters = Reporters::new();
        self.is_stale = true;
    }

    /// Reads the messages since the last call, without waiting for new ones.
    ///
    /// # Errors
    /// Errors of `recvfrom`.
    pub fn receive(&mut self) -> io::Result<()> {
        let Some(Subscription { socket, family }) = &self.subscription else { return Ok(()) };
        let mut buffer = vec![0; LONGEST_DATAGRAM];
        for _ in 0..MOST_MESSAGES {
            match rustix::net::recvfrom(socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _, sender)) if self.kernel.trusts(sender.as_ref()) => {
                    let own = messages(&buffer[..length]).filter(|message| message.family == *family);
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

    /// Requests the state of every reporter, and subscribes to later changes. A kernel without devlink has no
    /// reporters. `beat` is called every half second during the wait for the answer.
    ///
    /// # Errors
    /// The kernel's refusal, also of the subscription: some sandboxes refuse the address family. `TimedOut` if the
    /// kernel does not answer in time because it waits for a driver that is being loaded; `WouldBlock` if no thread could
    /// be started, with the cure; the known reporters stay.
    pub fn dump(&mut self, beat: &dyn Fn()) -> io::Result<()> {
        if self.subscription.is_none() {
            self.subscription = self.answer(Kernel::listen, beat)?;
        }
        self.receive()?;
        let Some(Subscription { family, .. }) = self.subscription else { return Ok(()) };
        (self.reporters, self.is_stale) = self.answer(move |kernel| kernel.dump(family), beat)?;
        self.receive()
    }

    /// Sends a request to the kernel behind the fence.
    fn answer<R: Send + 'static>(
        &self,
        ask: impl Fn(&Kernel) -> io::Result<R> + Send + Sync + 'static,
        beat: &dyn Fn(),
    ) -> io::Result<R> {
        let key = |_: &Kernel| KERNEL.to_owned();
        let ask = move |kernel: Kernel| ask(&kernel);
        match self.fence.each_within(self.fence.deadline(), vec![self.kernel.clone()], key, ask, beat).pop() {
            Some(Outcome::Done(answer)) => answer,
            Some(Outcome::Panicked(message)) => Err(io::Error::other(message)),
            Some(Outcome::NotStarted(why)) => Err(io::Error::new(io::ErrorKind::WouldBlock, why)),
            Some(Outcome::Overdue) | None => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Names from `linux/devlink.h`.
const NAME: &str = "devlink";
const GROUP: &str = "config";

/// The family number on a simulated node; the kernel assigns a number of its own.
const SIMULATED_FAMILY: u16 = 0x20;
/// The file below a simulated node's root that stands in for a dump.
const SIMULATED_DUMP: &str = ".devherd-devlink";

/// The source of dumps and messages.
#[derive(Debug, Clone)]
enum Kernel {
    /// The running kernel.
    Real,
    /// The simulated node below a directory.
    Simulated(PathBuf),
}

/// A socket on which changes of reporters arrive.
#[derive(Debug)]
struct Subscription {
    /// Non-blocking.
    socket: OwnedFd,
    /// The family number of devlink's messages.
    family: u16,
}

impl Kernel {
    /// Subscribes to changes; `None` if the kernel has no devlink. Blocks until the kernel answers.
    ///
    /// # Errors
    /// Errors of `socket`, `bind` and `setsockopt`: some sandboxes refuse the address family. On a simulated node,
    /// errors of [`simulated_node::listen`].
    fn listen(&self) -> io::Result<Option<Subscription>> {
        if let Self::Simulated(root) = self {
            let socket = simulated_node::listen(NAME, root)?;
            return Ok(Some(Subscription { socket, family: SIMULATED_FAMILY }));
        }
        let family = Family::named(NAME)?;
        let Some((family, group)) = family.and_then(|family| Some((family.id, family.group(GROUP)?))) else {
            return Ok(None);
        };
        Ok(Some(Subscription { socket: netlink::subscribed(group)?, family }))
    }

    /// Lists all reporters; true if any may have changed meanwhile. Blocks until the kernel answers; the kernel may
    /// wait for a driver.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn dump(&self, family: u16) -> io::Result<(Reporters, bool)> {
        let mut reporters = Reporters::new();
        let mut news = false;
        let take = &mut |message: Message<'_>| news |= take_in(&mut reporters, message);
        let is_whole = match self {
            Self::Real => netlink::dump(family, REPORTER_GET, take)?,
            Self::Simulated(root) => {
                messages(&simulated_dump(root)?).for_each(take);
                true
            }
        };
        Ok((reporters, news || !is_whole))
    }

    /// Whether a message comes from the kernel, whose port is 0. A process with `CAP_NET_ADMIN` can also send to a
    /// netlink socket, but from another port.
    fn trusts(&self, sender: Option<&SocketAddrAny>) -> bool {
        let address = || sender.and_then(|sender| SocketAddrNetlink::try_from(sender.clone()).ok());
        matches!(self, Self::Simulated(_)) || address().is_some_and(|sender| sender.pid() == 0)
    }
}

#[expect(clippy::disallowed_methods, reason = "no attribute: a file of the simulated node's own, of any size")]
fn simulated_dump(root: &std::path::Path) -> io::Result<Vec<u8>> {
    match std::fs::read(root.join(SIMULATED_DUMP)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        dump => dump,
    }
}

/// Numbers from `linux/devlink.h`.
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
/// Only reporters that can recover have a grace period.
const REPORTER_GRACE: u16 = 120;
const STATE_ERROR: u8 = 1;

/// Device and name of a reporter.
type Place = (String, String);

/// The state of a reporter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// Whether it reports an error.
    pub is_in_error: bool,
    /// Total number of errors that the reporter has reported.
    pub errors: u64,
    /// Whether its driver can recover from errors; otherwise the reporter stays in error.
    pub recovers: bool,
}

/// Reporters by device (`pci/0000:3b:00.0`) and name (`fw_fatal`), without the reporters of ports.
pub type Reporters = BTreeMap<Place, State>;

/// Applies a message; true if the kernel may have reporters that no message has listed yet.
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

/// The device of a message: `pci/0000:3b:00.0`. `None` if the message concerns one of the device's ports.
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

    use super::*;
    use crate::events::netlink::{encoded, messages};

    fn simulated() -> (tempfile::TempDir, Devlink) {
        let root = tempfile::tempdir().unwrap();
        let mut devlink = Devlink::of_simulated_node(root.path(), Duration::from_secs(5));
        assert!(devlink.is_stale() && devlink.readable().is_none());
        devlink.dump(&|| {}).unwrap();
        assert!(devlink.readable().is_some());
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
    fn a_dump_is_the_state_and_later_messages_change_it() {
        let (root, mut devlink) = simulated();
        std::fs::write(
            root.path().join(SIMULATED_DUMP),
            reporter_message(REPORTER_GET, NIC, b"fw_fatal\0", HEALTHY, 0),
        )
        .unwrap();
        devlink.dump(&|| {}).unwrap();
        assert!(!devlink.is_stale() && !devlink.reporters()[&place("0000:3b:00.0", "fw_fatal")].is_in_error);
        send(root.path(), &reporter_message(REPORTER_RECOVER, NIC, b"fw_fatal\0", STATE_ERROR, 1));
        send(root.path(), &about(NEW, OTHER));
        devlink.receive().unwrap();
        assert!(devlink.is_stale() && devlink.reporters()[&place("0000:3b:00.0", "fw_fatal")].is_in_error);
        std::fs::write(root.path().join(SIMULATED_DUMP), "").unwrap();
        devlink.dump(&|| {}).unwrap();
        assert_eq!((devlink.is_stale(), devlink.reporters().len()), (false, 0), "a dump has all there are");
    }

    #[test]
    fn a_dump_that_hangs_leaves_what_is_known_and_is_not_waited_for_twice() {
        let root = tempfile::tempdir().unwrap();
        let deadline = Duration::from_millis(20);
        let mut devlink = Devlink::of_simulated_node(root.path(), deadline);
        devlink.dump(&|| {}).unwrap();
        let file = root.path().join(SIMULATED_DUMP);
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        send(root.path(), &reporter_message(REPORTER_RECOVER, NIC, b"fw_fatal\0", STATE_ERROR, 1));
        for _ in 0..2 {
            assert_eq!(devlink.dump(&|| {}).unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(devlink.reporters().len(), 1);
        std::fs::write(&file, reporter_message(REPORTER_GET, NIC, b"fw_fatal\0", HEALTHY, 0)).unwrap(); // the reader comes back
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn the_kernel_of_this_machine_answers_a_dump_or_has_no_devlink() {
        let mut devlink = Devlink::of_kernel(Duration::from_secs(5));
        devlink.dump(&|| {}).unwrap();
        assert!(devlink.readable().is_some() || devlink.reporters().is_empty());
        devlink.close();
        assert!(devlink.readable().is_none() && devlink.is_stale());
    }

    #[test]
    fn a_kernel_that_does_not_say_what_it_has_is_not_waited_for_longer_than_allowed() {
        let devlink = Devlink::of_kernel(Duration::from_millis(20));
        let (gate, hangs) = std::sync::mpsc::channel::<()>();
        let hangs = std::sync::Mutex::new(hangs);
        let listen = move |_: &Kernel| {
            hangs.lock().map(|gate| gate.recv()).ok();
            Ok(None::<Subscription>)
        };
        assert_eq!(devlink.answer(listen, &|| {}).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let again = devlink.answer(Kernel::listen, &|| {});
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::TimedOut, "no second thread waits for it");
        drop(gate);
        let began = std::time::Instant::now();
        while devlink.answer(|_| Ok(()), &|| {}).is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "the kernel never came back");
        }
    }

    const NIC: &[u8] = b"0000:3b:00.0\0";
    const OTHER: &[u8] = b"0000:5e:00.0\0";
    const HEALTHY: u8 = 0;

    fn nested(given: &[(u16, &[u8])]) -> Vec<u8> {
        encoded(0, 0, 0, given)[20..].to_vec()
    }

    /// The kernel's message about a reporter.
    fn reporter_message(command: u8, device: &[u8], name: &[u8], state: u8, errors: u64) -> Vec<u8> {
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
            reporter_message(REPORTER_GET, NIC, b"fw_fatal\0", HEALTHY, 0),
            reporter_message(REPORTER_GET, OTHER, b"fw_fatal\0", HEALTHY, 2),
            reporter_message(REPORTER_RECOVER, NIC, b"fw_fatal\0", STATE_ERROR, 1),
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
        let known = reporter_message(REPORTER_GET, NIC, b"fw_fatal\0", STATE_ERROR, 1);
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
        let known = reporter_message(REPORTER_GET, NIC, b"fw_fatal\0", HEALTHY, 0);
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
}
