//! Files of an entry, each read once; none of them outside of /sys and /proc/driver, whatever links lead there.

use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError, Cause};
use crate::host::directory::{self, Directory};
use crate::host::resolve::{in_root, is_unlinked_directory, read_unlinked};

/// The files that were read for one entry.
pub(super) struct Files<'h> {
    host: &'h Host,
    /// /sys and /proc/driver.
    roots: [PathBuf; 2],
    /// A few, so that a search by bytes is faster than a table of paths.
    read: Vec<(PathBuf, Result<Attribute, AttributeError>)>,
}

/// The path of this process for one of the host's, all links followed.
///
/// # Errors
/// If it is not below /sys, or loops.
pub(super) fn in_sys(host: &Host, path: &Path) -> Result<PathBuf, AttributeError> {
    resolved(host, path, &[host.sys("")])
}

/// [`in_sys`] of a directory. A plain file beside the entries of a class is none, and a link that leads nowhere.
///
/// # Errors
/// See there; `ENOTDIR`.
pub(super) fn directory_in_sys(host: &Host, path: &Path) -> Result<PathBuf, AttributeError> {
    if path.starts_with("/sys") && is_unlinked_directory(host, path) {
        return Ok(host.absolute(path));
    }
    let place = in_sys(host, path)?;
    match rustix::fs::lstat(&place).map(|found| FileType::from_raw_mode(found.st_mode)) {
        Ok(FileType::Directory) => Ok(place),
        Ok(_) => Err(AttributeError { path: place, cause: Cause::System(Errno::NOTDIR) }),
        Err(errno) => Err(AttributeError { path: place, cause: Cause::System(errno) }),
    }
}

fn resolved(host: &Host, path: &Path, roots: &[PathBuf]) -> Result<PathBuf, AttributeError> {
    let failed = |cause| AttributeError { path: host.absolute(path), cause };
    let place = in_root(host, path).map_err(|errno| failed(Cause::System(errno)))?;
    if roots.iter().any(|root| place.starts_with(root)) { Ok(place) } else { Err(outside(host, place)) }
}

fn outside(host: &Host, path: PathBuf) -> AttributeError {
    let found = host.own_path(&path).display().to_string();
    AttributeError { path, cause: Cause::Unexpected { expected: "a path below /sys", found } }
}

impl<'h> Files<'h> {
    pub(super) fn new(host: &'h Host) -> Self {
        Self { host, roots: [host.sys(""), host.proc("driver")], read: Vec::new() }
    }

    /// Whether a directory is below /sys/devices, where each is a device or a folder of some.
    pub(super) fn is_device(&self, directory: &Path) -> bool {
        let devices = self.host.sys("devices");
        directory.starts_with(&devices) && directory != devices
    }

    /// Reads `name`, below a directory without links, or from the host's root.
    pub(super) fn read(&mut self, directory: &Path, name: &str) -> Result<Attribute, AttributeError> {
        let path = self.path(directory, name)?;
        if let Some((_, read)) = self.read.iter().find(|(read, _)| read.as_os_str() == path.as_os_str()) {
            return read.clone();
        }
        let read = read_unlinked(self.host, &path)
            .unwrap_or_else(|| self.place(directory, name).and_then(Attribute::read_unlinked));
        self.read.push((path, read.clone()));
        read
    }

    /// The text of a file, if it was read.
    pub(super) fn known(&self, place: &Path) -> Option<&str> {
        let attributes = self.read.iter().filter_map(|(_, read)| read.as_ref().ok());
        attributes
            .map(|attribute| (attribute.path(), attribute.text()))
            .find(|(path, _)| *path == place)
            .map(|(_, text)| text)
    }

    /// The path of a file, all links followed.
    pub(super) fn place(&self, directory: &Path, name: &str) -> Result<PathBuf, AttributeError> {
        resolved(self.host, &self.host.own_path(self.path(directory, name)?), &self.roots)
    }

    /// The last name of a link's target, and the link.
    pub(super) fn end_of_link(&self, directory: &Path, name: &str) -> Result<(String, PathBuf), AttributeError> {
        let path = self.path(directory, name)?;
        let (above, last) = (path.parent().unwrap_or(directory), path.file_name().unwrap_or_default());
        let above = resolved(self.host, &self.host.own_path(above), &self.roots)?;
        let link = above.join(last);
        let target = directory::link(&link)?;
        let end = target.file_name().map(|end| end.to_string_lossy().into_owned()).unwrap_or_default();
        Ok((end, link))
    }

    /// The names in a directory below another; itself if the name is empty.
    pub(super) fn names(&self, directory: &Path, name: &str) -> Result<(Vec<String>, PathBuf), AttributeError> {
        let place = if name.is_empty() {
            in_sys(self.host, &self.host.own_path(directory))?
        } else {
            self.place(directory, name)?
        };
        let names = Directory::open(&place).and_then(|open| open.names())?;
        Ok((names, place))
    }

    /// The path by its name alone: nothing else is ever opened, so that no node of /dev notices a class.
    fn path(&self, directory: &Path, name: &str) -> Result<PathBuf, AttributeError> {
        let path = if name.starts_with('/') { self.host.absolute(name) } else { directory.join(name) };
        // A directory is in them already.
        let is_inside = !name.starts_with('/') || self.roots.iter().any(|root| path.starts_with(root));
        if is_inside && !name.split('/').any(|name| name == "..") { Ok(path) } else { Err(outside(self.host, path)) }
    }
}
