//! RDMA devices: InfiniBand, RoCE and iWARP cards on PCI, physical and virtual functions alike.
//!
//! ```text
//! locate     classes infiniband, infiniband_verbs, infiniband_mad ─► devices with their character devices,
//!            and those that a device requires                      (reads links, touches no hardware)
//! card       a device ─► facts: function, ports, firmware, interfaces, physical function   (behind the fence)
//! advertise  facts ─► a device, perhaps with shares, or one for each PCI function, or the ids of pools
//! mod        options, and a device ─► container edits
//! ```

mod advertise;
mod card;
mod locate;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use super::card_cache::{CardCache, Located};
use super::per_card::per_card;
use super::{LeftOut, Vendor, virtual_functions_instead};
use crate::device::{Device, Found, Platform};
use crate::edits::{Edits, Way, cdi_name};
use crate::fence::Fence;
use crate::host::Host;
use crate::order::natural;
use card::Facts;
use locate::Hca;

/// The value of `vendor` in JSON, metrics and problems.
pub(super) const VENDOR: &str = "rdma";
/// The PCI class of network controllers: functions of other classes are other kinds of cards.
const NETWORK: u32 = 0x02;

const DEVICES_INSTEAD: &str = "the RDMA devices whose nodes it has are offered instead";
const POOLS_INSTEAD: &str = "pools are offered instead (`vendors.rdma.mode` is `shared`)";

/// The located devices, and the facts of each device.
type Cache = CardCache<Vec<Arc<Hca>>, Hca, Arc<Facts>>;

/// Scans for RDMA devices.
#[derive(Debug)]
pub struct Rdma {
    options: RdmaOptions,
    /// Whether containers get devices by CDI, too.
    by_cdi: bool,
    cache: Arc<Cache>,
}

impl Rdma {
    /// A scan with these options, for these ways.
    #[must_use]
    pub fn new(options: RdmaOptions, ways: &BTreeSet<Way>) -> Self {
        Self { options, by_cdi: ways.contains(&Way::Cdi), cache: Arc::default() }
    }
}

impl Vendor for Rdma {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        let cards = self.cards(host, fence, &mut found);
        match self.options.mode {
            RdmaMode::Device => found.devices.extend(advertise::devices(host, &cards, self.options.shared_devices)),
            RdmaMode::Shared => {
                advertise::add_pools(host, &self.options.pools, &cards, &mut found);
                found.devices.extend(self.by_cdi.then(|| advertise::devices(host, &cards, 0)).into_iter().flatten());
            }
            RdmaMode::Sriov => found.devices.extend(advertise::functions(host, &cards).into_iter().map(Arc::new)),
        }
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn forget(&self) {
        self.cache.forget();
    }

    fn edits(&self, device: &Device, _platform: &Platform, way: Way, resource_name: &str) -> Edits {
        container_edits(device, self.options.mode, way, resource_name)
    }

    /// Pools are the device plugin's, and where there are pools it offers nothing else. Physical functions with virtual
    /// ones are left out as in sriov-network-device-plugin; in the other modes by CDI alone, and where these are RDMA
    /// devices here.
    fn left_out(&self, device: &Device, way: Way) -> Option<LeftOut> {
        let has_pools = self.options.mode == RdmaMode::Shared;
        match way {
            Way::Cdi if is_pool(device) => Some(LeftOut::because(DEVICES_INSTEAD)),
            Way::DevicePlugin if has_pools => (!is_pool(device)).then(|| LeftOut::because(POOLS_INSTEAD)),
            _ if self.options.mode == RdmaMode::Sriov => virtual_functions_instead(device),
            Way::Cdi => virtual_functions_instead(device).filter(|left_out| !left_out.unless_named),
            Way::DevicePlugin => None,
        }
    }
}

