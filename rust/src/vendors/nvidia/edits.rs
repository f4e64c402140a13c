//! The container edits of a device, under each of the strategies of NVIDIA's plugin.
//!
//! Strategies can be combined. Two differences from NVIDIA's plugin are on purpose. First, each CDI name has its own
//! annotation key, so that an answer is always the same and the annotations of two resources of one container do not
//! overwrite each other. Second, a MIG device of unknown UUID is passed by its nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cdi::{self, NO_DEVICES, VISIBLE_DEVICES};
use super::installation::{CONTROL, DEVICE, IMEX_CHANNEL};
use super::{DeviceIdStrategy, DeviceListStrategy, NvidiaOptions, nodes};
use crate::device::{Device, HostPath, Platform};
use crate::edits::{Edits, Mount, Way};

const VOLUME_MOUNTS: &str = "/var/run/nvidia-container-devices";

/// The edits for the strategies in the options, or for CDI alone.
pub(super) fn edits(device: &Device, platform: &Platform, way: Way, options: &NvidiaOptions) -> Edits {
    let answer = Answer { device, platform, options };
    match way {
        Way::DevicePlugin => answer.by_strategies(),
        Way::Cdi => answer.by_cdi(),
    }
}

const MPS_PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// What a container needs to find the MPS control daemon of its resource, which NVIDIA's own pod runs: its pipes, and
/// the shared memory through which it talks.
pub(super) fn mps(root: &str, resource_name: &str) -> Edits {
    let pipe = format!("{resource_name}/pipe");
    let directory = format!("/mps/{pipe}");
    let mounts = [(format!("{root}/{pipe}"), directory.clone()), (format!("{root}/shm"), "/dev/shm".to_owned())];
    let mount = |(host_path, container_path)| Mount { host_path, container_path, ..Mount::default() };
    Edits {
        envs: [(MPS_PIPE_DIRECTORY.to_owned(), directory)].into(),
        mounts: mounts.map(mount).into(),
        ..Edits::default()
    }
}

struct Answer<'a> {
    device: &'a Device,
    platform: &'a Platform,
    options: &'a NvidiaOptions,
}

