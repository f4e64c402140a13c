//! The table of mounts: which directories answer from memory, so that looking at them cannot hang.
//!
//! <https://docs.kernel.org/filesystems/proc.html>, 3.5 "`/proc/<pid>/mountinfo`". Asking the file system itself with
//! statfs(2) would wait for its server.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};

const TABLE: &str = "/proc/self/mountinfo";

/// File systems with names and inodes in memory only. Their inode numbers count up, so a file that replaces another
/// never gets the same number.
const IN_MEMORY: [&str; 3] = ["devtmpfs", "tmpfs", "ramfs"];

/// The mounts that this process sees, read again when the kernel reports a change.
#[derive(Debug)]
pub struct Mounts {
    file: File,
    table: Vec<Mount>,
    /// How often the table was read.
    reading: u64,
}

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    is_in_memory: bool,
}

impl Mounts {
    /// Opens the table and reads it.
    ///
    /// # Errors
    /// If /proc is missing or incomplete.
    pub fn open() -> io::Result<Self> {
        let file = File::from(openat(CWD, TABLE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
        let mut mounts = Self { file, table: Vec::new(), reading: 0 };
        mounts.read()?;
        Ok(mounts)
    }

    /// Number of the current reading of the table: the same number means that nothing was mounted or unmounted.
    ///
    /// # Errors
    /// If the table cannot be read again.
    pub fn reading(&mut self) -> io::Result<u64> {
        let mut polled = [PollFd::new(&self.file, PollFlags::PRI)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        if polled[0].revents().intersects(PollFlags::PRI | PollFlags::ERR) {
            self.read()?;
        }
        Ok(self.reading)
    }

    fn read(&mut self) -> io::Result<()> {
        let mut table = Vec::new();
        self.reading += 1;
        self.table.clear();
        self.file.rewind()?;
        self.file.read_to_end(&mut table)?;
        self.table = parse(&table);
        Ok(())
    }

    /// Whether a path without links, as this process names it, is on a file system in memory, and so is every mount
    /// above it except the root: if that hangs, so does this program.
    #[must_use]
    pub fn answers_from_memory(&self, path: &Path) -> bool {
        let on_the_way = |mount: &&Mount| mount.point != Path::new("/") && path.starts_with(&mount.point);
        let mut on_the_way = self.table.iter().filter(on_the_way).peekable();
        on_the_way.peek().is_some() && on_the_way.all(|mount| mount.is_in_memory)
    }
}

fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw`: the fifth field is the mount point, the one after the
/// dash the type.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let point = unescaped(fields.nth(4)?);
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    let is_in_memory = IN_MEMORY.iter().any(|name| name.as_bytes() == kind);
    Some(Mount { point: PathBuf::from(OsString::from_vec(point)), is_in_memory })
}

/// Decodes `\040`: blanks, tabs, line ends and backslashes are written as octal numbers.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, others @ ..] = rest {
        let number = others.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        let number = number.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(number.unwrap_or(*first));
        rest = &others[if number.is_some() { 3 } else { 0 }..];
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw,mode=755
26 24 0:24 / /dev/pts rw,relatime - devpts devpts rw
40 27 0:40 / /run rw shared:2 master:1 - tmpfs tmpfs rw
41 40 0:41 / /run/share rw - nfs4 server:/export rw,hard
42 41 0:42 / /run/share/memory rw - tmpfs tmpfs rw
43 24 0:43 / /dev/with\\040blank rw - fuse.sshfs host:/ rw
44 24 0:44 / /dev/covered rw - nfs4 server:/export rw
45 44 0:45 / /dev/covered rw - tmpfs tmpfs rw
";

    fn mounts(table: &str) -> Mounts {
        Mounts { table: parse(table.as_bytes()), ..Mounts::open().unwrap() }
    }

    #[test]
    fn only_what_is_in_memory_all_the_way_answers_from_memory() {
        let mounts = mounts(SEEN);
        for (path, expected) in [
            ("/dev", true),
            ("/dev/snd", true),
            ("/dev/pts", false),
            ("/devices", false),
            ("/run/x", true),
            ("/run/share", false),
            ("/run/share/memory", false),
            ("/dev/with blank/x", false),
            ("/dev/with", true),
            ("/dev/covered", false),
            ("/", false),
            ("/home", false),
        ] {
            assert_eq!(mounts.answers_from_memory(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn a_root_on_a_network_file_system_does_not_make_dev_one() {
        let mounts = mounts("1 0 0:1 / / rw - nfs4 server:/root rw\n2 1 0:6 / /dev rw - devtmpfs devtmpfs rw\n");
        assert!(mounts.answers_from_memory(Path::new("/dev")));
        assert!(!mounts.answers_from_memory(Path::new("/etc")));
    }

    #[test]
    fn a_line_that_makes_no_sense_is_no_mount() {
        assert_eq!(parse(b"\n1 2 3\n1 2 0:3 / /x rw -\n\xff\n"), []);
        assert_eq!(unescaped(b"\\134\\9\\04"), b"\\\\9\\04");
    }

    #[test]
    fn the_kernels_own_table_holds_still_while_nothing_is_mounted() {
        let mut mounts = Mounts::open().unwrap();
        assert!(mounts.table.iter().any(|mount| mount.point == Path::new("/")));
        // Other programs of this machine may mount something once, hardly each time.
        assert!((0..1000).any(|_| mounts.reading().unwrap() == mounts.reading().unwrap()));
    }
}
