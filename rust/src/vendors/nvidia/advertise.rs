//! What the GPUs of a host make under each MIG strategy: devices, and problems where a fact is missing.

use std::collections::BTreeSet;

use super::answer::{Answers, Name};
use super::cards::Card;
use super::describe::{self, Common};
use super::gpu::Gpu;
use super::mig::{self, Instance};
use super::told::{self, Told};
use super::{DeviceDiscoveryStrategy, MigStrategy, NvidiaOptions, VENDOR, driver, nodes, profile, topology};
use crate::device::{Device, Found, Problem, Reason, Unseen};
use crate::host::Host;
use crate::nvml::facts::Gpu as ToldGpu;

pub(super) const NAMESPACE: &str = "nvidia.com";
/// Boards that drive the screen of a DGX station; no workload is meant for them.
const DISPLAYS: [&str; 2] = ["DGX Display", "NVIDIA DGX Display"];
const UNINITIALISED: &str = "the GPU has not been initialised and its UUID is not known yet: start nvidia-persistenced, or \
    run nvidia-smi once";

/// Turns GPUs into devices, one after another.
pub(super) struct Advertiser<'a> {
    host: &'a Host,
    options: &'a NvidiaOptions,
    answers: &'a Answers<'a>,
    told: &'a Told,
    cards: &'a [Card],
    common: Common,
    /// The kinds of devices under one name: whole GPUs, and profiles.
    kinds: BTreeSet<String>,
    found: Found,
}

impl<'a> Advertiser<'a> {
    /// Of these cards, those included that are not advertised.
    pub(super) fn new(
        host: &'a Host,
        options: &'a NvidiaOptions,
        answers: &'a Answers<'a>,
        told: &'a Told,
        cards: &'a [Card],
    ) -> Self {
        let (common, kinds, found) = (Common::read(host, cards, told), BTreeSet::new(), Found::default());
        Self { host, options, answers, told, cards, common, kinds, found }
    }

