//! Files, TCP ports, signals and abstract sockets, by Landlock: <https://docs.kernel.org/userspace-api/landlock.html>.
//!
//! A rule is for an inode, and for what is reached through it: a directory that is removed and made again needs a new rule.
//! `stat`, inotify and the connection to a socket with a path are not restricted.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use super::Access;

/// The newest version whose effects are tested; what a younger kernel knows beyond it stays allowed.
const NEWEST: ABI = ABI::V7;

/// What came with which version, for people.
const FEATURES: [(ABI, &str); 5] = [
    (ABI::V1, "files (Linux 5.13)"),
    (ABI::V3, "truncation of files (Linux 6.2)"),
    (ABI::V4, "TCP ports (Linux 6.7)"),
    (ABI::V5, "ioctl on devices (Linux 6.10)"),
    (ABI::V6, "signals and abstract sockets (Linux 6.12)"),
];

pub(super) fn restrict(access: &Access) -> io::Result<Vec<String>> {
    let ruleset = rules(access).map_err(|error| io::Error::other(format!("Landlock: {error}")))?;
    let status = ruleset.restrict_self().map_err(|error| io::Error::other(format!("Landlock: {error}")))?;
    Ok(if status.ruleset == RulesetStatus::FullyEnforced { Vec::new() } else { missing() })
}

pub(super) fn missing() -> Vec<String> {
    FEATURES.iter().filter(|(since, _)| !is_known(*since)).map(|(_, feature)| (*feature).to_owned()).collect()
}

/// Whether this kernel enforces all that came up to that version.
fn is_known(version: ABI) -> bool {
    let strict = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let (ports, scopes) = (AccessNet::from_all(version), Scope::from_all(version));
    strict().handle_access(AccessFs::from_all(version)).is_ok()
        && (ports.is_empty() || strict().handle_access(ports).is_ok())
        && (scopes.is_empty() || strict().scope(scopes).is_ok())
}

fn rules(access: &Access) -> Result<RulesetCreated, RulesetError> {
    let reads = AccessFs::ReadFile | AccessFs::ReadDir;
    let writes = reads
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer;
    let sockets = AccessFs::ReadDir | AccessFs::MakeSock | AccessFs::RemoveFile;
    let devices = reads | AccessFs::WriteFile | AccessFs::IoctlDev;
    let executes = reads | AccessFs::Execute;
    let mut net = AccessNet::from_all(NEWEST);
    for (is_free, right) in [(access.listens, AccessNet::BindTcp), (access.connects, AccessNet::ConnectTcp)] {
        if is_free {
            net.remove(right);
        }
    }
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(net)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for (paths, rights) in [
        (&access.read, reads),
        (&access.write, writes),
        (&access.sockets, sockets),
        (&access.devices, devices),
        (&access.execute, executes),
    ] {
        ruleset = allow(ruleset, paths, rights)?;
    }
    Ok(ruleset)
}

fn allow(
    mut ruleset: RulesetCreated,
    paths: &[PathBuf],
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    for path in paths {
        let Some(opened) = open(path) else { continue };
        let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(NEWEST) };
        ruleset = ruleset.add_rule(PathBeneath::new(opened, rights))?;
    }
    Ok(ruleset)
}

/// None for what is not there or may not be seen: it allows nothing.
fn open(path: &Path) -> Option<PathFd> {
    PathFd::new(path).ok()
}
