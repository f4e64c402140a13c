//! Where the library is: below a driver root, in the directories in which NVIDIA's own plugin expects it,
//! and in the one of WSL.

use std::path::{Path, PathBuf};

/// What the dynamic loader finds it by.
pub const SONAME: &str = "libnvidia-ml.so.1";

const DIRECTORIES: [&str; 7] = [
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib/wsl/lib",
];

/// The library below a driver root, if there is one.
#[must_use]
pub fn below(driver_root: &Path) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| driver_root.join(directory).join(SONAME)).find(|path| path.exists())
}

/// The version in the name of the file that `path` leads to: `libnvidia-ml.so.590.48.01`.
pub(super) fn version(path: &Path) -> Option<String> {
    let file = path.canonicalize().ok()?;
    let version = file.file_name()?.to_str()?.strip_prefix("libnvidia-ml.so.")?.to_owned();
    version.contains('.').then_some(version)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_library_is_found_below_a_driver_root_with_its_version() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(below(root.path()), None);
        let directory = root.path().join("usr/lib/x86_64-linux-gnu");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("libnvidia-ml.so.590.48.01"), "").unwrap();
        symlink("libnvidia-ml.so.590.48.01", directory.join(SONAME)).unwrap();
        assert_eq!(below(root.path()), Some(directory.join(SONAME)));
        assert_eq!(version(&directory.join(SONAME)).as_deref(), Some("590.48.01"));
    }

    #[test]
    fn a_file_without_a_version_in_its_name_has_none() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(SONAME), "").unwrap();
        assert_eq!(version(&root.path().join(SONAME)), None);
        assert_eq!(version(Path::new(SONAME)), None);
    }
}
