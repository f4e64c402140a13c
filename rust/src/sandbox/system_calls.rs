//! What Landlock does not cover, by a seccomp filter: <https://docs.kernel.org/userspace-api/seccomp_filter.html>.
//!
//! Sockets of other families (UDP, raw packets, netlink), programs where none may be started (also one in memory, which has no
//! path), modes of files, and `io_uring`, which opens files and sockets past any filter. Everything else stays allowed: a
//! list of what is allowed would break with each new version of a library.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::Access;

/// Has the same number everywhere, and a name in libc on some architectures:
/// <https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/scripts/syscall.tbl>.
const FCHMODAT2: i64 = 452;

#[cfg(target_arch = "x86_64")]
const MODES: [i64; 4] = [libc::SYS_chmod, libc::SYS_fchmod, libc::SYS_fchmodat, FCHMODAT2];
#[cfg(not(target_arch = "x86_64"))]
const MODES: [i64; 3] = [libc::SYS_fchmod, libc::SYS_fchmodat, FCHMODAT2];

const PROGRAMS: [i64; 2] = [libc::SYS_execve, libc::SYS_execveat];

pub(super) fn restrict(access: &Access) -> io::Result<Vec<String>> {
    let Ok(architecture) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok(vec!["families of sockets (no seccomp for this architecture)".to_owned()]);
    };
    for program in programs(access, architecture).map_err(failed)? {
        match seccompiler::apply_filter(&program) {
            Ok(()) => {}
            Err(error) if is_unsupported(&error) => return Ok(vec!["families of sockets (no seccomp)".to_owned()]),
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(Vec::new())
}

/// A filter has one answer for what it matches: the first says that a family is not supported, the second that a call is
/// not permitted.
fn programs(access: &Access, architecture: TargetArch) -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let other_families =
        access.families.iter().map(|&family| condition(family)).collect::<Result<Vec<_>, _>>().and_then(
            |conditions| if conditions.is_empty() { Ok(Vec::new()) } else { Ok(vec![SeccompRule::new(conditions)?]) },
        )?;
    let sockets = BTreeMap::from([(libc::SYS_socket, other_families)]);
    let programs = if access.execute.is_empty() { PROGRAMS.as_slice() } else { &[] };
    let modes = if access.modes { &[] } else { MODES.as_slice() };
    let calls =
        modes.iter().chain(programs).chain(&[libc::SYS_io_uring_setup]).map(|&call| (call, Vec::new())).collect();
    Ok([filter(sockets, libc::EAFNOSUPPORT, architecture)?, filter(calls, libc::EPERM, architecture)?])
}

/// The family is another one.
fn condition(family: i32) -> Result<SeccompCondition, seccompiler::BackendError> {
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

/// The x32 calls too, which are the same architecture for the filter, with a bit set in their numbers.
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

fn is_unsupported(error: &seccompiler::Error) -> bool {
    matches!(error, seccompiler::Error::Seccomp(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)))
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("seccomp: {error}"))
}
