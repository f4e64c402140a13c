//! What NVIDIA's software has installed on a host for all its devices: read here, given to containers by `edits`.
//!
//! Libraries and files are searched only where devices are given by CDI: they take longer to read than all GPUs.

use std::path::Path;

use super::driver_files::DriverFiles;
use super::libraries::{Libraries, VDPAU};
use super::nodes::{self, DevRoot, Needed};
use super::roles::{
    CONFIGURATION, DEV_ROOT, DEVICE, DRIVER_VERSION, FILE, GRAPHICS, IMEX_CHANNEL, LIBRARY, LIBRARY_LINK, MODULE,
    SOCKET,
};
use super::{NvidiaOptions, VENDOR, driver, graphics};
use crate::device::{Device, HostPath, Platform, Problem};
use crate::host::Host;
use crate::host::directory::Directory;
use crate::host::resolve;

/// What is installed, and what of it is missing.
#[derive(Debug)]
pub(super) struct Installation {
    pub(super) platform: Platform,
    pub(super) problems: Vec<Problem>,
    dev_root: DevRoot,
    /// The IMEX channels that containers get or should get.
    channels: Vec<HostPath>,
    imex_required: bool,
}

impl Installation {
    pub(super) fn read(host: &Host, options: &NvidiaOptions, libraries: &Libraries) -> Self {
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
            channels,
            imex_required: options.imex_required,
        };
        if options.asks_for_cdi() {
            read.add_files(host, options, libraries);
        }
        for class in Class::wanted(options) {
            read.add_class(&class, host, options);
        }
        read
    }

    /// Adds these nodes to the device, as required.
    pub(super) fn require(&self, host: &Host, device: &mut Device, needed: &[Needed]) {
        let node = |node: &Needed| {
            let path = HostPath::node(self.dev_root.place(&node.path), node.number).in_role(DEVICE);
            nodes::as_found(host, path)
        };
        device.paths.extend(needed.iter().map(node));
        let channels = self.channels.iter().filter(|_| self.imex_required);
        device.paths.extend(channels.map(|channel| channel.clone().required(true)));
    }

    /// Notes those of the GPU's nodes below /dev/dri that are there: sysfs names them also where /dev has none, as in a node of
    /// kind.
    pub(super) fn add_graphics(&self, host: &Host, device: &mut Device) {
        let names = nodes::graphics(host, &device.card).into_iter();
        let places = names.map(|name| self.dev_root.place(&nodes::below_dev("dri", &name)));
        let found = places.map(|path| HostPath::node(path, None).in_role(GRAPHICS).required(false));
        let there = found.filter(|node| nodes::is_there(host, node)).map(|node| nodes::as_found(host, node));
        device.paths.extend(there);
    }

    fn add_files(&mut self, host: &Host, options: &NvidiaOptions, libraries: &Libraries) {
        let driver_root = Host::new(host.absolute(&options.driver_root));
        let version = driver::version(host).map(|(version, _)| version).unwrap_or_default();
        let folders = libraries.find(&driver_root, &version);
        if !folders.iter().any(|folder| folder.is_of(&version)) && !version.is_empty() {
            let error = format!(
                "no libraries of driver {version} are found here for containers: mount the host's driver root, and name it \
                 in `driver_root`"
            );
            self.problems.push(Problem::new(VENDOR, &options.driver_root, error));
        }
        let place = |path: String, role| below(&options.driver_root, &path).in_role(role);
        for folder in folders.iter() {
            let path = |name: &String| format!("{}/{name}", folder.path);
            self.platform.paths.extend(folder.libraries.iter().map(|name| place(path(name), LIBRARY)));
            let link = |(name, target): &(String, String)| HostPath {
                target: target.clone(),
                ..place(path(name), LIBRARY_LINK)
            };
            self.platform.paths.extend(folder.links.iter().map(link));
        }
        let beside = folders.iter().map(|folder| folder.path.as_str()).filter(|path| !path.ends_with(VDPAU));
        let modules = graphics::modules(&driver_root, beside, &version);
        let files = DriverFiles::find(host, &driver_root, &version);
        for (paths, role) in [
            (modules, MODULE),
            (graphics::configurations(&driver_root), CONFIGURATION),
            (files.plain, FILE),
            (files.sockets, SOCKET),
        ] {
            let found = paths.into_iter().map(|path| {
                let target = behind_links(&driver_root, &path).map(|target| below(&options.driver_root, &target).path);
                HostPath { target: target.unwrap_or_default(), ..place(path, role) }
            });
            self.platform.paths.extend(found);
        }
        self.platform.note(DRIVER_VERSION, version, "");
        self.problems.extend(missing_hook_program(host, &options.cdi_hook_path));
    }

    /// A runtime refuses a CDI device without edits, so a class without nodes is not offered.
    fn add_class(&mut self, class: &Class, host: &Host, options: &NvidiaOptions) {
        let nodes = class.nodes(host, &self.dev_root);
        if nodes.is_empty() {
            if options.asks_for_cdi() {
                let path = host.own_path(self.dev_root.directory(host)).join(class.directory);
                let error = format!("containers get no {}: {}", class.name, class.cure);
                self.problems.push(Problem::new(VENDOR, path, error));
            }
            return;
        }
        let driver_root = Host::new(host.absolute(&options.driver_root));
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

/// A runtime starts no container whose hooks it cannot run.
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

/// Where a path leads, if by links: what an absolute link in a driver root means, a runtime on the host would not know.
fn behind_links(driver_root: &Host, path: &str) -> Option<String> {
    let target = driver_root.own_path(resolve::followed(driver_root, Path::new(path)));
    (target != Path::new(path)).then(|| target.to_string_lossy().into_owned())
}

fn below(root: &str, path: &str) -> HostPath {
    HostPath::file(format!("{}{path}", root.trim_end_matches('/')))
}

/// Something besides GPUs that all containers get.
struct Class {
    name: &'static str,
    /// Below /dev.
    directory: &'static str,
    /// What the names of its nodes begin with.
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
