//! Who says how health reporters are: the kernel, or a simulated node in its place.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::net::SocketAddrAny;
use rustix::net::netlink::SocketAddrNetlink;

use super::super::netlink::{self, Family, Message, messages};
use super::super::simulated;
use super::reporters::{REPORTER_GET, Reporters, take_in};

/// Of `linux/devlink.h`.
const NAME: &str = "devlink";
const GROUP: &str = "config";

/// Of a simulated node, where the kernel gives a number of its own.
pub(super) const SIMULATED_FAMILY: u16 = 0x20;
/// What a dump of a simulated node is read from, below its root.
pub(super) const SIMULATED_DUMP: &str = ".devherd-devlink";

/// Who is asked and heard.
#[derive(Debug, Clone)]
pub(super) enum Kernel {
    /// The kernel that this runs on.
    Real,
    /// The simulated node below a directory.
    Simulated(PathBuf),
}

/// What is heard from it.
#[derive(Debug)]
pub(super) struct Listening {
    /// Never waited for.
    pub(super) socket: OwnedFd,
    /// The number that messages of devlink have.
    pub(super) family: u16,
}

impl Kernel {
    /// Listens from now on; `None` where the kernel has no devlink. Waits for the kernel.
    ///
    /// # Errors
    /// Those of `socket`, `bind` and `setsockopt`: some sandboxes refuse the family. Of a simulated node those of
    /// [`simulated::listen`].
    pub(super) fn listen(&self) -> io::Result<Option<Listening>> {
        if let Self::Simulated(root) = self {
            let socket = simulated::listen(NAME, root)?;
            return Ok(Some(Listening { socket, family: SIMULATED_FAMILY }));
        }
        let family = Family::named(NAME)?;
        let Some((family, group)) = family.and_then(|family| Some((family.id, family.group(GROUP)?))) else {
            return Ok(None);
        };
        Ok(Some(Listening { socket: netlink::listening(group)?, family }))
    }

    /// All reporters, and whether something has changed while they were listed. Waits for the kernel, which may wait for a
    /// driver.
    ///
    /// # Errors
    /// What the kernel refuses with.
    pub(super) fn dump(&self, family: u16) -> io::Result<(Reporters, bool)> {
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

    /// A process with `CAP_NET_ADMIN` may send to a netlink socket too, under its own port: the kernel's is 0.
    pub(super) fn trusts(&self, sender: Option<&SocketAddrAny>) -> bool {
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
