//! The facts of one card, read behind the fence and not yet judged.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::locate::Card;
use super::{INTEL, IntelGpuMonitoring, IntelGpuOptions, VENDOR};
use crate::bus::pci;
use crate::device::{Problem, Reading};
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError, Cause};
use crate::host::directory::{Directory, is_numbered};
use crate::vendors::gpus;

/// The facts of an Intel GPU that will be advertised.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) card: Card,
    pub(super) function: pci::Function,
    /// Address of the physical function, if this is a virtual one.
    pub(super) physical: Option<String>,
    /// The number of its virtual functions; each of them is a card of its own.
    pub(super) virtual_functions: u32,
    /// Whether virtual functions of it would become cards: the file that tells; `None` without SR-IOV of its own.
    pub(super) sriov: Option<(bool, PathBuf)>,
    /// The drivers of its virtual functions, if none of them is a card.
    pub(super) elsewhere: Option<String>,
    /// Its DRM nodes.
    pub(super) nodes: Vec<CardNode>,
    /// The existing nodes of its management engine; read only if monitoring is on.
    pub(super) management_nodes: Vec<CardNode>,
    /// Its temperatures.
    pub(super) readings: Vec<Reading>,
}

/// A device node of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CardNode {
    /// Below /dev: `dri/card0`, `mei0`.
    pub(super) name: String,
    /// Major and minor number; `None` if the kernel does not report them.
    pub(super) number: Option<(u32, u32)>,
}

impl Facts {
    /// The driver, and the file with its name. Cards without address and device id are made by `gpu_fakedev`, Intel's
    /// test tool: it names no driver, and i915 is meant.
    pub(super) fn driver(&self) -> Option<(&str, PathBuf)> {
        let is_fake = self.card.address.is_none() && self.function.id.is_none();
        match &self.function.driver {
            Some((driver, source)) => Some((driver, source.clone())),
            None => is_fake.then(|| ("i915", self.card.device.clone())),
        }
    }

    /// Reads a card; `None` if it is not an Intel GPU, or not to be advertised.
    ///
    /// # Errors
    /// If it is unknown whether the card is an Intel GPU that is to be advertised.
    pub(super) fn read(host: &Host, card: Card, options: &IntelGpuOptions) -> Result<Option<Self>, Problem> {
        let function = pci::Function::read(&card.device);
        let problem = |error: AttributeError| Problem::new(VENDOR, host.own_path(error.path), error.cause);
        if maker(host, &card, &function)? != Some(INTEL) || !is_wanted(host, &card, &function, options)? {
            return Ok(None);
        }
        let virtual_functions = pci::virtual_functions(&card.device).map_err(problem)?;
        let names = match drm_nodes(&card.device.join("drm")) {
            Ok(names) => names,
            Err(error) if error.cause == Cause::System(Errno::NOENT) && !card.is_listed(host) => return Ok(None),
            Err(error) => return Err(problem(error)),
        };
        let monitored = options.monitoring != IntelGpuMonitoring::Off;
        Ok(Some(Self {
            physical: physical_address(host, &card.device),
            elsewhere: (virtual_functions > 0)
                .then(|| pci::virtual_functions_elsewhere(host, &card.device, "drm"))
                .flatten(),
            virtual_functions,
            sriov: sriov(&card.device),
            nodes: names,
            management_nodes: if monitored { management_nodes(host, &card.device) } else { Vec::new() },
            readings: gpus::temperature_readings(host, &card.device),
            card,
            function,
        }))
    }
}

/// The PCI vendor; `None` for a card that is on no bus.
fn maker(host: &Host, card: &Card, function: &pci::Function) -> Result<Option<u16>, Problem> {
    if let Some(((vendor, _), _)) = function.id {
        return Ok(Some(vendor));
    }
    match Attribute::read(card.device.join("vendor")).and_then(|vendor| vendor.hexadecimal()) {
        Ok(vendor) => Ok(u16::try_from(vendor).ok()),
        // A card on no bus, or one that has just been removed.
        Err(error) if error.is_absent() && (card.is_on_no_bus() || !card.is_listed(host)) => Ok(None),
        Err(error) => Err(Problem::new(VENDOR, host.own_path(error.path), format!("unknown vendor: {}", error.cause))),
    }
}

/// Whether the options select the card. Ids must match completely.
fn is_wanted(host: &Host, card: &Card, function: &pci::Function, options: &IntelGpuOptions) -> Result<bool, Problem> {
    if options.allow_ids.is_empty() && options.deny_ids.is_empty() {
        return Ok(true);
    }
    let Some(((_, device), _)) = function.id else {
        let error = "the PCI device id is unknown: `allow_ids` and `deny_ids` cannot be applied";
        return Err(Problem::new(VENDOR, host.own_path(card.device.join("device")), error));
    };
    let id = format!("0x{device:04x}");
    Ok((options.allow_ids.is_empty() || options.allow_ids.contains(&id)) && !options.deny_ids.contains(&id))
}

/// As Intel's DRA driver has it: the function supports virtual ones, and the kernel binds them to its driver.
fn sriov(function: &Path) -> Option<(bool, PathBuf)> {
    let total = Attribute::read(function.join("sriov_totalvfs")).ok()?;
    let autoprobe = Attribute::read(function.join("sriov_drivers_autoprobe"));
    let is_bound = autoprobe.is_ok_and(|autoprobe| autoprobe.text() != "0");
    Some((total.decimal().ok()? > 0 && is_bound, total.path().to_path_buf()))
}

fn physical_address(host: &Host, function: &Path) -> Option<String> {
    let physical = pci::physical_function(host, function)?;
    pci::address_of(&physical).map(str::to_owned)
}

/// All DRM nodes except the control nodes, which kernels before 4.13 had.
fn drm_nodes(drm: &Path) -> Result<Vec<CardNode>, AttributeError> {
    let directory = Directory::open(drm)?;
    let names = directory.names()?.into_iter().filter(|name| !is_numbered(name, "controlD"));
    let node = |name: String| CardNode { number: number(&directory, &name), name: format!("dri/{name}") };
    Ok(names.map(node).collect())
}

/// The existing nodes of the management engine: `<function>/xe.mei-gscfi.1024/mei/mei1`.
fn management_nodes(host: &Host, function: &Path) -> Vec<CardNode> {
    let names = |path: &PathBuf| Directory::open(path).and_then(|directory| directory.names()).unwrap_or_default();
    let engines = names(&function.to_path_buf()).into_iter().filter(|name| name.contains(".mei-"));
    let mut nodes = Vec::new();
    for engine in engines {
        let Ok(directory) = Directory::open(function.join(engine).join("mei")) else { continue };
        let found = directory.names().unwrap_or_default();
        nodes.extend(found.into_iter().map(|name| CardNode { number: number(&directory, &name), name }));
    }
    nodes.retain(|node| !host.lacks_node(&host.dev(&node.name), node.number));
    nodes
}

fn number(directory: &Directory, name: &str) -> Option<(u32, u32)> {
    directory.attribute(&format!("{name}/dev")).and_then(|dev| dev.device_number()).ok()
}
