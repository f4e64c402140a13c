//! What is at a path where a device node should be.

use std::path::Path;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::host::Host;
use crate::host::resolve::followed;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The node, or on a simulated node a plain file that stands for it.
    Node,
    /// Something that this process may not look at.
    Hidden(Errno),
    /// Nothing, or something else; what, in words.
    Other(String),
}

/// Whether a device node of this number (`None`: any) is at a path of the host, a link followed as the host does.
#[must_use]
pub fn at(host: &Host, path: &Path, number: Option<(u32, u32)>) -> Place {
    let place = host.absolute(path);
    // Most nodes are no links, and then this is the only system call.
    match rustix::fs::lstat(&place) {
        Ok(found) if !is_link(&found) => judged(host, Ok(found), number),
        Ok(_) => match rustix::fs::stat(followed(host, path)) {
            Err(Errno::NOENT) => Place::Other("a link that leads nowhere".to_owned()),
            found => judged(host, found, number),
        },
        Err(_) => judged(host, rustix::fs::stat(followed(host, path)), number),
    }
}

fn is_link(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Symlink
}

/// What the kernel's answer for a path, links followed, makes it.
#[must_use]
pub fn judged(host: &Host, found: Result<Stat, Errno>, number: Option<(u32, u32)>) -> Place {
    let found = match found {
        Ok(found) => found,
        Err(errno @ (Errno::ACCESS | Errno::PERM)) => return Place::Hidden(errno),
        Err(Errno::NOENT | Errno::NOTDIR) => return Place::Other("absent".to_owned()),
        Err(errno) => return Place::Other(errno.to_string()),
    };
    let own = (rustix::fs::major(found.st_rdev), rustix::fs::minor(found.st_rdev));
    let instead = match FileType::from_raw_mode(found.st_mode) {
        FileType::CharacterDevice | FileType::BlockDevice if number.is_none_or(|number| number == own) => {
            return Place::Node;
        }
        FileType::CharacterDevice | FileType::BlockDevice => format!("number {}:{}", own.0, own.1),
        FileType::RegularFile if host.is_simulated() => return Place::Node,
        FileType::RegularFile => "a regular file".to_owned(),
        FileType::Directory => "a directory".to_owned(),
        FileType::Fifo => "a FIFO".to_owned(),
        FileType::Socket => "a socket".to_owned(),
        _ => "no device node".to_owned(),
    };
    Place::Other(instead)
}
