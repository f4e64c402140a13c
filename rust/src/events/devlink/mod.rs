//! Health reporters of devlink: what drivers of network cards say of their firmware.
//!
//! <https://docs.kernel.org/networking/devlink/devlink-health.html>; a dump has the state of each, and a message to the
//! group `config` each change. Both are of the network namespace that devherd runs in.

mod kernel;
mod reporters;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::netlink::{LONGEST_DATAGRAM, messages};
use crate::fence::{Fence, Outcome};
use kernel::{Kernel, Listening};
use reporters::take_in;
pub use reporters::{Reporters, State};

/// Messages taken in one go.
const MOST_MESSAGES: usize = 4096;

/// What the fence knows the kernel by.
const KERNEL: &str = "devlink";

/// What is known of reporters, and where more is heard.
#[derive(Debug)]
pub struct Devlink {
    kernel: Kernel,
    /// Before everything that waits for the kernel.
    fence: Fence,
    listening: Option<Listening>,
    reporters: Reporters,
    is_stale: bool,
}

impl Devlink {
    /// Of the kernel, which is not asked yet. It has to answer within the deadline.
    #[must_use]
    pub fn of_kernel(deadline: Duration) -> Self {
        Self::new(Kernel::Real, deadline)
    }

    /// Of the simulated node below `root`.
    #[must_use]
    pub fn of_simulated_node(root: &Path, deadline: Duration) -> Self {
        Self::new(Kernel::Simulated(root.to_owned()), deadline)
    }

    fn new(kernel: Kernel, deadline: Duration) -> Self {
        Self { kernel, fence: Fence::new(deadline), listening: None, reporters: Reporters::new(), is_stale: true }
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

    /// Readable when something was said; `None` while nobody listens.
    #[must_use]
    pub fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.listening.as_ref().map(|listening| listening.socket.as_fd())
    }

    /// Listens no longer, and knows nothing, until the next dump.
    pub fn close(&mut self) {
        self.listening = None;
        self.reporters = Reporters::new();
        self.is_stale = true;
    }

    /// Takes in the messages since the last call, without waiting for any.
    ///
    /// # Errors
    /// Those of `recvfrom`.
    pub fn hear(&mut self) -> io::Result<()> {
        let Some(Listening { socket, family }) = &self.listening else { return Ok(()) };
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

    /// Asks for the state of every reporter; a kernel without devlink has none. What changes from then on is heard. `beat` is
    /// called every half second while it is waited.
    ///
    /// # Errors
    /// What the kernel refuses with, also to listen: some sandboxes refuse the family of sockets. `TimedOut` where it does
    /// not answer in time, since it waits for a driver that is being loaded; what is known stays.
    pub fn dump(&mut self, beat: &dyn Fn()) -> io::Result<()> {
        if self.listening.is_none() {
            self.listening = self.answer(Kernel::listen, beat)?;
        }
        self.hear()?;
        let Some(Listening { family, .. }) = self.listening else { return Ok(()) };
        (self.reporters, self.is_stale) = self.answer(move |kernel| kernel.dump(family), beat)?;
        self.hear()
    }

    /// What the kernel answers, behind the fence.
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
            Some(Outcome::Overdue | Outcome::NotStarted) | None => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{SendFlags, SocketAddrUnix, SocketType};

    use super::kernel::SIMULATED_DUMP;
    use super::reporters::tests::{HEALTHY, NIC, OTHER, about, place, said};
    use super::reporters::{NEW, REPORTER_GET, REPORTER_RECOVER, STATE_ERROR};
    use super::*;

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
    fn a_dump_is_the_state_and_what_was_said_since_then_changes_it() {
        let (root, mut devlink) = simulated();
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
        let mut devlink = Devlink::of_simulated_node(root.path(), deadline);
        devlink.dump(&|| {}).unwrap();
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
            Ok(None::<Listening>)
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
}
