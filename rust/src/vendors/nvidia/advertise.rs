//! What the GPUs of a host make under each MIG strategy: devices, and problems where a fact is missing.

use std::collections::BTreeSet;

use super::cards::Card;
use super::describe::{self, Common, Parent};
use super::gpu::Gpu;
use super::installation::Installation;
use super::mig::{self, Instance};
use super::nodes::Needed;
use super::nvml_facts::NvmlFacts;
use super::{DeviceDiscoveryStrategy, MigStrategy, NvidiaOptions, VENDOR, driver, nodes, profile, topology};
use crate::device::{Device, Found, NotExamined, Problem};
use crate::host::Host;

pub(super) const NAMESPACE: &str = "nvidia.com";
/// Boards that drive the screen of a DGX station; no workload is meant for them.
const DISPLAYS: [&str; 2] = ["DGX Display", "NVIDIA DGX Display"];
const UNINITIALISED: &str = "the GPU has not been initialised and its UUID is not known yet: start nvidia-persistenced, or \
    run nvidia-smi once";

/// A MIG device and the nodes it needs.
struct Part {
    instance: Instance,
    nodes: [Needed; 3],
}

/// Turns GPUs into devices, one after another.
pub(super) struct Advertiser<'a> {
    host: &'a Host,
    options: &'a NvidiaOptions,
    installation: &'a Installation,
    nvml_facts: &'a NvmlFacts,
    is_nvml_needed: bool,
    cards: &'a [Card],
    common: Common,
    /// The kinds of devices under one name: whole GPUs, and profiles.
    kinds: BTreeSet<String>,
    found: Found,
}

impl<'a> Advertiser<'a> {
    /// Of these cards, those included that are not advertised. Where NVML is needed, GPUs are as they were until it has
    /// spoken.
    pub(super) fn new(
        host: &'a Host,
        options: &'a NvidiaOptions,
        installation: &'a Installation,
        nvml_facts: &'a NvmlFacts,
        is_nvml_needed: bool,
        cards: &'a [Card],
    ) -> Self {
        let (common, kinds, found) = (Common::read(host, cards, nvml_facts), BTreeSet::new(), Found::default());
        Self { host, options, installation, nvml_facts, is_nvml_needed, cards, common, kinds, found }
    }

