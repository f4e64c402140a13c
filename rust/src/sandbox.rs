//! Rights that a process gives up for good, together with every program that it starts: files, sockets, capabilities,
//! programs.
//!
//! [`enter`] is for a process with one thread, right after its fork. A feature that the kernel lacks is skipped and
//! reported; a feature that the kernel has and refuses is an error.
//!
//! Landlock restricts files, TCP ports, signals and abstract sockets:
//! <https://docs.kernel.org/userspace-api/landlock.html>. Its rules apply to inodes and everything below them: a
//! directory that is removed and created again needs a new rule. `stat`, inotify and connections to sockets with a path
//! are not restricted.
//!
//! A seccomp filter restricts what Landlock does not cover:
//! <https://docs.kernel.org/userspace-api/seccomp_filter.html>. It refuses sockets of other families (UDP, raw packets,
//! netlink), changes of file modes, and `io_uring`, which opens files and sockets past any filter. If no program may be
//! started, it also refuses to start programs (even from memory, which has no path). Everything else stays allowed: a
//! list of allowed calls would break with each new version of a library.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// The rights that remain. A path is a file, or a directory with everything below it; an absent path allows nothing.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a right of its own")]
pub struct Access {
    /// Paths that may be listed and read.
    pub read: Vec<PathBuf>,
    /// Paths that may be read; files and directories in them may be created, changed, renamed and removed.
    pub write: Vec<PathBuf>,
    /// Directories in which sockets may be created, and any file unlinked.
    pub sockets: Vec<PathBuf>,
    /// Devices that may be opened for writing and controlled by `ioctl`.
    pub devices: Vec<PathBuf>,
    /// Programs that may be started; if empty, no program can be started.
    pub execute: Vec<PathBuf>,
    /// Whether the process may change modes of files.
    pub modes: bool,
    /// Address families of sockets, as in `socket(2)`.
    pub families: Vec<i32>,
    /// Whether the process may listen on TCP ports.
    pub listens: bool,
    /// Whether the process may connect to TCP ports.
    pub connects: bool,
    /// Whether the process may inspect other processes, as `ptrace(2)` defines it. Landlock always forbids that; so if
    /// true, there is no Landlock domain, and files, ports and signals are not restricted.
    pub sees_processes: bool,
    /// Capabilities that the process keeps if it has them, by their numbers in `capabilities(7)`.
    pub capabilities: Vec<u8>,
}

/// Gives up all rights but `access`. Returns the restrictions that this kernel cannot enforce, in words.
///
/// # Errors
/// The kernel's refusal; the message names the step.
pub fn enter(access: &Access) -> io::Result<Vec<String>> {
    rustix::thread::set_no_new_privs(true)?;
    let mut missing = if access.sees_processes { Vec::new() } else { restrict_files(access)? };
    drop_capabilities(&access.capabilities)?;
    missing.extend(restrict_system_calls(access)?);
    Ok(missing)
}

/// The restrictions that Landlock cannot enforce on this kernel. Changes nothing.
#[must_use]
pub fn missing() -> Vec<String> {
    missing_features()
}

