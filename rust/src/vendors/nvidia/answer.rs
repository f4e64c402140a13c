//! What Allocate answers for a device, in each of the vendor's strategies.
//!
//! Strategies combine. Two things differ from NVIDIA's plugin, for good: an annotation has a key of its own for each CDI
//! name, so that an answer is the same whenever it is given and two resources of one container do not hide each other's;
//! and a MIG device whose UUID nobody tells is given by its nodes.

use super::cdi::CDI_VENDOR;
use super::libraries::Libraries;
use super::nodes::{self, DevRoot, Needed};
use super::runtime::{self, Runtime};
use super::{DeviceIdStrategy, DeviceListStrategy, NvidiaOptions, VENDOR};
use crate::cdi::Edits;
use crate::check::Check;
use crate::device::{Device, Mount, Node, Problem, Reason};
use crate::host::Host;

const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// Tells NVIDIA's runtime to keep away; without it, the image's own `all` would count.
const NO_DEVICES: &str = "void";
const VOLUME_MOUNTS: &str = "/var/run/nvidia-container-devices";

/// What all answers of one scan have in common.
#[derive(Debug)]
pub(super) struct Answers<'a> {
    host: &'a Host,
    options: &'a NvidiaOptions,
    dev_root: DevRoot,
    control: Vec<Node>,
    channels: Vec<Channel>,
    /// Only where devices are told by CDI.
    runtime: Option<Runtime>,
}

/// An IMEX channel that containers get, or should.
#[derive(Debug)]
struct Channel {
    number: u32,
    node: Node,
    is_there: bool,
}

/// How the container runtime is told of a device.
#[derive(Debug, Clone)]
pub(super) enum Name {
    /// By UUID or by index.
    Known { uuid: String, index: String },
    /// NVIDIA's runtime has a name for it, but only NVML tells which; this one is ours.
    Own(String),
}

impl<'a> Answers<'a> {
    pub(super) fn new(host: &'a Host, options: &'a NvidiaOptions, libraries: &Libraries) -> Self {
        let dev_root = DevRoot::of(host, options);
        let control = dev_root.control(host);
        let channels: Vec<Channel> =
            options.imex_channel_ids.iter().map(|&number| Channel::find(host, &dev_root, number)).collect();
        let by_cdi = options.device_list_strategy.iter().any(|strategy| strategy.is_cdi());
        let mut runtime = by_cdi.then(|| Runtime::new(host, options, &dev_root, libraries));
        for channel in channels.iter().filter(|channel| channel.is_there) {
            if let Some(runtime) = &mut runtime {
                runtime.offer_channel(channel.cdi_name(), &channel.node);
            }
        }
        Self { host, options, dev_root, control, channels, runtime }
    }

