//! An attribute that is read again and again: opened once, one `pread` a time, opened anew when its object was replaced.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::CWD;
use rustix::io::{Errno, pread, retry_on_intr};

use crate::host::attribute::{Cause, open, read_open};

/// How long files stay open, and when an open one is no longer to be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeping {
    /// Whether the file stays open between two reads.
    pub open: bool,
    /// Whether the file may be replaced without its open descriptor saying so. The kernel's sysfs says `ENODEV` when the
    /// object is gone; a file of another file system, a simulated tree's, can be read for ever after it was deleted.
    pub check_links: bool,
}

/// An attribute, and its descriptor while it is open.
#[derive(Debug)]
pub(super) struct KeptFile {
    path: PathBuf,
    file: Option<OwnedFd>,
}

impl KeptFile {
    /// Opens nothing yet.
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None }
    }

    /// What the attribute says now, and whether it had to be opened for that.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn read(&mut self, keeping: Keeping) -> Result<(String, bool), Cause> {
        self.read_by(keeping, |file| read_open(file))
    }

    /// The first bytes of the file, where it has so many.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn first_bytes<const N: usize>(&mut self, keeping: Keeping) -> Result<Option<[u8; N]>, Cause> {
        let read = |file: &OwnedFd| {
            let mut bytes = [0_u8; N];
            let length = retry_on_intr(|| pread(file, &mut bytes[..], 0)).map_err(Cause::System)?;
            Ok((length == N).then_some(bytes))
        };
        Ok(self.read_by(keeping, read)?.0)
    }

    /// Closes the file; the next read opens it again.
    pub(super) fn close(&mut self) {
        self.file = None;
    }

    fn read_by<T>(
        &mut self,
        keeping: Keeping,
        read: impl Fn(&OwnedFd) -> Result<T, Cause>,
    ) -> Result<(T, bool), Cause> {
        if let Some(file) = &self.file {
            if !(keeping.check_links && is_deleted(file)) {
                match read(file) {
                    Err(cause) if cause.is_absent() || cause == Cause::System(Errno::STALE) => {}
                    read => return Ok((read?, false)),
                }
            }
            self.file = None;
        }
        let file = open(CWD, &self.path)?;
        let content = read(&file);
        self.file = keeping.open.then_some(file);
        Ok((content?, true))
    }
}

fn is_deleted(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|found| found.st_nlink == 0)
}

#[cfg(test)]
mod tests {
    use std::fs::{remove_file, write};

    use super::*;

    const KEPT: Keeping = Keeping { open: true, check_links: true };

    #[test]
    fn an_attribute_is_opened_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("errors");
        write(&path, "0x0\n").unwrap();
        let mut file = KeptFile::new(&path);
        assert_eq!(file.read(KEPT), Ok(("0x0\n".into(), true)));
        write(&path, "0x1\n").unwrap();
        assert_eq!(file.read(KEPT), Ok(("0x1\n".into(), false)));
    }

    #[test]
    fn an_attribute_that_went_and_came_back_is_opened_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("errors");
        let mut file = KeptFile::new(&path);
        assert!(file.read(KEPT).unwrap_err().is_absent());
        write(&path, "0x0").unwrap();
        assert_eq!(file.read(KEPT), Ok(("0x0".into(), true)));
        remove_file(&path).unwrap();
        assert!(file.read(KEPT).unwrap_err().is_absent());
        write(&path, "0x1").unwrap();
        assert_eq!(file.read(KEPT), Ok(("0x1".into(), true)));
    }

    #[test]
    fn a_file_that_may_not_stay_open_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("errors");
        write(&path, "0x0").unwrap();
        let mut file = KeptFile::new(&path);
        for _ in 0..2 {
            assert_eq!(file.read(Keeping { open: false, ..KEPT }), Ok(("0x0".into(), true)));
            assert!(file.file.is_none());
        }
    }
}
