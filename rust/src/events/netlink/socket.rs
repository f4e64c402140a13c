//! Sockets of generic netlink: one for each question, and one that listens.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::message::{Message, Part, encoded, parts};

/// Of `linux/netlink.h`.
const REQUEST: u16 = 0x1;
const DUMP: u16 = 0x300;

/// What the kernel sends at most in one datagram of a dump, where the reader has the room.
pub(in crate::events) const LONGEST_DATAGRAM: usize = 32 << 10;

/// Asks for everything of a kind; whether it is all of one moment. Waits for the kernel, which may wait for a driver.
pub(in crate::events) fn dump(family: u16, command: u8, take: &mut dyn FnMut(Message<'_>)) -> io::Result<bool> {
    ask(family, command, &[], true, take)
}

/// Sends a request and takes in the answer, to its end; whether that is all of one moment.
pub(super) fn ask(
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
            continue; // a process with CAP_NET_ADMIN may write to the socket, too
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

/// A socket on which messages of this group arrive, never waited for.
pub(in crate::events) fn listening(group: u32) -> io::Result<OwnedFd> {
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
    use super::*;

    #[test]
    fn what_the_kernel_refuses_is_an_error() {
        let error = dump(0x3ff, 1, &mut |_| {}).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOENT.raw_os_error()));
    }
}
