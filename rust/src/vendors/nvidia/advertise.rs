//! Turns a host's GPUs into devices under each MIG strategy, with their attributes, and into a problem for each missing
//! fact.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::card::{Card, Gpu};
use super::installation::Installation;
use super::mediated::{VGPU_FUNCTIONS, VGPUS, VgpuFunctions};
use super::mig::{self, Instance};
use super::nodes::{self, Needed};
use super::nvml_facts::{self, NvmlFacts};
use super::{DeviceDiscoveryStrategy, MigStrategy, NvidiaOptions, VENDOR, distances, driver};
use crate::device::{Device, Found, NotExamined, Problem, Refusal, Value};
use crate::edits::Way;
use crate::host::Host;
use crate::nvml::facts::Gpu as NvmlGpu;

pub(super) const NAMESPACE: &str = "nvidia.com";
/// Models that only drive the screen of a DGX station; they are not for workloads.
const DISPLAYS: [&str; 2] = ["DGX Display", "NVIDIA DGX Display"];
/// The attribute that whole GPUs have if they support MIG.
const MIG_MODE: &str = "mig_mode";
const ENABLED: &str = "enabled";
/// The attribute of a GPU with MIG devices: their number.
const MIG_DEVICES: &str = "mig_devices";
const UNINITIALISED: &str = "the GPU has not been initialised and its UUID is not known yet";
const INITIALISE: &str = "start nvidia-persistenced, or run nvidia-smi once";

/// A MIG device and the nodes it needs.
struct Part {
    instance: Instance,
    nodes: [Needed; 3],
}

/// Turns GPUs into devices, one after another.
pub(super) struct Advertiser<'a> {
    host: &'a Host,
    options: &'a NvidiaOptions,
    ways: &'a BTreeSet<Way>,
    installation: &'a Installation,
    nvml_facts: &'a NvmlFacts,
    is_nvml_needed: bool,
    cards: &'a [Card],
    common: Common,
    /// The kinds of devices under one resource name: whole GPUs, and profiles.
    kinds: BTreeSet<String>,
    found: Found,
}

impl<'a> Advertiser<'a> {
    /// An advertiser for a host with these cards, including cards that are not advertised. If NVML is needed, GPUs stay
    /// as they were until NVML has answered.
    pub(super) fn new(
        host: &'a Host,
        options: &'a NvidiaOptions,
        ways: &'a BTreeSet<Way>,
        installation: &'a Installation,
        nvml_facts: &'a NvmlFacts,
        is_nvml_needed: bool,
        cards: &'a [Card],
    ) -> Self {
        let (common, kinds, found) = (Common::read(host, cards, nvml_facts), BTreeSet::new(), Found::default());
        Self { host, options, ways, installation, nvml_facts, is_nvml_needed, cards, common, kinds, found }
    }

    /// Adds the devices of a GPU that is for users, and its problems.
    pub(super) fn add(&mut self, card: &Card, rank: u32) {
        let Some(gpu) = &card.gpu else { return };
        let nvml = self.nvml_facts.gpu_with(card.address(), gpu.information.uuid.as_ref());
        let model = gpu.information.model.as_deref().or_else(|| nvml?.model.as_deref());
        if model.is_some_and(|model| DISPLAYS.contains(&model)) {
            return;
        }
        let index = nvml.map_or(rank, |nvml| nvml.index);
        let parent = Parent { gpu, nvml, index, uuid: gpu.information.uuid.as_ref().or_else(|| nvml?.uuid.as_ref()) };
        let Some(minor) = gpu.information.minor.or_else(|| nvml?.minor) else {
            self.wait_for(gpu, "the driver does not report the minor number of the GPU's device node");
            return;
        };
        // If a GPU has no MIG devices, only NVML knows whether it is in MIG mode, and so useless, or a whole GPU. The device
        // plugin cannot be told to wait for that; who gives devices by CDI sees that `mig_mode` is awaited.
        let may_be_empty =
            self.options.mig_strategy != MigStrategy::None && gpu.instances.is_some() && !parent.is_partitioned();
        if self.nvml_facts.is_awaited(card.address()) && (self.is_nvml_needed || may_be_empty) {
            self.keep(gpu);
            return;
        }
        self.add_whole(&parent, minor);
        if parent.is_partitioned() {
            self.add_partitions(&parent, minor);
        }
    }