impl Rdma {
    /// The network cards that have all required nodes, sorted by name.
    fn cards(&self, host: &Host, fence: &Fence, found: &mut Found) -> Vec<Arc<Facts>> {
        let hcas = self.cache.located(host, || {
            let hcas = locate::devices(host, found).into_iter().map(Arc::new).collect();
            (hcas, found.problems.is_empty() && found.unseen.is_empty())
        });
        self.cache.forget_others(hcas.iter().map(AsRef::as_ref));
        let cards = hcas.into_iter().map(|hca| ((hca.address.clone(), host.own_path(&hca.path)), hca)).collect();
        let (behind_fence, cache) = (host.clone(), Arc::clone(&self.cache));
        let work = move |hca: Arc<Hca>| {
            let look = |_: &Hca| (Arc::new(Facts::read(&behind_fence, Arc::clone(&hca))), true);
            cache.examined(&behind_fence, &hca, look, |facts| facts.is_current())
        };
        let mut cards = per_card(VENDOR, found, fence, cards, work);
        cards.retain(|facts| {
            let is_network = facts.function.class.as_ref().is_none_or(|(class, _)| class >> 16 == NETWORK);
            let lack = is_network.then(|| locate::lacking_node(host, self.options.mode, facts)).flatten();
            let is_complete = lack.is_none();
            found.problems.extend(lack);
            is_network && is_complete
        });
        cards.sort_by(|left, right| natural(&left.hca.name, &right.hca.name));
        cards
    }
}

impl Located for Hca {
    fn key(&self) -> &str {
        &self.name
    }
}

/// Whether the device is a pool, not an RDMA device.
fn is_pool(device: &Device) -> bool {
    device.resource_name.as_ref() == Some(&device.card)
}

/// Options of RDMA devices.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RdmaOptions {
    /// Whether to look for RDMA devices.
    pub enabled: bool,
    /// The kind of devices.
    pub mode: RdmaMode,
    /// Number of ids of each device, for sharing; 0 = each device goes to one container at a time.
    pub shared_devices: u32,
    /// The pools of mode `shared`.
    pub pools: Vec<RdmaPool>,
}

/// The kind of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RdmaMode {
    /// RDMA devices by name.
    Device,
    /// Pools of devices that containers share, as in k8s-rdma-shared-dev-plugin.
    Shared,
    /// PCI functions by address, as in sriov-network-device-plugin.
    Sriov,
}

/// Devices that a container gets together, and that many containers share. A device may be in several pools.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RdmaPool {
    /// Full resource name.
    pub name: String,
    /// Number of containers that may share the pool.
    pub rdma_hca_max: u32,
    /// The devices of the pool.
    pub selectors: RdmaSelectors,
}

/// Conditions for a device: it must match one value of each non-empty list.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RdmaSelectors {
    /// PCI vendors, `15b3`.
    pub vendors: Vec<String>,
    /// PCI devices, `1017`.
    pub device_ids: Vec<String>,
    /// PCI drivers, `mlx5_core`.
    pub drivers: Vec<String>,
    /// Network interfaces, `ib0`.
    pub if_names: Vec<String>,
    /// Kinds of network interfaces: `ether`, `infiniband`.
    pub link_types: Vec<String>,
}

/// The nodes of a device. A container may also create those of a pool; in mode `sriov`, variables name the PCI function.
fn container_edits(device: &Device, mode: RdmaMode, way: Way, resource_name: &str) -> Edits {
    let edits = match mode {
        RdmaMode::Shared if is_pool(device) => Edits::of_nodes(&device.paths, "rwm"),
        RdmaMode::Device | RdmaMode::Shared => Edits::of_nodes(&device.paths, "rw"),
        RdmaMode::Sriov => {
            Edits { joined_envs: variables(device, resource_name), ..Edits::of_nodes(&device.paths, "rw") }
        }
    };
    edits.given(way, || cdi_name(device))
}

/// Two variables: `PCIDEVICE_INTEL_COM_MLNX=0000:3b:00.1`, and `…_INFO` with the function's nodes and RDMA device.
fn variables(device: &Device, resource_name: &str) -> BTreeMap<String, String> {
    let name = format!("PCIDEVICE_{}", resource_name.replace(['.', '/'], "_").to_uppercase());
    let nodes = device.paths.iter().map(|path| (kind(&path.path).to_owned(), path.path.clone()));
    let mut rdma: BTreeMap<String, String> = nodes.collect();
    rdma.insert("rdma_dev".to_owned(), device.text("ibdev").unwrap_or_default());
    let information = json!({ &device.id: { "generic": { "deviceID": device.id }, "rdma": rdma } });
    BTreeMap::from([(format!("{name}_INFO"), information.to_string()), (name, device.id.clone())])
}

/// The kind of a node: `uverbs` for `/dev/infiniband/uverbs0`.
fn kind(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.trim_end_matches(|letter: char| letter.is_ascii_digit())
}
