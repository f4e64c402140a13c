//! NVIDIA's software on a host that all devices need: this module reads it, and `edits` gives it to containers. Each
//! path has a role, by which the edits find it.
//!
//! Libraries and files are searched only if devices are given by CDI, because the search takes longer than reading all
//! GPUs.

use std::collections::BTreeSet;
use std::path::Path;

use super::driver_files::{self, DriverFiles};
use super::libraries::{DriverRoot, Libraries, VDPAU};
use super::nodes::{self, DevRoot, Needed};
use super::{NvidiaOptions, VENDOR, driver};
use crate::device::{Device, HostPath, Platform, Problem};
use crate::edits::Way;
use crate::health::sources::scan;
use crate::host::directory::{self, Directory};
use crate::host::{Host, resolve};

/// The fact with the directory of the host's device nodes.
pub(super) const DEV_ROOT: &str = "dev_root";
/// The fact with the driver version of the libraries.
pub(super) const DRIVER_VERSION: &str = "driver_version";

/// Roles of paths of the installation: nodes for every GPU.
pub(super) const CONTROL: &str = "control";
pub(super) const IMEX_CHANNEL: &str = "imex-channel";
pub(super) const LIBRARY: &str = "library";
/// Links next to libraries, by which programs find the libraries.
pub(super) const LIBRARY_LINK: &str = "library-link";
/// Modules of the X server.
pub(super) const MODULE: &str = "module";
/// Configurations by which loaders of graphics and OpenCL find the driver.
pub(super) const CONFIGURATION: &str = "configuration";
/// Programs and firmware.
pub(super) const FILE: &str = "file";
pub(super) const SOCKET: &str = "socket";
/// Entries of a Tegra board's lists.
pub(super) const LISTED: &str = "listed";
/// The drivers of Windows.
pub(super) const DRIVER_STORE: &str = "driver-store";

/// Roles of paths of one device: its own nodes, and its nodes below /dev/dri.
pub(super) const DEVICE: &str = "device";
pub(super) const GRAPHICS: &str = "graphics";

/// The installed parts, and a problem for each missing one.
#[derive(Debug)]
pub(super) struct Installation {
    pub(super) platform: Platform,
    pub(super) problems: Vec<Problem>,
    dev_root: DevRoot,
    /// Whether containers get devices by CDI: the device plugin by its strategies, or another front end.
    pub(super) is_for_cdi: bool,
    /// Whether all GPUs lack their nodes.
    pub(super) lacks_nodes: bool,
    /// Whether the container runtime makes these missing nodes, so that devices are usable without them.
    runtime_makes_nodes: bool,
    /// The IMEX channels without which devices are unusable, even those that do not exist.
    required_channels: Vec<HostPath>,
}

impl Installation {
    pub(super) fn read(host: &Host, options: &NvidiaOptions, ways: &BTreeSet<Way>, libraries: &Libraries) -> Self {
        let dev_root = DevRoot::of(host, options);
        let channels: Vec<HostPath> =
            options.imex_channel_ids.iter().map(|&number| channel(host, &dev_root, number)).collect();
        let (there, missing): (Vec<_>, Vec<_>) = channels.iter().partition(|channel| nodes::is_there(host, channel));
        let mut platform = Platform::default();
        platform.note(DEV_ROOT, dev_root.text(), "");
        platform.paths.extend(dev_root.control(host));
        platform.paths.extend(there.into_iter().cloned());
        let mut read = Self {
            platform,
            problems: missing.into_iter().map(missing_channel).collect(),
            dev_root,
            is_for_cdi: options.asks_for_cdi() || ways.contains(&Way::Cdi),
            lacks_nodes: false,
            runtime_makes_nodes: false,
            required_channels: if options.imex_required { channels } else { Vec::new() },
        };
        if read.is_for_cdi {
            read.add_files(host, options, libraries);
        }
        for class in Class::wanted(options) {
            read.add_class(&class, host, options);
        }
        read
    }

    /// One problem for all GPUs with these minor numbers if all of them lack their nodes. If devices are named only by
    /// `NVIDIA_VISIBLE_DEVICES`, NVIDIA's container runtime makes the nodes for the first container, as its plugin
    /// expects. By CDI the nodes must be there.
    pub(super) fn without_nodes(
        &mut self,
        host: &Host,
        options: &NvidiaOptions,
        ways: &BTreeSet<Way>,
        minors: &[u32],
    ) -> Option<Problem> {
        self.lacks_nodes = nodes::none_is_made(host, &self.dev_root, minors);
        self.runtime_makes_nodes =
            self.lacks_nodes && ways.iter().eq([&Way::DevicePlugin]) && options.leaves_nodes_to_the_runtime();
        let directory = host.own_path(self.dev_root.directory(host));
        self.lacks_nodes.then(|| Problem::new(VENDOR, directory, nodes::NONE_MADE))
    }