impl Answer<'_> {
    fn by_strategies(&self) -> Edits {
        let strategies = &self.options.device_list_strategy;
        let mut edits = Edits { envs: self.switches(), ..Edits::default() };
        if self.options.asks_for_cdi() {
            let Edits { cdi_devices: names, specs, .. } = self.by_cdi();
            if strategies.contains(&DeviceListStrategy::CdiAnnotations) {
                edits.annotations = names.iter().map(|name| self.annotation(name)).collect();
            }
            if strategies.contains(&DeviceListStrategy::CdiCri) {
                edits.cdi_devices = names;
            }
            edits.specs = specs;
        }
        if strategies.contains(&DeviceListStrategy::Envvar) {
            self.add_variables(&mut edits);
        }
        // The mounts override the variable that both strategies set.
        if strategies.contains(&DeviceListStrategy::VolumeMounts) {
            self.add_volume_mounts(&mut edits);
        }
        if self.passes_nodes() {
            let control = self.platform.paths_in(CONTROL).chain(self.device.paths_in(DEVICE));
            edits.nodes =
                control.chain(self.channels()).map(|path| nodes::in_container(self.platform, path, "rw")).collect();
        }
        edits
    }

    /// CDI names and their edits; nothing for a device that has no edits of its own.
    fn by_cdi(&self) -> Edits {
        let own = cdi::of_device(self.device, self.platform, self.options);
        if own.is_empty() {
            return own;
        }
        let name = self.visible().unwrap_or(&self.device.id).replace('/', "_");
        let mut named = vec![(format!("{}={name}", cdi::kind("gpu")), own)];
        named.extend(self.channels().map(|channel| {
            let name = format!("{}={}", cdi::kind(IMEX_CHANNEL), nodes::imex_channel_of(&channel.path));
            (name, cdi::of_paths(self.platform, [channel], "/"))
        }));
        for (_, class) in self.options.classes() {
            let mut paths = self.platform.paths_in(class).peekable();
            if paths.peek().is_some() {
                let edits = cdi::of_paths(self.platform, paths, &self.options.driver_root);
                named.push((format!("{}=all", cdi::kind(class)), edits));
                named.push((cdi::kind(class), cdi::no_devices()));
            }
        }
        let cdi_devices = named.iter().map(|(name, _)| name).filter(|name| name.contains('=')).cloned().collect();
        named.push((cdi::kind("gpu"), cdi::common(self.platform, self.options)));
        Edits {
            cdi_devices,
            specs: named.into_iter().map(|(name, edits)| (name, Arc::new(edits))).collect(),
            ..Edits::default()
        }
    }

    /// Variables that request more than the GPU from NVIDIA's runtime, in every strategy.
    fn switches(&self) -> BTreeMap<String, String> {
        let on = self.options.classes().into_iter().filter(|(is_on, _)| *is_on);
        on.map(|(_, class)| (format!("NVIDIA_{}", class.to_uppercase()), "enabled".to_owned())).collect()
    }

    fn add_variables(&self, edits: &mut Edits) {
        let visible = self.visible().unwrap_or(NO_DEVICES);
        edits.envs.insert(VISIBLE_DEVICES.to_owned(), visible.to_owned());
        let channels: Vec<&str> = self.channels().map(|channel| nodes::imex_channel_of(&channel.path)).collect();
        if !channels.is_empty() {
            edits.envs.insert("NVIDIA_IMEX_CHANNELS".to_owned(), channels.join(","));
        }
    }

    fn add_volume_mounts(&self, edits: &mut Edits) {
        let Some(visible) = self.visible() else {
            edits.envs.insert(VISIBLE_DEVICES.to_owned(), NO_DEVICES.to_owned());
            return;
        };
        edits.envs.insert(VISIBLE_DEVICES.to_owned(), VOLUME_MOUNTS.to_owned());
        let channels = self.channels().map(|channel| format!("imex/{}", nodes::imex_channel_of(&channel.path)));
        edits.mounts.extend(std::iter::once(visible.to_owned()).chain(channels).map(|below| Mount {
            host_path: "/dev/null".to_owned(),
            container_path: format!("{VOLUME_MOUNTS}/{below}"),
            ..Mount::default()
        }));
    }

    /// Whether nodes are passed. With CDI alone, the runtime adds them. NVIDIA's runtime has a name for every device,
    /// but some names come from NVML only: a device whose name is unknown is passed by its nodes.
    fn passes_nodes(&self) -> bool {
        let wanted = self.options.pass_device_specs || self.visible().is_none();
        wanted && self.options.device_list_strategy.iter().any(|strategy| !strategy.is_cdi())
    }

    fn channels(&self) -> impl Iterator<Item = &HostPath> {
        self.platform.paths_in(IMEX_CHANNEL)
    }

    /// The name of the device for NVIDIA's runtime.
    fn visible(&self) -> Option<&str> {
        let named = match self.options.device_id_strategy {
            DeviceIdStrategy::Uuid => "uuid",
            DeviceIdStrategy::Index => "index",
        };
        self.device.attributes.get(named)?.value.as_text()
    }

    /// An annotation whose key contains the name, limited to 63 characters after the prefix.
    fn annotation(&self, cdi_name: &str) -> (String, String) {
        let (class, name) =
            cdi_name.trim_start_matches(cdi::VENDOR).trim_start_matches('/').split_once('=').unwrap_or_default();
        let name = name.trim_start_matches("MIG-").trim_start_matches("GPU-").replace(':', ".");
        let of_class = if class == "gpu" { name } else { format!("{class}.{name}") };
        (format!("{}nvidia-device-plugin_{of_class}", self.options.cdi_annotation_prefix), cdi_name.to_owned())
    }
}
