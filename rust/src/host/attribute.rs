//! One attribute of sysfs: exactly one `openat`, one `pread` and one `close`, never a stat, never more than 4 KiB.
//!
//! Reading is separate from parsing: [`Attribute`] is the text and its file, its methods parse the text.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::read_log;

/// sysfs gives an attribute one page; a larger file is not an attribute.
/// <https://docs.kernel.org/filesystems/sysfs.html>
pub const LARGEST: usize = 4096;

/// The text of one attribute and the file it was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    path: PathBuf,
    content: String,
}

/// An attribute that could not be read, or has unexpected content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub cause: Cause,
}

/// What is wrong with an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The kernel refused to open or read it.
    System(Errno),
    /// It has more than [`LARGEST`] bytes.
    TooLarge,
    /// It was read, and its content is unexpected.
    Unexpected {
        /// What was expected.
        expected: &'static str,
        /// The content, shortened.
        found: String,
    },
}

/// Opens an attribute for repeated reads: a FIFO does not block, a terminal does not become the controlling one.
///
/// # Errors
/// The kernel's error.
pub fn open(directory: impl AsFd, name: impl AsRef<Path>) -> Result<OwnedFd, Cause> {
    opened(directory, name, OFlags::empty())
}

fn opened(directory: impl AsFd, name: impl AsRef<Path>, more: OFlags) -> Result<OwnedFd, Cause> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY | more;
    rustix::io::retry_on_intr(|| rustix::fs::openat(&directory, name.as_ref(), flags, Mode::empty()))
        .map_err(|errno| Cause::System(noted(errno)))
}

/// See [`refused_opens`].
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// How many files and directories could not be opened because this process or the host had no descriptor left. Files
/// that were not found meanwhile may still exist.
pub fn refused_opens() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// Returns the error of an open, and counts it if no descriptor was left.
pub(super) fn noted(errno: Errno) -> Errno {
    if matches!(errno, Errno::MFILE | Errno::NFILE) {
        REFUSED.fetch_add(1, Ordering::Relaxed);
    }
    errno
}

/// The current content of an open attribute. Bytes that are not UTF-8 are replaced, so that no parser accepts them.
///
/// # Errors
/// The kernel's error, or [`Cause::TooLarge`].
pub fn read_open(file: impl AsFd) -> Result<String, Cause> {
    let mut buffer = [MaybeUninit::uninit(); LARGEST + 1];
    loop {
        match rustix::io::pread(&file, &mut buffer[..], 0) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Cause::System(errno)),
            Ok((content, _)) if content.len() > LARGEST => return Err(Cause::TooLarge),
            Ok((content, _)) => return Ok(String::from_utf8_lossy(content).into_owned()),
        }
    }
}

/// The content of a file that is no attribute, and may be larger than one; `None` if it cannot be read.
#[expect(clippy::disallowed_methods, reason = "no attribute, and larger than one")]
#[must_use]
pub fn content(file: &Path) -> Option<Vec<u8>> {
    std::fs::read(file).inspect_err(|error| _ = Errno::from_io_error(error).map(noted)).ok()
}

impl Attribute {
    /// Reads `name` relative to an open directory; the directory's path is for messages only.
    ///
    /// # Errors
    /// Those of [`open`] and [`read_open`], with the path.
    pub fn read_at(directory: impl AsFd, directory_path: &Path, name: &str) -> Result<Self, AttributeError> {
        let path = directory_path.join(name);
        read_log::note_file(&path);
        match open(directory, name).and_then(read_open) {
            Ok(content) => Ok(Self { path, content }),
            Err(cause) => Err(AttributeError { path, cause }),
        }
    }

    /// Reads an attribute by its full path.
    ///
    /// # Errors
    /// Those of [`open`] and [`read_open`], with the path.
    pub fn read(path: impl Into<PathBuf>) -> Result<Self, AttributeError> {
        let path = path.into();
        read_log::note_file(&path);
        match open(CWD, &path).and_then(read_open) {
            Ok(content) => Ok(Self { path, content }),
            Err(cause) => Err(AttributeError { path, cause }),
        }
    }

