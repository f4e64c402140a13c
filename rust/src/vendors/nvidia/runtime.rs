//! What is offered to container runtimes by CDI: names, and for each name what it brings.

use std::collections::BTreeMap;
use std::path::Path;

use super::cdi::{self, CDI_VENDOR, Installation};
use super::driver_files::DriverFiles;
use super::libraries::Libraries;
use super::nodes::{self, DevRoot};
use super::{NvidiaOptions, VENDOR, driver};
use crate::cdi::Edits;
use crate::device::{Node, Problem};
use crate::directory::{self, Directory};
use crate::host::Host;
use crate::symlink;

/// The specs of one scan.
#[derive(Debug, Default)]
pub(super) struct Runtime {
    hook_program: String,
    /// By qualified name; the kind alone for what every GPU brings.
    edits: BTreeMap<String, String>,
    problems: Vec<Problem>,
}

impl Runtime {
    /// What there is to offer beside the GPUs themselves.
    pub(super) fn new(host: &Host, options: &NvidiaOptions, dev_root: &DevRoot, libraries: &Libraries) -> Self {
        let mut runtime = Self { hook_program: options.cdi_hook_path.clone(), ..Self::default() };
        runtime.offer_common(host, options, dev_root, libraries);
        for class in Class::wanted(options) {
            runtime.offer_class(&class, host, options, dev_root);
        }
        runtime
    }

    /// What is amiss: classes that are asked for and would be empty, libraries that are not found.
    pub(super) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Whether a name is one that runtimes can resolve.
    pub(super) fn offers(&self, name: &str) -> bool {
        self.edits.contains_key(name)
    }

    /// Offers what the channel's node is.
    pub(super) fn offer_channel(&mut self, name: String, node: &Node) {
        self.offer(name, &cdi::class(std::slice::from_ref(node), "/", &[]));
    }

    /// All that a device with these names needs, given what its own name brings.
    pub(super) fn specs(&self, names: &[String], own: &Edits) -> BTreeMap<String, String> {
        let kind = kind("gpu");
        let mut specs: BTreeMap<String, String> = names
            .iter()
            .chain([&kind])
            .filter_map(|name| Some((name.clone(), self.edits.get(name)?.clone())))
            .collect();
        if let Some(name) = names.first() {
            specs.insert(name.clone(), own.json());
        }
        specs
    }

    /// What a GPU or a part of one brings.
    pub(super) fn of_device(&self, nodes: &[Node], graphics: &[Node], address: &str) -> Edits {
        cdi::gpu(nodes, graphics, address, &self.hook_program)
    }

    fn offer(&mut self, name: String, edits: &Edits) {
        self.edits.insert(name, edits.json());
    }

    fn offer_common(&mut self, host: &Host, options: &NvidiaOptions, dev_root: &DevRoot, libraries: &Libraries) {
        let driver_root = Host::new(host.absolute(&options.driver_root));
        let version = driver::version(host).map(|(version, _)| version).unwrap_or_default();
        let folders = libraries.find(&driver_root, &version);
        if folders.is_empty() && !version.is_empty() {
            let error = format!(
                "no libraries of driver {version} are found here for containers: mount the host's driver root, and name it \
                 in `driver_root`"
            );
            self.problems.push(Problem::new(VENDOR, &options.driver_root, error));
        }
        let files = DriverFiles::find(&driver_root, &version);
        let installation =
            Installation { root: &options.driver_root, version: &version, folders: &folders, files: &files };
        let common = cdi::common(&installation, &dev_root.control(host), &self.hook_program);
        self.offer(kind("gpu"), &common);
    }

    /// A runtime refuses a device that changes nothing, so a class without its nodes is not offered.
    fn offer_class(&mut self, class: &Class, host: &Host, options: &NvidiaOptions, dev_root: &DevRoot) {
        let nodes = class.nodes(host, dev_root);
        if nodes.is_empty() {
            let path = host.own_path(dev_root.directory(host)).join(class.directory);
            let error = format!("containers get no {}: {}", class.name, class.cure);
            self.problems.push(Problem::new(VENDOR, path, error));
            return;
        }
        let driver_root = Host::new(host.absolute(&options.driver_root));
        let is_there = |root: &Host, path: &&str| directory::exists(&symlink::followed(root, Path::new(path)));
        let files: Vec<String> =
            class.files.iter().copied().filter(|path| is_there(&driver_root, path)).map(str::to_owned).collect();
        self.offer(format!("{}=all", kind(class.name)), &cdi::class(&nodes, &options.driver_root, &files));
    }
}

/// `k8s.device-plugin.nvidia.com/gpu`.
pub(super) fn kind(class: &str) -> String {
    format!("{CDI_VENDOR}/{class}")
}

/// Something beside GPUs that all containers get.
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
    cure: "/dev/gdrdrv is not there: load the module gdrdrv",
};
const GDS: Class = Class {
    name: "gds",
    directory: "",
    nodes: &["nvidia-fs"],
    files: &["/run/udev", "/etc/cufile.json"],
    cure: "there is no /dev/nvidia-fs*: load the module nvidia-fs",
};
const MOFED: Class = Class {
    name: "mofed",
    directory: "infiniband",
    nodes: &["uverbs", "rdma_cm"],
    files: &[],
    cure: "there is neither /dev/infiniband/uverbs* nor rdma_cm: load the modules ib_uverbs and rdma_ucm",
};

impl Class {
    fn wanted(options: &NvidiaOptions) -> impl Iterator<Item = Self> {
        let all = [(options.gdrcopy_enabled, GDRCOPY), (options.gds_enabled, GDS), (options.mofed_enabled, MOFED)];
        all.into_iter().filter(|(is_on, _)| *is_on).map(|(_, class)| class)
    }

    fn nodes(&self, host: &Host, dev_root: &DevRoot) -> Vec<Node> {
        let path = dev_root.directory(host).join(self.directory);
        let names = Directory::open(path).and_then(|open| open.names()).unwrap_or_default();
        let own = names.into_iter().filter(|name| self.nodes.iter().any(|start| name.starts_with(start)));
        own.map(|name| dev_root.node(&nodes::below_dev(self.directory, &name))).collect()
    }
}
