//! Groups with members by path: one device for each set of matches, with as many shares as the group's count.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::{GenericKind, GenericPath};
use super::{Group, PCI_FUNCTION, Seen, USB_INTERFACE, USB_PORT, VENDOR, place};
use crate::bus::numa::NumaNode;
use crate::bus::pci;
use crate::bus::usb::Port;
use crate::device::{Device, HostPath, Problem};
use crate::host::Host;
use crate::host::attribute::Cause;
use crate::host::directory;
use crate::host::resolve::followed;
use crate::vendors::generic::glob;

/// A member of the group, and its matches on this host.
struct Member<'a> {
    options: &'a GenericPath,
    matches: Vec<Match>,
}

/// A matching path of the host.
struct Match {
    path: String,
    /// Whether the path must be a device node, and not a file, directory or socket.
    is_node: bool,
    near: Option<NumaNode>,
    plugged: Vec<(&'static str, String)>,
    /// The directory of its device in sysfs, without the host root; empty if it has none.
    behind: String,
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
    let sets = sets(members.iter().map(|member| (member.matches.len(), member.options.limit)));
    let sets = if group.options.count > 0 { sets } else { 0 };
    let device_of = |set: usize| {
        let chosen: Vec<_> =
            members.iter().map(|member| (member.options, &member.matches[set % member.matches.len()])).collect();
        device(host, group, &chosen)
    };
    seen.devices.extend((0..sets).map(device_of).map(Arc::new));
}

/// The directory in which matches are created and removed: the last directory before the first wildcard.
pub(super) fn watched_directory(host: &Host, options: &GenericPath) -> PathBuf {
    let plain = options.path.split(['*', '?', '[', '\\']).next().unwrap_or_default();
    let directory = plain.rsplit_once('/').map_or("/", |(directory, _)| directory);
    followed(host, &Path::new("/").join(directory))
}

/// The number of sets, given the number of matches and the limit of each member. It is the largest number of matches of
/// any member, or less if another member yields fewer sets with each match used up to its limit.
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

/// Whether another look may succeed. Forbidden paths stay forbidden; in that case the other matches are complete.
fn is_passing(cause: &Cause) -> bool {
    !matches!(cause, Cause::System(Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::NAMETOOLONG))
}

/// Examines a matching path.
fn examine(host: &Host, kind: GenericKind, found: glob::Match, seen: &mut Seen) -> Match {
    let glob::Match { path, place } = found;
    // Most nodes are not links, and need only this system call.
    let found = match rustix::fs::lstat(&place) {
        Ok(found) if !FileType::from_raw_mode(found.st_mode).is_symlink() => Ok(found),
        _ => rustix::fs::stat(followed(host, Path::new(&path))),
    };
    let kind_of_path = path_kind(kind, found.map(|found| FileType::from_raw_mode(found.st_mode)), host.is_simulated());
    if kind_of_path == PathKind::NoNode {
        let error = "is not a device node; `type: Mount` is for files, directories and sockets";
        seen.problems.push(Problem::new(VENDOR, &path, error));
    }
    let entry = found.ok().and_then(|found| entry_of(&found));
    let near = entry.as_ref().and_then(|(directory, name)| seen.near(host, directory, name));
    let behind = entry.and_then(|(directory, name)| behind(host, directory, &name));
    let plugged = behind.as_deref().map(plugged).unwrap_or_default();
    let behind = behind.map(|path| host.own_path(path).display().to_string()).unwrap_or_default();
    Match { path, is_node: kind == GenericKind::Device && kind_of_path != PathKind::Path, near, plugged, behind }
}

/// The kind of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathKind {
    /// A device node, or a file that stands for one on a simulated host.
    Node,
    /// Any other object that a container may get.
    Path,
    /// An object that cannot be used as a device node.
    NoNode,
    /// A link without an existing target.
    Missing,
}

fn path_kind(kind: GenericKind, found: Result<FileType, Errno>, simulated: bool) -> PathKind {
    match (kind, found) {
        (_, Err(_)) => PathKind::Missing,
        (GenericKind::Device, Ok(FileType::CharacterDevice | FileType::BlockDevice)) => PathKind::Node,
        (GenericKind::Device, Ok(FileType::RegularFile)) if simulated => PathKind::Node,
        // A directory stands for all nodes in it, as with `docker run --device`.
        (GenericKind::Mount, Ok(_)) | (GenericKind::Device, Ok(FileType::Directory)) => PathKind::Path,
        (GenericKind::Device, Ok(_)) => PathKind::NoNode,
    }
}