    /// Whether MIG devices are expected of a GPU in MIG mode: from the device plugin by its strategy, otherwise always.
    fn gives_parts(&self) -> bool {
        self.options.mig_strategy != MigStrategy::None || self.ways.contains(&Way::Cdi)
    }

    /// Whether the device plugin is to offer a GPU in MIG mode whole.
    fn gives_partitioned(&self) -> bool {
        self.options.mig_strategy == MigStrategy::None && self.ways.contains(&Way::DevicePlugin)
    }

    /// Returns all devices and problems.
    ///
    /// Strategy `single` promises devices of one kind. All are advertised; a second kind is a problem of the device
    /// plugin.
    pub(super) fn finish(mut self) -> Found {
        let is_one_kind_promised =
            self.options.mig_strategy == MigStrategy::Single && self.ways.contains(&Way::DevicePlugin);
        if is_one_kind_promised && self.kinds.len() > 1 {
            let kinds: Vec<&str> = self.kinds.iter().map(String::as_str).collect();
            let error = format!(
                "devices of different kinds are all {NAMESPACE}/gpu: {}; configure them alike, or set `mig_strategy: mixed`",
                kinds.join(", ")
            );
            let path = self.host.own_path(driver::gpus_directory(self.host));
            self.found.problems.push(Problem::new(VENDOR, path, error));
        }
        self.found
    }

    fn add_whole(&mut self, parent: &Parent, minor: u32) {
        let is_offered = self.gives_partitioned() || !parent.is_partitioned();
        let Some(uuid) = parent.uuid else {
            if is_offered && self.installation.lacks_nodes {
                self.keep(parent.gpu); // the step that makes the node also initialises the GPU
            } else if is_offered {
                let refusal = Refusal { what: UNINITIALISED.to_owned(), is_bound: true };
                let path = self.host.own_path(&parent.gpu.source);
                let problem = Problem::refused(VENDOR, path, refusal, INITIALISE);
                self.found.problems.push(problem.of(parent.gpu.function.address()));
                self.keep(parent.gpu);
            }
            return;
        };
        if is_offered {
            self.kinds.insert("whole GPUs".to_owned());
        }
        let mut device = self.device(parent, uuid, "gpu");
        describe_mode(self.host, &mut device, parent, minor);
        note_names(self.host, &mut device, parent, &parent.index.to_string());
        self.installation.require(self.host, &mut device, &[nodes::of_gpu(minor)]);
        self.installation.add_graphics(self.host, &mut device);
        self.nvml_facts.note_awaited(&mut device, true);
        self.found.devices.push(device.into());
    }

    fn add_partitions(&mut self, parent: &Parent, minor: u32) {
        let (mut nameless, mut without_nodes) = (Vec::new(), Vec::new());
        let instances = parent.instances();
        for &instance in &instances {
            let in_table = || mig::capabilities_in_table(self.host, minor, instance);
            let Some(capabilities) = parent.gpu.capabilities.get(&instance).copied().or_else(in_table) else {
                without_nodes.push(instance);
                continue;
            };
            let part = Part { instance, nodes: nodes::of_instance(minor, capabilities) };
            if !self.add_named_partition(parent, minor, &part) && !self.add_unnamed_partition(parent, minor, &part) {
                nameless.push(instance);
            }
        }
        if !self.gives_parts() {
            return;
        }
        if instances.is_empty() {
            let error = "the GPU is in MIG mode and has no MIG devices: create some (nvidia-smi mig -cgi … -C), or turn \
                MIG mode off (nvidia-smi -mig 0)";
            self.problem(parent.gpu, error);
        }
        if !without_nodes.is_empty() {
            let error = "the driver does not say the numbers of their nodes below /dev/nvidia-caps";
            self.report_partitions(parent, minor, &without_nodes, error);
        }
        if !nameless.is_empty() {
            self.report_nameless(parent, minor, &nameless);
        }
    }

