//! An attribute that is read again and again: opened once, one `pread` for each read, opened again if its object was
//! replaced.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::{Errno, pread, retry_on_intr};

use crate::host::attribute::{Cause, open, read_open};

/// How long files stay open, and when an open file can no longer be trusted.
#[derive(Debug, Clone, Copy)]
pub struct Keeping<'r> {
    /// Whether the file stays open between two reads.
    pub open: bool,
    /// Whether the file may be replaced without an error from its open descriptor. The kernel's sysfs returns `ENODEV`
    /// when the object is gone; on other file systems, such as a simulated tree, a deleted file can be read for ever.
    pub check_links: bool,
    /// What was read during this look at the card; `None` if each subject reads for itself.
    pub read_once: Option<&'r ReadOnce>,
}

/// An attribute, and its descriptor while it is open.
#[derive(Debug)]
pub(super) struct KeptFile {
    path: PathBuf,
    file: Option<OwnedFd>,
    /// Whether other subjects of the card read it, too.
    is_shared: bool,
}

impl KeptFile {
    /// A file that is not open yet.
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None, is_shared: false }
    }

    /// An attribute that several subjects of a card read: it is read once in each look at the card and never stays
    /// open, because no subject knows whether another has it open.
    pub(super) fn shared(path: impl Into<PathBuf>) -> Self {
        Self { is_shared: true, ..Self::new(path) }
    }

    /// The current content, and whether the file had to be opened.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn read(&mut self, keeping: Keeping<'_>) -> Result<(String, bool), Cause> {
        if !self.is_shared {
            return self.read_by(keeping, |file| read_open(file));
        }
        let known = keeping.read_once.and_then(|read_once| read_once.text(&self.path));
        if let Some(text) = known {
            return Ok((text?, false));
        }
        let read = self.read_by(Keeping { open: false, ..keeping }, |file| read_open(file));
        if let Some(read_once) = keeping.read_once {
            read_once.keep(&self.path, read.as_ref().map(|(text, _)| text.clone()).map_err(Clone::clone));
        }
        read
    }

    /// The first bytes of the file; `None` if it is shorter.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn first_bytes<const N: usize>(&mut self, keeping: Keeping<'_>) -> Result<Option<[u8; N]>, Cause> {
        let read = |file: &OwnedFd| {
            let mut bytes = [0_u8; N];
            let length = retry_on_intr(|| pread(file, &mut bytes[..], 0)).map_err(Cause::System)?;
            Ok((length == N).then_some(bytes))
        };
        Ok(self.read_by(keeping, read)?.0)
    }

    /// Number of descriptors that it keeps open at most.
    pub(super) fn most_open(&self) -> u64 {
        u64::from(!self.is_shared)
    }

    /// Closes the file; the next read opens it again.
    pub(super) fn close(&mut self) {
        self.file = None;
    }

    fn read_by<T>(
        &mut self,
        keeping: Keeping<'_>,
        read: impl Fn(&OwnedFd) -> Result<T, Cause>,
    ) -> Result<(T, bool), Cause> {
        if let Some(file) = self.file.take() {
            if !(keeping.check_links && is_deleted(&file)) {
                match read(&file) {
                    Err(cause) if cause.is_absent() || cause == Cause::System(Errno::STALE) => {}
                    read => {
                        self.file = keeping.open.then_some(file);
                        return Ok((read?, false));
                    }
                }
            }
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

/// Attributes that several subjects of a card read, with their content or error, during one look at the card. A look is
/// one thread's.
#[derive(Debug, Default)]
pub struct ReadOnce(RefCell<Vec<(PathBuf, Result<String, Cause>)>>);

impl ReadOnce {
    /// The content or error, if the attribute was read during this look.
    pub(super) fn text(&self, path: &Path) -> Option<Result<String, Cause>> {
        let read = self.0.borrow();
        let of_path = read.iter().find(|(read, _)| read.as_os_str() == path.as_os_str());
        of_path.map(|(_, content)| content.clone())
    }

    /// Keeps the content or error for the rest of the look.
    fn keep(&self, path: &Path, content: Result<String, Cause>) {
        self.0.borrow_mut().push((path.to_path_buf(), content));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{remove_file, write};

    use super::*;

    const KEPT: Keeping = Keeping { open: true, check_links: true, read_once: None };

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
    fn an_attribute_that_went_and_came_back_is_opened_again() {
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

    #[test]
    fn a_file_that_may_no_longer_stay_open_is_closed_after_the_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("errors");
        write(&path, "0x0").unwrap();
        let mut file = KeptFile::new(&path);
        assert_eq!(file.read(KEPT), Ok(("0x0".into(), true)));
        assert!(file.file.is_some());
        assert_eq!(file.read(Keeping { open: false, ..KEPT }), Ok(("0x0".into(), false)));
        assert!(file.file.is_none());
    }

    #[test]
    fn an_attribute_of_several_subjects_is_read_once_in_a_look_at_the_card() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("aer_dev_correctable");
        let mut subjects = [KeptFile::shared(&path), KeptFile::shared(&path)];
        let mut others = [KeptFile::new(&path)];
        let read = |files: &mut [KeptFile], look: &ReadOnce| {
            let keeping = Keeping { read_once: Some(look), ..KEPT };
            files.iter_mut().map(|file| file.read(keeping).map(|(text, _)| text)).collect::<Vec<_>>()
        };
        let look = ReadOnce::default();
        assert!(read(&mut subjects[..1], &look)[0].as_ref().is_err_and(Cause::is_absent));
        write(&path, "1").unwrap();
        assert!(read(&mut subjects, &look).iter().all(|content| content.as_ref().is_err_and(Cause::is_absent)));
        assert_eq!(read(&mut others, &look), [Ok("1".to_owned())]);
        let look = ReadOnce::default();
        assert_eq!(read(&mut subjects[1..], &look), [Ok("1".to_owned())]);
        write(&path, "2").unwrap();
        assert_eq!(read(&mut subjects, &look), [Ok("1".to_owned()), Ok("1".to_owned())]);
        assert_eq!(read(&mut subjects, &ReadOnce::default()), [Ok("2".to_owned()), Ok("2".to_owned())]);
    }
}
