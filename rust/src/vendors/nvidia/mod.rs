//! NVIDIA GPUs and their MIG devices.
//!
//! The driver's procfs lists the GPUs, and PCI locates them; facts that come from NVML only are added once it has
//! answered.
//!
//! ```text
//! driver         version, the GPUs that the driver lists, and GPUs that it no longer lists
//! card           one GPU and its information                         (behind the fence)
//! mig            MIG devices, their capability nodes and profiles
//! nvml_facts     the request to NVML, and its answer                 (by files)
//! distances      how close GPUs are to each other
//! advertise      GPUs, facts and strategy ─► devices and problems
//! nodes          device nodes on the host and in containers
//! libraries      the driver's libraries, also by the dynamic linker's cache
//! driver_files   the driver's programs, firmware, sockets, graphics
//! installation   nodes, libraries and files for all devices, with the roles of paths
//! edits, cdi     a device and the installation ─► container edits
//! passthrough    GPUs for virtual machines
//! mediated       vGPUs for virtual machines
//! vgpu           what a virtual GPU says of its host
//! tegra, wsl     two platforms that have one device and no procfs
//! ```
//!
//! A GPU that the driver excludes is not advertised. This is not a problem, because the operator excluded it. The
//! attribute `excluded_gpus` of the other GPUs lists it.

mod advertise;
mod card;
mod cdi;
mod distances;
mod driver;
mod driver_files;
mod edits;
mod installation;
mod libraries;
mod mediated;
mod mig;
mod nodes;
mod nvml_facts;
mod passthrough;
mod tegra;
mod vgpu;
mod wsl;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;

use super::table::Surroundings;
use super::{LeftOut, Vendor, gpus};
use crate::device::{Device, Found, Platform, Problem};
use crate::edits::{Edits, Way, cdi_name};
use crate::fence::Fence;
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::order::natural;
use advertise::Advertiser;
use card::Card;
use driver::KnownGpus;
pub use driver::prints_no_xids;
use installation::Installation;
use libraries::Libraries;
use nodes::DevRoot;
use nvml_facts::{NvmlFacts, NvmlQuery};
use passthrough::ProductNames;
use vgpu::HostDrivers;

/// The value of `vendor` in JSON, metrics and problems.
pub(super) const VENDOR: &str = "nvidia";

/// Path below /sys of the machine's name in the firmware: a label of the node.
const MACHINE: &str = "class/dmi/id/product_name";

/// Scans for NVIDIA GPUs.
#[derive(Debug)]
pub struct Nvidia {
    options: NvidiaOptions,
    ways: BTreeSet<Way>,
    nvml: NvmlQuery,
    seen: Mutex<KnownGpus>,
    libraries: Libraries,
    host_drivers: Arc<HostDrivers>,
    names: ProductNames,
}

impl Nvidia {
    /// A scan with these options. NVML counts as slow if it does not answer within the patience.
    #[must_use]
    pub fn new(options: NvidiaOptions, given: &Surroundings) -> Self {
        Self {
            options,
            ways: given.ways.clone(),
            nvml: NvmlQuery::new(given.nvml.clone(), given.patience),
            seen: Mutex::default(),
            libraries: Libraries::default(),
            host_drivers: Arc::default(),
            names: ProductNames::default(),
        }
    }

    fn nvml_facts(&self, host: &Host, cards: &[Card], found: &mut Found) -> NvmlFacts {
        let is_asked = match self.options.device_discovery_strategy {
            DeviceDiscoveryStrategy::Procfs | DeviceDiscoveryStrategy::Tegra => false,
            _ => !cards.is_empty() || wsl::is_here(host, &self.options),
        };
        if !is_asked {
            return NvmlFacts::default();
        }
        self.nvml.facts(host, &self.options, cards, found)
    }

    fn note_of_vgpus(&self, host: &Host, card: &Card) -> Option<Problem> {
        let note = card.gpu.as_ref()?.vgpu_functions.note(card.address(), self.options.passthrough)?;
        Some(Problem::new(VENDOR, host.own_path(&card.function.path), note))
    }

