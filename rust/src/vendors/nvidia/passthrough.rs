//! GPUs for virtual machines, as in NVIDIA's kubevirt-gpu-device-plugin: each NVIDIA function under a VFIO driver is a
//! device, named after its entry in pci.ids. <https://docs.kernel.org/driver-api/vfio.html>

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::advertise::NAMESPACE;
use super::{VENDOR, driver};
use crate::bus::functions::Functions;
use crate::bus::pci::{self, Function};
use crate::device::{Device, Found, HostPath, Problem};
use crate::fence::Fence;
use crate::host::Host;
use crate::host::directory::{self, Directory};
use crate::vendors::gpus::{self, IOMMU_GROUP, NO_IOMMU_GROUP};
use crate::vendors::per_card::per_card;

/// The drivers whose functions are given to virtual machines; the second is for Grace systems.
const DRIVERS: [&str; 2] = ["vfio-pci", "nvgrace_gpu_vfio_pci"];

/// A function that can be given to a virtual machine.
#[derive(Debug)]
struct Given {
    function: Function,
    /// Number of its IOMMU group.
    group: String,
    /// `vfio0`: name of its node below /dev/vfio/devices.
    node: Option<String>,
}

/// Adds the NVIDIA functions under a VFIO driver.
pub(super) fn add(host: &Host, fence: &Fence, names: &ProductNames, found: &mut Found) {
    let bus = host.sys("bus/pci/devices");
    let Some(functions) = Functions::of(host) else { return };
    let addresses = functions.addresses().filter(|address| is_given(&functions, address)).map(str::to_owned);
    let place = |address: String| {
        let path =
            directory::link(&bus.join(&address)).map_or_else(|_| bus.join(&address), |to| host.behind_link(&bus, &to));
        ((address, host.own_path(&path)), path)
    };
    let mut given = Vec::new();
    for read in per_card(VENDOR, found, fence, addresses.map(place).collect(), Given::read) {
        match read {
            Ok(one) => given.push(one),
            Err((path, cause)) => {
                let address = pci::address_of(&path).unwrap_or_default();
                let problem = Problem::new(VENDOR, host.own_path(path.join("iommu_group")), cause);
                found.problems.push(problem.of(address));
            }
        }
    }
    let by_file = directory::exists(&host.dev("iommu"));
    found.devices.extend(given.iter().map(|one| one.device(host, &given, by_file, names).into()));
}

fn is_given(functions: &Functions, address: &str) -> bool {
    functions.driver(address).is_ok_and(|driver| DRIVERS.contains(&driver.as_str()))
        && functions.maker(address) == Some(driver::NVIDIA)
}

impl Given {
    fn read(path: PathBuf) -> Result<Self, (PathBuf, String)> {
        match directory::link(&path.join("iommu_group")) {
            Ok(group) => Ok(Self { function: Function::read(&path), group: file_name(&group), node: vfio_node(&path) }),
            Err(error) => {
                Err((path, if error.is_absent() { NO_IOMMU_GROUP.to_owned() } else { error.cause.to_string() }))
            }
        }
    }

    /// The device, with the nodes of its whole group. `by_file`: the kernel also offers devices through /dev/iommu.
    fn device(&self, host: &Host, all: &[Self], by_file: bool, names: &ProductNames) -> Device {
        let address = self.function.address();
        let mut device = Device {
            vendor: VENDOR.into(),
            card: address.to_owned(),
            id: address.to_owned(),
            resource_name: Some(format!("{NAMESPACE}/{}", self.name(host, names))),
            numa_nodes: self.function.numa_node.iter().map(|(node, _)| *node).collect(),
            ..Device::default()
        };
        self.function.describe(host, &mut device);
        device.note(IOMMU_GROUP, self.group.clone(), host.own_path(self.function.path.join("iommu_group")));
        let group = all.iter().filter(|one| one.group == self.group);
        device.paths.extend(nodes(&self.group, group.filter_map(|one| one.node.as_ref()), by_file));
        device
    }