    /// [`Attribute::read`] of a file that is no link itself.
    ///
    /// # Errors
    /// See there; `ELOOP` if it is a link.
    pub fn read_unlinked(path: impl Into<PathBuf>) -> Result<Self, AttributeError> {
        let path = path.into();
        read_log::note_file(&path);
        match opened(CWD, &path, OFlags::NOFOLLOW).and_then(read_open) {
            Ok(content) => Ok(Self { path, content }),
            Err(cause) => Err(AttributeError { path, cause }),
        }
    }

    /// An attribute with this path and content, without reading.
    pub fn new(path: impl Into<PathBuf>, content: impl Into<String>) -> Self {
        Self { path: path.into(), content: content.into() }
    }

    /// The file it was read from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text without surrounding white space.
    #[must_use]
    pub fn text(&self) -> &str {
        trimmed(&self.content)
    }

    /// `0x12`, `12`, `FF`: a hexadecimal number with or without prefix.
    ///
    /// # Errors
    /// If the text has another form.
    pub fn hexadecimal(&self) -> Result<u64, AttributeError> {
        self.parsed("a hexadecimal number", hexadecimal(self.text()))
    }

    /// A decimal number, possibly negative.
    ///
    /// # Errors
    /// If the text has another form.
    pub fn decimal(&self) -> Result<i64, AttributeError> {
        self.parsed("a decimal number", decimal(self.text()))
    }

    /// `0` or `1`.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn flag(&self) -> Result<bool, AttributeError> {
        self.parsed("0 or 1", flag(self.text()))
    }

    /// A NUMA node; `None` if the kernel reports `-1`, unknown.
    ///
    /// # Errors
    /// If the text is not a number.
    pub fn numa_node(&self) -> Result<Option<u32>, AttributeError> {
        self.parsed("a NUMA node or -1", numa_node(self.text()))
    }

    /// `major:minor`.
    ///
    /// # Errors
    /// If the text has another form.
    pub fn device_number(&self) -> Result<(u32, u32), AttributeError> {
        self.parsed("major:minor", device_number(self.text()))
    }

    /// 32 hexadecimal digits in lower case, without dashes.
    ///
    /// # Errors
    /// If the text has another form.
    pub fn uuid(&self) -> Result<String, AttributeError> {
        self.parsed("32 hexadecimal digits", uuid(self.text()))
    }

    /// The error that this attribute has unexpected content.
    #[must_use]
    pub fn unexpected(&self, expected: &'static str) -> AttributeError {
        let found = self.text().chars().take(64).collect();
        AttributeError { path: self.path.clone(), cause: Cause::Unexpected { expected, found } }
    }

    fn parsed<T>(&self, expected: &'static str, value: Option<T>) -> Result<T, AttributeError> {
        value.ok_or_else(|| self.unexpected(expected))
    }
}

/// Kernel text without surrounding white space and without the NUL that some drivers leave at its end.
#[must_use]
pub fn trimmed(text: &str) -> &str {
    text.trim_matches(|character: char| character.is_whitespace() || character == '\0')
}

/// A hexadecimal number with or without `0x`.
#[must_use]
pub fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    // from_str_radix accepts a sign; the kernel writes none.
    if digits.starts_with('+') { None } else { u64::from_str_radix(digits, 16).ok() }
}

/// A decimal number, possibly negative.
#[must_use]
pub fn decimal(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// `0` or `1`.
#[must_use]
pub fn flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// A NUMA node; `Some(None)` for `-1`.
#[must_use]
pub fn numa_node(text: &str) -> Option<Option<u32>> {
    if text == "-1" { Some(None) } else { text.parse().ok().map(Some) }
}

/// `major:minor`.
#[must_use]
pub fn device_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// 32 hexadecimal digits in lower case, whatever their case and wherever dashes are.
#[must_use]
pub fn uuid(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|&character| character != '-').map(|c| c.to_ascii_lowercase()).collect();
    (digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digits)
}

impl Cause {
    /// Whether something is missing: the file, a directory on its path, or the device behind it.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::System(Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::NXIO))
    }

    /// The unexpected content; empty if nothing was read.
    #[must_use]
    pub fn found(&self) -> &str {
        if let Self::Unexpected { found, .. } = self { found } else { "" }
    }

    /// Whether the device cannot answer at the moment.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::System(Errno::BUSY | Errno::AGAIN))
    }

    /// Whether nothing can be opened at the moment, which says nothing about the file.
    #[must_use]
    pub fn is_beyond_limits(&self) -> bool {
        matches!(self, Self::System(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
    }
}

impl AttributeError {
    /// Whether something is missing: see [`Cause::is_absent`].
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.cause.is_absent()
    }

    /// Whether the device cannot answer at the moment.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.cause.is_busy()
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(errno) => write!(formatter, "{errno}"),
            Self::TooLarge => write!(formatter, "larger than {LARGEST} bytes"),
            Self::Unexpected { expected, found } => write!(formatter, "{found:?} where {expected} should be"),
        }
    }
}

