//! The functions on the PCI bus and its slots, listed once per scan for every vendor: a host has hundreds of functions,
//! and most are not devices of any vendor.
//!
//! Driver, class and maker are read once, on the first request. All are variables of the kernel, so nothing here can
//! hang.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::pci;
use crate::host::Host;
use crate::host::attribute::{Attribute, AttributeError};
use crate::host::directory::Directory;
use crate::host::read_log;

/// Drivers that bind only to functions of one maker or kind: a function under one of them cannot be another vendor's
/// card.
const PARTICULAR: [&str; 14] = [
    "ahci",
    "amdgpu",
    "dfl-pci",
    "i915",
    "intel-fpga-pci",
    "mlx5_core",
    "nouveau",
    "nvidia",
    "nvme",
    "pcieport",
    "xclmgmt",
    "xe",
    "xhci_hcd",
    "xocl",
];

/// The functions of a host, by address.
#[derive(Debug)]
pub struct Functions {
    bus: Directory,
    by_address: BTreeMap<String, Read>,
    /// `/sys/bus/pci/slots`.
    slots_directory: PathBuf,
    slots: OnceLock<BTreeMap<String, String>>,
}

/// Values that were read for a function; an inner `None` means that the value could not be read.
#[derive(Debug, Default)]
struct Read {
    driver: OnceLock<Result<String, AttributeError>>,
    class: OnceLock<Option<u64>>,
    maker: OnceLock<Option<u64>>,
    model: OnceLock<Option<u64>>,
}

impl Functions {
    /// The functions of the current scan, listed on the first call; `None` if there is no bus.
    #[must_use]
    pub fn of(host: &Host) -> Option<Arc<Self>> {
        let list = || -> Arc<dyn Any + Send + Sync> { Arc::new(Self::list(host).map(Arc::new)) };
        host.once_a_scan(list).downcast_ref::<Option<Arc<Self>>>()?.clone()
    }

    fn list(host: &Host) -> Option<Self> {
        let bus = Directory::open(host.sys("bus/pci/devices")).ok()?;
        let names = bus.unsorted_names().ok()?.into_iter().filter(|name| pci::is_address(name));
        let by_address = names.map(|name| (name, Read::default())).collect();
        Some(Self { bus, by_address, slots_directory: host.sys("bus/pci/slots"), slots: OnceLock::new() })
    }

    /// The directory `/sys/bus/pci/devices`.
    #[must_use]
    pub fn bus(&self) -> &Directory {
        &self.bus
    }

    /// The addresses of all functions, sorted.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.by_address.keys().map(String::as_str)
    }

    /// The name of the function's driver.
    ///
    /// # Errors
    /// If the link cannot be read; it is absent if the function has no driver.
    pub fn driver(&self, address: &str) -> Result<String, AttributeError> {
        let read = || {
            let target = self.bus.link(&format!("{address}/driver"))?;
            Ok(target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
        };
        match self.by_address.get(address).filter(|_| !read_log::is_recording()) {
            Some(function) => function.driver.get_or_init(read).clone(),
            None => read(),
        }
    }

    /// Whether the function has a driver for other hardware, so that it cannot be a function for the `own` drivers.
    #[must_use]
    pub fn is_of_others(&self, address: &str, own: &[&str]) -> bool {
        self.driver(address)
            .is_ok_and(|driver| PARTICULAR.contains(&driver.as_str()) && !own.contains(&driver.as_str()))
    }

    /// The number in `class`: `0x030200`.
    #[must_use]
    pub fn class(&self, address: &str) -> Option<u64> {
        self.number(address, "class", |function| &function.class)
    }

    /// The number in `vendor`: `0x10de`.
    #[must_use]
    pub fn maker(&self, address: &str) -> Option<u64> {
        self.number(address, "vendor", |function| &function.maker)
    }

    /// The number in `device`: `0x2330`.
    #[must_use]
    pub fn model(&self, address: &str) -> Option<u64> {
        self.number(address, "device", |function| &function.model)
    }

    /// The machine's slot that contains a function, and the file that names the slot. This is the function's own slot,
    /// or the slot of the nearest bridge above it: a card may have a switch of its own. `path` is the function's
    /// directory below `/sys/devices`.
    #[must_use]
    pub fn slot(&self, path: &Path) -> Option<(&str, PathBuf)> {
        let slots = self.slots.get_or_init(|| read_log::unrecorded(|| slots(&self.slots_directory)));
        let name = path.ancestors().map_while(pci::address_of).find_map(|address| slots.get(device_of(address)?))?;
        Some((name, self.slots_directory.join(name).join("address")))
    }

    fn number(&self, address: &str, name: &str, known: fn(&Read) -> &OnceLock<Option<u64>>) -> Option<u64> {
        let read = || self.bus.attribute(&format!("{address}/{name}")).ok()?.hexadecimal().ok();
        match self.by_address.get(address).filter(|_| !read_log::is_recording()) {
            Some(function) => *known(function).get_or_init(read),
            None => read(),
        }
    }
}

/// The names of slots, by domain, bus and device of their content.
///
/// A slot whose device is unknown to the kernel has only domain and bus (`address_read_file` in `drivers/pci/slot.c` of
/// Linux). Several slots may have the same ones, so no function is found in them.
fn slots(directory: &Path) -> BTreeMap<String, String> {
    let names = Directory::open(directory).and_then(|open| open.names()).unwrap_or_default();
    let place =
        |name: String| Some((Attribute::read(directory.join(&name).join("address")).ok()?.text().to_owned(), name));
    names.into_iter().filter_map(place).collect()
}

