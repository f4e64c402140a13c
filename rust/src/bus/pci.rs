//! PCI functions: the function that a path belongs to, and its facts.
//!
//! <https://docs.kernel.org/PCI/sysfs-pci.html>. One read of the `uevent` file gives most facts; single attributes are
//! read only for facts that the `uevent` file lacks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::functions::Functions;
use crate::device::{Device, PciFunction};
use crate::host::Host;
use crate::host::attribute::{self, Attribute, AttributeError};
use crate::host::directory::{self, Directory, is_numbered};

/// The directory of the PCI function that contains a sysfs path: the path up to its last part that is an address.
#[must_use]
pub fn function_of(path: &Path) -> Option<&Path> {
    path.ancestors().find(|ancestor| address_of(ancestor).is_some())
}

/// The address of a function's directory: `0000:3b:00.0` of `/sys/devices/…/0000:3b:00.0`.
#[must_use]
pub fn address_of(function: &Path) -> Option<&str> {
    function.file_name()?.to_str().filter(|name| is_address(name))
}

/// The `PCIe` root complex that a function is below: `pci0000:00` of `/sys/devices/pci0000:00/…`, a path without the
/// host root. `None` where the kernel has put the root below a platform device: Kubernetes' `resource.kubernetes.io/pcieRoot`
/// has none there, either (`deviceattribute/pci_linux.go` of k8s.io/dynamic-resource-allocation).
#[must_use]
pub fn root_of(function: &Path) -> Option<&str> {
    let first = function.strip_prefix("/sys/devices").ok()?.components().next()?.as_os_str().to_str()?;
    first.starts_with("pci").then_some(first)
}

/// The attributes that a PCI function gives to its device.
pub const FACTS: [&str; 10] = [
    "numa_node",
    "pcie_root",
    "slot",
    "pci_address",
    "pci_class",
    "pci_driver",
    "vendor_id",
    "device_id",
    "subsystem_vendor_id",
    "subsystem_device_id",
];

