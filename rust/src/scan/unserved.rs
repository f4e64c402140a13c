//! Hardware that becomes no device, and why: cards of served vendors without their driver, GPUs under another driver,
//! and accelerators of makers that no vendor here serves.
//!
//! Ids are read once for each address, and not at all for a device's function that has its driver; the driver is read
//! in each scan. All are kernel variables, so no read here can hang.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::bus::functions::Functions;
use crate::bus::pci;
use crate::device::{Problem, Refusal, VENDOR_OF_NONE};
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::host::directory::{self, Directory};
use crate::vendors::classes::DeviceClass;
use crate::vendors::table::{ACCELERATOR, CO_PROCESSOR, DISPLAY, Hardware, ROWS};

use super::{Scan, nodes_of};

/// The driver of Linux for NVIDIA's GPUs. Nobody binds it to a GPU for containers or virtual machines.
const NOUVEAU: &str = "nouveau";
/// NVIDIA's PCI vendor id.
const NVIDIA: u64 = 0x10de;
/// Xilinx's PCI vendor id, and the vendor that serves its cards.
const XILINX: u16 = 0x10ee;
const XILINX_FPGA: &str = "xilinx-fpga";
/// The functions of an Alveo V80, the first one under the driver `ami` of AVED, which makes `/dev/ami0`:
/// <https://github.com/Xilinx/AVED>, sw/AMI. XRT has no driver for a Versal card of this kind.
const V80: (u16, u16) = (0x50b4, 0x50b6);
const AMI: &str = "ami";
/// Class of serial controllers: `PCI_CLASS_COMMUNICATION_SERIAL` in `include/linux/pci_ids.h` of Linux. The design that
/// an Alveo or U30 card runs without a shell is one, with a device id that is no shell's:
/// <https://github.com/Xilinx/XRT/issues/9454>, <https://github.com/Xilinx/video-sdk/issues/99>. A design of one's own
/// may have these ids, too; it has another class.
const SERIAL: u16 = 0x0700;
const NO_SHELL: [u16; 2] = [0x903f, 0xabcd];
/// The factory images of Alveo cards, for which `xclmgmt` is the only driver: `XBB_MFG` in `devices.h` of its sources,
/// <https://github.com/Xilinx/XRT>.
const FACTORY: [u16; 7] = [0xd000, 0xd004, 0xd008, 0xd00c, 0xd020, 0xd03c, 0xd04c];
const XCLMGMT: &str = "xclmgmt";

/// A class of `python/devherd/classes` and the functions that it serves.
struct ForClass {
    class: &'static str,
    /// The class that serves their virtual functions, and the driver of these.
    of_virtual: Option<(&'static str, &'static str)>,
    maker: u16,
    /// Ids of `device`; any if empty.
    models: &'static [u16],
    /// The driver; any if empty.
    driver: &'static str,
}

/// Drivers and ids: `drivers/accel/ivpu/ivpu_drv.h` and `drivers/crypto/intel/qat/qat_common/adf_accel_devices.h` of Linux,
/// Intel's DLB driver, <https://github.com/tenstorrent/tt-kmd>.
const OF_CLASSES: [ForClass; 4] = [
    ForClass { class: "intel-npu", of_virtual: None, maker: 0x8086, models: &[], driver: "intel_vpu" },
    ForClass {
        class: "intel-qat",
        of_virtual: Some(("intel-qat", "vfio-pci")),
        maker: 0x8086,
        models: &[0x4940, 0x4942, 0x4944, 0x4946],
        driver: "",
    },
    ForClass {
        class: "intel-dlb",
        of_virtual: Some(("intel-dlb-vf", "dlb2")),
        maker: 0x8086,
        models: &[0x2710, 0x2714],
        driver: "",
    },
    ForClass { class: "tenstorrent", of_virtual: None, maker: 0x1e52, models: &[], driver: "" },
];

/// Names of the work queues that idxd makes for users, on its bus, and their classes:
/// drivers/dma/idxd/cdev.c of Linux.
const QUEUES: [(&str, &str); 2] = [("dsa!wq", "intel-dsa"), ("iax!wq", "intel-iaa")];

/// Remembers for each PCI function whether it can be unserved hardware.
#[derive(Debug, Default)]
pub(super) struct Unserved {
    functions: HashMap<String, Option<Candidate>>,
}

/// The functions that are not served.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Functions of served vendors that need a driver, or another one.
    pub(super) driverless: Vec<Problem>,
    /// Functions that are not offered, which may be as intended.
    pub(super) notices: Vec<Problem>,
}