    /// What is amiss for all devices: IMEX channels that are not there, and what CDI cannot offer.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let missing = self.channels.iter().filter(|channel| !channel.is_there);
        let problem = |channel: &Channel| {
            let cure = "set `NVreg_CreateImexChannel0=1`, or run `nvidia-modprobe -i`";
            Problem::new(
                VENDOR,
                &channel.node.host_path,
                format!("IMEX channel {} is not there: {cure}", channel.number),
            )
        };
        missing.map(problem).chain(self.runtime.iter().flat_map(|runtime| runtime.problems().to_vec())).collect()
    }

    /// Whether devices are told by CDI.
    pub(super) fn by_cdi(&self) -> bool {
        self.runtime.is_some()
    }

    /// Completes a device that needs these nodes: what it is given, and what must be there for it.
    pub(super) fn complete(&self, device: &mut Device, name: &Name, needed: &[Needed]) {
        self.complete_with(device, name, needed, |_| Edits::default());
    }

    /// The same for a device that by CDI brings more than nodes, given the program that hooks run.
    pub(super) fn complete_with(
        &self,
        device: &mut Device,
        name: &Name,
        needed: &[Needed],
        more: impl FnOnce(&str) -> Edits,
    ) {
        for node in needed {
            self.expect(device, &self.dev_root.node(&node.path), node.number);
        }
        if self.options.imex_required {
            self.channels.iter().for_each(|channel| self.expect(device, &channel.node, None));
        }
        self.give_switches(device);
        let strategies = &self.options.device_list_strategy;
        let own = self.own_edits(device, needed, more);
        let cdi_names = if own.is_empty() { Vec::new() } else { self.cdi_names(name) };
        for strategy in strategies {
            match strategy {
                DeviceListStrategy::CdiCri => device.cdi_devices.clone_from(&cdi_names),
                DeviceListStrategy::CdiAnnotations => {
                    device.annotations.extend(cdi_names.iter().map(|name| self.annotation(name)));
                }
                DeviceListStrategy::Envvar => self.give_variables(device, name),
                DeviceListStrategy::VolumeMounts => {}
            }
        }
        // It has the last word on the variable that both set.
        if strategies.contains(&DeviceListStrategy::VolumeMounts) {
            self.give_volume_mounts(device, name);
        }
        if self.passes_nodes(name) {
            self.give_nodes(device, needed);
        }
        if let (Some(runtime), false) = (&self.runtime, own.is_empty()) {
            device.cdi_edits = runtime.specs(&cdi_names, &own);
        }
    }

    /// What the device's own CDI name brings; nothing where CDI is not asked for.
    fn own_edits(&self, device: &Device, needed: &[Needed], more: impl FnOnce(&str) -> Edits) -> Edits {
        let Some(runtime) = &self.runtime else { return Edits::default() };
        let nodes: Vec<Node> = needed.iter().map(|node| self.dev_root.node(&node.path)).collect();
        let graphics = self.graphics(device);
        runtime.of_device(&nodes, &graphics, &device.card).and(more(&self.options.cdi_hook_path))
    }

    /// The nodes below /dev/dri of a whole GPU; its parts have none of their own.
    fn graphics(&self, device: &Device) -> Vec<Node> {
        let is_whole = !device.attributes.contains_key("gpu_instance");
        let names = if is_whole { nodes::graphics(self.host, &device.card) } else { Vec::new() };
        names.iter().map(|name| self.dev_root.node(&nodes::below_dev("dri", name))).collect()
    }

    fn expect(&self, device: &mut Device, node: &Node, number: Option<(u32, u32)>) {
        let path = self.host.absolute(&node.host_path);
        if self.host.lacks_node(&path, number) {
            device.reasons.insert(Reason::NodeMissing);
        }
        device.checks.push(Check::NodePresent { path, number });
    }

    /// Variables that ask NVIDIA's runtime for more than the GPU; they are set whatever the strategy.
    fn give_switches(&self, device: &mut Device) {
        for (is_on, class) in self.classes() {
            if is_on {
                device.envs.insert(format!("NVIDIA_{}", class.to_uppercase()), "enabled".to_owned());
            }
        }
    }

    fn classes(&self) -> [(bool, &'static str); 3] {
        let options = self.options;
        [(options.gdrcopy_enabled, "gdrcopy"), (options.gds_enabled, "gds"), (options.mofed_enabled, "mofed")]
    }

    fn give_variables(&self, device: &mut Device, name: &Name) {
        let visible = self.visible(name).unwrap_or(NO_DEVICES);
        device.envs.insert(VISIBLE_DEVICES.to_owned(), visible.to_owned());
        let channels: Vec<String> = self.present_channels().map(|channel| channel.number.to_string()).collect();
        if !channels.is_empty() {
            device.envs.insert("NVIDIA_IMEX_CHANNELS".to_owned(), channels.join(","));
        }
    }

    fn give_volume_mounts(&self, device: &mut Device, name: &Name) {
        let Some(visible) = self.visible(name) else {
            device.envs.insert(VISIBLE_DEVICES.to_owned(), NO_DEVICES.to_owned());
            return;
        };
        device.envs.insert(VISIBLE_DEVICES.to_owned(), VOLUME_MOUNTS.to_owned());
        let channels = self.present_channels().map(|channel| format!("imex/{}", channel.number));
        device.mounts.extend(std::iter::once(visible.to_owned()).chain(channels).map(|below| Mount {
            host_path: "/dev/null".to_owned(),
            container_path: format!("{VOLUME_MOUNTS}/{below}"),
            read_only: false,
        }));
    }

    /// With CDI alone the runtime brings the nodes.
    fn passes_nodes(&self, name: &Name) -> bool {
        let wanted = self.options.pass_device_specs || matches!(name, Name::Own(_));
        wanted && self.options.device_list_strategy.iter().any(|strategy| !strategy.is_cdi())
    }

    fn give_nodes(&self, device: &mut Device, needed: &[Needed]) {
        let own = needed.iter().map(|node| self.dev_root.node(&node.path));
        let channels = self.present_channels().map(|channel| channel.node.clone());
        device.nodes = self.control.iter().cloned().chain(own).chain(channels).collect();
    }

    fn present_channels(&self) -> impl Iterator<Item = &Channel> {
        self.channels.iter().filter(|channel| channel.is_there)
    }

    /// What NVIDIA's runtime calls the device.
    fn visible<'n>(&self, name: &'n Name) -> Option<&'n str> {
        match (name, self.options.device_id_strategy) {
            (Name::Known { uuid, .. }, DeviceIdStrategy::Uuid) => Some(uuid),
            (Name::Known { index, .. }, DeviceIdStrategy::Index) => Some(index),
            (Name::Own(_), _) => None,
        }
    }

    /// Qualified CDI names of the device and of what comes with it.
    fn cdi_names(&self, name: &Name) -> Vec<String> {
        let own = match name {
            Name::Own(own) => own,
            Name::Known { .. } => self.visible(name).unwrap_or_default(),
        };
        let gpu = format!("{}={}", runtime::kind("gpu"), cdi_name(own));
        let channels = self.present_channels().map(Channel::cdi_name);
        let classes = self.classes().into_iter().map(|(_, class)| format!("{}=all", runtime::kind(class)));
        let offered = |name: &String| self.runtime.as_ref().is_some_and(|runtime| runtime.offers(name));
        std::iter::once(gpu).chain(channels.chain(classes).filter(offered)).collect()
    }

    /// The key tells the name, within 63 characters behind the prefix.
    fn annotation(&self, cdi_name: &str) -> (String, String) {
        let (class, name) =
            cdi_name.trim_start_matches(CDI_VENDOR).trim_start_matches('/').split_once('=').unwrap_or_default();
        let name = name.trim_start_matches("MIG-").trim_start_matches("GPU-").replace(':', ".");
        let of_class = if class == "gpu" { name } else { format!("{class}.{name}") };
        (format!("{}nvidia-device-plugin_{of_class}", self.options.cdi_annotation_prefix), cdi_name.to_owned())
    }
}

impl Channel {
    fn find(host: &Host, dev_root: &DevRoot, number: u32) -> Self {
        let path = nodes::of_imex_channel(number);
        let (own, plain) = (dev_root.node(&path), DevRoot::default().node(&path));
        let node = if !nodes::is_there(host, &own) && nodes::is_there(host, &plain) { plain } else { own };
        Self { number, is_there: nodes::is_there(host, &node), node }
    }

    fn cdi_name(&self) -> String {
        format!("{}={}", runtime::kind("imex-channel"), self.number)
    }
}

impl DeviceListStrategy {
    fn is_cdi(self) -> bool {
        matches!(self, Self::CdiAnnotations | Self::CdiCri)
    }
}

/// The ids of MIG devices under drivers before 470 have slashes, which CDI does not know in names.
fn cdi_name(id: &str) -> String {
    id.replace('/', "_")
}
