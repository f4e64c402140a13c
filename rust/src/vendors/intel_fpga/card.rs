//! The facts of one card, read from sysfs and not yet judged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::VENDOR;
use super::locate::{Card, Driver, Entry, is_fme_region};
use crate::bus::pci;
use crate::device::{Problem, Reading};
use crate::health::sources::{fpga_errors, fpga_manager, fpga_power, temperature};
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError, Cause};
use crate::host::directory::{Directory, is_numbered};
use crate::order::natural;

/// The only filter: the class of accelerators. Vendor and device are not compared, so that boards of other makers work.
const CLASS: u32 = 0x12_0000;

/// The facts of a card.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) key: String,
    pub(super) ports: Vec<Port>,
    pub(super) fmes: Vec<Fme>,
    /// The physical function, if the card has any class entry.
    pub(super) function: Option<Arc<pci::Function>>,
    pub(super) problems: Vec<Problem>,
}

/// One slot for an accelerator function.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) part: Part,
    /// `afu_id`: 32 hexadecimal digits. It is a register of the device and unreadable while the port is disabled.
    pub(super) afu_id: Result<String, AttributeError>,
    /// `id`: index of the port within the card.
    pub(super) index: Option<Attribute>,
    /// Its error register and its power state, if it has them.
    pub(super) readings: Vec<Reading>,
    /// Whether its own driver, which makes its attributes and its node, is not bound to it.
    pub(super) lacks_driver: bool,
}

/// The management engine of a card.
#[derive(Debug)]
pub(super) struct Fme {
    pub(super) part: Part,
    pub(super) interface_id: Result<InterfaceId, NoInterfaceId>,
    /// `bitstream_id` of the static region.
    pub(super) bitstream_id: Option<Attribute>,
    /// Error registers, thermal limits and the state of its manager.
    pub(super) readings: Vec<Reading>,
    /// Whether its own driver, which makes its attributes and its node, is not bound to it.
    pub(super) lacks_driver: bool,
}

/// The common part of ports and management engines.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) driver: Driver,
    /// `dfl-port.0`: also the name of its node.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Index of the card's class entry that the part belongs to.
    pub(super) entry: usize,
    pub(super) function: Option<Arc<pci::Function>>,
}

/// The kind of bitstream that a card accepts, and the file that contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InterfaceId {
    pub(super) id: String,
    pub(super) source: PathBuf,
}

/// The reason for a missing interface id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoInterfaceId {
    /// No file has the id; the path where it was expected.
    Missing(PathBuf),
    /// The regions of the engine have different ids.
    Different(Vec<InterfaceId>),
    /// The file is unreadable.
    Unreadable(AttributeError),
}

impl Facts {
    pub(super) fn read(host: &Host, card: &Card) -> Self {
        let mut facts = Self { key: card.key.clone(), ..Self::default() };
        let mut functions = Functions::default();
        for (index, entry) in card.entries.iter().enumerate() {
            if let Err(error) = facts.read_entry(host, card, (index, entry), &mut functions) {
                facts.problem(host, &error.path, error.cause);
            }
        }
        if !facts.ports.is_empty() || !facts.fmes.is_empty() {
            facts.function = card.function.as_deref().map(|path| functions.read(path));
        }
        facts
    }

    fn read_entry(
        &mut self,
        host: &Host,
        card: &Card,
        (index, entry): (usize, &Entry),
        functions: &mut Functions,
    ) -> Result<(), AttributeError> {
        let directory = match Directory::open(&entry.path) {
            Err(error) if error.cause == Cause::System(Errno::NOENT) => {
                let target = host.own_path(&entry.path);
                let dangles = format!("points to {}, which is not there", target.display());
                self.problem(host, &entry.class_path, dangles);
                return Ok(());
            }
            opened => opened?,
        };
        let names = directory.names()?;
        let (ports, fmes) =
            (named(&names, |name| entry.driver.is_port(name)), named(&names, |name| entry.driver.is_fme(name)));
        if ports.is_empty() && fmes.is_empty() {
            if entry.driver == Driver::Opae {
                self.problem(host, &entry.path, "the card has neither an FME nor a port");
            }
            // A DFL region without ports or a management engine belongs to another vendor.
            return Ok(());
        }
        let function = entry.function.as_deref().map(|path| functions.read(path));
        if let Some((class, source)) = function.as_ref().and_then(|function| function.class.as_ref()) {
            if *class != CLASS {
                if functions.is_first_complaint(source) {
                    self.problem(host, source, format!("PCI class 0x{class:06x}, not 0x{CLASS:06x}: no accelerator"));
                }
                return Ok(());
            }
        }
        let part = |name: &str| Part {
            driver: entry.driver,
            name: name.to_owned(),
            path: entry.path.join(name),
            entry: index,
            function: function.clone(),
        };
        self.fmes.extend(fmes.into_iter().map(|name| Fme::read(host, &directory, part(name), &card.fme_regions)));
        self.ports.extend(ports.into_iter().map(|name| Port::read(host, &directory, part(name))));
        Ok(())
    }

