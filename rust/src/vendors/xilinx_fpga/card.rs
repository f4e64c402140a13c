//! The facts of one device, read behind the fence and not yet judged.

use std::path::PathBuf;

use super::locate::{Pair, Place};
use super::{VENDOR, advertise};
use crate::bus::pci;
use crate::device::Problem;
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError};
use crate::host::directory::{Directory, exists, is_numbered};

/// PCI vendor ids: Xilinx, Advantech, AWS, Arista.
const MAKERS: [u16; 4] = [0x10ee, 0x13fe, 0x1d0f, 0x3475];

/// The facts of a user function and of its card.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) place: Place,
    pub(super) function: pci::Function,
    /// The management function.
    pub(super) management: Option<Place>,
    pub(super) shell: Result<Shell, NoShell>,
    pub(super) serial_number: Option<Attribute>,
    pub(super) logic_uuids: Option<Attribute>,
    /// Nodes in the order in which containers get them.
    pub(super) nodes: Vec<CardNode>,
    /// Whether the card has the node that every container needs.
    pub(super) has_user_node: bool,
    pub(super) problems: Vec<Problem>,
}

/// The content of the card's static part.
#[derive(Debug)]
pub(super) struct Shell {
    /// Vendor, board, name and version: `xilinx_u200_xdma_201830_2`.
    pub(super) vbnv: Attribute,
    pub(super) timestamp: Result<Attribute, NoShell>,
}

/// The reason for an unknown shell.
#[derive(Debug)]
pub(super) enum NoShell {
    /// The shell is missing or empty, for example while the card is flashed or reset.
    Absent(PathBuf),
    Unreadable(AttributeError),
}

/// The reason why a pair is not a device.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum NoCard {
    /// The pair has only a management function.
    NeverFlashed(Problem),
    /// The file with the maker's PCI id is unusable.
    OfUnknownMaker(Problem),
}

/// A device node.
#[derive(Debug)]
pub(super) struct CardNode {
    /// Below /dev: `dri/renderD128`, `xclmgmt25857`.
    pub(super) name: String,
    /// Major and minor number; `None` if the driver's directories do not show them.
    pub(super) number: Option<(u32, u32)>,
}

impl Facts {
    /// Reads a pair; `None` for functions of another maker.
    ///
    /// # Errors
    /// If the pair has no user function, or its maker is unknown.
    pub(super) fn read(host: &Host, pair: &Pair) -> Result<Option<Self>, NoCard> {
        let management = pair.management.clone();
        let Some(user) = &pair.user else { return never_flashed(host, management) };
        let function = pci::Function::read(&user.path);
        if !is_of_a_maker(host, user, &function)? {
            return Ok(None);
        }
        let directory = Directory::open(&user.path);
        let names = directory.as_ref().map_or(Vec::new(), |directory| directory.names().unwrap_or_default());
        let mut problems = Vec::new();
        let user_node = user_node(user);
        let has_user_node = user_node.is_some();
        let management_node = management.as_ref().and_then(|place| {
            management_node(place).map_err(|error| problems.push(problem(host, &error).of(&user.address))).ok()
        });
        let nodes = management_node.into_iter().chain(user_node).chain(dma_node(user, &names)).collect();
        Ok(Some(Self {
            shell: Shell::read(user, &names),
            serial_number: serial_number(user, &names),
            logic_uuids: Attribute::read(user.path.join("logic_uuids")).ok(),
            management,
            place: user.clone(),
            function,
            nodes,
            has_user_node,
            problems,
        }))
    }
}

impl Shell {
    /// Reads `rom.u.<N>`. A file with the plain name `rom` is the expansion ROM of PCI.
    fn read(user: &Place, names: &[String]) -> Result<Self, NoShell> {
        let directory = names.iter().find(|name| name.starts_with("rom") && *name != "rom");
        let Some(directory) = directory.map(|name| user.path.join(name)) else {
            return Err(NoShell::Absent(user.path.clone()));
        };
        Ok(Self { vbnv: described(directory.join("VBNV"))?, timestamp: described(directory.join("timestamp")) })
    }
}

fn described(path: PathBuf) -> Result<Attribute, NoShell> {
    match Attribute::read(path) {
        Ok(attribute) if attribute.text().is_empty() => Err(NoShell::Absent(attribute.path().to_path_buf())),
        Ok(attribute) => Ok(attribute),
        Err(error) if error.is_absent() || error.is_busy() => Err(NoShell::Absent(error.path)),
        Err(error) => Err(NoShell::Unreadable(error)),
    }
}

/// Whether a function with the marks of XRT is made by one of [`MAKERS`]; also false if it has just been removed.
fn is_of_a_maker(host: &Host, place: &Place, function: &pci::Function) -> Result<bool, NoCard> {
    if let Some(((maker, _), _)) = &function.id {
        return Ok(MAKERS.contains(maker));
    }
    match Attribute::read(place.path.join("vendor")).and_then(|vendor| vendor.hexadecimal()) {
        Ok(maker) => Ok(u16::try_from(maker).is_ok_and(|maker| MAKERS.contains(&maker))),
        Err(_) if !exists(&place.path) => Ok(false),
        Err(error) => Err(NoCard::OfUnknownMaker(problem(host, &error).of(&place.address))),
    }
}

fn never_flashed(host: &Host, management: Option<Place>) -> Result<Option<Facts>, NoCard> {
    let Some(place) = management else { return Ok(None) };
    if !is_of_a_maker(host, &place, &pci::Function::read(&place.path))? {
        return Ok(None);
    }
    let error =
        "the card has a management function and no user function: flash a shell (xbmgmt), and load the driver xocl";
    Err(NoCard::NeverFlashed(Problem::new(VENDOR, host.own_path(place.path), error).of(place.address)))
}

/// The node of the user function, from `<function>/drm/renderD128`.
fn user_node(user: &Place) -> Option<CardNode> {
    let directory = Directory::open(user.path.join("drm")).ok()?;
    let name = directory.names().ok()?.into_iter().find(|name| is_numbered(name, "renderD"))?;
    let number = directory.attribute(&format!("{name}/dev")).and_then(|dev| dev.device_number()).ok();
    Some(CardNode { name: format!("dri/{name}"), number })
}

/// The management function's node. Its name contains the number that the driver assigned.
fn management_node(management: &Place) -> Result<CardNode, AttributeError> {
    let instance = Attribute::read(management.path.join("instance"))?.decimal()?;
    Ok(CardNode { name: format!("xclmgmt{instance}"), number: None })
}

fn dma_node(user: &Place, names: &[String]) -> Option<CardNode> {
    names.iter().find(|name| name.starts_with("dma.qdma.u"))?;
    let instance = advertise::instance_of(&user.address)?;
    Some(CardNode { name: format!("xfpga/dma.qdma.u{instance}.0"), number: None })
}

/// The serial number; `None` on AWS F1.
fn serial_number(user: &Place, names: &[String]) -> Option<Attribute> {
    let directories = names.iter().filter(|name| name.starts_with("xmc.u.") || name.starts_with("hwmon_sdm.u."));
    let read = |name: &String| Attribute::read(user.path.join(name).join("serial_num")).ok();
    directories.filter_map(read).find(|serial_number| !serial_number.text().is_empty())
}

fn problem(host: &Host, error: &AttributeError) -> Problem {
    Problem::new(VENDOR, host.own_path(&error.path), &error.cause)
}