    /// Adds the devices of a GPU that users may have, and its problems.
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
        if self.is_nvml_needed && self.nvml_facts.is_awaited(card.address()) {
            self.keep(gpu);
        } else if self.options.mig_strategy == MigStrategy::None {
            self.add_whole(&parent, minor);
        } else if !parent.is_partitioned() {
            // Only NVML knows whether it is an empty GPU in MIG mode, which is of no use, or a whole one.
            if self.nvml_facts.is_awaited(card.address()) && gpu.instances.is_some() {
                self.keep(gpu);
            } else {
                self.add_whole(&parent, minor);
            }
        } else {
            self.add_partitions(&parent, minor);
        }
    }

    /// All that was found.
    ///
    /// Strategy `single` promises devices of one kind; all are served, and more kinds than one are a problem.
    pub(super) fn finish(mut self) -> Found {
        if self.options.mig_strategy == MigStrategy::Single && self.kinds.len() > 1 {
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
        let Some(uuid) = parent.uuid else {
            self.wait_for(parent.gpu, UNINITIALISED);
            return;
        };
        self.kinds.insert("whole GPUs".to_owned());
        let mut device = self.device(parent, uuid, "gpu");
        describe::name(self.host, &mut device, parent, &parent.index.to_string());
        self.installation.require(self.host, &mut device, &[nodes::of_gpu(minor)]);
        if self.options.asks_for_cdi() {
            self.installation.add_graphics(self.host, &mut device);
        }
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
            if !self.add_told_partition(parent, minor, &part) && !self.add_bare_partition(parent, minor, &part) {
                nameless.push(instance);
            }
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

    /// A MIG device that NVML has said everything about; whether it has.
    fn add_told_partition(&mut self, parent: &Parent, minor: u32, part: &Part) -> bool {
        let instance = part.instance;
        let Some((nvml, mig)) = parent.nvml.and_then(|nvml| Some((nvml, self.nvml_facts.mig_device(nvml, instance)?)))
        else {
            return false;
        };
        let profile = profile::name(mig, nvml.memory_bytes);
        let (Some(uuid), Some(profile)) = (&mig.uuid, profile) else { return false };
        let resource = match self.options.mig_strategy {
            MigStrategy::Mixed => profile::resource(&profile),
            MigStrategy::None | MigStrategy::Single => "gpu".to_owned(),
        };
        let mut device = self.partition(parent, uuid, &resource, minor, instance);
        let index = format!("{}:{}", parent.index, mig.index);
        describe::name(self.host, &mut device, parent, &index);
        describe::partition(&mut device, mig, &index, &profile);
        self.kinds.insert(profile);
        self.installation.require(self.host, &mut device, &part.nodes);
        // Of MIG devices, those with graphics alone use the GPU's DRM nodes.
        if self.options.asks_for_cdi() && mig.profile_suffixes.iter().any(|suffix| suffix == "+gfx") {
            self.installation.add_graphics(self.host, &mut device);
        }
        self.found.devices.push(device.into());
        true
    }

    /// A MIG device that is only known to be there; whether it may be served: under `single`, where NVML is not
    /// to be asked, since its id would be another one as soon as NVML answers.
    fn add_bare_partition(&mut self, parent: &Parent, minor: u32, part: &Part) -> bool {
        let instance = part.instance;
        let is_wanted = self.options.mig_strategy == MigStrategy::Single
            && self.options.device_discovery_strategy == DeviceDiscoveryStrategy::Procfs;
        let Some(uuid) = parent.uuid.filter(|_| is_wanted) else { return false };
        let id = format!("MIG-{uuid}/{}/{}", instance.gpu, instance.compute);
        let mut device = self.partition(parent, &id, "gpu", minor, instance);
        self.kinds.insert("MIG devices".to_owned());
        self.installation.require(self.host, &mut device, &part.nodes);
        self.found.devices.push(device.into());
        true
    }

    /// A device of a GPU, with what is true of the GPU.
    fn device(&self, parent: &Parent, id: &str, resource: &str) -> Device {
        let function = &parent.gpu.function;
        let mut device = Device {
            vendor: VENDOR.into(),
            card: function.address().to_owned(),
            id: id.to_owned(),
            resource_name: Some(format!("{NAMESPACE}/{resource}")),
            numa_nodes: function.numa_node.iter().map(|(node, _)| *node).collect(),
            distances: topology::distances(self.host, function, self.cards, self.nvml_facts),
            ..Device::default()
        };
        function.describe(self.host, &mut device);
        self.common.describe(self.host, &mut device);
        describe::gpu(self.host, &mut device, parent);
        device
    }

    /// A device that is a part of a GPU: others of the same GPU are as close to it as can be.
    fn partition(&self, parent: &Parent, id: &str, resource: &str, minor: u32, instance: Instance) -> Device {
        let mut device = self.device(parent, id, resource);
        device.distances.insert(device.card.clone(), 0);
        describe::instance(self.host, &mut device, minor, instance);
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

    /// Not advertised now; its devices stay as they were, if it had any.
    fn wait_for(&mut self, gpu: &Gpu, error: &str) {
        self.problem(gpu, error);
        self.keep(gpu);
    }

    fn keep(&mut self, gpu: &Gpu) {
        let card = Some(gpu.function.address().to_owned());
        self.found.unseen.push(NotExamined { vendor: VENDOR, card, finding: None });
    }

    fn problem(&mut self, gpu: &Gpu, error: &str) {
        let problem = Problem::new(VENDOR, self.host.own_path(&gpu.source), error);
        self.found.problems.push(problem.of(gpu.function.address()));
    }
}