/// A function that is a vendor's device once it has its driver, or an accelerator of another maker.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: (u16, u16),
    class: u16,
    of: Option<(&'static str, &'static Hardware)>,
}

impl Unserved {
    /// Finds the hardware that the vendors of this scan do not serve. Virtual functions are left out, because they may
    /// be meant for virtual machines. `classes` are those that are switched on.
    pub(super) fn look(&mut self, host: &Host, scan: &Scan, classes: &[DeviceClass]) -> Said {
        let mut said = Said::default();
        let Some(listed) = Functions::of(host) else {
            self.functions.clear();
            return said;
        };
        let bus = listed.bus();
        let addresses: BTreeSet<&str> = listed.addresses().collect();
        self.functions.retain(|address, _| addresses.contains(address.as_str()));
        let functions = scan.devices.iter().flat_map(|device| &device.functions);
        let of_devices: HashSet<&OsStr> = functions.filter_map(|function| function.path.file_name()).collect();
        let mut served = None;
        for address in addresses {
            // A device's function with a driver is served.
            let is_of_device = || of_devices.contains(OsStr::new(address));
            if !self.functions.contains_key(address) && is_of_device() && listed.driver(address).is_ok() {
                continue;
            }
            let path = bus.path().join(address);
            let known = match self.functions.get(address) {
                Some(known) => *known,
                None => *self.functions.entry(address.to_owned()).or_insert_with(|| Candidate::read(&listed, address)),
            };
            let Some(candidate) = known.filter(|candidate| candidate.is_looked_for(&scan.vendors)) else { continue };
            let driver = match listed.driver(address) {
                Ok(driver) => Some(driver),
                Err(error) if error.is_absent() && bus.has(address) => None,
                Err(_) => continue,
            };
            let place = host.own_path(&path);
            if driver.is_none() && candidate.of.is_some() {
                said.driverless.extend(candidate.lacks_its_driver(host, &place, address));
            } else if candidate.is_strange_to(driver.as_deref()) {
                let served = served.get_or_insert_with(|| Served::of(host, scan));
                let parts = candidate.virtual_functions(host, &listed, address);
                let is_served = parts.keys().any(|part| served.has_function(Path::new(part)));
                if !is_served && !served.has(&path, candidate) {
                    let cure =
                        || candidate.cure(&place, driver.as_deref(), &parts, served.is_in_accel(address), classes);
                    candidate.is_not_offered(&place, address, driver.as_deref(), &cure, &mut said);
                }
            }
        }
        said.notices.extend(vgpus(host, &listed, scan));
        said.notices.extend(other_accelerators(host, scan, classes, &mut served, &self.functions));
        said.notices.extend(queues(host, scan, classes, &mut served));
        said
    }
}

impl Candidate {
    fn read(listed: &Functions, address: &str) -> Option<Self> {
        let class = u16::try_from(listed.class(address)? >> 8).ok()?;
        let hardware = ROWS.iter().flat_map(|row| row.hardware.iter().map(|hardware| (row.name, hardware)));
        let mut hardware = hardware.filter(|(_, hardware)| hardware.classes.contains(&class)).peekable();
        let is_of_interest = is_accelerator(class) || class == SERIAL || hardware.peek().is_some();
        if !is_of_interest || listed.bus().link(&format!("{address}/physfn")).is_ok() {
            return None;
        }
        let device = listed.bus().attribute(&format!("{address}/device")).ok()?.hexadecimal().ok()?;
        let id = (u16::try_from(listed.maker(address)?).ok()?, u16::try_from(device).ok()?);
        let of = hardware.find(|(_, hardware)| hardware.is(id));
        let candidate = Self { id, class, of };
        (of.is_some() || is_accelerator(class) || candidate.has_no_shell()).then_some(candidate)
    }