    /// Adds a MIG device if NVML has reported it completely; returns whether it was added.
    fn add_named_partition(&mut self, parent: &Parent, minor: u32, part: &Part) -> bool {
        let instance = part.instance;
        let Some((nvml, mig)) = parent.nvml.and_then(|nvml| Some((nvml, self.nvml_facts.mig_device(nvml, instance)?)))
        else {
            return false;
        };
        let profile = mig::profile_name(mig, nvml.memory_bytes);
        let (Some(uuid), Some(profile)) = (&mig.uuid, profile) else { return false };
        let resource = match self.options.mig_strategy {
            MigStrategy::Mixed => mig::profile_resource(&profile),
            MigStrategy::None | MigStrategy::Single => "gpu".to_owned(),
        };
        let mut device = self.partition(parent, uuid, &resource, minor, instance);
        let index = format!("{}:{}", parent.index, mig.index);
        note_names(self.host, &mut device, parent, &index);
        mig::describe(&mut device, mig, &index, &profile);
        if self.options.mig_strategy != MigStrategy::None {
            self.kinds.insert(profile);
        }
        self.installation.require(self.host, &mut device, &part.nodes);
        // Among MIG devices, only devices with graphics use the GPU's DRM nodes.
        if mig.profile_suffixes.iter().any(|suffix| suffix == "+gfx") {
            self.installation.add_graphics(self.host, &mut device);
        }
        self.nvml_facts.note_awaited(&mut device, false);
        self.found.devices.push(device.into());
        true
    }

    /// Adds a MIG device that only procfs reports; returns whether it was added. It is added only without NVML,
    /// because the device's id would change as soon as NVML answers, and not under `mixed`, because its profile is part
    /// of its resource name.
    fn add_unnamed_partition(&mut self, parent: &Parent, minor: u32, part: &Part) -> bool {
        let instance = part.instance;
        let is_wanted = self.options.mig_strategy != MigStrategy::Mixed
            && self.options.device_discovery_strategy == DeviceDiscoveryStrategy::Procfs;
        let Some(uuid) = parent.uuid.filter(|_| is_wanted) else { return false };
        let id = format!("MIG-{uuid}/{}/{}", instance.gpu, instance.compute);
        let mut device = self.partition(parent, &id, "gpu", minor, instance);
        if self.options.mig_strategy != MigStrategy::None {
            self.kinds.insert("MIG devices".to_owned());
        }
        self.installation.require(self.host, &mut device, &part.nodes);
        self.found.devices.push(device.into());
        true
    }

    /// A device of a GPU, with the attributes of the GPU.
    fn device(&self, parent: &Parent, id: &str, resource: &str) -> Device {
        let function = &parent.gpu.function;
        let mut device = Device {
            vendor: VENDOR.into(),
            card: function.address().to_owned(),
            id: id.to_owned(),
            resource_name: Some(format!("{NAMESPACE}/{resource}")),
            numa_nodes: function.numa_node.iter().map(|(node, _)| *node).collect(),
            distances: distances::distances(self.host, function, self.cards, self.nvml_facts),
            ..Device::default()
        };
        function.describe(self.host, &mut device);
        self.common.describe(self.host, &mut device);
        describe_gpu(self.host, &mut device, parent);
        device
    }

    /// A device that is a part of a GPU: its distance to other parts of the same GPU is 0.
    fn partition(&self, parent: &Parent, id: &str, resource: &str, minor: u32, instance: Instance) -> Device {
        let mut device = self.device(parent, id, resource);
        device.distances.insert(device.card.clone(), 0);
        mig::describe_instance(self.host, &mut device, minor, instance);
        device
    }