/// Whether a name is an address: `0000:3b:00.0`; domains behind VMD have more than four digits.
#[must_use]
pub fn is_address(name: &str) -> bool {
    let hexadecimal = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let mut parts = name.split(':');
    let (Some(domain), Some(bus), Some(slot), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Some((device, function)) = slot.split_once('.') else { return false };
    domain.len() >= 4
        && bus.len() == 2
        && device.len() == 2
        && function.len() == 1
        && [domain, bus, device, function].into_iter().all(hexadecimal)
}

/// Whether the function has left the bus; false if the bus cannot be read.
#[must_use]
pub fn has_left(host: &Host, function: &Path) -> bool {
    let Some(address) = address_of(function) else { return false };
    let Ok(bus) = Directory::open(host.sys("bus/pci/devices")) else { return false };
    bus.link(address).is_err_and(|error| error.is_absent()) && Directory::open(function).is_err()
}

/// The directory of the function with this address; if it has none, its path on the bus.
#[must_use]
pub fn at(host: &Host, address: &str) -> PathBuf {
    let bus = host.sys("bus/pci/devices");
    directory::link(&bus.join(address)).map_or_else(|_| bus.join(address), |target| host.behind_link(&bus, &target))
}

/// The driver of the function with this address, empty if no driver is bound; `None` if there is no such function.
#[must_use]
pub fn driver_at(host: &Host, address: &str) -> Option<String> {
    let function = at(host, address);
    (is_address(address) && directory::exists(&function))
        .then(|| driver_link(&function).map_or_else(String::new, |(driver, _)| driver))
}

/// The physical function of a virtual one; `None` if the function is not virtual.
#[must_use]
pub fn physical_function(host: &Host, function: &Path) -> Option<PathBuf> {
    behind_physfn(host, function, &directory::link(&function.join(PHYSICAL)).ok()?)
}

/// The link of a virtual function to its physical one.
const PHYSICAL: &str = "physfn";

fn behind_physfn(host: &Host, function: &Path, target: &Path) -> Option<PathBuf> {
    let physical = host.behind_link(function, target);
    address_of(&physical).is_some().then_some(physical)
}

/// Sysfs attribute and device fact: number of virtual functions.
pub const VIRTUAL_FUNCTIONS: &str = "sriov_numvfs";

/// The number of virtual functions that a function has now; 0 if it does not support them.
///
/// # Errors
/// If the number of virtual functions cannot be read.
pub fn virtual_functions(function: &Path) -> Result<u32, AttributeError> {
    match Attribute::read(function.join(VIRTUAL_FUNCTIONS)).and_then(|count| count.decimal()) {
        Err(error) if error.is_absent() => Ok(0),
        count => count.map(|count| u32::try_from(count).unwrap_or_default()),
    }
}

/// The drivers of a function's virtual functions if none of these has a directory of this class, as devices for
/// containers have; `None` if one has, or if there are none. Without a driver: `no driver`.
#[must_use]
pub fn virtual_functions_elsewhere(host: &Host, function: &Path, class: &str) -> Option<String> {
    let open = Directory::open(function).ok()?;
    let mut drivers = BTreeSet::new();
    for name in open.names().ok()?.into_iter().filter(|name| is_numbered(name, "virtfn")) {
        let place = host.behind_link(function, &open.link(&name).ok()?);
        if directory::exists(&place.join(class)) {
            return None;
        }
        let driver = directory::link(&place.join("driver")).ok();
        let name = driver.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        drivers.insert(name.unwrap_or_else(|| "no driver".to_owned()));
    }
    (!drivers.is_empty()).then(|| drivers.into_iter().collect::<Vec<_>>().join(", "))
}

/// Every PCI function of the host, found by descending through the bridges: for trees whose class directories contain
/// no links.
#[must_use]
pub fn functions(host: &Host) -> Vec<PathBuf> {
    let mut functions = Vec::new();
    let mut above = directories_below(&host.sys("devices"), |name| name.starts_with("pci"));
    while let Some(directory) = above.pop() {
        let below = directories_below(&directory, is_address);
        functions.extend(below.iter().cloned());
        above.extend(below);
    }
    functions.sort();
    functions
}

fn directories_below(directory: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let names = Directory::open(directory).and_then(|open| open.names()).unwrap_or_default();
    // A link would lead out of the tree, or in a circle.
    let is_link = |path: &PathBuf| directory::link(path).is_ok();
    names
        .into_iter()
        .filter(|name| wanted(name))
        .map(|name| directory.join(name))
        .filter(|path| !is_link(path))
        .collect()
}

/// A fact and the file it was read from.
type Fact<T> = Option<(T, PathBuf)>;

/// The facts of one PCI function; a fact is `None` if no file has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Function {
    /// Directory `/sys/devices/…/<address>`, with the host root.
    pub path: PathBuf,
    /// `DRIVER` in `<address>/uevent`, or the target of the link `driver`.
    pub driver: Fact<String>,
    /// `class`: `0x120000`.
    pub class: Fact<u32>,
    /// `vendor` and `device`.
    pub id: Fact<(u16, u16)>,
    /// `subsystem_vendor` and `subsystem_device`.
    pub subsystem_id: Fact<(u16, u16)>,
    /// `numa_node`; `None` also if the kernel reports -1.
    pub numa_node: Fact<u32>,
    /// The link `physfn` of a virtual function, as written.
    pub physfn: Option<PathBuf>,
}