    fn advertise(&self, host: &Host, cards: &[Card], seen: &mut KnownGpus, found: &mut Found) {
        let nvml_facts = self.nvml_facts(host, cards, found);
        found.notices.extend(cards.iter().filter_map(|card| self.note_of_vgpus(host, card)));
        let mut installation = Installation::read(host, &self.options, &self.ways, &self.libraries);
        let models = cards.iter().filter_map(|card| card.gpu.as_ref()?.information.model.as_deref());
        if wsl::is_here(host, &self.options) {
            wsl::add_driver_store(host, &mut installation.platform);
            found.devices.push(wsl::device(host, &self.options, &installation, &nvml_facts).into());
        } else if tegra::is_here(host, &self.options, models) {
            if installation.is_for_cdi {
                found.problems.extend(tegra::add_listed(host, &mut installation.platform));
            }
            found.problems.extend(tegra::without_parts(host, &self.options, cards));
            found.devices.push(tegra::device(host).into());
        } else {
            let minors: Vec<u32> = cards.iter().filter_map(|card| card.gpu.as_ref()?.information.minor).collect();
            found.problems.extend(installation.without_nodes(host, &self.options, &self.ways, &minors));
            let mut advertiser = Advertiser::new(
                host,
                &self.options,
                &self.ways,
                &installation,
                &nvml_facts,
                self.nvml.is_needed(),
                cards,
            );
            let usable = cards.iter().filter(|card| !seen.is_excluded(card));
            // NVML numbers the GPUs in PCI order, without the GPUs that the driver excludes.
            for (rank, card) in (0..).zip(usable) {
                advertiser.add(card, rank);
            }
            let made = advertiser.finish();
            found.devices = made.devices;
            found.problems.extend(made.problems);
            found.unseen.extend(made.unseen);
        }
        if !found.devices.is_empty() {
            found.problems.append(&mut installation.problems);
        }
        if let Ok(machine) = Attribute::read(host.sys(MACHINE)) {
            let source = host.own_path(machine.path());
            installation.platform.note("machine", machine.text(), &source.to_string_lossy());
        }
        found.platform = Some(installation.platform);
    }
}

impl Vendor for Nvidia {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cards) = card::read_all(host, fence, &self.host_drivers, &mut found) {
            self.advertise(host, &cards, &mut seen, &mut found);
            seen.report_unlisted(host, &cards, self.options.passthrough, &mut found);
        } else {
            found.requests.extend(self.nvml.last_request());
        }
        if self.options.passthrough {
            passthrough::add(host, fence, &self.names, &mut found);
            mediated::add(host, fence, &mut found);
        }
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn edits(&self, device: &Device, platform: &Platform, way: Way, resource_name: &str) -> Edits {
        match gpus::for_virtual_machine(device, resource_name) {
            Some(edits) => edits.given(way, || cdi_name(device)),
            None => edits::edits(device, platform, way, &self.options),
        }
    }

    fn mps(&self, root: &str, resource_name: &str) -> Edits {
        edits::mps(root, resource_name)
    }

    fn is_gone(&self, host: &Host, device: &Device) -> bool {
        mig::instance_of(device).is_some_and(|(minor, instance)| mig::is_gone(host, minor, instance))
            || mediated::is_gone(host, device)
    }

    fn changes_in_silence(&self, found: &[Arc<Device>]) -> bool {
        found.iter().any(|device| advertise::changes_in_silence(device))
    }

    fn left_out(&self, device: &Device, way: Way) -> Option<LeftOut> {
        let given_to_them = || self.options.passthrough.then(|| mediated::left_out(device)).flatten();
        gpus::left_to_virtual_machines(device, way)
            .or_else(given_to_them)
            .or_else(|| advertise::left_out(device, way, self.options.mig_strategy))
            .map(LeftOut::because)
    }

    fn watched_directories(&self, host: &Host) -> Vec<PathBuf> {
        let dev = DevRoot::of(host, &self.options).directory(host);
        // nvidia-modprobe makes these nodes, without an event of the kernel.
        vec![dev.join("nvidia-caps"), dev.join("nvidia-caps-imex-channels"), dev.join("dri"), dev]
    }
}

