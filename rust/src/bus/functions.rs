//! The functions on the PCI bus, listed once a scan for all who look for theirs among them: a host has hundreds, and
//! most are nobody's devices.
//!
//! Driver, class and maker are read when somebody asks, once. All are variables of the kernel, so nothing here can hang.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::pci;
use crate::host::Host;
use crate::host::attribute::AttributeError;
use crate::host::directory::Directory;
use crate::host::read_log;

/// Drivers that bind to functions of one maker or kind alone, none of which is another vendor's card.
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
    functions: BTreeMap<String, Read>,
}

/// What was read of a function; an inner `None` could not be read.
#[derive(Debug, Default)]
struct Read {
    driver: OnceLock<Result<String, AttributeError>>,
    class: OnceLock<Option<u64>>,
    maker: OnceLock<Option<u64>>,
}

impl Functions {
    /// Those that this scan has listed or now lists; `None` if there is no bus.
    #[must_use]
    pub fn of(host: &Host) -> Option<Arc<Self>> {
        let list = || -> Arc<dyn Any + Send + Sync> { Arc::new(Self::list(host).map(Arc::new)) };
        host.once_a_scan(list).downcast_ref::<Option<Arc<Self>>>()?.clone()
    }

    fn list(host: &Host) -> Option<Self> {
        let bus = Directory::open(host.sys("bus/pci/devices")).ok()?;
        let names = bus.names().ok()?.into_iter().filter(|name| pci::is_address(name));
        let functions = names.map(|name| (name, Read::default())).collect();
        Some(Self { bus, functions })
    }

    /// `/sys/bus/pci/devices`.
    #[must_use]
    pub fn bus(&self) -> &Directory {
        &self.bus
    }

    /// Their addresses, sorted.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }

    /// The name of its driver.
    ///
    /// # Errors
    /// If the link cannot be read: it is absent without a driver.
    pub fn driver(&self, address: &str) -> Result<String, AttributeError> {
        let read = || {
            let target = self.bus.link(&format!("{address}/driver"))?;
            Ok(target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
        };
        match self.functions.get(address).filter(|_| !read_log::is_recording()) {
            Some(function) => function.driver.get_or_init(read).clone(),
            None => read(),
        }
    }

    /// Whether it has a driver under which it cannot be a function that `own` drivers are for.
    #[must_use]
    pub fn is_of_others(&self, address: &str, own: &[&str]) -> bool {
        self.driver(address)
            .is_ok_and(|driver| PARTICULAR.contains(&driver.as_str()) && !own.contains(&driver.as_str()))
    }

    /// `class`: `0x030200`.
    #[must_use]
    pub fn class(&self, address: &str) -> Option<u64> {
        self.number(address, "class", |function| &function.class)
    }

    /// `vendor`: `0x10de`.
    #[must_use]
    pub fn maker(&self, address: &str) -> Option<u64> {
        self.number(address, "vendor", |function| &function.maker)
    }

    fn number(&self, address: &str, name: &str, known: fn(&Read) -> &OnceLock<Option<u64>>) -> Option<u64> {
        let read = || self.bus.attribute(&format!("{address}/{name}")).ok()?.hexadecimal().ok();
        match self.functions.get(address).filter(|_| !read_log::is_recording()) {
            Some(function) => *known(function).get_or_init(read),
            None => read(),
        }
    }
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