    /// Whether its vendor is looked for; an accelerator of no vendor always is.
    fn is_looked_for(&self, vendors: &[&'static str]) -> bool {
        let vendor = self.of.map(|(vendor, _)| vendor);
        let vendor = vendor.or_else(|| (self.has_no_shell() || self.is_v80()).then_some(XILINX_FPGA));
        vendor.is_none_or(|vendor| vendors.contains(&vendor))
    }

    /// Whether no vendor serves such a function under this driver. Only accelerators, displays and FPGAs without a shell
    /// count, not network cards.
    fn is_strange_to(&self, driver: Option<&str>) -> bool {
        if self.has_no_shell() && driver == Some(XCLMGMT) {
            return false; // its vendor says that it is not flashed
        }
        let is_device = is_accelerator(self.class) || self.class >> 8 == DISPLAY || self.has_no_shell();
        is_device
            && !self.of.is_some_and(|(_, hardware)| driver.is_some_and(|driver| hardware.drivers.contains(&driver)))
    }

    fn lacks_its_driver(&self, host: &Host, place: &Path, address: &str) -> Option<Problem> {
        let (vendor, hardware) = self.of?;
        let loaded: Vec<&str> =
            hardware.drivers.iter().copied().filter(|driver| directory::exists(&directory_of(host, driver))).collect();
        let ids = self.ids();
        let (what, cure) = match loaded.first() {
            None => (format!("the PCI function ({ids}) has no driver"), format!("load {}", hardware.cure)),
            Some(first) => {
                let names: Vec<String> = loaded.iter().map(|driver| with_version(host, driver)).collect();
                let are = if names.len() == 1 { "is loaded and has" } else { "are loaded and have" };
                let what = format!("{} {are} not taken the PCI function ({ids})", names.join(" and "));
                let bind = host.own_path(directory_of(host, first)).join("bind");
                (what, format!("`dmesg | grep {address}` says why; `echo {address} > {}` tries again", bind.display()))
            }
        };
        Some(Problem::refused(vendor, place, Refusal { what, is_bound: false }, &cure).of(address))
    }

    fn is_not_offered(
        &self,
        place: &Path,
        address: &str,
        driver: Option<&str>,
        cure: &dyn Fn() -> String,
        said: &mut Said,
    ) {
        let ids = self.ids();
        let (under, driver) =
            (driver.map_or_else(|| "without a driver".to_owned(), |name| format!("driven by {name}")), driver);
        match (self.of, driver) {
            (Some((vendor, hardware)), Some(NOUVEAU)) => {
                let error = format!(
                    "the PCI function ({ids}) is {under}, under which it is no device for containers: blacklist {NOUVEAU}, \
                     and load {}",
                    hardware.cure
                );
                said.driverless.push(Problem::new(vendor, place, error).of(address));
            }
            (Some((vendor, hardware)), _) => {
                let instead = hardware.passed_through.map(|key| format!(", or offer it to virtual machines: {key}"));
                let error = format!(
                    "the PCI function ({ids}) is {under}, and not offered: load {} and bind it for containers{}",
                    hardware.cure,
                    instead.unwrap_or_default()
                );
                said.notices.push(Problem::new(vendor, place, error).of(address));
            }
            (None, _) if self.has_no_shell() => {
                let error = format!(
                    "a Xilinx card without a shell ({ids}, {under}): flash one (`xbmgmt program --base`) and power the host \
                     off and on, or offer the nodes of your own design by `generic`"
                );
                said.notices.push(Problem::new(XILINX_FPGA, place, error).of(address));
            }
            (None, _) if self.is_v80() => {
                // The first function stands for the card; the others have no driver by design.
                if self.id.1 == V80.0 {
                    let load = if driver == Some(AMI) { "" } else { "load `ami` of AVED, and " };
                    let error = format!(
                        "an Alveo V80 ({ids}) {under}: {load}offer the node that `ami` makes, /dev/ami0, by `generic`"
                    );
                    said.notices.push(Problem::new(XILINX_FPGA, place, error).of(address));
                }
            }
            (None, _) => {
                said.notices.push(accelerator(place, &format!("({ids}) {under}"), &cure()).of(address));
            }
        }
    }

    /// The drivers of its virtual functions by address, empty without one; nothing if no class serves such.
    fn virtual_functions(&self, host: &Host, listed: &Functions, address: &str) -> BTreeMap<String, String> {
        let of_virtual = self.class_for(None).and_then(|one| one.of_virtual);
        let opened = of_virtual.map(|_| Directory::open(listed.bus().path().join(address)));
        let Some(Ok(function)) = opened else { return BTreeMap::new() };
        let links = function.names().unwrap_or_default().into_iter();
        let links =
            links.filter(|name| directory::is_numbered(name, "virtfn")).filter_map(|name| function.link(&name).ok());
        let addresses = links.map(|target| file_name(host.behind_link(function.path(), &target)));
        addresses.map(|part| (part.clone(), listed.driver(&part).unwrap_or_default())).collect()
    }

    /// What makes it a device: its class, or what the class needs.
    fn cure(
        &self,
        place: &Path,
        driver: Option<&str>,
        parts: &BTreeMap<String, String>,
        is_in_accel: bool,
        classes: &[DeviceClass],
    ) -> String {
        let Some(one) = self.class_for(driver) else {
            return by_own_class(classes.iter().filter(|class| class.is_for(Some(self.id), driver, is_in_accel)));
        };
        let of_virtual = one.of_virtual.filter(|(class, _)| !parts.is_empty() || *class == one.class);
        let class = of_virtual.map_or(one.class, |(class, _)| class);
        match of_virtual {
            _ if !is_on(class, classes) => switch_on(class),
            Some((_, wanted)) if parts.is_empty() => format!(
                "the class `{class}` is on and serves virtual functions, and there are none: `echo NUMBER > {}` makes them, \
                 and they belong under `{wanted}`",
                place.join(pci::VIRTUAL_FUNCTIONS).display()
            ),
            Some((_, wanted)) if !parts.values().any(|driver| driver == wanted) => {
                format!("the class `{class}` is on and serves virtual functions under `{wanted}`: bind them to it")
            }
            _ => checked(class, class),
        }
    }

    /// The class that would serve it.
    fn class_for(&self, driver: Option<&str>) -> Option<&'static ForClass> {
        let is_it = |one: &&ForClass| {
            one.maker == self.id.0
                && (one.models.is_empty() || one.models.contains(&self.id.1))
                && (one.driver.is_empty() || driver == Some(one.driver))
        };
        OF_CLASSES.iter().find(is_it)
    }

