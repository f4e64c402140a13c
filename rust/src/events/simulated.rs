//! Where programs listen to a simulated node: datagram sockets with abstract names, to all of which the node sends.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Programs that can listen to one thing of one simulated node at a time.
const MOST_LISTENERS: u32 = 64;

/// A socket to which the simulated node below `root` sends its `what`: every socket whose abstract name is
/// `devherd-<what>-<device>-<inode>-<number>`, with the device and inode of `root`, gets them.
///
/// # Errors
/// Those of `stat`, `socket` and `bind`; `EADDRINUSE` when too many others listen to this node.
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
