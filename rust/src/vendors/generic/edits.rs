//! What a container gets for a group: each member as its options say.

use super::{GenericGroup, GenericKind, GenericPath};
use crate::device::{Device, HostPath};
use crate::edits::{Edits, Mount, Node};

/// What of the host the device is, under the paths and with the permissions of its group. Sticks have the group's place
/// alone: generic-device-plugin gives all of them `rw` and under their own name.
pub(super) fn edits(device: &Device, group: &GenericGroup) -> Edits {
    let mut edits = Edits::default();
    let mut members = group.paths.iter();
    for path in &device.paths {
        if path.role.is_empty() {
            edits.nodes.push(Node::same(&path.path, "rw"));
        } else if let Some(member) = members.find(|member| member.path == path.role) {
            give(&mut edits, member, path);
        }
    }
    edits
}

fn give(edits: &mut Edits, member: &GenericPath, path: &HostPath) {
    let (host_path, container_path) = (path.path.clone(), container_path(&member.mount_path, &path.path));
    match member.kind {
        GenericKind::Device => {
            edits.nodes.push(Node { host_path, container_path, permissions: member.permissions.clone(), access: None });
        }
        GenericKind::Mount => {
            edits.mounts.push(Mount { host_path, container_path, read_only: member.read_only, ..Mount::default() });
        }
    }
}

fn container_path(mount_path: &str, host_path: &str) -> String {
    match mount_path {
        "" => host_path.to_owned(),
        directory if directory.ends_with('/') => {
            format!("{directory}{}", host_path.trim_end_matches('/').rsplit('/').next().unwrap_or_default())
        }
        path => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_path_ending_in_a_slash_is_a_directory() {
        for (mount_path, host_path, expected) in [
            ("", "/dev/ttyUSB0", "/dev/ttyUSB0"),
            ("/dev/tty0", "/dev/ttyUSB0", "/dev/tty0"),
            ("/dev/serial/", "/dev/ttyUSB0", "/dev/serial/ttyUSB0"),
            ("/", "/dev/snd/", "/snd"),
        ] {
            assert_eq!(container_path(mount_path, host_path), expected);
        }
    }
}