fn drop_capabilities(kept: &[u8]) -> io::Result<()> {
    let wanted = kept.iter().filter_map(|&number| 1_u64.checked_shl(number.into())).fold(0, |bits, bit| bits | bit);
    let kept = CapabilitySet::from_bits_retain(wanted) & rustix::thread::capabilities(None)?.permitted;
    rustix::thread::clear_ambient_capability_set()?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// The newest version whose effects are tested; features of later versions stay allowed.
const NEWEST: ABI = ABI::V7;

/// The restrictions that each version adds, in words.
const FEATURES: [(ABI, &str); 5] = [
    (ABI::V1, "files (Linux 5.13)"),
    (ABI::V3, "truncation of files (Linux 6.2)"),
    (ABI::V4, "TCP ports (Linux 6.7)"),
    (ABI::V5, "ioctl on devices (Linux 6.10)"),
    (ABI::V6, "signals and abstract sockets (Linux 6.12)"),
];

fn restrict_files(access: &Access) -> io::Result<Vec<String>> {
    let ruleset = rules(access).map_err(|error| io::Error::other(format!("Landlock: {error}")))?;
    let status = ruleset.restrict_self().map_err(|error| io::Error::other(format!("Landlock: {error}")))?;
    Ok(if status.ruleset == RulesetStatus::FullyEnforced { Vec::new() } else { missing_features() })
}

fn missing_features() -> Vec<String> {
    FEATURES.iter().filter(|(since, _)| !is_known(*since)).map(|(_, feature)| (*feature).to_owned()).collect()
}

/// Whether this kernel enforces everything up to this version.
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

/// Opens a path; `None` if it does not exist or is not visible, so that it allows nothing.
fn open(path: &Path) -> Option<PathFd> {
    PathFd::new(path).ok()
}

/// The system call `fchmodat2`: the number is the same on all architectures, but only some have its name in libc:
/// <https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/scripts/syscall.tbl>.
const FCHMODAT2: i64 = 452;

#[cfg(target_arch = "x86_64")]
const MODES: [i64; 4] = [libc::SYS_chmod, libc::SYS_fchmod, libc::SYS_fchmodat, FCHMODAT2];
#[cfg(not(target_arch = "x86_64"))]
const MODES: [i64; 3] = [libc::SYS_fchmod, libc::SYS_fchmodat, FCHMODAT2];

const PROGRAMS: [i64; 2] = [libc::SYS_execve, libc::SYS_execveat];

fn restrict_system_calls(access: &Access) -> io::Result<Vec<String>> {
    let Ok(architecture) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok(vec!["families of sockets (no seccomp for this architecture)".to_owned()]);
    };
    for program in programs(access, architecture).map_err(failed)? {
        match seccompiler::apply_filter(&program) {
            Ok(()) => {}
            Err(error) if is_unavailable(&error) => return Ok(vec!["families of sockets (no seccomp)".to_owned()]),
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(Vec::new())
}

/// The two filters. There are two because a filter gives the same answer for all calls that it matches: the first
/// answers that the address family is not supported, the second that the call is not permitted.
fn programs(access: &Access, architecture: TargetArch) -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let other_families =
        access.families.iter().map(|&family| other_family(family)).collect::<Result<Vec<_>, _>>().and_then(
            |conditions| if conditions.is_empty() { Ok(Vec::new()) } else { Ok(vec![SeccompRule::new(conditions)?]) },
        )?;
    let sockets = BTreeMap::from([(libc::SYS_socket, other_families)]);
    let programs = if access.execute.is_empty() { PROGRAMS.as_slice() } else { &[] };
    let modes = if access.modes { &[] } else { MODES.as_slice() };
    let calls =
        modes.iter().chain(programs).chain(&[libc::SYS_io_uring_setup]).map(|&call| (call, Vec::new())).collect();
    Ok([filter(sockets, libc::EAFNOSUPPORT, architecture)?, filter(calls, libc::EPERM, architecture)?])
}

/// Matches every family but this one.
fn other_family(family: i32) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::from(family.unsigned_abs()))
}

fn filter(
    calls: BTreeMap<i64, Vec<SeccompRule>>,
    errno: i32,
    architecture: TargetArch,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let refused = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(by_all_numbers(calls), SeccompAction::Allow, refused, architecture)?.try_into()
}

/// Adds the x32 variants of the calls: they have the same architecture for the filter, and one extra bit in their
/// numbers.
#[cfg(target_arch = "x86_64")]
fn by_all_numbers(calls: BTreeMap<i64, Vec<SeccompRule>>) -> BTreeMap<i64, Vec<SeccompRule>> {
    const X32: i64 = 0x4000_0000;
    let x32: Vec<_> = calls.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
    calls.into_iter().chain(x32).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn by_all_numbers(calls: BTreeMap<i64, Vec<SeccompRule>>) -> BTreeMap<i64, Vec<SeccompRule>> {
    calls
}

/// Whether the kernel lacks seccomp, or an earlier filter refuses the call: systemd's filter answers `EPERM`, container
/// runtimes' filters `EPERM` or `ENOSYS`. `no_new_privs` is set, so the kernel itself has no reason for `EPERM`.
fn is_unavailable(error: &seccompiler::Error) -> bool {
    let seccompiler::Error::Seccomp(error) = error else { return false };
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL | libc::EPERM))
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("seccomp: {error}"))
}

#[cfg(test)]
mod tests {
    // Each test enters a sandbox in a thread of its own; only that thread is restricted.

