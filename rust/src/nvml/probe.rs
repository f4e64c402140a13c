//! One look through NVML, from finding the library to its facts. Meant for a process that may hang or crash.

use std::fmt;
use std::path::Path;

use super::facts::Facts;
use super::gather::{self, Refusal};
use super::library::Library;
use super::locate;

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
    let path = driver_root.and_then(locate::below).or_else(|| library.map(Path::to_path_buf));
    let path = path.ok_or(ProbeError::NoLibrary)?;
    if !is_bare(&path) && !path.exists() {
        return Err(ProbeError::NoLibrary);
    }
    let library = Library::load(&path).map_err(|error| not_loaded(&path, &error))?;
    gather::facts(&library).map_err(|refusal| ProbeError::Unusable(refused(&path, &refusal)))
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

fn refused(path: &Path, refusal: &Refusal) -> String {
    match refusal {
        Refusal::Mismatch => {
            let version = locate::version(path).map(|version| format!(" {version}")).unwrap_or_default();
            format!(
                "driver/library version mismatch — the library{version} is of another version than the loaded driver \
                 — reload the nvidia kernel modules or reboot"
            )
        }
        Refusal::NoDriver => {
            "NVML cannot be initialised — the nvidia kernel driver is not loaded — load it; `dmesg` shows why it fails"
                .to_owned()
        }
        Refusal::Other(why) => {
            format!("NVML cannot be initialised — {why} — check nvidia-smi and `dmesg`")
        }
    }
}
