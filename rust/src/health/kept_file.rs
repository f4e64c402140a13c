//! Repeated reads of attributes: through a file that stays open, or once per look at a card for all subjects that ask.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;

use crate::host::attribute::{Cause, open, read_open};

/// An attribute, and its descriptor while it is open.
#[derive(Debug)]
pub(super) struct KeptFile {
    path: PathBuf,
    file: Option<OwnedFd>,
}

impl KeptFile {
    /// A file that is not open yet.
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The current content. The file may stay open only in the kernel's sysfs: there a read fails when the object is
    /// gone; elsewhere a removed file can be read for ever.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn read(&mut self, stays_open: bool) -> Result<String, Cause> {
        if let Some(file) = self.file.take() {
            match read_open(&file) {
                Err(cause) if cause.is_absent() || cause == Cause::System(Errno::STALE) => {}
                read => {
                    self.file = stays_open.then_some(file);
                    return read;
                }
            }
        }
        let file = open(CWD, &self.path)?;
        let content = read_open(&file);
        self.file = stays_open.then_some(file);
        content
    }

    /// Closes the file; the next read opens it again.
    pub(super) fn close(&mut self) {
        self.file = None;
    }
}

/// Attributes that were read during one look at a card, with content or error, because several subjects ask for the
/// same one. Each look runs on one thread.
#[derive(Debug, Default)]
pub struct ReadOnce(RefCell<Vec<(PathBuf, Result<String, Cause>)>>);

impl ReadOnce {
    /// The content during this look.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn read(&self, path: &Path) -> Result<String, Cause> {
        let mut read = self.0.borrow_mut();
        if let Some((_, content)) = read.iter().find(|(read, _)| read.as_os_str() == path.as_os_str()) {
            return content.clone();
        }
        let content = open(CWD, path).and_then(read_open);
        read.push((path.to_path_buf(), content.clone()));
        content
    }

    /// Sets the content for this look, in place of a read.
    #[cfg(test)]
    pub(super) fn keep(&self, path: &Path, content: Result<String, Cause>) {
        self.0.borrow_mut().push((path.to_path_buf(), content));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::write;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_file_that_stays_open_is_opened_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("errors");
        let mut file = KeptFile::new(&path);
        assert!(file.read(true).unwrap_err().is_absent());
        write(&path, "0x0\n").unwrap();
        assert_eq!(file.read(true), Ok("0x0\n".into()));
        let descriptor = file.file.as_ref().map(AsRawFd::as_raw_fd);
        write(&path, "0x1\n").unwrap();
        assert_eq!(file.read(true), Ok("0x1\n".into()));
        assert_eq!(file.file.as_ref().map(AsRawFd::as_raw_fd), descriptor);
        assert_eq!(file.read(false), Ok("0x1\n".into()));
        assert!(file.file.is_none(), "it may no longer stay open");
    }

    #[test]
    fn a_file_that_does_not_stay_open_is_the_one_at_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let (path, beside) = (directory.path().join("errors"), directory.path().join("beside"));
        let mut file = KeptFile::new(&path);
        write(&path, "0x0").unwrap();
        assert_eq!(file.read(false), Ok("0x0".into()));
        write(&beside, "0x1").unwrap();
        std::fs::rename(beside, &path).unwrap();
        assert_eq!(file.read(false), Ok("0x1".into()));
        std::fs::remove_file(&path).unwrap();
        assert!(file.read(false).unwrap_err().is_absent());
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
        assert_eq!(file.read(true), Ok("1500\n".into()));
        drop(there);
        assert!(file.read(true).unwrap_err().is_absent());
        let there = interface(&name).unwrap();
        assert_eq!(file.read(true), Ok("1500\n".into()));
        drop(there);
    }

    #[test]
    fn an_attribute_of_several_subjects_is_read_once_in_a_look_at_the_card() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("aer_dev_correctable");
        let look = ReadOnce::default();
        assert!(look.read(&path).unwrap_err().is_absent());
        write(&path, "1").unwrap();
        assert!(look.read(&path).unwrap_err().is_absent());
        let look = ReadOnce::default();
        assert_eq!(look.read(&path), Ok("1".to_owned()));
        write(&path, "2").unwrap();
        assert_eq!(look.read(&path), Ok("1".to_owned()));
        assert_eq!(ReadOnce::default().read(&path), Ok("2".to_owned()));
    }
}