/// Options of NVIDIA's plugin, under the plugin's names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "one field for each option of the vendor's plugin")]
pub struct NvidiaOptions {
    /// Whether to look for NVIDIA GPUs.
    pub enabled: bool,
    /// Determines the resource names of MIG devices.
    pub mig_strategy: MigStrategy,
    /// How the container runtime learns the devices of a container; strategies can be combined.
    pub device_list_strategy: Vec<DeviceListStrategy>,
    /// How devices are named to the container runtime.
    pub device_id_strategy: DeviceIdStrategy,
    /// Whether device nodes are passed in addition.
    pub pass_device_specs: bool,
    /// The root of the host's driver libraries.
    pub driver_root: String,
    /// The root of the host's device nodes; if absent, the driver root.
    pub dev_root: Option<String>,
    /// The prefix of the annotation's key for `cdi-annotations`.
    pub cdi_annotation_prefix: String,
    /// Path on the host of the program that CDI hooks run.
    pub cdi_hook_path: String,
    /// Whether containers get GDRCopy.
    pub gdrcopy_enabled: bool,
    /// Whether containers get GPUDirect Storage.
    pub gds_enabled: bool,
    /// Whether containers get the InfiniBand nodes.
    pub mofed_enabled: bool,
    /// IMEX channels given to every container.
    pub imex_channel_ids: Vec<u32>,
    /// Whether a missing IMEX channel makes devices unusable.
    pub imex_required: bool,
    /// Whether vGPUs, and GPUs under a VFIO driver, are offered to virtual machines.
    pub passthrough: bool,
    /// Whether process `source:nvml` keeps the GPUs open.
    pub keep_open: bool,
    /// The sources for the discovery of devices.
    pub device_discovery_strategy: DeviceDiscoveryStrategy,
}

impl NvidiaOptions {
    /// Whether any strategy uses CDI.
    fn asks_for_cdi(&self) -> bool {
        self.device_list_strategy.iter().any(|strategy| strategy.is_cdi())
    }

    /// Whether `NVIDIA_VISIBLE_DEVICES` is the only way in which devices are given.
    fn leaves_nodes_to_the_runtime(&self) -> bool {
        !self.pass_device_specs && self.device_list_strategy.iter().all(|one| *one == DeviceListStrategy::Envvar)
    }

    /// The kinds of nodes that containers may get in addition to GPUs, and whether the options request them.
    fn classes(&self) -> [(bool, &'static str); 3] {
        [(self.gdrcopy_enabled, "gdrcopy"), (self.gds_enabled, "gds"), (self.mofed_enabled, "mofed")]
    }
}

impl DeviceListStrategy {
    /// Whether the strategy names devices to the runtime by CDI.
    fn is_cdi(self) -> bool {
        matches!(self, Self::CdiAnnotations | Self::CdiCri)
    }
}

/// The resource names of MIG devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigStrategy {
    /// A GPU in MIG mode is offered as one whole GPU.
    None,
    /// MIG devices are named `nvidia.com/gpu`.
    Single,
    /// MIG devices are named `nvidia.com/mig-<profile>`.
    Mixed,
}

/// One way to name devices to the container runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceListStrategy {
    /// `NVIDIA_VISIBLE_DEVICES`.
    Envvar,
    /// Mounts of /dev/null below a directory.
    VolumeMounts,
    /// CDI names in an annotation.
    CdiAnnotations,
    /// CDI names in the kubelet's own field.
    CdiCri,
}

/// How devices are named to the container runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceIdStrategy {
    /// By UUID.
    Uuid,
    /// By index in the PCI order.
    Index,
}

/// The sources for the discovery of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceDiscoveryStrategy {
    /// Tegra's files if present; otherwise the driver's files, with NVML if it can be loaded.
    Auto,
    /// The driver's files and NVML.
    Nvml,
    /// The driver's files only.
    Procfs,
    /// Tegra's files.
    Tegra,
}