    /// Whether it is what a card of Xilinx shows that was not flashed, or has fallen back to its factory image.
    fn has_no_shell(&self) -> bool {
        let ids: &[u16] = if self.class == SERIAL { &NO_SHELL } else { &FACTORY };
        self.id.0 == XILINX && ids.contains(&self.id.1)
    }

    /// Whether it is a function of an Alveo V80; the first one stands for the card.
    fn is_v80(&self) -> bool {
        self.id.0 == XILINX && (V80.0..=V80.1).contains(&self.id.1)
    }

    fn ids(&self) -> String {
        format!("{:04x}:{:04x}", self.id.0, self.id.1)
    }
}

/// The directory of a PCI driver, which is there while its module is loaded.
fn directory_of(host: &Host, driver: &str) -> PathBuf {
    host.sys("bus/pci/drivers").join(driver)
}

/// A driver, with the version that modules from outside the kernel have.
fn with_version(host: &Host, driver: &str) -> String {
    let version = Attribute::read(host.sys("module").join(driver.replace('-', "_")).join("version"));
    version.map_or_else(|_| format!("`{driver}`"), |version| format!("`{driver}` {}", version.text()))
}

impl Hardware {
    fn is(&self, (maker, device): (u16, u16)) -> bool {
        self.maker == maker && self.devices.iter().any(|&(first, last)| (first..=last).contains(&device))
    }
}

fn is_accelerator(class: u16) -> bool {
    class >> 8 == ACCELERATOR || class == CO_PROCESSOR
}

/// The note on an accelerator.
fn accelerator(place: &Path, what: &str, cure: &str) -> Problem {
    let error = format!("an accelerator {what}, of a kind that no vendor here serves: {cure}");
    Problem::new(VENDOR_OF_NONE, place, error)
}

/// What to do where no shipped class is for it. `own` are the classes of the configuration that are.
fn by_own_class<'c>(own: impl Iterator<Item = &'c DeviceClass>) -> String {
    let own: Vec<&str> = own.map(DeviceClass::name).collect();
    if own.is_empty() {
        let cure = "describe it by a class of your own, offer its nodes by `generic`, or run its maker's own plugin";
        return cure.to_owned();
    }
    checked(&own.join("` and `"), "FILE")
}

/// What to do where a class that is for it makes no device of it; `file` is what the command checks.
fn checked(class: &str, file: &str) -> String {
    format!("class `{class}` is for it and makes no device of it: `devherd classes check {file}` says why")
}

fn is_on(class: &str, classes: &[DeviceClass]) -> bool {
    classes.iter().any(|one| one.name() == class)
}

fn switch_on(class: &str) -> String {
    format!("switch the class `{class}` on: `classes: {{enable: [{class}]}}`")
}

/// What the devices of a scan consist of.
struct Served {
    /// `0000:3b:00` of their functions: some functions of a card are for its management.
    slots: BTreeSet<String>,
    /// As the devices name them, and where they are if these are links.
    nodes: BTreeSet<PathBuf>,
    /// The nodes of each PCI function on the host, served or not, by address.
    of_functions: BTreeMap<String, Vec<PathBuf>>,
    /// Vendors whose hardware could not be looked at.
    unknown: BTreeSet<&'static str>,
}

