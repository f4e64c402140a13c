//! The kernel log of a simulated node: its file `dev/kmsg` has the records as the device gives them, one after the other, and a
//! datagram to each listener says that there are more.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::simulated;

/// One reader of it.
#[derive(Debug)]
pub(super) struct SimulatedLog {
    file: OwnedFd,
    bell: OwnedFd,
    offset: u64,
    /// What was read of the file, and is not taken yet.
    ahead: VecDeque<u8>,
}

impl SimulatedLog {
    /// The log in `file` of the node below `root`.
    ///
    /// # Errors
    /// Those of [`simulated::listen`].
    pub(super) fn new(file: OwnedFd, root: &Path) -> io::Result<Self> {
        Ok(Self { file, bell: simulated::listen("kernel-log", root)?, offset: 0, ahead: VecDeque::new() })
    }

    /// The length of the next record; `None` when there is none by now. One that is too long is left out, as the device does.
    ///
    /// # Errors
    /// Those of `recv`, `fstat` and `pread`.
    pub(super) fn next(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            if self.ahead.is_empty() {
                self.silence_bell()?;
                self.begin_again_where_written_anew()?;
            }
            while self.length_of_first().is_none() && self.read_on(buffer)? {}
            // What is written comes whole: at the end of the file a record ends.
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

    /// Up to the next line that does not begin with a space; `None` while that is not seen yet.
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

    fn begin_again_where_written_anew(&mut self) -> io::Result<()> {
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
