//! Groups of members by path: one device for each set of matches, times the group's count.

use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::{GenericKind, GenericPath};
use super::{Group, Seen, VENDOR, place};
use crate::bus::numa::Near;
use crate::device::{Device, HostPath, Problem};
use crate::host::Host;
use crate::host::attribute::Cause;
use crate::host::resolve::followed;
use crate::vendors::generic::glob;

/// A member of the group, and what it matches on this host.
struct Member<'a> {
    options: &'a GenericPath,
    matches: Vec<Match>,
}

/// One path of the host.
struct Match {
    path: String,
    /// Whether a device node must be there, and no file, directory or socket.
    is_node: bool,
    near: Option<Near>,
}

/// Adds the devices of a group.
pub(super) fn add(host: &Host, group: &Group, seen: &mut Seen) {
    let mut members = Vec::new();
    for options in &group.options.paths {
        let known = seen.problems.len();
        let matches = find(host, options, seen);
        if matches.is_empty() && !options.optional && seen.problems.len() == known {
            seen.unmatched.push((group.resource_name.clone(), options.path.clone()));
        }
        if !(options.optional && matches.is_empty()) {
            members.push(Member { options, matches });
        }
    }
    for set in 0..sets(members.iter().map(|member| (member.matches.len(), member.options.limit))) {
        let chosen: Vec<_> =
            members.iter().map(|member| (member.options, &member.matches[set % member.matches.len()])).collect();
        seen.devices.extend((0..group.options.count).map(|instance| device(host, group, instance, &chosen)));
    }
}

/// The directory in which matches come and go: the last one named before the first wildcard.
pub(super) fn watched_directory(host: &Host, options: &GenericPath) -> PathBuf {
    let plain = options.path.split(['*', '?', '[', '\\']).next().unwrap_or_default();
    let directory = plain.rsplit_once('/').map_or("/", |(directory, _)| directory);
    followed(host, &Path::new("/").join(directory))
}

/// How many sets of matches members with these numbers of matches and limits make: as many as the member with the most
/// matches has, unless another one, each match used up to its limit, has fewer.
fn sets(members: impl Iterator<Item = (usize, u32)> + Clone) -> usize {
    let most = members.clone().map(|(matches, _)| matches).max();
    let fewest = members.map(|(matches, limit)| matches.saturating_mul(limit as usize)).min();
    most.min(fewest).unwrap_or_default()
}

fn find(host: &Host, options: &GenericPath, seen: &mut Seen) -> Vec<Match> {
    let found = glob::find(host, &options.path).unwrap_or_else(|error| {
        seen.problems.push(Problem::new(VENDOR, &options.path, format!("the pattern {error}")));
        glob::Matches::default()
    });
    for error in &found.errors {
        seen.blame(host, error);
        seen.is_partial |= is_passing(&error.cause);
    }
    found.paths.into_iter().map(|found| examine(host, options.kind, found, seen)).collect()
}

/// Whether another look may succeed. What is forbidden stays so, and then the other matches are all there is.
fn is_passing(cause: &Cause) -> bool {
    !matches!(cause, Cause::System(Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::NAMETOOLONG))
}

/// What is at a matching path, and what must stay so.
fn examine(host: &Host, kind: GenericKind, found: glob::Match, seen: &mut Seen) -> Match {
    let glob::Match { path, place } = found;
    // Most nodes are no links, and then this is the only system call.
    let found = match rustix::fs::lstat(&place) {
        Ok(found) if !FileType::from_raw_mode(found.st_mode).is_symlink() => Ok(found),
        _ => rustix::fs::stat(followed(host, Path::new(&path))),
    };
    let standing = judge(kind, found.map(|found| FileType::from_raw_mode(found.st_mode)), host.is_simulated());
    if standing == Standing::NoNode {
        let error = "is not a device node; `type: Mount` is for files, directories and sockets";
        seen.problems.push(Problem::new(VENDOR, &path, error));
    }
    let near = found.ok().and_then(|found| near(host, &found, seen));
    Match { path, is_node: kind == GenericKind::Device && standing != Standing::Path, near }
}

/// What a path turns out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// A device node, or on a simulated host a file that stands for one.
    Node,
    /// Something else that may be given to a container.
    Path,
    /// Something that cannot be given as a device.
    NoNode,
    /// Nothing: a link that leads nowhere.
    Missing,
}

