//! Which processes have a device node open, by the node's number: names differ between mount namespaces.
//!
//! `/proc/<pid>/fd/<n>` leads to the open file itself, wherever its node is or was:
//! <https://man7.org/linux/man-pages/man5/proc_pid_fd.5.html>. Of a process with another user that needs
//! `CAP_SYS_PTRACE`, and no Landlock: its `ptrace_access_check` refuses processes outside of one's own domain.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

/// Major and minor number of a node.
pub type Number = (u32, u32);

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OpenDevices {
    /// Process and number, each pair once, sorted.
    pub open: Vec<(u32, Number)>,
    /// Number of processes that must not be looked into.
    pub refused: u32,
    /// Number of those that were.
    pub examined: u32,
}

/// The processes that have a node with one of these numbers open. A process that ends meanwhile is left out.
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
            // A FUSE file refuses all others than its own user: it is no device. Else even the link must not be read.
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

/// No question to a server of files: one that is away would hang.
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
