//! The lists in which a Tegra board's packages name what of the host a container with its GPU needs.
//!
//! `/etc/nvidia-container-runtime/host-files-for-container.d/*.csv`, of NVIDIA's container runtime for Jetson: a kind (`dev`,
//! `lib`, `dir`, `sym`) and a path in each line.

use std::path::Path;

use super::cdi;
use crate::cdi::Edits;
use crate::device::Node;
use crate::directory::{self, Directory};
use crate::host::Host;
use crate::symlink;

pub(super) const DIRECTORY: &str = "/etc/nvidia-container-runtime/host-files-for-container.d";
const LISTS: [&str; 3] = ["devices.csv", "drivers.csv", "l4t.csv"];

/// What of the lists is there.
pub(super) fn edits(host: &Host, hook_program: &str) -> Edits {
    let lists: Vec<String> = LISTS.iter().map(|list| read(host, list)).collect();
    let listed: Vec<(&str, &str)> = lists.iter().flat_map(|list| list.lines().filter_map(parse)).collect();
    let of_kind = |wanted: &'static str| listed.iter().filter(move |(kind, _)| *kind == wanted).map(|(_, path)| *path);
    let is_there = |path: &&str| directory::exists(&symlink::followed(host, Path::new(path)));
    let node =
        |path: &str| Node { host_path: path.to_owned(), container_path: path.to_owned(), permissions: "rw".to_owned() };
    let nodes: Vec<Node> = of_kind("dev").filter(is_there).map(node).collect();
    let files = of_kind("lib").chain(of_kind("dir")).filter(is_there).map(str::to_owned);
    let links = of_kind("sym").filter_map(|path| link(host, path));
    cdi::listed(&nodes, &files.collect::<Vec<_>>(), &links.collect::<Vec<_>>(), hook_program)
}

#[expect(clippy::disallowed_methods, reason = "no attribute, and larger than one")]
fn read(host: &Host, list: &str) -> String {
    let path = symlink::followed(host, &Path::new(DIRECTORY).join(list));
    if path.is_file() { std::fs::read_to_string(path).unwrap_or_default() } else { String::new() }
}

fn parse(line: &str) -> Option<(&str, &str)> {
    let (kind, path) = line.split_once(',')?;
    let path = path.trim();
    path.starts_with('/').then_some((kind.trim(), path))
}

/// `target::link`.
fn link(host: &Host, path: &str) -> Option<String> {
    let (parent, name) = path.rsplit_once('/')?;
    let parent = Directory::open(symlink::followed(host, Path::new(parent))).ok()?;
    Some(format!("{}::{path}", parent.link(name).ok()?.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_listed_and_there_is_brought() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        assert!(edits(&host, "/usr/bin/nvidia-ctk").is_empty());
        for directory in ["dev", "usr/lib/tegra", "usr/share/tegra", &DIRECTORY[1..]] {
            create_dir_all(root.path().join(directory)).unwrap();
        }
        write(root.path().join("dev/nvhost-gpu"), "").unwrap();
        write(root.path().join("usr/lib/tegra/libcuda.so.1.1"), "").unwrap();
        symlink("libcuda.so.1.1", root.path().join("usr/lib/tegra/libcuda.so")).unwrap();
        write(
            host.absolute(DIRECTORY).join("drivers.csv"),
            "dev, /dev/nvhost-gpu\ndev, /dev/nvmap\nlib, /usr/lib/tegra/libcuda.so.1.1\ndir, /usr/share/tegra\n\
             sym, /usr/lib/tegra/libcuda.so\nsym, /usr/lib/tegra/missing.so\n\n# nonsense\n",
        )
        .unwrap();
        let edits = edits(&host, "/usr/bin/nvidia-ctk");
        let paths: Vec<&str> = edits.device_nodes.iter().map(|node| node.path.as_str()).collect();
        assert_eq!(paths, ["/dev/nvhost-gpu"]);
        let mounts: Vec<&str> = edits.mounts.iter().map(|mount| mount.host_path.as_str()).collect();
        assert_eq!(mounts, ["/usr/lib/tegra/libcuda.so.1.1", "/usr/share/tegra"]);
        let hooks: Vec<String> = edits.hooks.iter().map(|hook| hook.args[2..].join(" ")).collect();
        assert_eq!(
            hooks,
            [
                "create-symlinks --link libcuda.so.1.1::/usr/lib/tegra/libcuda.so",
                "update-ldcache --folder /usr/lib/tegra"
            ]
        );
    }

    proptest! {
        #[test]
        fn any_line_has_a_kind_and_an_absolute_path_or_neither(line: String) {
            prop_assert!(parse(&line).is_none_or(|(_, path)| path.starts_with('/')));
        }
    }
}
