//! One look through NVML, from finding the library to its facts. Meant for a process that may hang or crash.

use std::fmt;
use std::path::Path;

use super::facts::Facts;
use super::library::{Failure, Library, code};
use super::{gather, locate};

/// Why there are no facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeError {
    /// There is no library: the driver is not installed, or was installed without it.
    NoLibrary,
    /// The library cannot be used: why, and the cure.
    Unusable(String),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary => {
                write!(formatter, "{} not found — install it with the driver, or set `driver_root`", locate::SONAME)
            }
            Self::Unusable(why) => formatter.write_str(why),
        }
    }
}

/// The facts from the library below the driver root or, if there is none, from the library named: a path, or a bare name that
/// the dynamic loader resolves. Loads the library, initialises it, shuts it down and unloads it.
///
/// # Errors
/// Why there are no facts.
pub fn facts(driver_root: Option<&Path>, library: Option<&Path>) -> Result<Facts, ProbeError> {
    let library = initialised(driver_root, library)?;
    let facts = gather::facts(&library);
    // Its result no longer matters.
    let _ = library.act(&["nvmlShutdown"]);
    Ok(facts)
}

/// The library, loaded and initialised. Whoever has it shuts it down.
pub(super) fn initialised(driver_root: Option<&Path>, library: Option<&Path>) -> Result<Library, ProbeError> {
    let path = driver_root.and_then(locate::below).or_else(|| library.map(Path::to_path_buf));
    let path = path.ok_or(ProbeError::NoLibrary)?;
    if !is_bare(&path) && !path.exists() {
        return Err(ProbeError::NoLibrary);
    }
    let library = Library::load(&path).map_err(|error| not_loaded(&path, &error))?;
    match library.act(&["nvmlInit_v2", "nvmlInit"]) {
        Ok(()) => Ok(library),
        Err(failure) => Err(ProbeError::Unusable(refused(&path, &failure))),
    }
}

/// A bare name that the dynamic loader does not find is no library; one that it cannot load, or lacks a part of, is broken.
fn not_loaded(path: &Path, error: &str) -> ProbeError {
    if is_bare(path) && error.contains(&format!("{}: ", path.display())) && error.contains("No such file") {
        return ProbeError::NoLibrary;
    }
    ProbeError::Unusable(format!("NVML cannot be loaded — {error} — reinstall the NVIDIA driver libraries"))
}

fn is_bare(path: &Path) -> bool {
    path.components().count() == 1
}

fn refused(path: &Path, failure: &Failure) -> String {
    match failure.code {
        Some(code::LIB_RM_VERSION_MISMATCH) => {
            let version = locate::version(path).map(|version| format!(" {version}")).unwrap_or_default();
            format!(
                "driver/library version mismatch — the library{version} is of another version than the loaded driver \
                 — reload the nvidia kernel modules or reboot"
            )
        }
        Some(code::DRIVER_NOT_LOADED) => {
            "NVML cannot be initialised — the nvidia kernel driver is not loaded — load it; `dmesg` shows why it fails"
                .to_owned()
        }
        _ => format!("NVML cannot be initialised — {failure} — check nvidia-smi and `dmesg`"),
    }
}