    /// Adds these nodes to the device as required nodes.
    pub(super) fn require(&self, host: &Host, device: &mut Device, needed: &[Needed]) {
        let node = |node: &Needed| {
            let path = HostPath::node(self.dev_root.place(&node.path), node.number).in_role(DEVICE);
            nodes::as_found(host, path.required(!self.runtime_makes_nodes))
        };
        if let Some(first) = needed.first().filter(|_| self.runtime_makes_nodes) {
            let finding = scan::finding(scan::NODE_MISSING, self.dev_root.place(&first.path), nodes::NONE_MADE);
            device.findings.insert(finding.reading(scan::MADE_BY_THE_RUNTIME));
        }
        device.paths.extend(needed.iter().map(node));
        device.paths.extend(self.required_channels.iter().map(|channel| channel.clone().required(true)));
    }

    /// Adds the GPU's existing nodes below /dev/dri, which containers get by CDI alone. sysfs also lists nodes that /dev
    /// lacks, for example in a node of kind.
    pub(super) fn add_graphics(&self, host: &Host, device: &mut Device) {
        if !self.is_for_cdi {
            return;
        }
        let names = nodes::graphics(host, &device.card).into_iter();
        let places = names.map(|name| self.dev_root.place(&nodes::below_dev("dri", &name)));
        let found = places.map(|path| HostPath::node(path, None).in_role(GRAPHICS).required(false));
        let there = found.filter(|node| nodes::is_there(host, node)).map(|node| nodes::as_found(host, node));
        device.paths.extend(there);
    }

    fn add_files(&mut self, host: &Host, options: &NvidiaOptions, libraries: &Libraries) {
        let root = DriverRoot::of(host, &options.driver_root);
        let driver_root = &root.below;
        let version = driver::version(host).map(|(version, _)| version).unwrap_or_default();
        let folders = libraries.find(&root, &version);
        if !folders.iter().any(|folder| folder.is_of(&version)) && !version.is_empty() {
            let error = format!(
                "no libraries of driver {version} are found here for containers, in lib64, lib, usr/lib64, usr/lib or \
                 their usual directories: name the directory above in `driver_root`, such as /run/opengl-driver of NixOS; a \
                 pod needs it, and what its links lead to, below `host_root`"
            );
            self.problems.push(Problem::new(VENDOR, &options.driver_root, error));
        }
        let place = |path: String, role| below(&options.driver_root, &path).in_role(role);
        let mut dangling = Vec::new();
        for folder in folders.iter() {
            let path = |name: &String| format!("{}/{name}", folder.path);
            let is_there = |path: &String| directory::exists(&root.place(path));
            let (there, not): (Vec<_>, Vec<_>) = folder.libraries.iter().map(path).partition(is_there);
            self.platform.paths.extend(there.into_iter().map(|path| place(path, LIBRARY)));
            dangling.extend(not);
            let link = |(name, target): &(String, String)| HostPath {
                target: target.clone(),
                ..place(path(name), LIBRARY_LINK)
            };
            self.platform.paths.extend(folder.links.iter().map(link));
        }
        if !dangling.is_empty() {
            let error = format!(
                "these links lead nowhere, and no container gets them: {}; install the driver's packages again",
                dangling.join(", ")
            );
            self.problems.push(Problem::new(VENDOR, &options.driver_root, error));
        }
        let beside = folders.iter().map(|folder| folder.path.as_str()).filter(|path| !path.ends_with(VDPAU));
        let modules = driver_files::x_modules(driver_root, beside, &version);
        let files = DriverFiles::find(host, driver_root, &version);
        for (paths, role) in [
            (modules, MODULE),
            (driver_files::graphics_configurations(driver_root), CONFIGURATION),
            (files.plain, FILE),
            (files.sockets, SOCKET),
        ] {
            let found = paths.into_iter().map(|path| {
                let target = behind_links(driver_root, &path).map(|target| below(&options.driver_root, &target).path);
                HostPath { target: target.unwrap_or_default(), ..place(path, role) }
            });
            self.platform.paths.extend(found);
        }
        self.platform.note(DRIVER_VERSION, version, "");
        self.problems.extend(missing_hook_program(host, &options.cdi_hook_path));
    }

