//! GPUs for virtual machines: one device for each IOMMU group, <https://docs.kernel.org/driver-api/vfio.html>.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::driver::Mode;
use super::{AMD, AmdNaming, VENDOR, is_gpu_class, locate};
use crate::bus::pci;
use crate::device::{Device, Found, HostPath, Problem};
use crate::host::Host;
use crate::host::attribute::AttributeError;
use crate::host::directory::{self, Directory};
use crate::vendors::gpus::{IOMMU_GROUP, NO_IOMMU_GROUP};

/// A physical function, and the functions of it that virtual machines get: the function itself, or its virtual
/// functions.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) key: String,
    pub(super) path: PathBuf,
    given: Vec<PathBuf>,
}

/// A function that can be given to a virtual machine: a GPU, or another function of a GPU's group.
#[derive(Debug)]
pub(super) struct Given {
    card: String,
    function: pci::Function,
    is_gpu: bool,
    /// Number of its IOMMU group.
    group: String,
}

/// The GPUs under the driver of this mode.
pub(super) fn cards(host: &Host, mode: Mode, found: &mut Found) -> Vec<Card> {
    let functions = locate::functions(host, &mode.directory(host), found);
    let mut cards = Vec::new();
    for (key, path) in functions {
        let given = match mode {
            Mode::VirtualFunctions => virtual_functions(host, &path),
            _ => Ok(vec![path.clone()]),
        };
        match given {
            Ok(given) => cards.push(Card { key, path, given }),
            Err(error) => {
                found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause).of(key));
            }
        }
    }
    cards
}

/// The targets of the links `virtfn0`, `virtfn1`, …
fn virtual_functions(host: &Host, physical: &Path) -> Result<Vec<PathBuf>, AttributeError> {
    let directory = Directory::open(physical)?;
    let names = directory.names()?;
    let links = names.iter().filter(|name| name.starts_with("virtfn")).filter_map(|name| directory.link(name).ok());
    Ok(links.map(|target| host.behind_link(physical, &target)).collect())
}

/// The functions of a card that can be given to a virtual machine. The driver may also be bound to functions of other
/// makers, and to the sound function of a GPU.
pub(super) fn read(host: &Host, card: &Card) -> (Vec<Given>, Vec<Problem>) {
    let (mut given, mut problems) = (Vec::new(), Vec::new());
    for path in &card.given {
        let function = pci::Function::read(path);
        let is_gpu = is_gpu(&function);
        if !is_made_by_amd(&function) {
            continue;
        }
        match directory::link(&path.join("iommu_group")) {
            Ok(target) => given.push(Given { card: card.key.clone(), group: file_name(&target), is_gpu, function }),
            Err(_) if !is_gpu => {}
            Err(error) => {
                let cause = if error.is_absent() { NO_IOMMU_GROUP.to_owned() } else { error.cause.to_string() };
                problems.push(Problem::new(VENDOR, host.own_path(&error.path), cause).of(function.address()));
            }
        }
    }
    (given, problems)
}

fn is_gpu(function: &pci::Function) -> bool {
    is_made_by_amd(function) && function.class.as_ref().is_some_and(|(class, _)| is_gpu_class((*class).into()))
}

fn is_made_by_amd(function: &pci::Function) -> bool {
    function.id.as_ref().is_some_and(|((vendor, _), _)| *vendor == AMD)
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// One device for each IOMMU group with a GPU: a group can only be given as a whole, including the sound function of
/// its GPU.
pub(super) fn devices(host: &Host, given: Vec<Given>, mode: Mode, naming: AmdNaming) -> Vec<Device> {
    let mut groups: BTreeMap<String, Vec<Given>> = BTreeMap::new();
    for one in given {
        groups.entry(one.group.clone()).or_default().push(one);
    }
    groups.retain(|_, members| members.iter().any(|one| one.is_gpu));
    groups.iter().map(|(group, members)| device(host, group, members, resource_name(mode, naming))).collect()
}

fn resource_name(mode: Mode, naming: AmdNaming) -> &'static str {
    match (naming, mode) {
        (AmdNaming::Mixed, Mode::VirtualFunctions) => "amd.com/gpu_vf",
        (AmdNaming::Mixed, Mode::WholeFunctions) => "amd.com/gpu_pf",
        _ => super::advertise::GPU,
    }
}

fn device(host: &Host, group: &str, members: &[Given], resource_name: &str) -> Device {
    let addresses: Vec<&str> = members.iter().map(|one| one.function.address()).collect();
    let addresses = addresses.join(",");
    let first = members.iter().find(|one| one.is_gpu);
    let mut device = Device {
        vendor: VENDOR.into(),
        card: first.map(|one| one.card.clone()).unwrap_or_default(),
        id: group.to_owned(),
        resource_name: Some(resource_name.to_owned()),
        numa_nodes: members.iter().filter_map(|one| one.function.numa_node.as_ref()).map(|(node, _)| *node).collect(),
        ..Device::default()
    };
    device.numa_nodes.sort_unstable();
    device.numa_nodes.dedup();
    device.paths.extend([group, "vfio"].map(|name| HostPath::node(format!("/dev/vfio/{name}"), None)));
    if let Some(first) = first {
        first.function.describe(host, &mut device);
        device.note("pci_address", addresses, host.own_path(&first.function.path));
        device.note(IOMMU_GROUP, group, host.own_path(first.function.path.join("iommu_group")));
        device.note("physical_function", &first.card, host.own_path(&first.function.path));
    }
    for one in members {
        one.function.attach(host, &mut device);
    }
    device
}