    use std::fs;
    use std::io::ErrorKind;
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};

    use rustix::fs::{Mode, OFlags};
    use rustix::net::{AddressFamily, SocketType};
    use tempfile::TempDir;

    use super::*;

    /// Result of `work` in a thread inside the sandbox; `None` (and a note) if this kernel lacks Landlock.
    fn within<R: Send + 'static>(access: Access, work: impl FnOnce() -> R + Send + 'static) -> Option<R> {
        let lacking = missing();
        if !lacking.is_empty() {
            assert!(std::env::var_os("CI").is_none(), "NOT TESTED: this kernel lacks {lacking:?}");
            return None;
        }
        let thread = std::thread::spawn(move || {
            assert_eq!(enter(&access).unwrap(), Vec::<String>::new());
            work()
        });
        Some(thread.join().unwrap())
    }

    fn read(path: &Path) -> Result<(), ErrorKind> {
        let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        opened.map(drop).map_err(|errno| std::io::Error::from(errno).kind())
    }

    fn write(path: &Path) -> Result<(), ErrorKind> {
        fs::write(path, "x").map_err(|error| error.kind())
    }

    /// A directory with the directories `mine` and `theirs`, each with a file.
    fn directories() -> (TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let [mine, theirs] = ["mine", "theirs"].map(|name| directory.path().join(name));
        for place in [&mine, &theirs] {
            fs::create_dir(place).unwrap();
            fs::write(place.join("file"), "x").unwrap();
        }
        (directory, mine, theirs)
    }

    #[test]
    fn what_may_be_read_is_read_and_nothing_else() {
        let (_kept, mine, theirs) = directories();
        let access = Access { read: vec![mine.clone(), "/nonexistent".into()], ..Access::default() };
        let seen = within(access, move || {
            [
                read(&mine.join("file")),
                write(&mine.join("file")),
                read(&theirs.join("file")),
                read(Path::new("/dev/zero")),
            ]
        });
        let denied = Err(ErrorKind::PermissionDenied);
        assert!(seen.is_none_or(|seen| seen == [Ok(()), denied, denied, denied]));
    }

    #[test]
    fn what_may_be_written_is_replaced_and_removed() {
        let (_kept, mine, theirs) = directories();
        let access = Access { write: vec![mine.clone()], families: vec![libc::AF_UNIX], ..Access::default() };
        let seen = within(access, move || {
            let beside = mine.join("beside");
            let replaced =
                write(&beside).and_then(|()| fs::rename(&beside, mine.join("file")).map_err(|error| error.kind()));
            let removed = fs::remove_file(mine.join("file")).map_err(|error| error.kind());
            [
                replaced,
                removed,
                write(&theirs.join("file")),
                UnixListener::bind(mine.join("s")).map(drop).map_err(|e| e.kind()),
            ]
        });
        let denied = Err(ErrorKind::PermissionDenied);
        assert!(seen.is_none_or(|seen| seen == [Ok(()), Ok(()), denied, denied]));
    }

    #[test]
    fn a_socket_is_made_and_removed_where_it_may_be_and_no_file() {
        let (_kept, mine, theirs) = directories();
        let access = Access { sockets: vec![mine.clone()], families: vec![libc::AF_UNIX], ..Access::default() };
        let seen = within(access, move || {
            let made = UnixListener::bind(mine.join("s")).map(drop).map_err(|error| error.kind());
            let removed = fs::remove_file(mine.join("s")).map_err(|error| error.kind());
            let elsewhere = UnixListener::bind(theirs.join("s")).map(drop).map_err(|error| error.kind());
            [made, removed, elsewhere, write(&mine.join("new"))]
        });
        let denied = Err(ErrorKind::PermissionDenied);
        assert!(seen.is_none_or(|seen| seen == [Ok(()), Ok(()), denied, denied]));
    }

    #[test]
    fn a_seccomp_that_an_outer_filter_refuses_is_reported_and_lived_with() {
        // As under systemd 252, whose group @system-service lacks the call: SystemCallErrorNumber=EPERM.
        let thread = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            let architecture = TargetArch::try_from(std::env::consts::ARCH).unwrap();
            let calls = BTreeMap::from([(libc::SYS_seccomp, Vec::new())]);
            seccompiler::apply_filter(&filter(calls, libc::EPERM, architecture).unwrap()).unwrap();
            restrict_system_calls(&Access::default()).unwrap()
        });
        assert_eq!(thread.join().unwrap(), ["families of sockets (no seccomp)"]);
    }

    #[test]
    fn sockets_are_of_the_families_that_are_allowed() {
        let families = [AddressFamily::UNIX, AddressFamily::INET, AddressFamily::NETLINK];
        for (allowed, expected) in [
            (vec![libc::AF_UNIX], [true, false, false]),
            (vec![libc::AF_UNIX, libc::AF_INET], [true, true, false]),
            (vec![], [false, false, false]),
        ] {
            let seen = within(Access { families: allowed, ..Access::default() }, move || {
                families.map(|family| rustix::net::socket(family, SocketType::DGRAM, None).is_ok())
            });
            assert!(seen.is_none_or(|seen| seen == expected));
        }
    }

    #[test]
    fn capabilities_are_lost_but_those_that_are_kept() {
        let had = rustix::thread::capabilities(None).unwrap().permitted;
        for (kept, left) in [(vec![], CapabilitySet::empty()), (vec![10, 200], CapabilitySet::NET_BIND_SERVICE & had)] {
            let seen = within(Access { capabilities: kept, ..Access::default() }, || {
                let sets = rustix::thread::capabilities(None).unwrap();
                [sets.effective, sets.permitted, sets.inheritable]
            });
            assert!(seen.is_none_or(|seen| seen == [left, left, CapabilitySet::empty()]));
        }
    }
}