    fn report_nameless(&mut self, parent: &Parent, minor: u32, instances: &[Instance]) {
        if self.nvml_facts.is_awaited(parent.gpu.function.address()) {
            if parent.nvml.is_none() {
                self.keep(parent.gpu);
            }
            return;
        }
        let error = match (parent.nvml, self.options.device_discovery_strategy) {
            (Some(nvml), _) if instances.iter().all(|&one| self.nvml_facts.mig_device(nvml, one).is_some()) => {
                "NVML lists them without a UUID or a profile"
            }
            (Some(_), _) => {
                "NVML does not list them; in a container it lists those that were there when the container started: \
                let it monitor all MIG devices (NVIDIA_MIG_MONITOR_DEVICES=all and SYS_ADMIN: the component nvidia-mig)"
            }
            (None, DeviceDiscoveryStrategy::Procfs) => {
                "only NVML reports their profiles, and it is not used: set `device_discovery_strategy: auto`"
            }
            (None, _) => {
                "only NVML reports their UUIDs and profiles, and it has not answered: check that libnvidia-ml.so.1 can be \
                loaded below the driver root, or set `mig_strategy: single` and `device_discovery_strategy: procfs` to serve \
                them by their device nodes"
            }
        };
        self.report_partitions(parent, minor, instances, error);
        if parent.nvml.is_none() {
            self.keep(parent.gpu);
        }
    }

    fn report_partitions(&mut self, parent: &Parent, minor: u32, instances: &[Instance], why: &str) {
        let ids: Vec<String> = instances.iter().map(|one| format!("gi{}/ci{}", one.gpu, one.compute)).collect();
        let error = format!("MIG devices {} are not advertised: {why}", ids.join(", "));
        let path = self.host.own_path(mig::directory(self.host, minor));
        self.found.problems.push(Problem::new(VENDOR, path, error).of(parent.gpu.function.address()));
    }

    /// Adds a problem, and keeps the devices of the GPU as they were.
    fn wait_for(&mut self, gpu: &Gpu, error: &str) {
        self.problem(gpu, error);
        self.keep(gpu);
    }

    fn keep(&mut self, gpu: &Gpu) {
        let card = Some(gpu.function.address().to_owned());
        self.found.unseen.push(NotExamined::new(VENDOR, card));
    }

    fn problem(&mut self, gpu: &Gpu, error: &str) {
        let problem = Problem::new(VENDOR, self.host.own_path(&gpu.source), error);
        self.found.problems.push(problem.of(gpu.function.address()));
    }
}

/// A GPU, and NVML's facts about it.
pub(super) struct Parent<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) nvml: Option<&'a NvmlGpu>,
    /// NVML's index; if NVML has not answered, the index that it will assign.
    pub(super) index: u32,
    pub(super) uuid: Option<&'a String>,
}

impl Parent<'_> {
    /// Whether the GPU is in MIG mode. procfs shows that only if there are MIG devices; without any, only NVML reports
    /// it.
    fn is_partitioned(&self) -> bool {
        !self.instances().is_empty() || self.nvml.is_some_and(|nvml| nvml.mig_mode == Some(true))
    }

    /// MIG devices: from procfs, because NVML's list may be out of date; from NVML if the driver shows none.
    pub(super) fn instances(&self) -> Vec<Instance> {
        let nvml_instances = || self.nvml.iter().flat_map(|nvml| &nvml.mig_devices).map(Instance::of).collect();
        self.gpu.instances.clone().unwrap_or_else(nvml_instances)
    }
}

/// Attributes that all devices of a host have.
#[derive(Debug)]
pub(super) struct Common {
    driver_version: Option<(String, PathBuf)>,
    cuda_version: Option<String>,
    /// Addresses of the GPUs that the driver excludes from use.
    excluded: Vec<String>,
}