/// The address without its function: `0000:3b:00` of `0000:3b:00.0`.
fn device_of(address: &str) -> Option<&str> {
    Some(address.rsplit_once('.')?.0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::read_log::counting::counted;

    fn tree(functions: &[(&str, &str, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (address, driver, class, maker) in functions {
            let function = root.path().join("sys/bus/pci/devices").join(address);
            fs::create_dir_all(&function).unwrap();
            fs::write(function.join("class"), class).unwrap();
            fs::write(function.join("vendor"), maker).unwrap();
            if !driver.is_empty() {
                symlink(format!("../../../../bus/pci/drivers/{driver}"), function.join("driver")).unwrap();
            }
        }
        root
    }

    const GPU: (&str, &str, &str, &str) = ("0000:01:00.0", "nvidia", "0x030200\n", "0x10de\n");
    const BARE: (&str, &str, &str, &str) = ("0000:02:00.0", "", "0x060400\n", "what\n");

    #[test]
    fn what_is_read_of_a_function_is_read_once_a_scan_and_anew_by_the_next() {
        let root = tree(&[GPU, BARE]);
        let look = |host: &Host| {
            let functions = Functions::of(host).unwrap();
            assert_eq!(functions.addresses().collect::<Vec<_>>(), [GPU.0, BARE.0]);
            assert_eq!((functions.class(GPU.0), functions.maker(GPU.0)), (Some(0x03_0200), Some(0x10de)));
            assert_eq!((functions.class(BARE.0), functions.maker(BARE.0)), (Some(0x06_0400), None));
            assert_eq!(functions.driver(GPU.0).unwrap(), "nvidia");
            assert!(functions.driver(BARE.0).unwrap_err().is_absent());
        };
        for _ in 0..2 {
            let (host, reads) =
                (Host::new(root.path()).for_a_scan(), |host: &Host| counted(root.path(), || look(host)));
            assert_eq!(reads(&host).values().sum::<usize>(), 7);
            assert_eq!(reads(&host).values().sum::<usize>(), 0);
        }
    }

    fn add_slot(root: &tempfile::TempDir, name: &str, address: &str) {
        let slot = root.path().join("sys/bus/pci/slots").join(name);
        fs::create_dir_all(&slot).unwrap();
        fs::write(slot.join("address"), address).unwrap();
    }

    #[test]
    fn a_card_is_in_its_own_slot_or_in_that_of_the_nearest_bridge_above_it() {
        let root = tree(&[GPU]);
        for (name, address) in
            [("1", "0000:01:00\n"), ("7-1", "0000:81:00\n"), ("8", "0000:85:00\n"), ("9", "0000:90\n")]
        {
            add_slot(&root, name, address);
        }
        let functions = Functions::of(&Host::new(root.path())).unwrap();
        let slot = |path: &str| functions.slot(&root.path().join("sys/devices/pci0000:00").join(path));
        let file = |name: &str| root.path().join("sys/bus/pci/slots").join(name).join("address");
        assert_eq!(slot("0000:00:01.0/0000:01:00.0"), Some(("1", file("1"))));
        assert_eq!(slot("0000:00:01.0/0000:01:00.1"), Some(("1", file("1"))), "a slot has all functions of a card");
        assert_eq!(slot("0000:80:01.0/0000:81:00.0/0000:82:08.0/0000:83:00.0"), Some(("7-1", file("7-1"))));
        assert_eq!(slot("0000:80:01.0/0000:81:00.0/0000:82:09.0/0000:85:00.0"), Some(("8", file("8"))));
        assert_eq!(slot("0000:00:02.0"), None, "soldered");
        assert_eq!(slot("0000:00:03.0/0000:90:00.0"), None, "the slot does not say its device");
    }

    #[test]
    fn slots_are_listed_once_a_scan_however_many_cards_there_are() {
        let root = tree(&[GPU, BARE]);
        add_slot(&root, "1", "0000:01:00\n");
        add_slot(&root, "2", "0000:02:00\n");
        let host = Host::new(root.path()).for_a_scan();
        let look = || {
            let functions = Functions::of(&host).unwrap();
            let of = |address: &str| {
                functions.slot(&host.sys("devices/pci0000:00").join(address)).map(|(name, _)| name.to_owned())
            };
            assert_eq!((of(GPU.0), of(BARE.0)), (Some("1".to_owned()), Some("2".to_owned())));
        };
        let reads = counted(&root.path().join("sys/bus/pci/slots"), look);
        assert_eq!(reads.values().sum::<usize>(), 3, "the directory, and each slot: {reads:?}");
        assert_eq!(counted(root.path(), look).values().sum::<usize>(), 0);
    }

    #[test]
    fn a_function_under_a_driver_for_others_is_nobody_elses() {
        let root = tree(&[GPU, BARE]);
        let functions = Functions::of(&Host::new(root.path())).unwrap();
        assert!(functions.is_of_others(GPU.0, &["amdgpu"]) && !functions.is_of_others(GPU.0, &["nvidia"]));
        assert!(!functions.is_of_others(BARE.0, &[]));
    }

    #[test]
    fn work_that_is_recorded_reads_itself() {
        let root = tree(&[GPU]);
        let host = Host::new(root.path()).for_a_scan();
        let functions = Functions::of(&host).unwrap();
        let read = || (functions.driver(GPU.0), functions.class(GPU.0));
        let before = read();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let (again, reads) = read_log::recorded(false, read);
        assert!(before == again && reads.still_holds());
        fs::write(root.path().join("sys/bus/pci/devices").join(GPU.0).join("class"), "0x030000\n").unwrap();
        assert!(!reads.still_holds());
    }

    #[test]
    fn a_host_without_pci_has_none() {
        assert!(Functions::of(&Host::new("/nonexistent")).is_none());
    }
}