impl fmt::Display for AttributeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path.display(), self.cause)
    }
}

impl std::error::Error for AttributeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_numbers_come_with_and_without_prefix() {
        for (text, value) in
            [("0x0", Some(0)), ("0X1f", Some(31)), ("FF", Some(255)), ("ffffffffffffffff", Some(u64::MAX))]
        {
            assert_eq!(hexadecimal(text), value, "{text}");
        }
        for text in ["", "0x", "+1", "-1", "1 2", "g", "10000000000000000", "0x0x1"] {
            assert_eq!(hexadecimal(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_numa_node_of_minus_one_is_unknown() {
        assert_eq!(numa_node("-1"), Some(None));
        assert_eq!(numa_node("3"), Some(Some(3)));
        assert_eq!(numa_node("-2"), None);
        assert_eq!(numa_node(""), None);
    }

    #[test]
    fn a_device_number_has_two_parts() {
        assert_eq!(device_number("245:0"), Some((245, 0)));
        for text in ["", "245", "245:", ":0", "a:b", "1:2:3", "-1:0"] {
            assert_eq!(device_number(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_uuid_loses_its_dashes_and_case() {
        let plain = "d8424dc4a4a3c413f89e433683f9040b";
        for text in [plain, "D8424DC4-A4A3-C413-F89E-433683F9040B", "d8424dc4a4a3c413f89e433683f9040B"] {
            assert_eq!(uuid(text).as_deref(), Some(plain));
        }
        for text in ["", "d8424dc4", "g8424dc4a4a3c413f89e433683f9040b", "ed8424dc4a4a3c413f89e433683f9040b"] {
            assert_eq!(uuid(text), None, "{text:?}");
        }
    }

    #[test]
    fn flags_and_decimals_are_strict() {
        assert_eq!((flag("0"), flag("1"), flag("2"), flag("")), (Some(false), Some(true), None, None));
        assert_eq!((decimal("-5"), decimal("12"), decimal("1.5"), decimal("0x1")), (Some(-5), Some(12), None, None));
    }

    #[test]
    fn an_attribute_is_bounded_and_its_errors_name_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("huge");
        std::fs::write(&path, vec![b'a'; LARGEST + 1]).unwrap();
        assert_eq!(Attribute::read(&path), Err(AttributeError { path: path.clone(), cause: Cause::TooLarge }));
        std::fs::write(&path, vec![b'a'; LARGEST]).unwrap();
        assert_eq!(Attribute::read(&path).unwrap().text().len(), LARGEST);
        let missing = Attribute::read(directory.path().join("missing")).unwrap_err();
        assert!(missing.is_absent() && !missing.is_busy());
        let file_on_the_way = Attribute::read(path.join("below")).unwrap_err();
        assert!(file_on_the_way.is_absent());
    }

    #[test]
    fn what_is_no_file_is_an_error_and_never_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(Attribute::read(&pipe).unwrap_err().cause, Cause::System(Errno::SPIPE));
        let below = directory.path().join("directory");
        std::fs::create_dir(&below).unwrap();
        assert_eq!(Attribute::read(&below).unwrap_err().cause, Cause::System(Errno::ISDIR));
    }

    #[test]
    fn text_that_is_not_utf_8_is_no_number() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("binary");
        std::fs::write(&path, [0xff, 0xfe, b'1', b'\n']).unwrap();
        assert!(Attribute::read(&path).unwrap().hexadecimal().is_err());
    }

    #[test]
    fn an_unexpected_text_is_quoted_and_shortened() {
        let error = Attribute::new("/sys/x", "abc\n".repeat(500)).decimal().unwrap_err();
        assert!(error.to_string().starts_with("/sys/x: \"abc"), "{error}");
        assert!(error.to_string().len() < 200);
    }
}