    /// The management engine of a port: the engine of the same class entry, otherwise the engine on the physical
    /// function.
    pub(super) fn fme_of(&self, port: &Port) -> Result<&Fme, String> {
        let of_driver = || self.fmes.iter().filter(|fme| fme.part.driver == port.part.driver);
        let mut candidates: Vec<&Fme> = of_driver().filter(|fme| fme.part.entry == port.part.entry).collect();
        if candidates.is_empty() {
            candidates = of_driver().collect();
        }
        match candidates[..] {
            [] => Err("no FME belongs to this port: it is managed from another host, or its card failed".to_owned()),
            [fme] => Ok(fme),
            _ => {
                let names: Vec<&str> = candidates.iter().map(|fme| fme.part.name.as_str()).collect();
                Err(format!("ambiguous, several FMEs could manage this port: {}", names.join(", ")))
            }
        }
    }

    /// The ports of a management engine, in natural order.
    pub(super) fn ports_of(&self, fme: &Fme) -> Vec<&Port> {
        let manages = |port: &&Port| self.fme_of(port).is_ok_and(|own| std::ptr::eq(own, fme));
        let mut ports: Vec<&Port> = self.ports.iter().filter(manages).collect();
        ports.sort_by(|left, right| natural(&left.part.name, &right.part.name));
        ports
    }

    fn problem(&mut self, host: &Host, path: &Path, error: impl std::fmt::Display) {
        self.problems.push(Problem::new(VENDOR, host.own_path(path), error));
    }
}

impl Port {
    fn read(host: &Host, directory: &Directory, part: Part) -> Self {
        let there = |name: &str| {
            let name = format!("{}/{name}", part.name);
            directory.has(&name).then(|| host.own_path(directory.path().join(name)))
        };
        let errors = there("errors/errors").map(fpga_errors::of_port);
        let readings = errors.into_iter().chain(there("power_state").map(fpga_power::of_port)).collect();
        let afu_id = below(directory, &part.name, "afu_id").and_then(|attribute| attribute.uuid());
        Self {
            lacks_driver: afu_id.as_ref().is_err_and(AttributeError::is_absent) && lacks_driver(directory, &part.name),
            afu_id,
            index: below(directory, &part.name, "id").ok(),
            readings,
            part,
        }
    }
}

impl Fme {
    fn read(host: &Host, directory: &Directory, part: Part, known_regions: &[PathBuf]) -> Self {
        let bitstream_id = below(directory, &part.name, "bitstream_id").ok();
        let own = directory.open_below(&part.name).and_then(|own| Ok((own.names()?, own)));
        let (interface_id, readings) = match own {
            Ok((names, own)) => {
                let interface_id = match part.driver {
                    Driver::Opae => single_interface_id(&own),
                    Driver::Dfl => regions_interface_id(&own, &names, known_regions),
                };
                (interface_id, fme_readings(host, &own, &names))
            }
            Err(error) => (Err(NoInterfaceId::Unreadable(error)), Vec::new()),
        };
        let is_missing = matches!(interface_id, Err(NoInterfaceId::Missing(_))) && bitstream_id.is_none();
        let lacks_driver = is_missing && lacks_driver(directory, &part.name);
        Self { part, interface_id, bitstream_id, readings, lacks_driver }
    }
}

/// The interface id under OPAE, from `pr/interface_id`.
fn single_interface_id(fme: &Directory) -> Result<InterfaceId, NoInterfaceId> {
    interface_id(fme.attribute("pr/interface_id"))
}

/// The interface id under DFL, from `dfl-fme-region.N/fpga_region/regionM/compat_id`. The kernel makes a region for
/// each port, and all have the id of the engine's single manager; the base region's own `compat_id` is meaningless.
fn regions_interface_id(fme: &Directory, names: &[String], known: &[PathBuf]) -> Result<InterfaceId, NoInterfaceId> {
    let regions = named(names, is_fme_region).into_iter().flat_map(|name| fme_regions(fme, name, known));
    let (mut ids, mut failures): (Vec<InterfaceId>, Vec<NoInterfaceId>) = (Vec::new(), Vec::new());
    for region in regions {
        match interface_id(Attribute::read(region.join("compat_id"))) {
            Ok(id) => ids.push(id),
            Err(failure) => failures.push(failure),
        }
    }
    let Some(first) = ids.first() else {
        let nowhere = || NoInterfaceId::Missing(fme.path().to_path_buf());
        return Err(failures.into_iter().next().unwrap_or_else(nowhere));
    };
    if ids.iter().any(|other| other.id != first.id) {
        return Err(NoInterfaceId::Different(ids));
    }
    Ok(first.clone())
}

/// The regions of a management engine. Most are already known from the class directory; the engine's directory is read
/// only in a tree without links.
fn fme_regions(fme: &Directory, name: &str, known: &[PathBuf]) -> Vec<PathBuf> {
    let parent = fme.path().join(name).join(Driver::Dfl.class());
    let listed: Vec<PathBuf> = known.iter().filter(|region| region.parent() == Some(&parent)).cloned().collect();
    if !listed.is_empty() {
        return listed;
    }
    let names = Directory::open(&parent).and_then(|directory| directory.names()).unwrap_or_default();
    named(&names, |name| Driver::Dfl.is_card(name)).into_iter().map(|name| parent.join(name)).collect()
}