impl Common {
    pub(super) fn read(host: &Host, cards: &[Card], nvml_facts: &NvmlFacts) -> Self {
        let facts = nvml_facts.facts();
        let nvml_version = || Some((facts?.driver_version.clone()?, PathBuf::from(nvml_facts::FACT_SOURCE)));
        let is_excluded = |card: &&Card| card.gpu.as_ref().is_some_and(|gpu| gpu.information.is_excluded);
        Self {
            driver_version: if cards.is_empty() { None } else { driver::version(host).or_else(nvml_version) },
            cuda_version: facts.and_then(|facts| facts.cuda_version.clone()),
            excluded: cards.iter().filter(is_excluded).map(|card| card.address().to_owned()).collect(),
        }
    }

    fn describe(&self, host: &Host, device: &mut Device) {
        if let Some((version, source)) = &self.driver_version {
            device.note("driver_version", Value::Version(version.clone()), host.own_path(source));
        }
        if let Some(version) = &self.cuda_version {
            device.note("cuda_version", Value::Version(version.clone()), nvml_facts::FACT_SOURCE);
        }
        if !self.excluded.is_empty() {
            device.note("excluded_gpus", self.excluded.join(","), host.own_path(driver::gpus_directory(host)));
        }
    }
}

/// Adds the attributes from the driver, the PCI function and NVML about the GPU.
fn describe_gpu(host: &Host, device: &mut Device, parent: &Parent) {
    if let Some(nvml) = parent.nvml {
        note_nvml(device, nvml);
    }
    let (information, source) = (&parent.gpu.information, host.own_path(&parent.gpu.source));
    for (name, value) in [
        ("model", information.model.as_ref().map(Value::from)),
        ("gpu_uuid", information.uuid.as_ref().map(Value::from)),
        ("minor", information.minor.map(Value::from)),
        ("video_bios", information.video_bios.as_ref().map(Value::from)),
        ("gpu_firmware", information.firmware.as_ref().map(Value::from)),
    ] {
        if let Some(value) = value {
            device.note(name, value, &source);
        }
    }
    let VgpuFunctions { all, typed } = parent.gpu.vgpu_functions;
    let functions = host.own_path(parent.gpu.function.path.join("sriov_numvfs"));
    for (name, number) in [(VGPU_FUNCTIONS, all), (VGPUS, typed)].into_iter().filter(|(_, number)| *number > 0) {
        device.note(name, number, &functions);
    }
    if let Some(of_host) = &parent.gpu.host_driver {
        let configuration = host.own_path(parent.gpu.function.path.join("config"));
        device.note("vgpu_host_driver_version", Value::Version(of_host.version.clone()), &configuration);
        device.note("vgpu_host_driver_branch", &of_host.branch, configuration);
    }
    if let Some((class, source)) = &parent.gpu.function.class {
        device.note("mode", mode(*class), host.own_path(source));
    }
}

fn note_nvml(device: &mut Device, nvml: &NvmlGpu) {
    for (name, value) in [
        ("model", nvml.model.as_ref().map(Value::from)),
        ("gpu_uuid", nvml.uuid.as_ref().map(Value::from)),
        ("minor", nvml.minor.map(Value::from)),
        ("brand", nvml.brand.as_ref().map(Value::from)),
        ("architecture", nvml.architecture.as_ref().map(Value::from)),
        ("addressing_mode", nvml.addressing_mode.as_ref().map(Value::from)),
        ("serial", nvml.serial.as_ref().filter(|serial| !serial.is_empty()).map(Value::from)),
        (
            "compute_capability",
            nvml.compute_capability.map(|(major, minor)| Value::Version(format!("{major}.{minor}"))),
        ),
        ("memory_bytes", nvml.memory_bytes.map(Value::from)),
        ("fabric_clique", nvml.fabric_clique.as_ref().map(Value::from)),
        ("nvswitch_ports", Some(switch_ports(nvml)).filter(|ports| !ports.is_empty()).map(Value::from)),
        ("nvlink_gpus", Some(linked_gpus(nvml)).filter(|gpus| !gpus.is_empty()).map(Value::from)),
    ] {
        if let Some(value) = value {
            device.note(name, value, nvml_facts::FACT_SOURCE);
        }
    }
}