    /// Adds a class that has nodes; a class without nodes is left out, because a runtime refuses CDI devices without
    /// edits.
    fn add_class(&mut self, class: &Class, host: &Host, options: &NvidiaOptions) {
        let nodes = class.nodes(host, &self.dev_root);
        if nodes.is_empty() {
            if self.is_for_cdi {
                let path = host.own_path(self.dev_root.directory(host)).join(class.directory);
                let error = format!("containers get no {}: {}", class.name, class.cure);
                self.problems.push(Problem::new(VENDOR, path, error));
            }
            return;
        }
        let driver_root = DriverRoot::of(host, &options.driver_root).below;
        let is_there = |path: &&str| resolve::exists(&driver_root, Path::new(path));
        let files = class.files.iter().copied().filter(is_there).map(|path| below(&options.driver_root, path));
        self.platform.paths.extend(nodes.into_iter().chain(files).map(|path| path.in_role(class.name)));
    }
}

fn channel(host: &Host, dev_root: &DevRoot, number: u32) -> HostPath {
    let path = nodes::of_imex_channel(number);
    let node = |root: &DevRoot| HostPath::node(root.place(&path), None).in_role(IMEX_CHANNEL).required(false);
    let (own, plain) = (node(dev_root), node(&DevRoot::default()));
    let channel = if !nodes::is_there(host, &own) && nodes::is_there(host, &plain) { plain } else { own };
    nodes::as_found(host, channel)
}

/// A problem if the hook program does not exist: a runtime starts no container if it cannot run its hooks.
fn missing_hook_program(host: &Host, program: &str) -> Option<Problem> {
    let error = "this program, which CDI hooks run, is not here: no container with a GPU can start; install NVIDIA's container \
        toolkit, or name its nvidia-ctk or nvidia-cdi-hook in `cdi_hook_path`";
    (!resolve::exists(host, Path::new(program))).then(|| Problem::new(VENDOR, program, error))
}

fn missing_channel(channel: &HostPath) -> Problem {
    let number = nodes::imex_channel_of(&channel.path);
    let cure = "set `NVreg_CreateImexChannel0=1`, or run `nvidia-modprobe -i`";
    Problem::new(VENDOR, &channel.path, format!("IMEX channel {number} does not exist: {cure}"))
}

/// The target of a path, with links resolved below the driver root: a runtime on the host would resolve an absolute
/// link differently.
fn behind_links(driver_root: &Host, path: &str) -> Option<String> {
    let target = driver_root.own_path(resolve::followed(driver_root, Path::new(path)));
    (target != Path::new(path)).then(|| target.to_string_lossy().into_owned())
}

fn below(root: &str, path: &str) -> HostPath {
    HostPath::file(format!("{}{path}", root.trim_end_matches('/')))
}

/// A class of nodes that all containers get in addition to GPUs.
struct Class {
    name: &'static str,
    /// The directory of its nodes, below /dev.
    directory: &'static str,
    /// Prefixes of its nodes' names.
    nodes: &'static [&'static str],
    files: &'static [&'static str],
    cure: &'static str,
}

const GDRCOPY: Class = Class {
    name: "gdrcopy",
    directory: "",
    nodes: &["gdrdrv"],
    files: &[],
    cure: "/dev/gdrdrv does not exist: load the kernel module gdrdrv",
};
const GDS: Class = Class {
    name: "gds",
    directory: "",
    nodes: &["nvidia-fs"],
    files: &["/run/udev", "/etc/cufile.json"],
    cure: "/dev/nvidia-fs* does not exist: load the kernel module nvidia-fs",
};
const MOFED: Class = Class {
    name: "mofed",
    directory: "infiniband",
    nodes: &["uverbs", "rdma_cm"],
    files: &[],
    cure: "neither /dev/infiniband/uverbs* nor rdma_cm exists: load the kernel modules ib_uverbs and rdma_ucm",
};

impl Class {
    fn wanted(options: &NvidiaOptions) -> impl Iterator<Item = Self> {
        let all = [GDRCOPY, GDS, MOFED];
        options.classes().into_iter().zip(all).filter(|((is_on, _), _)| *is_on).map(|(_, class)| class)
    }

    fn nodes(&self, host: &Host, dev_root: &DevRoot) -> Vec<HostPath> {
        let path = dev_root.directory(host).join(self.directory);
        let names = Directory::open(path).and_then(|open| open.names()).unwrap_or_default();
        let own = names.into_iter().filter(|name| self.nodes.iter().any(|start| name.starts_with(start)));
        let places = own.map(|name| dev_root.place(&nodes::below_dev(self.directory, &name)));
        places.map(|path| nodes::as_found(host, HostPath::node(path, None).required(false))).collect()
    }
}
