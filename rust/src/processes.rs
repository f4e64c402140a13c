//! Lists the processes that have a device node open. Nodes are compared by number, because names differ between mount
//! namespaces.
//!
//! `/proc/<pid>/fd/<n>` leads to the open file itself, wherever its node is or was:
//! <https://man7.org/linux/man-pages/man5/proc_pid_fd.5.html>. To read it for a process of another user, the reader
//! needs `CAP_SYS_PTRACE` and must not be in a Landlock domain: Landlock's `ptrace_access_check` refuses access to
//! processes outside the domain.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

/// Major and minor number of a node.
pub type Number = (u32, u32);

/// The result of a search for open device nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OpenDevices {
    /// Pairs of process and number, without duplicates, sorted.
    pub open: Vec<(u32, Number)>,
    /// Number of processes that this process may not examine.
    pub refused: u32,
    /// Number of processes that were examined.
    pub examined: u32,
}

/// Finds the processes that have a node with one of these numbers open. A process that ends meanwhile is left out.
///
/// # Errors
/// If `proc` cannot be listed.
pub fn open_devices(proc: &Path, numbers: &BTreeSet<Number>) -> io::Result<OpenDevices> {
    let opened = rustix::fs::openat(CWD, proc, FLAGS, Mode::empty())?;
    let mut found = OpenDevices::default();
    for entry in Dir::read_from(&opened)? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()) else { continue };
        match numbers_of(&opened, pid, numbers) {
            Ok(of_process) => {
                found.open.extend(of_process.into_iter().map(|number| (pid, number)));
                found.examined += 1;
            }
            Err(Errno::ACCESS | Errno::PERM) => found.refused += 1,
            Err(_) => {} // it has ended
        }
    }
    found.open.sort_unstable();
    Ok(found)
}

const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn numbers_of(proc: impl AsFd, pid: u32, wanted: &BTreeSet<Number>) -> Result<BTreeSet<Number>, Errno> {
    let directory = rustix::fs::openat(proc, format!("{pid}/fd"), FLAGS, Mode::empty())?;
    let mut found = BTreeSet::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        if entry.file_name().to_bytes().starts_with(b".") {
            continue;
        }
        match rustix::fs::statx(&directory, entry.file_name(), WITHOUT_WAITING, StatxFlags::TYPE) {
            Ok(status) => {
                let kind = FileType::from_raw_mode(status.stx_mode.into());
                let number = (status.stx_rdev_major, status.stx_rdev_minor);
                if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) && wanted.contains(&number) {
                    found.insert(number);
                }
            }
            // A FUSE file refuses other users than its own; it is no device. For any other file even the link is
            // unreadable.
            Err(Errno::ACCESS | Errno::PERM) => {
                if let Err(refused @ Errno::ACCESS) = rustix::fs::readlinkat(&directory, entry.file_name(), Vec::new())
                {
                    return Err(refused);
                }
            }
            Err(_) => {} // it was closed
        }
    }
    Ok(found)
}

/// Do not ask file servers: a server that is unreachable would hang the reader.
const WITHOUT_WAITING: AtFlags = AtFlags::STATX_DONT_SYNC;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn number_of(path: &str) -> Number {
        let number = fs::metadata(path).unwrap().rdev();
        (rustix::fs::major(number), rustix::fs::minor(number))
    }

    fn open(path: &str) -> OwnedFd {
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    #[test]
    fn a_process_that_has_a_node_open_is_found_by_the_number_while_it_has() {
        let wanted = BTreeSet::from([number_of("/dev/full")]);
        let own = (std::process::id(), number_of("/dev/full"));
        let kept = [open("/dev/full"), open("/dev/full")];
        let look = open_devices(Path::new("/proc"), &wanted).unwrap();
        assert_eq!(look.open.iter().filter(|&&found| found == own).count(), 1, "once, however often it is open");
        drop(kept);
        assert!(!open_devices(Path::new("/proc"), &wanted).unwrap().open.contains(&own));
    }

    #[test]
    fn other_files_and_other_numbers_do_not_count() {
        let _kept = [open("/dev/zero"), open("/proc/self/stat")];
        let look = open_devices(Path::new("/proc"), &BTreeSet::from([(4000, 4000)])).unwrap();
        assert_eq!(look.open, []);
        assert!(open_devices(Path::new("/nonexistent"), &BTreeSet::new()).is_err());
    }
}
