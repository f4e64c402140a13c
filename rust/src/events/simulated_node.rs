//! Sockets on which programs receive messages from a simulated node, and a reader of the node's kernel log.
//!
//! Listeners are datagram sockets with abstract names; the node sends to all of them. The file `dev/kmsg` of the node
//! holds records in the device's format, one after the other; a datagram to each listener announces new records.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};

/// Limit of programs that listen to one kind of message of one simulated node at the same time.
const MOST_LISTENERS: u32 = 64;

/// A socket that receives the messages of kind `what` from the simulated node below `root`. The node sends to every
/// socket whose abstract name is `devherd-<what>-<device>-<inode>-<number>`, with the device and inode of `root`.
///
/// # Errors
/// Errors of `stat`, `socket` and `bind`; `EADDRINUSE` when too many others listen to this node.
pub(super) fn listen(what: &str, root: &Path) -> io::Result<OwnedFd> {
    let root = rustix::fs::stat(root)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    for number in 0..MOST_LISTENERS {
        let name = format!("devherd-{what}-{}-{}-{number}", root.st_dev, root.st_ino);
        match rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?) {
            Ok(()) => return Ok(socket),
            Err(Errno::ADDRINUSE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::ADDRINUSE.into())
}

/// A reader of a simulated node's kernel log.
#[derive(Debug)]
pub(super) struct SimulatedLog {
    file: OwnedFd,
    bell: OwnedFd,
    offset: u64,
    /// Bytes that were read from the file and do not belong to a returned record yet.
    ahead: VecDeque<u8>,
}

impl SimulatedLog {
    /// A reader of the log in `file`; `root` is the root of the node.
    ///
    /// # Errors
    /// Errors of [`listen`].
    pub(super) fn new(file: OwnedFd, root: &Path) -> io::Result<Self> {
        Ok(Self { file, bell: listen("kernel-log", root)?, offset: 0, ahead: VecDeque::new() })
    }

    /// The length of the next record in bytes; `None` if no record is waiting. Overlong records are skipped, as on the
    /// real device.
    ///
    /// # Errors
    /// Errors of `recv`, `fstat` and `pread`.
    pub(super) fn next(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            if self.ahead.is_empty() {
                self.silence_bell()?;
                self.begin_again_if_rewritten()?;
            }
            while self.length_of_first().is_none() && self.read_on(buffer)? {}
            // Writers write whole records, so the end of the file is also the end of a record.
            let length = self.length_of_first().unwrap_or(self.ahead.len());
            let fits = length <= buffer.len();
            for (place, byte) in self.ahead.drain(..length).enumerate().take(buffer.len()) {
                buffer[place] = byte;
            }
            if fits {
                return Ok((length > 0).then_some(length));
            }
        }
    }

    /// The offset of the next line that does not begin with a space; `None` if that line has not been read yet.
    fn length_of_first(&self) -> Option<usize> {
        let mut bytes = self.ahead.iter().zip(self.ahead.iter().skip(1));
        bytes.position(|(&byte, &following)| byte == b'\n' && following != b' ').map(|place| place + 1)
    }

    fn read_on(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let length = rustix::io::pread(&self.file, &mut *buffer, self.offset)?;
        self.offset += length as u64;
        self.ahead.extend(&buffer[..length]);
        Ok(length > 0)
    }

    fn begin_again_if_rewritten(&mut self) -> io::Result<()> {
        let size = u64::try_from(rustix::fs::fstat(&self.file)?.st_size).unwrap_or(0);
        if size < self.offset {
            self.offset = 0;
        }
        Ok(())
    }

    fn silence_bell(&self) -> io::Result<()> {
        loop {
            match rustix::net::recv(&self.bell, &mut [0; 1], RecvFlags::empty()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for SimulatedLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