    /// Adds the devices of a GPU that users may have, and its problems.
    pub(super) fn add(&mut self, card: &Card, rank: u32) {
        let Some(gpu) = &card.gpu else { return };
        let told = self.told.gpu_with(card.address(), gpu.information.uuid.as_ref());
        let model = gpu.information.model.as_deref().or_else(|| told?.model.as_deref());
        if model.is_some_and(|model| DISPLAYS.contains(&model)) {
            return;
        }
        let index = told.map_or(rank, |told| told.index);
        let parent = Parent { gpu, told, index, uuid: gpu.information.uuid.as_ref().or_else(|| told?.uuid.as_ref()) };
        let Some(minor) = gpu.information.minor.or_else(|| told?.minor) else {
            self.wait_for(gpu, "the driver does not tell the number of the GPU's device node");
            return;
        };
        if self.options.mig_strategy == MigStrategy::None {
            self.add_whole(&parent, minor);
        } else if !parent.is_partitioned() {
            // Only NVML tells an empty GPU in MIG mode, of no use to anybody, from a whole one.
            if self.told.is_awaited() && gpu.instances.is_some() {
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
    /// Strategy `single` promises devices of one kind; all are served, and more kinds than one are told.
    pub(super) fn finish(mut self) -> Found {
        if self.options.mig_strategy == MigStrategy::Single && self.kinds.len() > 1 {
            let kinds: Vec<&str> = self.kinds.iter().map(String::as_str).collect();
            let error = format!(
                "devices of different kinds are all {NAMESPACE}/gpu: {}; make them alike, or set `mig_strategy: mixed`",
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
        let index = parent.index.to_string();
        describe::name(self.host, &mut device, parent, &index);
        let name = Name::Known { uuid: uuid.clone(), index };
        self.answers.complete(&mut device, &name, &[nodes::of_gpu(minor)]);
        self.found.devices.push(device);
    }

    fn add_partitions(&mut self, parent: &Parent, minor: u32) {
        let mut nameless = Vec::new();
        let instances = parent.instances();
        for &instance in &instances {
            if !self.add_told_partition(parent, minor, instance) && !self.add_bare_partition(parent, minor, instance) {
                nameless.push(format!("gi{}/ci{}", instance.gpu, instance.compute));
            }
        }
        if instances.is_empty() {
            let error = "the GPU is in MIG mode and has no MIG devices: make some (nvidia-smi mig -cgi … -C), or turn \
                MIG mode off (nvidia-smi -mig 0)";
            self.problem(parent.gpu, error);
        }
        if !nameless.is_empty() {
            self.report_nameless(parent, minor, &nameless);
        }
    }

    /// A MIG device that NVML has told all of; whether it has.
    fn add_told_partition(&mut self, parent: &Parent, minor: u32, instance: Instance) -> bool {
        let Some((told, mig)) = parent.told.and_then(|told| Some((told, told::mig_device(told, instance)?))) else {
            return false;
        };
        let profile = profile::name(mig, told.memory_bytes.unwrap_or_default());
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
        let name = Name::Known { uuid: uuid.clone(), index };
        self.answers.complete(&mut device, &name, &nodes::of_instance(minor, instance));
        self.found.devices.push(device);
        true
    }

    /// A MIG device of which only its being there is known; whether it may be served: under `single`, where NVML is not
    /// to be asked, since its id would be another one as soon as NVML answers.
    fn add_bare_partition(&mut self, parent: &Parent, minor: u32, instance: Instance) -> bool {
        let is_wanted = self.options.mig_strategy == MigStrategy::Single
            && self.options.device_discovery_strategy == DeviceDiscoveryStrategy::Procfs;
        let Some(uuid) = parent.uuid.filter(|_| is_wanted) else { return false };
        let id = format!("MIG-{uuid}/{}/{}", instance.gpu, instance.compute);
        let mut device = self.partition(parent, &id, "gpu", minor, instance);
        self.kinds.insert("MIG devices".to_owned());
        self.answers.complete(&mut device, &Name::Own(id), &nodes::of_instance(minor, instance));
        self.found.devices.push(device);
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
            distances: topology::distances(self.host, function, self.cards, self.told),
            ..Device::default()
        };
        if parent.gpu.is_off_bus {
            device.reasons.insert(Reason::OffBus);
        }
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

    fn report_nameless(&mut self, parent: &Parent, minor: u32, nameless: &[String]) {
        let what = format!("MIG devices {} are not advertised", nameless.join(", "));
        let error = match (parent.told, self.options.device_discovery_strategy) {
            (Some(_), _) => format!("{what}: NVML does not tell of them yet"),
            (None, DeviceDiscoveryStrategy::Procfs) => format!(
                "{what}: only NVML tells their profiles, and it is not asked: set `device_discovery_strategy: auto`"
            ),
            (None, _) => format!(
                "{what}: only NVML tells their UUIDs and profiles, and it has not answered: see that libnvidia-ml.so.1 \
                can be loaded below the driver root, or set `mig_strategy: single` and `device_discovery_strategy: \
                procfs` to serve them by their device nodes"
            ),
        };
        let path = self.host.own_path(mig::directory(self.host, minor));
        self.found.problems.push(Problem::new(VENDOR, path, error).of(parent.gpu.function.address()));
        if parent.told.is_none() {
            self.keep(parent.gpu);
        }
    }

    /// Not advertised now; its devices stay as they were, if it had any.
    fn wait_for(&mut self, gpu: &Gpu, error: &str) {
        self.problem(gpu, error);
        self.keep(gpu);
    }

    fn keep(&mut self, gpu: &Gpu) {
        let card = Some(gpu.function.address().to_owned());
        self.found.unseen.push(Unseen { vendor: VENDOR, card, reason: None });
    }

    fn problem(&mut self, gpu: &Gpu, error: &str) {
        let problem = Problem::new(VENDOR, self.host.own_path(&gpu.source), error);
        self.found.problems.push(problem.of(gpu.function.address()));
    }
}

/// A GPU, and what NVML has told of it.
pub(super) struct Parent<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) told: Option<&'a ToldGpu>,
    /// NVML's, or what it will be.
    pub(super) index: u32,
    pub(super) uuid: Option<&'a String>,
}

impl Parent<'_> {
    /// Procfs shows the MIG devices, and only NVML a MIG mode without any.
    fn is_partitioned(&self) -> bool {
        !self.instances().is_empty() || self.told.is_some_and(|told| told.mig_mode == Some(true))
    }

    /// What is there counts; what NVML told of may have gone since. Where the driver shows nothing, it is believed.
    fn instances(&self) -> Vec<Instance> {
        let told = || self.told.iter().flat_map(|told| &told.mig_devices).map(Instance::of).collect();
        self.gpu.instances.clone().unwrap_or_else(told)
    }
}