impl Function {
    /// Reads all facts that are available.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let uevent = Uevent::read(path);
        Self {
            path: path.to_path_buf(),
            driver: uevent.fact("DRIVER", |text| Some(text.to_owned())).or_else(|| driver_link(path)),
            class: uevent.fact("PCI_CLASS", class).or_else(|| single(path, "class", class)),
            id: uevent.fact("PCI_ID", id_pair).or_else(|| pair(path, "vendor", "device")),
            subsystem_id: uevent
                .fact("PCI_SUBSYS_ID", id_pair)
                .or_else(|| pair(path, "subsystem_vendor", "subsystem_device")),
            numa_node: single(path, "numa_node", |text| attribute::numa_node(text).flatten()),
            physfn: directory::link(&path.join(PHYSICAL)).ok(),
        }
    }

    /// The PCI address: `0000:3b:00.0`.
    #[must_use]
    pub fn address(&self) -> &str {
        address_of(&self.path).unwrap_or_default()
    }

    /// Adds this function to a device, without attributes.
    pub fn attach(&self, host: &Host, device: &mut Device) {
        if address_of(&self.path).is_some() {
            let driver = self.driver.as_ref().map(|(driver, _)| driver.clone());
            let physical = self.physfn.as_deref().and_then(|target| behind_physfn(host, &self.path, target));
            let physical = physical.map(|physical| host.own_path(physical));
            device.belongs_to(PciFunction { path: host.own_path(&self.path), driver, physical });
        }
    }

    /// Adds this function and its facts to a device.
    pub fn describe(&self, host: &Host, device: &mut Device) {
        self.attach(host, device);
        if let Some(address) = address_of(&self.path) {
            let own = host.own_path(&self.path);
            if let Some(root) = root_of(&own) {
                device.note("pcie_root", root, &own);
            }
            device.note("pci_address", address, own);
            // A virtual function is in the slot of its physical function.
            let physical = self.physfn.as_deref().and_then(|target| behind_physfn(host, &self.path, target));
            let functions = Functions::of(host);
            let slot = functions.as_ref().and_then(|all| all.slot(physical.as_deref().unwrap_or(&self.path)));
            if let Some((slot, source)) = slot {
                device.note("slot", slot, host.own_path(source));
            }
        }
        let mut note = |name: &str, value: String, source: &Path| device.note(name, value, host.own_path(source));
        if let Some((driver, source)) = &self.driver {
            note("pci_driver", driver.clone(), source);
        }
        if let Some((class, source)) = &self.class {
            note("pci_class", format!("0x{class:06x}"), source);
        }
        if let Some(((vendor, device), source)) = &self.id {
            note("vendor_id", format!("0x{vendor:04x}"), source);
            note("device_id", format!("0x{device:04x}"), source);
        }
        if let Some(((vendor, device), source)) = &self.subsystem_id {
            note("subsystem_vendor_id", format!("0x{vendor:04x}"), source);
            note("subsystem_device_id", format!("0x{device:04x}"), source);
        }
        if let Some((node, source)) = &self.numa_node {
            device.note("numa_node", *node, host.own_path(source));
        }
    }
}

/// The `uevent` file: lines of `KEY=value`. Empty if it cannot be read.
struct Uevent {
    path: PathBuf,
    content: String,
}

impl Uevent {
    fn read(function: &Path) -> Self {
        let path = function.join("uevent");
        let content = Attribute::read(&path).map(|uevent| uevent.text().to_owned()).unwrap_or_default();
        Self { path, content }
    }

    fn fact<T>(&self, key: &str, parse: impl Fn(&str) -> Option<T>) -> Fact<T> {
        let value = self.content.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some((parse(value.trim())?, self.path.clone()))
    }
}

fn single<T>(function: &Path, name: &str, parse: impl Fn(&str) -> Option<T>) -> Fact<T> {
    let attribute = Attribute::read(function.join(name)).ok()?;
    Some((parse(attribute.text())?, attribute.path().to_path_buf()))
}

fn pair(function: &Path, vendor: &str, device: &str) -> Fact<(u16, u16)> {
    let (vendor, source) = single(function, vendor, id)?;
    let (device, _) = single(function, device, id)?;
    Some(((vendor, device), source))
}

fn driver_link(function: &Path) -> Fact<String> {
    let path = function.join("driver");
    let target = directory::link(&path).ok()?;
    Some((target.file_name()?.to_str()?.to_owned(), path))
}

/// `120000` in a uevent, `0x120000` in `class`.
fn class(text: &str) -> Option<u32> {
    attribute::hexadecimal(text)?.try_into().ok()
}

/// `8086` in a uevent, `0x8086` in `vendor`.
fn id(text: &str) -> Option<u16> {
    attribute::hexadecimal(text)?.try_into().ok()
}