impl Served {
    fn of(host: &Host, scan: &Scan) -> Self {
        let functions =
            scan.devices.iter().flat_map(|device| &device.functions).map(|function| file_name(&function.path));
        let cards = scan.devices.iter().map(|device| device.card.clone());
        let unseen = scan.unseen.iter().filter_map(|part| part.card.clone());
        let slots = functions.chain(cards).chain(unseen).filter_map(|address| slot(&address));
        let nodes = scan.devices.iter().flat_map(|device| nodes_of(host, device));
        let unknown = scan.unseen.iter().filter(|part| part.card.is_none()).map(|part| part.vendor);
        Self {
            slots: slots.collect(),
            nodes: nodes.collect(),
            of_functions: nodes_of_functions(host),
            unknown: unknown.collect(),
        }
    }

    fn has(&self, function: &Path, candidate: Candidate) -> bool {
        let is_unknown = candidate.of.is_some_and(|(vendor, _)| self.unknown.contains(vendor));
        is_unknown || self.has_function(function) || self.has_group(function) || self.has_node(function)
    }

    fn has_function(&self, function: &Path) -> bool {
        slot(&file_name(function)).is_some_and(|slot| self.slots.contains(&slot))
    }

    /// Whether a device has the node of the function's IOMMU group.
    fn has_group(&self, function: &Path) -> bool {
        let group = directory::link(&function.join("iommu_group"));
        group.is_ok_and(|group| self.nodes.contains(&Path::new("/dev/vfio").join(file_name(&group))))
    }

    /// Whether a function has a node of the kernel's class for accelerators.
    fn is_in_accel(&self, address: &str) -> bool {
        self.of_functions.get(address).is_some_and(|nodes| nodes.iter().any(|node| node.starts_with("/dev/accel")))
    }

    /// Whether a device has a node of the function.
    fn has_node(&self, function: &Path) -> bool {
        let nodes = self.of_functions.get(&file_name(function)).map(Vec::as_slice).unwrap_or_default();
        nodes.iter().any(|node| self.nodes.contains(node))
    }
}

/// The nodes of PCI functions, by address: each character device has an entry in /sys/dev/char, at whatever depth below
/// its function it is.
fn nodes_of_functions(host: &Host) -> BTreeMap<String, Vec<PathBuf>> {
    let mut nodes: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let Ok(devices) = Directory::open(host.sys("dev/char")) else { return nodes };
    for number in devices.unsorted_names().unwrap_or_default() {
        let Ok(target) = devices.link(&number) else { continue };
        let device = host.behind_link(devices.path(), &target);
        if let Some(address) = pci::function_of(&device).and_then(pci::address_of) {
            nodes.entry(address.to_owned()).or_default().push(node_of(&device));
        }
    }
    nodes
}

/// The node of a class device: as its `uevent` names it; without one, as its class does.
fn node_of(device: &Path) -> PathBuf {
    let named = Attribute::read(device.join("uevent"))
        .ok()
        .and_then(|uevent| uevent.text().lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(str::to_owned));
    let (class, name) = (device.parent().map(file_name).unwrap_or_default(), file_name(device).replace('!', "/"));
    let own_directory = || if class == "accel" { format!("accel/{name}") } else { name };
    Path::new("/dev").join(named.unwrap_or_else(own_directory))
}

/// Work queues of DSA and IAA that are enabled for users and that no device has: a note for each function.
fn queues(host: &Host, scan: &Scan, classes: &[DeviceClass], served: &mut Option<Served>) -> Vec<Problem> {
    let Ok(bus) = Directory::open(host.sys("bus/dsa/devices")) else { return Vec::new() };
    let mut numbers: BTreeMap<(PathBuf, &str), usize> = BTreeMap::new();
    for name in bus.unsorted_names().unwrap_or_default() {
        let class = QUEUES.iter().find(|(start, _)| name.starts_with(start)).map(|(_, class)| *class);
        let Some(class) = class.filter(|class| !is_on(class, classes)) else { continue };
        let Ok(target) = bus.link(&name) else { continue };
        let queue = host.behind_link(bus.path(), &target);
        let served = served.get_or_insert_with(|| Served::of(host, scan));
        if let Some(function) = pci::function_of(&queue).filter(|_| !served.nodes.contains(&node_of(&queue))) {
            *numbers.entry((function.to_path_buf(), class)).or_default() += 1;
        }
    }
    let problem = |((function, class), number): ((PathBuf, &str), usize)| {
        let them = if number == 1 {
            "1 work queue for users is".to_owned()
        } else {
            format!("{number} work queues for users are")
        };
        let error = format!("{them} not offered: {}", switch_on(class));
        Problem::new(VENDOR_OF_NONE, host.own_path(&function), error).of(file_name(&function))
    };
    numbers.into_iter().map(problem).collect()
}

