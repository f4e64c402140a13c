//! AMD GPUs: under amdgpu for containers, under gim or vfio-pci for virtual machines.
//!
//! Every scan looks for the driver, so a driver that loads late is found. A card is one whole GPU: its PCI function,
//! which is also its first partition, and the platform devices of its further partitions.
//!
//! ```text
//! driver       the use of the GPUs, and GPUs that lost their driver
//! container    GPUs for containers:
//!   kfd_topology KFD's nodes, once two reads agree                             (behind the fence, all as one)
//!   links        links between GPUs, read again when the topology changes
//!   locate       functions and partitions ─► cards                             (touches no hardware)
//!   card         a card ─► facts                                               (behind the fence, card by card)
//!   product_names  names of GPUs whose board has none
//!   advertise    facts of all cards ─► devices, distances and problems
//! passthrough  GPUs for virtual machines
//! mod          options, and a device ─► container edits
//! ```

mod advertise;
mod card;
mod container;
mod driver;
mod kfd_topology;
mod links;
mod locate;
mod passthrough;
mod product_names;

use std::sync::Arc;

use serde::Deserialize;

use super::gpus;
use super::per_card::per_card;
use super::{LeftOut, Vendor};
use crate::device::{Device, Found, Platform};
use crate::edits::{Edits, Way, cdi_name};
use crate::fence::Fence;
use crate::host::Host;
use crate::order::natural;
use driver::{BoundBefore, Mode};
use kfd_topology::StableTree;
pub use kfd_topology::slots;
use product_names::ProductNames;

/// The value of `vendor` in JSON, metrics and problems.
pub(super) const VENDOR: &str = "amd";
/// AMD's PCI vendor id.
const AMD: u16 = 0x1002;

/// Scans for AMD GPUs.
#[derive(Debug)]
pub struct Amd {
    options: AmdOptions,
    stable_tree: Arc<StableTree>,
    bound: BoundBefore,
    names: Arc<ProductNames>,
}

impl Amd {
    /// A scan with these options.
    #[must_use]
    pub fn new(options: AmdOptions) -> Self {
        Self { options, stable_tree: Arc::default(), bound: BoundBefore::default(), names: Arc::default() }
    }

    fn for_virtual_machines(&self, host: &Host, fence: &Fence, mode: Mode, found: &mut Found) {
        if !mode.directory(host).is_dir() {
            found.problems.extend(container::awaited(host, &mode.directory(host), self.options.required));
            return;
        }
        let cards = passthrough::cards(host, mode, found);
        let placed = |card: passthrough::Card| ((card.key.clone(), host.own_path(&card.path)), card);
        let cards = cards.into_iter().map(placed).collect();
        let behind_fence = host.clone();
        let work = move |card| passthrough::read(&behind_fence, &card);
        let mut given = Vec::new();
        for (functions, problems) in per_card(VENDOR, found, fence, cards, work) {
            given.extend(functions);
            found.problems.extend(problems);
        }
        let devices = passthrough::devices(host, given, mode, self.options.naming);
        found.devices = devices.into_iter().map(Arc::new).collect();
    }
}

impl Vendor for Amd {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        let bound = match Mode::of(self.options.driver_type, host).unwrap_or(Mode::Container) {
            Mode::Container => {
                container::scan(host, fence, &self.options, (&self.stable_tree, &self.names), &mut found)
            }
            mode => {
                self.for_virtual_machines(host, fence, mode, &mut found);
                Some(Vec::new())
            }
        };
        if let Some(bound) = bound {
            self.bound.renew(host, bound, &mut found);
        }
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn is_gone(&self, host: &Host, device: &Device) -> bool {
        card::is_of_another_mode(host, device)
    }

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, resource_name: &str) -> Edits {
        container_edits(device, way, resource_name)
    }

    fn left_out(&self, device: &Device, way: Way) -> Option<LeftOut> {
        gpus::left_to_virtual_machines(device, way).map(LeftOut::because)
    }
}

/// Whether a class is a GPU, by the base classes of the PCI code and ID assignment specification: display controllers,
/// processing accelerators.
fn is_gpu_class(class: u64) -> bool {
    matches!(class >> 16, 0x03 | 0x12)
}

/// Options of AMD's plugin, under the plugin's names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AmdOptions {
    /// Whether to look for AMD GPUs.
    pub enabled: bool,
    /// Whether the driver must be present: if so, a missing part is a problem.
    pub required: bool,
    /// The resource names of partitions.
    pub naming: AmdNaming,
    /// Whether GPUs are for containers or for virtual machines.
    pub driver_type: AmdDriverType,
}

/// The resource names of partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmdNaming {
    /// Every device is `amd.com/gpu`.
    Single,
    /// Partitions are named by their mode: `amd.com/cpx_nps4`.
    Mixed,
}

/// The driver of the GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AmdDriverType {
    /// The first loaded driver of amdgpu, gim and vfio-pci.
    Auto,
    /// amdgpu, for containers.
    Container,
    /// gim: virtual functions for virtual machines.
    VfPassthrough,
    /// vfio-pci: whole GPUs for virtual machines.
    PfPassthrough,
}

/// The device's nodes; for the container of a virtual machine also variables.
fn container_edits(device: &Device, way: Way, resource_name: &str) -> Edits {
    let edits = gpus::for_virtual_machine(device, resource_name);
    edits.unwrap_or_else(|| Edits::of_nodes(&device.paths, "rw")).given(way, || cdi_name(device))
}
