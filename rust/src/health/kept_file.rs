//! An attribute that is read again and again: opened once, one `pread` for each read, opened again if its object was
//! replaced.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, pread, retry_on_intr};

use super::replaced::Replaced;
use crate::host::attribute::{Cause, contains, open, read_open};

/// How long files stay open, and when an open file can no longer be trusted.
#[derive(Debug, Clone, Copy)]
pub struct Keeping<'r> {
    /// Whether the file stays open between two reads.
    pub open: bool,
    /// Whether the file may be replaced without an error from its open descriptor, and who knows. `None`: it may not. The
    /// kernel's sysfs returns `ENODEV` when the object is gone; on other file systems, such as a simulated tree, a deleted
    /// file can be read for ever.
    pub replaced: Option<&'r Replaced>,
    /// The card's directory, from which the kernel has the shortest way to the card's files; `None` without a share of
    /// the descriptors.
    pub base: Option<&'r Base>,
    /// What was read during this look at the card; `None` if each subject reads for itself.
    pub read_once: Option<&'r ReadOnce>,
}

/// A directory above a card's files. Once opened it stays open: its descriptor takes 0.2 kB of the kernel's memory, that
/// of an attribute of sysfs which has been read 4.5 kB.
#[derive(Debug)]
pub struct Base {
    path: PathBuf,
    directory: Mutex<Option<Arc<OwnedFd>>>,
}

impl Base {
    /// The directory with this path, which is not opened yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, directory: Mutex::default() }
    }

    /// Opens a file of the card. A directory that was removed, and is there again, is opened again.
    fn open(&self, path: &Path) -> Result<OwnedFd, Cause> {
        let below = path.as_os_str().as_bytes().strip_prefix(self.path.as_os_str().as_bytes());
        let Some(below) = below.and_then(|below| below.strip_prefix(b"/")) else { return open(CWD, path) };
        let Some(directory) = self.directory() else { return open(CWD, path) };
        let file = open(directory, OsStr::from_bytes(below));
        if !file.as_ref().is_err_and(Cause::is_absent) {
            return file;
        }
        let there = open(CWD, path);
        if there.is_ok() {
            self.close();
        }
        there
    }

    fn directory(&self) -> Option<Arc<OwnedFd>> {
        let mut directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        if directory.is_none() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            *directory = openat(CWD, &self.path, flags, Mode::empty()).ok().map(Arc::new);
        }
        directory.clone()
    }

    pub(super) fn close(&self) {
        *self.directory.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// An attribute, and its descriptor while it is open.
#[derive(Debug)]
pub struct KeptFile {
    path: PathBuf,
    file: Option<Arc<OwnedFd>>,
    /// [`Replaced::changes`] when the open file was last known to be the one at its path.
    changes: u64,
    /// Whether other subjects of the card read it, too.
    is_shared: bool,
}

impl KeptFile {
    /// A file that is not open yet.
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None, changes: 0, is_shared: false }
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

    /// Whether the file contains this text: without it [`KeptFile::read`] has to find out. Nothing is allocated or parsed
    /// for what is as it was nearly always.
    pub(super) fn still_contains(&mut self, text: &str, keeping: Keeping<'_>) -> bool {
        self.close_if_replaced(keeping);
        match &self.file {
            Some(file) => keeping.open && contains(file, text.as_bytes()),
            None if keeping.open || self.is_shared => false,
            None => self.open(keeping).is_ok_and(|file| contains(file, text.as_bytes())),
        }
    }

    /// The file with this text, which it contained, if it is open and known to be the one at its path after so many
    /// [`Replaced::changes`].
    pub(super) fn unchanged(&self, text: &str, changes: u64) -> Option<Unchanged> {
        let file = self.file.as_ref().filter(|_| self.changes == changes)?;
        let mut start = [0; SHORT];
        start.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Unchanged { file: Arc::clone(file), text: start, length: u8::try_from(text.len()).ok()? })
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
        self.close_if_replaced(keeping);
        if let Some(file) = self.file.take() {
            match read(&file) {
                Err(cause) if cause.is_absent() || cause == Cause::System(Errno::STALE) => {}
                read => {
                    self.file = keeping.open.then_some(file);
                    return Ok((read?, false));
                }
            }
        }
        if let Some(replaced) = keeping.replaced.filter(|_| keeping.open) {
            replaced.watch(&self.path);
            self.changes = replaced.changes();
        }
        let file = self.open(keeping)?;
        let content = read(&file);
        self.file = keeping.open.then(|| Arc::new(file));
        Ok((content?, true))
    }

    fn open(&self, keeping: Keeping<'_>) -> Result<OwnedFd, Cause> {
        match keeping.base {
            Some(base) => base.open(&self.path),
            None => open(CWD, &self.path),
        }
    }

    /// Closes the file unless it is still the one at its path.
    fn close_if_replaced(&mut self, keeping: Keeping<'_>) {
        let (Some(file), Some(replaced)) = (&self.file, keeping.replaced) else { return };
        let changes = replaced.changes();
        if changes == self.changes {
            return;
        }
        // It may have been opened, and its directory replaced, while nothing was watched.
        replaced.watch(&self.path);
        self.changes = changes;
        if is_deleted(file) {
            self.file = None;
        }
    }
}

