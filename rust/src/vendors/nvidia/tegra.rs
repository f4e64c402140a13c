//! Tegra boards: one GPU within the chip. NVIDIA's plugin offers it as one device without paths.
//!
//! The packages of a Tegra board list the paths that a container with the GPU needs. The lists are
//! `/etc/nvidia-container-runtime/host-files-for-container.d/*.csv`, of NVIDIA's container runtime for Jetson: each
//! line has a kind (`dev`, `lib`, `dir`, `sym`) and a path.

use std::path::Path;

use super::advertise::NAMESPACE;
use super::card::Card;
use super::installation::LISTED;
use super::{DeviceDiscoveryStrategy, MigStrategy, NvidiaOptions, VENDOR};
use crate::device::{Device, HostPath, Platform, Problem};
use crate::host::attribute::Attribute;
use crate::host::directory::{self, Directory};
use crate::host::{Host, resolve};

const ID: &str = "tegra";
const RELEASE: &str = "/etc/nv_tegra_release";
/// The GPU's own nodes under its various drivers; if the GPU works, one of them exists.
const NODES: [&str; 4] = ["nvgpu/igpu0/ctrl", "nvhost-ctrl-gpu", "nvhost-gpu", "nvidia0"];
/// Models of GPUs in Tegra chips, as listed by the driver for discrete cards.
const INTEGRATED: [&str; 2] = ["(nvgpu)", "NVIDIA Thor"];

/// Whether this is a Tegra board, given the models that the driver for discrete cards lists.
pub(super) fn is_here<'m>(host: &Host, options: &NvidiaOptions, mut models: impl Iterator<Item = &'m str>) -> bool {
    match options.device_discovery_strategy {
        DeviceDiscoveryStrategy::Tegra => true,
        DeviceDiscoveryStrategy::Auto => models.all(is_integrated) && has_tegra_files(host),
        DeviceDiscoveryStrategy::Nvml | DeviceDiscoveryStrategy::Procfs => false,
    }
}

/// The board's only device, with the GPU's own node as its only path; the runtime knows what else belongs to it.
pub(super) fn device(host: &Host) -> Device {
    let mut device = Device {
        vendor: VENDOR.into(),
        card: ID.to_owned(),
        id: ID.to_owned(),
        resource_name: Some(format!("{NAMESPACE}/gpu")),
        ..Device::default()
    };
    device.note("uuid", ID, RELEASE);
    device.note("index", "0", RELEASE);
    if let Ok(model) = Attribute::read(host.proc("device-tree/model")) {
        device.note("model", model.text(), host.own_path(model.path()));
    }
    let nodes = NODES.map(|name| host.dev(name));
    let path = nodes.iter().find(|path| directory::exists(path)).unwrap_or(&nodes[0]).clone();
    device.paths.push(HostPath::node(host.own_path(path).to_string_lossy(), None).in_role("integrated"));
    device
}

/// Adds the paths that a container with the GPU needs; returns a problem if there are none for CDI.
pub(super) fn add_listed(host: &Host, platform: &mut Platform) -> Option<Problem> {
    platform.paths.extend(listed(host));
    let error = "no list in this directory names a file of this host: containers get no GPU by CDI";
    platform.paths_in(LISTED).next().is_none().then(|| Problem::new(VENDOR, LISTS_DIRECTORY, error).of(ID))
}

/// A problem if MIG devices are asked for and the board's GPU has some: it is offered as one device all the same, as
/// NVIDIA's plugin does (<https://github.com/NVIDIA/k8s-device-plugin/issues/1975>).
pub(super) fn without_parts(host: &Host, options: &NvidiaOptions, cards: &[Card]) -> Option<Problem> {
    let has_parts = |card: &&Card| {
        let instances = card.gpu.as_ref().and_then(|gpu| gpu.instances.as_ref());
        instances.is_some_and(|instances| !instances.is_empty())
    };
    let card = cards.iter().find(has_parts).filter(|_| options.mig_strategy != MigStrategy::None)?;
    let error = "the MIG devices of a GPU within the chip are not advertised, it is one device: turn MIG mode off \
        (nvidia-smi -mig 0), or set `mig_strategy: none`";
    let gpu = card.gpu.as_ref()?;
    Some(Problem::new(VENDOR, host.own_path(&gpu.source), error).of(card.address()))
}

fn is_integrated(model: &str) -> bool {
    INTEGRATED.iter().any(|part| model.contains(part))
}

fn has_tegra_files(host: &Host) -> bool {
    let family = Attribute::read(host.sys("devices/soc0/family"));
    let is_tegra = family.is_ok_and(|family| family.text().to_lowercase().starts_with("tegra"));
    is_tegra || directory::exists(&host.absolute(RELEASE))
}

const LISTS_DIRECTORY: &str = "/etc/nvidia-container-runtime/host-files-for-container.d";
const LISTS: [&str; 3] = ["devices.csv", "drivers.csv", "l4t.csv"];

/// The existing entries of the lists: nodes, files and directories, and links.
pub(super) fn listed(host: &Host) -> Vec<HostPath> {
    let lists: Vec<String> = LISTS.iter().map(|list| text_of(host, list)).collect();
    let listed: Vec<(&str, &str)> = lists.iter().flat_map(|list| list.lines().filter_map(parse)).collect();
    let of_kind = |wanted: &'static str| listed.iter().filter(move |(kind, _)| *kind == wanted).map(|(_, path)| *path);
    let is_there = |path: &&str| directory::exists(&resolve::followed(host, Path::new(path)));
    let nodes = of_kind("dev").filter(is_there).map(|path| HostPath::node(path, None).required(false));
    let files = of_kind("lib").chain(of_kind("dir")).filter(is_there).map(HostPath::file);
    let links = of_kind("sym").filter_map(|path| link(host, path));
    nodes.chain(files).chain(links).map(|path| path.in_role(LISTED)).collect()
}

#[expect(clippy::disallowed_methods, reason = "no attribute, and larger than one")]
fn text_of(host: &Host, list: &str) -> String {
    let path = resolve::followed(host, &Path::new(LISTS_DIRECTORY).join(list));
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
        assert_eq!(listed(&host), []);
        for directory in ["dev", "usr/lib/tegra", "usr/share/tegra", &LISTS_DIRECTORY[1..]] {
            create_dir_all(root.path().join(directory)).unwrap();
        }
        write(root.path().join("dev/nvhost-gpu"), "").unwrap();
        write(root.path().join("usr/lib/tegra/libcuda.so.1.1"), "").unwrap();
        symlink("libcuda.so.1.1", root.path().join("usr/lib/tegra/libcuda.so")).unwrap();
        write(
            host.absolute(LISTS_DIRECTORY).join("drivers.csv"),
            "dev, /dev/nvhost-gpu\ndev, /dev/nvmap\nlib, /usr/lib/tegra/libcuda.so.1.1\ndir, /usr/share/tegra\n\
             sym, /usr/lib/tegra/libcuda.so\nsym, /usr/lib/tegra/missing.so\n\n# nonsense\n",
        )
        .unwrap();
        let listed = listed(&host);
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