/// `8086:0B30`.
fn id_pair(text: &str) -> Option<(u16, u16)> {
    let (vendor, device) = text.split_once(':')?;
    Some((id(vendor)?, id(device)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn addresses_are_matched_whole() {
        for name in ["0000:3b:00.0", "0000:00:1f.7", "10000:01:00.0"] {
            assert!(is_address(name), "{name}");
        }
        for name in
            ["", "0000:3b:00", "0000:3b:00.", "000:3b:00.0", "0000:3b:00.0 ", "0000:3B:00.0", "pci0000:00", "a:b:c.d"]
        {
            assert!(!is_address(name), "{name}");
        }
    }

    #[test]
    fn a_path_belongs_to_its_last_address() {
        let path = Path::new("/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/fpga_region/region0");
        let function = function_of(path).unwrap();
        assert_eq!(function, Path::new("/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0"));
        assert_eq!(address_of(function), Some("0000:81:00.0"));
        assert_eq!(function_of(Path::new("/sys/devices/platform/fpga_region/region0")), None);
    }

    #[test]
    fn the_root_is_the_first_directory_below_devices() {
        for (path, root) in [
            ("/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", Some("pci0000:80")),
            ("/sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0", Some("pci0000:00")),
            ("/sys/devices/platform/30000000.pcie/pci0002:00/0002:00:00.0", None),
            ("/sys/bus/pci/devices/0000:81:00.0", None),
        ] {
            assert_eq!(root_of(Path::new(path)), root, "{path}");
        }
    }

    #[test]
    fn a_uevent_tells_most_in_one_read() {
        let root = tempfile::tempdir().unwrap();
        let function = root.path().join("0000:81:00.0");
        std::fs::create_dir(&function).unwrap();
        let uevent = "DRIVER=dfl-pci\nPCI_CLASS=120000\nPCI_ID=8086:0B30\nPCI_SUBSYS_ID=8086:0001\nPCI_SLOT_NAME=x\n";
        std::fs::write(function.join("uevent"), uevent).unwrap();
        std::fs::write(function.join("numa_node"), "1\n").unwrap();
        let read = Function::read(&function);
        let source = function.join("uevent");
        assert_eq!(read.driver, Some(("dfl-pci".to_owned(), source.clone())));
        assert_eq!(read.class, Some((0x12_0000, source.clone())));
        assert_eq!(read.id, Some(((0x8086, 0x0b30), source.clone())));
        assert_eq!(read.subsystem_id, Some(((0x8086, 1), source)));
        assert_eq!(read.numa_node, Some((1, function.join("numa_node"))));
    }

    #[test]
    fn without_a_uevent_the_attributes_tell() {
        let root = tempfile::tempdir().unwrap();
        let function = root.path().join("0000:81:00.0");
        std::fs::create_dir(&function).unwrap();
        for (name, content) in
            [("class", "0x120000\n"), ("vendor", "0x8086\n"), ("device", "0x0b30\n"), ("numa_node", "-1\n")]
        {
            std::fs::write(function.join(name), content).unwrap();
        }
        symlink("../../bus/pci/drivers/dfl-pci", function.join("driver")).unwrap();
        let read = Function::read(&function);
        assert_eq!(read.driver, Some(("dfl-pci".to_owned(), function.join("driver"))));
        assert_eq!(read.class, Some((0x12_0000, function.join("class"))));
        assert_eq!(read.id, Some(((0x8086, 0x0b30), function.join("vendor"))));
        assert_eq!((read.subsystem_id, read.numa_node), (None, None));
    }

    #[test]
    fn a_virtual_function_names_its_physical_one() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        let virtual_function = root.path().join("0000:42:00.1");
        std::fs::create_dir(&virtual_function).unwrap();
        assert_eq!(physical_function(&host, &virtual_function), None);
        symlink("../0000:42:00.0", virtual_function.join("physfn")).unwrap();
        assert_eq!(physical_function(&host, &virtual_function), Some(root.path().join("0000:42:00.0")));
    }

    #[test]
    fn a_function_is_found_by_its_address_with_the_driver_that_it_has_now() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        let bus = host.sys("bus/pci/devices");
        let function = host.sys("devices/pci0000:80/0000:81:00.0");
        assert_eq!(driver_at(&host, "0000:81:00.0"), None);
        std::fs::create_dir_all(&bus).unwrap();
        std::fs::create_dir_all(&function).unwrap();
        symlink("../../../devices/pci0000:80/0000:81:00.0", bus.join("0000:81:00.0")).unwrap();
        assert_eq!(driver_at(&host, "0000:81:00.0").as_deref(), Some(""));
        symlink("../../../bus/pci/drivers/dfl-pci", function.join("driver")).unwrap();
        assert_eq!(driver_at(&host, "0000:81:00.0").as_deref(), Some("dfl-pci"));
        assert_eq!(at(&host, "0000:81:00.0"), function);
        assert_eq!(at(&host, "0000:99:00.0"), bus.join("0000:99:00.0"), "it is not there");
        assert_eq!(driver_at(&host, ""), None);
    }

    #[test]
    fn walking_finds_functions_behind_bridges_and_follows_no_link() {
        let root = tempfile::tempdir().unwrap();
        let bridge = root.path().join("sys/devices/pci0000:80/0000:80:01.0");
        std::fs::create_dir_all(bridge.join("0000:81:00.0/fpga")).unwrap();
        symlink("../..", bridge.join("0000:81:00.0/0000:99:00.0")).unwrap();
        assert_eq!(functions(&Host::new(root.path())), [bridge.clone(), bridge.join("0000:81:00.0")]);
    }
}