/// The switch ports that the GPU's links lead to, in the order of the links.
fn switch_ports(nvml: &NvmlGpu) -> String {
    nvml.switch_ports.values().map(String::as_str).collect::<Vec<_>>().join(",")
}

/// The GPUs that the GPU's links lead to without a switch between, each as often as it has links to it.
fn linked_gpus(nvml: &NvmlGpu) -> String {
    let each = |(address, &count): (&String, &u32)| vec![address.clone(); count as usize];
    nvml.nvlinks.iter().flat_map(each).collect::<Vec<_>>().join(",")
}

/// Adds the MIG mode of a whole GPU; adds nothing for a GPU without such a mode.
fn describe_mode(host: &Host, device: &mut Device, parent: &Parent, minor: u32) {
    if !parent.instances().is_empty() {
        let source = host.own_path(mig::directory(host, minor));
        device.note(MIG_MODE, ENABLED, &source);
        device.note(MIG_DEVICES, parent.instances().len() as u64, source);
    } else if let Some(is_enabled) = parent.nvml.and_then(|nvml| nvml.mig_mode) {
        device.note(MIG_MODE, if is_enabled { ENABLED } else { "disabled" }, nvml_facts::FACT_SOURCE);
    }
}

/// Adds the names of the device for users and for the container runtime.
fn note_names(host: &Host, device: &mut Device, parent: &Parent, index: &str) {
    let is_whole = parent.gpu.information.uuid.as_ref() == Some(&device.id);
    let source = if is_whole { host.own_path(&parent.gpu.source) } else { nvml_facts::FACT_SOURCE.into() };
    device.note("uuid", device.id.clone(), source);
    let gpus = host.own_path(driver::gpus_directory(host));
    let source = if parent.nvml.is_some() { nvml_facts::FACT_SOURCE.into() } else { gpus };
    device.note("index", index, &source);
    device.note("gpu_index", parent.index, source);
}

/// Whether the device may change without an event: MIG devices are made, the types of vGPUs set.
pub(super) fn changes_in_silence(device: &Device) -> bool {
    device.attributes.contains_key(mig::INSTANCE)
        || device.attributes.contains_key(VGPU_FUNCTIONS)
        || device.text(MIG_MODE).as_deref() == Some(ENABLED)
}

/// The reason why a GPU or a MIG device is not offered by this way. The MIG strategy is the device plugin's: by CDI MIG
/// devices are always offered, and no GPU in MIG mode, like NVIDIA's DRA driver (`GetPerGpuAllocatableDevices`).
/// <https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/95932046683719c43b6a0dd9613c2e5aad5d6703/cmd/gpu-kubelet-plugin/nvlib.go>
pub(super) fn left_out(device: &Device, way: Way, strategy: MigStrategy) -> Option<&'static str> {
    if way == Way::DevicePlugin && strategy == MigStrategy::None {
        return device.attributes.contains_key(mig::INSTANCE).then_some("`vendors.nvidia.mig_strategy` is `none`");
    }
    let has_parts = device.attributes.contains_key(MIG_DEVICES);
    let why =
        if has_parts { "its MIG devices are offered instead" } else { "it is in MIG mode, and has no MIG devices" };
    (device.text(MIG_MODE).as_deref() == Some(ENABLED)).then_some(why)
}

/// The mode of a GPU by its PCI class, in the terms of NVIDIA's labels.
fn mode(class: u32) -> &'static str {
    match class >> 8 {
        0x0300 => "graphics",
        0x0302 => "compute",
        _ => "unknown",
    }
}