fn judge(kind: GenericKind, found: Result<FileType, Errno>, simulated: bool) -> Standing {
    match (kind, found) {
        (_, Err(_)) => Standing::Missing,
        (GenericKind::Device, Ok(FileType::CharacterDevice | FileType::BlockDevice)) => Standing::Node,
        (GenericKind::Device, Ok(FileType::RegularFile)) if simulated => Standing::Node,
        // A directory means all the nodes in it, as with `docker run --device`.
        (GenericKind::Mount, Ok(_)) | (GenericKind::Device, Ok(FileType::Directory)) => Standing::Path,
        (GenericKind::Device, Ok(_)) => Standing::NoNode,
    }
}

fn near(host: &Host, found: &Stat, seen: &mut Seen) -> Option<Near> {
    let directory = match FileType::from_raw_mode(found.st_mode) {
        FileType::CharacterDevice => "dev/char",
        FileType::BlockDevice => "dev/block",
        _ => return None,
    };
    let (major, minor) = (rustix::fs::major(found.st_rdev), rustix::fs::minor(found.st_rdev));
    seen.near(host, directory, &format!("{major}:{minor}"))
}

fn device(host: &Host, group: &Group, instance: u32, chosen: &[(&GenericPath, &Match)]) -> Device {
    let paths: Vec<&str> = chosen.iter().map(|(_, found)| found.path.as_str()).collect();
    let mut device = group.device(instance, &paths);
    place(host, &mut device, chosen.iter().filter_map(|(_, found)| found.near.as_ref()));
    let patterns: Vec<&str> = chosen.iter().map(|(options, _)| options.path.as_str()).collect();
    device.note("path", paths.join(","), patterns.join(","));
    for (options, found) in chosen {
        let path = HostPath { is_node: found.is_node, ..HostPath::file(&found.path) };
        device.paths.push(path.in_role(options.path.clone()).required(true));
    }
    device
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sets_follow_the_formula() {
        for (members, expected) in [
            (&[][..], 0),
            (&[(3, 1)], 3),
            (&[(0, 5)], 0),
            (&[(1, 10)], 1),
            (&[(5, 1), (1, 10)], 5),
            (&[(5, 1), (1, 3)], 3),
            (&[(2, 2), (3, 1)], 3),
            (&[(4, 1), (0, 1)], 0),
            (&[(4, 0)], 0),
            (&[(usize::MAX, u32::MAX)], usize::MAX),
        ] {
            assert_eq!(sets(members.iter().copied()), expected, "{members:?}");
        }
    }

    proptest! {
        #[test]
        fn sets_use_no_match_beyond_its_limit(members in prop::collection::vec((0_usize..9, 0_u32..9), 1..4)) {
            let sets = sets(members.iter().copied());
            prop_assert!(members.iter().all(|&(matches, limit)| sets <= matches * limit as usize));
            prop_assert!(members.iter().any(|&(matches, _)| sets <= matches));
        }
    }

    #[test]
    fn the_kind_decides_what_may_be_given() {
        use GenericKind::{Device, Mount};
        for (kind, found, simulated, expected) in [
            (Device, Ok(FileType::CharacterDevice), false, Standing::Node),
            (Device, Ok(FileType::BlockDevice), false, Standing::Node),
            (Device, Ok(FileType::Directory), false, Standing::Path),
            (Device, Ok(FileType::RegularFile), false, Standing::NoNode),
            (Device, Ok(FileType::RegularFile), true, Standing::Node),
            (Device, Ok(FileType::Socket), true, Standing::NoNode),
            (Device, Err(Errno::NOENT), true, Standing::Missing),
            (Mount, Ok(FileType::Socket), false, Standing::Path),
            (Mount, Ok(FileType::CharacterDevice), false, Standing::Path),
            (Mount, Err(Errno::LOOP), false, Standing::Missing),
        ] {
            assert_eq!(judge(kind, found, simulated), expected, "{kind:?} {found:?} {simulated}");
        }
    }

    #[test]
    fn the_last_directory_before_a_wildcard_is_watched() {
        for (path, expected) in [
            ("/dev/ttyUSB*", "/dev"),
            ("/dev/serial/by-id/*", "/dev/serial/by-id"),
            ("/dev/*/x", "/dev"),
            ("/*", "/"),
            ("/dev/kvm", "/dev"),
        ] {
            let options = GenericPath { path: path.to_owned(), ..GenericPath::default() };
            assert_eq!(watched_directory(&Host::new("/"), &options), Path::new(expected), "{path}");
        }
    }
}