    /// The part of the resource name after the slash: the product's name, or its device id if no list has it.
    fn name(&self, host: &Host, names: &ProductNames) -> String {
        let id = self.function.id.as_ref().map(|((_, device), _)| *device).unwrap_or_default();
        names.of(host, id).unwrap_or_else(|| format!("{id:04x}"))
    }
}

/// The nodes of an IOMMU group whose devices have these names below /dev/vfio/devices. `by_file`: the kernel also
/// offers devices through /dev/iommu.
pub(super) fn nodes<'n>(group: &str, names: impl Iterator<Item = &'n String>, by_file: bool) -> Vec<HostPath> {
    let files = names.filter(|_| by_file).map(|name| format!("/dev/vfio/devices/{name}"));
    let of_group = ["/dev/vfio/vfio".to_owned(), format!("/dev/vfio/{group}")];
    let paths = files.chain(of_group).chain(by_file.then(|| "/dev/iommu".to_owned()));
    paths.map(|path| HostPath::node(path, None)).collect()
}

/// The name of a device's node below /dev/vfio/devices.
pub(super) fn vfio_node(device: &Path) -> Option<String> {
    let names = Directory::open(device.join("vfio-dev")).and_then(|open| open.names()).ok()?;
    names.into_iter().find(|name| name.starts_with("vfio"))
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Paths of pci.ids in distributions; the last one is used in NVIDIA's image.
const LISTS: [&str; 3] = ["/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids", "/usr/pci.ids"];

/// NVIDIA's products by device id, each looked up only once.
#[derive(Debug, Default)]
pub(super) struct ProductNames(Mutex<BTreeMap<u16, Option<String>>>);

impl ProductNames {
    /// The product's name in the notation of NVIDIA's plugin; `None` if no list has it.
    fn of(&self, host: &Host, device: u16) -> Option<String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(device).or_insert_with(|| product_in(&gpus::text_of_list(host, &LISTS)?.0, device)).clone()
    }
}

/// The product in a text of <https://pci-ids.ucw.cz>: products are in lines with one tab, below the maker's line.
fn product_in(list: &str, device: u16) -> Option<String> {
    let mut lines = list.lines().skip_while(|line| !line.starts_with("10de"));
    lines.next()?;
    let of_maker = lines.take_while(|line| line.starts_with(['\t', '#']));
    let id = format!("\t{device:04x}");
    let name = of_maker.into_iter().find_map(|line| line.strip_prefix(&id))?.trim();
    Some(in_resource_name(name)).filter(|name| !name.is_empty())
}

/// The name as part of a resource name: `GH100_H100_PCIE` for `GH100 [H100 PCIe]`.
fn in_resource_name(name: &str) -> String {
    let upper = name.to_uppercase().replace(['/', '.'], "_");
    let joined = upper.split_whitespace().collect::<Vec<_>>().join("_");
    joined.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// NVIDIA/kubevirt-gpu-device-plugin, `device_plugin_test.go`: its list and its expected names.
    const LIST: &str = "\n8086  Intel Corporation\n\t2331  DH89xxCC Chap Counter\n10de NVIDIA Corporation\n\
        \t118a  GK104GL [GRID K520]\n\t\t10de 118a  a subsystem\n# a comment\n\t118d  gk104gl [grid k520]\n\
        \t118e gk104.gl [grid/k./520]\n\t2331 GH100 [H100 PCIe]\n1102  another\n\t2332  of another\n";

    #[test]
    fn products_are_named_as_nvidias_plugin_names_them() {
        for (device, name) in [
            (0x118a, Some("GK104GL_GRID_K520")),
            (0x118d, Some("GK104GL_GRID_K520")),
            (0x118e, Some("GK104_GL_GRID_K__520")),
            (0x2331, Some("GH100_H100_PCIE")),
            (0x2332, None),
            (0xabcd, None),
        ] {
            assert_eq!(product_in(LIST, device).as_deref(), name, "{device:04x}");
        }
        assert_eq!(product_in("", 0x118a), None);
    }

    proptest! {
        #[test]
        fn any_list_can_be_read(list: String, device: u16) {
            let name = product_in(&list, device).unwrap_or_default();
            prop_assert!(name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_'));
        }
    }
}