/// Bytes of a text that lies beside its file's descriptor: of each register, and of most states.
const SHORT: usize = 23;

/// An open file, and the text that it contained when it was last looked at.
///
/// There are thousands of them, and a poll costs what memory it touches.
#[derive(Debug)]
pub(super) struct Unchanged {
    file: Arc<OwnedFd>,
    text: [u8; SHORT],
    length: u8,
}

impl Unchanged {
    /// Whether it still contains the text.
    pub(super) fn is_so(&self) -> bool {
        contains(&*self.file, &self.text[..usize::from(self.length)])
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
    pub(super) fn keep(&self, path: &Path, content: Result<String, Cause>) {
        self.0.borrow_mut().push((path.to_path_buf(), content));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, remove_file, write};
    use std::os::fd::AsRawFd;
    use std::sync::LazyLock;

    use super::*;
    use crate::host::attribute::LARGEST;

    static REPLACED: LazyLock<Replaced> = LazyLock::new(Replaced::default);

    fn kept() -> Keeping<'static> {
        Keeping { open: true, replaced: Some(&REPLACED), base: None, read_once: None }
    }

    #[test]
    fn an_attribute_is_opened_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("errors");
        write(&path, "0x0\n").unwrap();
        let mut file = KeptFile::new(&path);
        assert_eq!(file.read(kept()), Ok(("0x0\n".into(), true)));
        write(&path, "0x1\n").unwrap();
        assert_eq!(file.read(kept()), Ok(("0x1\n".into(), false)));
    }

    #[test]
    fn an_attribute_that_went_and_came_back_is_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("errors");
        let mut file = KeptFile::new(&path);
        assert!(file.read(kept()).unwrap_err().is_absent());
        write(&path, "0x0").unwrap();
        assert_eq!(file.read(kept()), Ok(("0x0".into(), true)));
        remove_file(&path).unwrap();
        assert!(file.read(kept()).unwrap_err().is_absent());
        write(&path, "0x1").unwrap();
        assert_eq!(file.read(kept()), Ok(("0x1".into(), true)));
    }

    #[test]
    fn an_open_file_is_asked_whether_it_still_contains_a_text() {
        let directory = tempfile::tempdir().unwrap();
        let (path, beside) = (directory.path().join("errors"), directory.path().join("beside"));
        let mut file = KeptFile::new(&path);
        assert!(!file.still_contains("", kept()), "nothing was opened yet");
        write(&path, "0x0\n").unwrap();
        assert_eq!(file.read(kept()), Ok(("0x0\n".into(), true)));
        assert!(file.still_contains("0x0\n", kept()) && !file.still_contains("0x0", kept()));
        assert!(!file.still_contains("0x0\n", Keeping { open: false, ..kept() }), "it has to be closed");
        write(&beside, "0x0\n").unwrap();
        std::fs::rename(beside, &path).unwrap();
        assert!(!file.still_contains("0x0\n", kept()), "it is another file");
        assert_eq!(file.read(kept()), Ok(("0x0\n".into(), true)));
        write(&path, "0".repeat(LARGEST + 1)).unwrap();
        assert!(!file.still_contains(&"0".repeat(LARGEST), kept()));
    }

    /// A network interface that is there until the file is closed.
    #[expect(unsafe_code, reason = "an ioctl of the kernel's for which rustix has no function")]
    fn interface(name: &str) -> std::io::Result<std::fs::File> {
        let file = std::fs::File::options().read(true).write(true).open("/dev/net/tun")?;
        let mut request = [0_u8; size_of::<libc::ifreq>()];
        request[..name.len()].copy_from_slice(name.as_bytes());
        request[16..18].copy_from_slice(&0x1001_u16.to_ne_bytes()); // IFF_TUN | IFF_NO_PI
        // SAFETY: the request is an ifreq, a name with its NUL and flags, and lives as long as the call.
        match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) } {
            0 => Ok(file),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    #[test]
    #[expect(clippy::print_stderr, reason = "a test that cannot test anything says so")]
    fn an_attribute_of_the_kernels_sysfs_whose_object_goes_and_comes_back_is_opened_again() {
        let name = format!("herd{}", std::process::id());
        let there = match interface(&name) {
            Ok(there) if Path::new("/sys/class/net").join(&name).exists() => there,
            refused => {
                let why = refused.map_or_else(|error| error.to_string(), |_| "/sys is another network's".into());
                return eprintln!("NOT TESTED: attributes of the kernel's sysfs that vanish: /dev/net/tun: {why}");
            }
        };
        let mut file = KeptFile::new(format!("/sys/class/net/{name}/mtu"));
        let keeping = Keeping { replaced: None, ..kept() };
        assert_eq!(file.read(keeping), Ok(("1500\n".into(), true)));
        assert!(file.still_contains("1500\n", keeping));
        drop(there);
        assert!(!file.still_contains("1500\n", keeping));
        assert!(file.read(keeping).unwrap_err().is_absent());
        let there = interface(&name).unwrap();
        assert_eq!(file.read(keeping), Ok(("1500\n".into(), true)));
        drop(there);
    }

    #[test]
    fn a_file_below_the_card_s_directory_is_found_also_when_that_was_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let card = directory.path().join("card");
        let (path, beside) = (card.join("power/state"), directory.path().join("card2"));
        let base = Base::new(card.clone());
        let keeping = Keeping { base: Some(&base), ..kept() };
        let (mut file, mut other) = (KeptFile::shared(&path), KeptFile::shared(&beside));
        write(&beside, "beside").unwrap();
        for text in ["1", "2"] {
            assert!(file.read(keeping).unwrap_err().is_absent());
            create_dir_all(path.parent().unwrap()).unwrap();
            write(&path, text).unwrap();
            for _ in 0..2 {
                assert_eq!(file.read(keeping), Ok((text.into(), true)));
                assert_eq!(other.read(keeping), Ok(("beside".into(), true)));
            }
            assert!(base.directory.lock().unwrap().is_some());
            std::fs::remove_dir_all(&card).unwrap();
        }
    }

    #[test]
    fn a_file_that_may_not_stay_open_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("errors");
        write(&path, "0x0").unwrap();
        let mut file = KeptFile::new(&path);
        for _ in 0..2 {
            assert_eq!(file.read(Keeping { open: false, ..kept() }), Ok(("0x0".into(), true)));
            assert!(file.file.is_none());
        }
    }

    #[test]
    fn a_file_that_may_no_longer_stay_open_is_closed_after_the_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("errors");
        write(&path, "0x0").unwrap();
        let mut file = KeptFile::new(&path);
        assert_eq!(file.read(kept()), Ok(("0x0".into(), true)));
        assert!(file.file.is_some());
        assert_eq!(file.read(Keeping { open: false, ..kept() }), Ok(("0x0".into(), false)));
        assert!(file.file.is_none());
    }

    #[test]
    fn an_attribute_of_several_subjects_is_read_once_in_a_look_at_the_card() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("aer_dev_correctable");
        let mut subjects = [KeptFile::shared(&path), KeptFile::shared(&path)];
        let mut others = [KeptFile::new(&path)];
        let read = |files: &mut [KeptFile], look: &ReadOnce| {
            let keeping = Keeping { read_once: Some(look), ..kept() };
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