/// `0000:3b:00` of `0000:3b:00.0`.
fn slot(address: &str) -> Option<String> {
    pci::is_address(address).then(|| address.rsplit_once('.').map(|(slot, _)| slot.to_owned())).flatten()
}

/// The vGPUs that become no device, for each of NVIDIA's GPUs.
fn vgpus(host: &Host, listed: &Functions, scan: &Scan) -> Vec<Problem> {
    const VENDOR: &str = "nvidia";
    let Some(bus) = scan.vendors.contains(&VENDOR).then(|| Directory::open(host.sys("bus/mdev/devices"))) else {
        return Vec::new();
    };
    let Ok((names, bus)) = bus.and_then(|bus| Ok((bus.names()?, bus))) else { return Vec::new() };
    let served: HashSet<&str> = scan.devices.iter().map(|device| device.id.as_str()).collect();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for uuid in names.iter().filter(|uuid| !served.contains(uuid.as_str())) {
        let Ok(target) = bus.link(uuid) else { continue };
        let function = pci::function_of(&target).and_then(pci::address_of);
        if let Some(address) = function.filter(|address| listed.maker(address) == Some(NVIDIA)) {
            *numbers.entry(address.to_owned()).or_default() += 1;
        }
    }
    let problem = |(address, number): (String, usize)| {
        let them = if number == 1 { "1 vGPU is".to_owned() } else { format!("{number} vGPUs are") };
        let error = format!("{them} not offered: `vendors.nvidia.passthrough` offers vGPUs to virtual machines");
        Problem::new(VENDOR, host.own_path(listed.bus().path().join(address)), error)
    };
    numbers.into_iter().map(problem).collect()
}

/// Accelerators below /sys/class/accel whose PCI class says nothing, or that are no PCI functions:
/// <https://docs.kernel.org/accel/introduction.html>.
fn other_accelerators(
    host: &Host,
    scan: &Scan,
    classes: &[DeviceClass],
    served: &mut Option<Served>,
    functions: &HashMap<String, Option<Candidate>>,
) -> Vec<Problem> {
    let Ok(entries) = Directory::open(host.sys("class/accel")) else { return Vec::new() };
    let names = entries.names().unwrap_or_default();
    let names = names.into_iter().filter(|name| directory::is_numbered(name, "accel"));
    let noted = names.filter_map(|name| {
        let entry = host.behind_link(entries.path(), &entries.link(&name).ok()?);
        let device = entry.parent()?.parent()?.to_path_buf();
        let function = pci::function_of(&device).map(Path::to_path_buf);
        let is_candidate = |function: &PathBuf| functions.get(&file_name(function)).is_some_and(Option::is_some);
        let served = served.get_or_insert_with(|| Served::of(host, scan));
        if served.nodes.contains(&Path::new("/dev/accel").join(&name))
            || function.as_ref().is_some_and(|function| is_candidate(function) || served.has_function(function))
        {
            return None;
        }
        let driver = directory::link(&device.join("driver")).map(file_name);
        let under = match &driver {
            Ok(driver) => format!("driven by {driver}"),
            Err(_) if function.is_some() => "without a driver".to_owned(),
            // rocket has one device for all cores, to which no driver is bound: drivers/accel/rocket/rocket_drv.c of Linux.
            Err(_) => format!("({})", file_name(&device)),
        };
        let driver = driver.as_deref().ok();
        let cure = match OF_CLASSES.iter().find(|one| driver == Some(one.driver)) {
            Some(one) if is_on(one.class, classes) => checked(one.class, one.class),
            Some(one) => switch_on(one.class),
            None => by_own_class(classes.iter().filter(|class| class.is_for(None, driver, true))),
        };
        let problem = accelerator(&host.own_path(entries.path().join(&name)), &under, &cure);
        Some(match function {
            Some(function) => problem.of(file_name(&function)),
            None => problem,
        })
    });
    noted.collect()
}

fn file_name(path: impl AsRef<Path>) -> String {
    path.as_ref().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
