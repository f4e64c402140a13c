//! The facts of one card, read behind the fence and not yet judged.

use std::path::{Path, PathBuf};

use super::hwmon;
use super::locate::Card;
use super::options::{IntelGpuMonitoring, IntelGpuOptions};
use super::{INTEL, VENDOR};
use crate::bus::pci;
use crate::device::{Problem, Reading};
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError};
use crate::host::directory::{Directory, is_numbered};

/// An Intel GPU that is to be advertised.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) card: Card,
    pub(super) function: pci::Function,
    /// Address of the physical function, of a virtual one.
    pub(super) physical: Option<String>,
    /// Its DRM nodes.
    pub(super) nodes: Vec<CardNode>,
    /// The nodes of its management engine that are there; looked for where somebody monitors.
    pub(super) management_nodes: Vec<CardNode>,
    /// Its temperatures.
    pub(super) readings: Vec<Reading>,
}

/// A device node that a card has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CardNode {
    /// Below /dev: `dri/card0`, `mei0`.
    pub(super) name: String,
    /// Major and minor number; `None` where the kernel does not say.
    pub(super) number: Option<(u32, u32)>,
}

impl Facts {
    /// `None` for a card that is no Intel GPU, or one that is not to be advertised.
    ///
    /// # Errors
    /// When that is unknown.
    pub(super) fn read(host: &Host, card: Card, options: &IntelGpuOptions) -> Result<Option<Self>, Problem> {
        let function = pci::Function::read(&card.device);
        let Some(((vendor, device), _)) = function.id else {
            return if card.address.is_some() { Err(unknown_maker(host, &card)) } else { Ok(None) };
        };
        let problem = |error: AttributeError| Problem::new(VENDOR, host.own_path(error.path), error.cause);
        if vendor != INTEL || !is_wanted(options, device) || has_virtual_functions(&card.device).map_err(problem)? {
            return Ok(None);
        }
        let names = match drm_nodes(&card.device.join("drm")) {
            Ok(names) => names,
            Err(error) if error.is_absent() => return Ok(None),
            Err(error) => return Err(problem(error)),
        };
        let monitored = options.monitoring != IntelGpuMonitoring::Off;
        Ok(Some(Self {
            physical: physical_address(host, &card.device),
            nodes: names,
            management_nodes: if monitored { management_nodes(host, &card.device) } else { Vec::new() },
            readings: hwmon::readings(host, &card.device),
            card,
            function,
        }))
    }
}

fn unknown_maker(host: &Host, card: &Card) -> Problem {
    let error = "unknown vendor: neither uevent nor the files vendor and device can be read";
    Problem::new(VENDOR, host.own_path(&card.device), error)
}

/// Ids are compared whole.
fn is_wanted(options: &IntelGpuOptions, device: u16) -> bool {
    let id = format!("0x{device:04x}");
    (options.allow_ids.is_empty() || options.allow_ids.contains(&id)) && !options.deny_ids.contains(&id)
}

/// Such a card is given away in parts: its virtual functions are cards of their own.
fn has_virtual_functions(function: &Path) -> Result<bool, AttributeError> {
    match Attribute::read(function.join("sriov_numvfs")).and_then(|count| count.decimal()) {
        Err(error) if error.is_absent() => Ok(false),
        count => count.map(|count| count > 0),
    }
}

fn physical_address(host: &Host, function: &Path) -> Option<String> {
    let physical = pci::physical_function(host, function)?;
    pci::address_of(&physical).map(str::to_owned)
}

/// All but the control nodes, which kernels before 4.13 had.
fn drm_nodes(drm: &Path) -> Result<Vec<CardNode>, AttributeError> {
    let directory = Directory::open(drm)?;
    let names = directory.names()?.into_iter().filter(|name| !is_numbered(name, "controlD"));
    let node = |name: String| CardNode { number: number(&directory, &name), name: format!("dri/{name}") };
    Ok(names.map(node).collect())
}

/// `<function>/xe.mei-gscfi.1024/mei/mei1`. A node that is not there is not one to monitor with.
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