fn interface_id(attribute: Result<Attribute, AttributeError>) -> Result<InterfaceId, NoInterfaceId> {
    match attribute {
        Ok(attribute) if attribute.text().is_empty() => Err(NoInterfaceId::Missing(attribute.path().to_path_buf())),
        Ok(attribute) => match attribute.uuid() {
            Ok(id) => Ok(InterfaceId { id, source: attribute.path().to_path_buf() }),
            Err(error) => Err(NoInterfaceId::Unreadable(error)),
        },
        Err(error) if error.is_absent() => Err(NoInterfaceId::Missing(error.path)),
        Err(error) => Err(NoInterfaceId::Unreadable(error)),
    }
}

/// Readings of a management engine: <https://docs.kernel.org/admin-guide/abi-testing.html>, sysfs-platform-dfl-fme.
/// Both groups are optional.
fn fme_readings(host: &Host, fme: &Directory, names: &[String]) -> Vec<Reading> {
    const MASKS: [&str; 5] = ["fme_errors", "pcie0_errors", "pcie1_errors", "catfatal_errors", "nonfatal_errors"];
    let below = |group: &str| {
        let names = names.iter().any(|name| name == group).then(|| fme.open_below(group)).and_then(Result::ok);
        names.and_then(|directory| Some((directory.names().ok()?, directory.path().to_path_buf())))
    };
    let mut readings = Vec::new();
    if let Some((names, path)) = below("errors") {
        let masks = MASKS.iter().filter(|&&mask| names.iter().any(|name| name == mask));
        readings.extend(masks.map(|mask| fpga_errors::of_engine(host.own_path(path.join(mask)))));
    }
    for manager in named(names, |name| is_numbered(name, "dfl-fme-mgr.")) {
        readings.extend(manager_states(host, &fme.path().join(manager)));
    }
    if let Some((names, path)) = below("hwmon") {
        readings.extend(names.iter().flat_map(|name| thermal_readings(host, &path.join(name))));
    }
    readings
}

/// The state of the kernel's FPGA manager below the engine. The manager's driver may not be loaded.
fn manager_states(host: &Host, engine: &Path) -> Vec<Reading> {
    let managers = Directory::open(engine.join("fpga_manager"));
    let names = managers.and_then(|directory| Ok((directory.names()?, directory)));
    let Ok((names, directory)) = names else { return Vec::new() };
    let numbered = named(&names, |name| is_numbered(name, "fpga")).into_iter();
    numbered.map(|name| fpga_manager::of_manager(host.own_path(directory.path().join(name).join("state")))).collect()
}

/// The temperatures below the engine's hwmon devices: only the thermal device (`dfl_fme_thermal`) has temperatures, the
/// other one has power.
fn thermal_readings(host: &Host, hwmon: &Path) -> Vec<Reading> {
    let limit = ["temp1_emergency", "temp1_crit"]
        .into_iter()
        .find_map(|name| Attribute::read(hwmon.join(name)).and_then(|limit| limit.decimal()).ok());
    let Some(limit) = limit else { return Vec::new() };
    let mut readings = vec![temperature::below(host.own_path(hwmon.join("temp1_input")), limit, None)];
    let alarm = hwmon.join("temp1_crit_alarm");
    if crate::host::directory::exists(&alarm) {
        readings.push(temperature::alarm(host.own_path(alarm)));
    }
    readings
}

/// Whether a part has no driver. The kernel makes ports and engines as devices of the platform bus, which modules of
/// their own drive: `dfl_afu` and `dfl_fme` (Documentation/fpga/dfl.rst of Linux).
fn lacks_driver(directory: &Directory, part: &str) -> bool {
    directory.link(&format!("{part}/driver")).is_err()
}

fn below(directory: &Directory, part: &str, name: &str) -> Result<Attribute, AttributeError> {
    directory.attribute(&format!("{part}/{name}"))
}

fn named(names: &[String], wanted: impl Fn(&str) -> bool) -> Vec<&str> {
    names.iter().map(String::as_str).filter(|name| wanted(name)).collect()
}

/// The PCI functions of a card, each read once.
#[derive(Default)]
struct Functions {
    read: BTreeMap<PathBuf, Arc<pci::Function>>,
    complained: Vec<PathBuf>,
}

impl Functions {
    fn read(&mut self, path: &Path) -> Arc<pci::Function> {
        let function = self.read.entry(path.to_path_buf()).or_insert_with(|| Arc::new(pci::Function::read(path)));
        Arc::clone(function)
    }

    fn is_first_complaint(&mut self, source: &Path) -> bool {
        let first = !self.complained.iter().any(|other| other == source);
        self.complained.push(source.to_path_buf());
        first
    }
}
