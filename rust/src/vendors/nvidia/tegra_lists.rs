//! The lists in which a Tegra board's packages name what of the host a container with its GPU needs.
//!
//! `/etc/nvidia-container-runtime/host-files-for-container.d/*.csv`, of NVIDIA's container runtime for Jetson: a kind (`dev`,
//! `lib`, `dir`, `sym`) and a path in each line.

use std::path::Path;

use super::roles::LISTED;
use crate::device::HostPath;
use crate::host::Host;
use crate::host::directory::{self, Directory};
use crate::host::resolve;

pub(super) const DIRECTORY: &str = "/etc/nvidia-container-runtime/host-files-for-container.d";
const LISTS: [&str; 3] = ["devices.csv", "drivers.csv", "l4t.csv"];

/// What of the lists is there: nodes, files and directories, links.
pub(super) fn read(host: &Host) -> Vec<HostPath> {
    let lists: Vec<String> = LISTS.iter().map(|list| text(host, list)).collect();
    let listed: Vec<(&str, &str)> = lists.iter().flat_map(|list| list.lines().filter_map(parse)).collect();
    let of_kind = |wanted: &'static str| listed.iter().filter(move |(kind, _)| *kind == wanted).map(|(_, path)| *path);
    let is_there = |path: &&str| directory::exists(&resolve::followed(host, Path::new(path)));
    let nodes = of_kind("dev").filter(is_there).map(|path| HostPath::node(path, None).required(false));
    let files = of_kind("lib").chain(of_kind("dir")).filter(is_there).map(HostPath::file);
    let links = of_kind("sym").filter_map(|path| link(host, path));
    nodes.chain(files).chain(links).map(|path| path.in_role(LISTED)).collect()
}

#[expect(clippy::disallowed_methods, reason = "no attribute, and larger than one")]
fn text(host: &Host, list: &str) -> String {
    let path = resolve::followed(host, &Path::new(DIRECTORY).join(list));
    if path.is_file() { std::fs::read_to_string(path).unwrap_or_default() } else { String::new() }
}

fn parse(line: &str) -> Option<(&str, &str)> {
    let (kind, path) = line.split_once(',')?;
    let path = path.trim();
    path.starts_with('/').then_some((kind.trim(), path))
}

fn link(host: &Host, path: &str) -> Option<HostPath> {
    let (parent, name) = path.rsplit_once('/')?;
    let parent = Directory::open(resolve::followed(host, Path::new(parent))).ok()?;
    let target = parent.link(name).ok()?.to_string_lossy().into_owned();
    Some(HostPath { target, ..HostPath::file(path) })
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
        assert_eq!(read(&host), []);
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
        let listed = read(&host);
        let nodes: Vec<&str> = listed.iter().filter(|path| path.is_node).map(|path| path.path.as_str()).collect();
        assert_eq!(nodes, ["/dev/nvhost-gpu"]);
        let files = listed.iter().filter(|path| !path.is_node && path.target.is_empty());
        let files: Vec<&str> = files.map(|path| path.path.as_str()).collect();
        assert_eq!(files, ["/usr/lib/tegra/libcuda.so.1.1", "/usr/share/tegra"]);
        let links = listed.iter().filter(|path| !path.target.is_empty());
        let links: Vec<(&str, &str)> = links.map(|path| (path.target.as_str(), path.path.as_str())).collect();
        assert_eq!(links, [("libcuda.so.1.1", "/usr/lib/tegra/libcuda.so")]);
    }

    proptest! {
        #[test]
        fn any_line_has_a_kind_and_an_absolute_path_or_neither(line: String) {
            prop_assert!(parse(&line).is_none_or(|(_, path)| path.starts_with('/')));
        }
    }
}