/// The entry of a device node in /sys/dev: directory and name.
fn entry_of(found: &Stat) -> Option<(&'static str, String)> {
    let directory = match FileType::from_raw_mode(found.st_mode) {
        FileType::CharacterDevice => "dev/char",
        FileType::BlockDevice => "dev/block",
        _ => return None,
    };
    let (major, minor) = (rustix::fs::major(found.st_rdev), rustix::fs::minor(found.st_rdev));
    Some((directory, format!("{major}:{minor}")))
}

/// The directory of the device behind an entry of /sys/dev.
fn behind(host: &Host, directory: &str, name: &str) -> Option<PathBuf> {
    let directory = host.sys(directory);
    let target = directory::link(&directory.join(name)).ok()?;
    Some(host.behind_link(&directory, &target))
}

/// Where a device is plugged in. Of PCI functions only devices of the function itself count (`<function>/nvme/nvme0`):
/// a disk may be another one of the same controller.
fn plugged(path: &Path) -> Vec<(&'static str, String)> {
    if let Some(port) = Port::of(path) {
        let interface = port.interface.map(|interface| (USB_INTERFACE, interface));
        return std::iter::once((USB_PORT, port.name)).chain(interface).collect();
    }
    let function = pci::function_of(path).filter(|function| path.parent().and_then(Path::parent) == Some(*function));
    function.and_then(pci::address_of).map(|address| (PCI_FUNCTION, address.to_owned())).into_iter().collect()
}

fn device(host: &Host, group: &Group, chosen: &[(&GenericPath, &Match)]) -> Device {
    let paths: Vec<&str> = chosen.iter().map(|(_, found)| found.path.as_str()).collect();
    let mut device = group.device(&paths);
    place(host, &mut device, chosen.iter().filter_map(|(_, found)| found.near.as_ref()));
    let patterns: Vec<&str> = chosen.iter().map(|(options, _)| options.path.as_str()).collect();
    device.note("path", paths.join(","), patterns.join(","));
    for name in [USB_PORT, USB_INTERFACE, PCI_FUNCTION] {
        let of_name = chosen.iter().flat_map(|(_, found)| found.plugged.iter().map(move |fact| (fact, &found.behind)));
        let (values, sources): (Vec<&str>, Vec<&str>) = of_name
            .filter(|((fact, _), _)| *fact == name)
            .map(|((_, value), behind)| (value.as_str(), behind.as_str()))
            .unzip();
        if !values.is_empty() {
            device.note(name, values.join(","), sources.join(","));
        }
    }
    for (options, found) in chosen {
        let path = HostPath { is_node: found.is_node, ..HostPath::file(&found.path) };
        device.paths.push(path.in_role(options.path.clone()).required(true));
    }
    device
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::vendors::testing;

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
            (Device, Ok(FileType::CharacterDevice), false, PathKind::Node),
            (Device, Ok(FileType::BlockDevice), false, PathKind::Node),
            (Device, Ok(FileType::Directory), false, PathKind::Path),
            (Device, Ok(FileType::RegularFile), false, PathKind::NoNode),
            (Device, Ok(FileType::RegularFile), true, PathKind::Node),
            (Device, Ok(FileType::Socket), true, PathKind::NoNode),
            (Device, Err(Errno::NOENT), true, PathKind::Missing),
            (Mount, Ok(FileType::Socket), false, PathKind::Path),
            (Mount, Ok(FileType::CharacterDevice), false, PathKind::Path),
            (Mount, Err(Errno::LOOP), false, PathKind::Missing),
        ] {
            assert_eq!(path_kind(kind, found, simulated), expected, "{kind:?} {found:?} {simulated}");
        }
    }

    #[test]
    fn where_a_node_is_plugged_in_is_known_for_usb_and_for_nodes_of_a_pci_function_itself() {
        let of = |path: &str| plugged(&Path::new("/sys/devices/pci0000:00").join(path));
        let usb = "0000:00:14.0/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0";
        assert_eq!(of(usb), [(USB_PORT, "1-2".to_owned()), (USB_INTERFACE, "1-2:1.0".to_owned())]);
        assert_eq!(of("0000:00:01.0/0000:01:00.0/nvme/nvme0"), [(PCI_FUNCTION, "0000:01:00.0".to_owned())]);
        for none in [
            "0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0n1",
            "0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda",
            "0000:00:01.0",
        ] {
            assert_eq!(of(none), [], "{none}");
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
            let options = serde_json::from_value(testing::member(path, &json!({}))).unwrap();
            assert_eq!(watched_directory(&Host::new("/"), &options), Path::new(expected), "{path}");
        }
    }
}
