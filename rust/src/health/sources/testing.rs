//! A host tree for the tests of sources: what a source sees of one device, look after look.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::bus::pci;
use crate::device::{Device, PciFunction};
use crate::finding::Finding;
use crate::health::kept_file::ReadOnce;
use crate::health::source::{LookContext, Observation, Source, Subject};
use crate::host::Host;

/// The PCI function of most tests, without the host root.
pub(in crate::health) const FUNCTION: &str = "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0";

/// The physical function of [`virtual_one`].
pub(in crate::health) const PHYSICAL: &str = "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.1";

/// A host tree in a temporary directory.
pub(in crate::health) struct Tree {
    root: tempfile::TempDir,
    pub(in crate::health) host: Host,
}

impl Tree {
    pub(in crate::health) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        Self { root, host }
    }

    /// The path in the tree of a host path.
    pub(in crate::health) fn path(&self, own: &str) -> PathBuf {
        self.root.path().join(own.trim_start_matches('/'))
    }

    pub(in crate::health) fn write(&self, own: &str, content: impl AsRef<[u8]>) {
        let path = self.path(own);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Writes an attribute of the function.
    pub(in crate::health) fn set(&self, name: &str, content: impl AsRef<[u8]>) {
        self.write(&format!("{FUNCTION}/{name}"), content);
    }

    pub(in crate::health) fn remove(&self, own: &str) {
        fs::remove_file(self.path(own)).unwrap();
    }

    pub(in crate::health) fn link(&self, own: &str, target: impl AsRef<Path>) {
        let path = self.path(own);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    /// The subjects of this source for the device.
    pub(in crate::health) fn watch(&self, source: &dyn Source, device: &Device) -> Watching<'_> {
        Watching { host: &self.host, subjects: source.subjects(&self.host, device), now: Instant::now() }
    }
}

/// The subjects of one source for one device.
pub(in crate::health) struct Watching<'t> {
    host: &'t Host,
    pub(in crate::health) subjects: Vec<Subject>,
    now: Instant,
}

impl Watching<'_> {
    /// Lets time pass until the next look.
    pub(in crate::health) fn wait(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
    }

    /// The observation of each subject.
    pub(in crate::health) fn observations(&mut self) -> Vec<Observation> {
        let reads = ReadOnce::default();
        let look = |subject: &mut Subject| {
            let Subject { file, examination, .. } = subject;
            examination.look(LookContext { host: self.host, file, stays_open: false, reads: &reads, now: self.now })
        };
        self.subjects.iter_mut().map(look).collect()
    }

    /// The only observation that is not `Nothing`.
    pub(in crate::health) fn observation(&mut self) -> Observation {
        let mut observations = self.observations();
        assert!(!observations.is_empty());
        observations.retain(|observation| *observation != Observation::Nothing);
        assert!(observations.len() <= 1, "{observations:?}");
        observations.pop().unwrap_or(Observation::Nothing)
    }

    /// The finding of the only subject that has one.
    pub(in crate::health) fn finding(&mut self) -> Finding {
        match self.observation() {
            Observation::Seen(finding) => finding,
            other => panic!("nothing was found: {other:?}"),
        }
    }
}

/// A device with the function, bound to this driver.
pub(in crate::health) fn device(vendor: &'static str, driver: Option<&str>) -> Device {
    let function = PciFunction { path: FUNCTION.into(), driver: driver.map(str::to_owned), physical: None };
    Device { vendor: vendor.into(), functions: vec![function], ..Device::default() }
}

/// A device with the function, which is made a virtual one of another, [`PHYSICAL`].
pub(in crate::health) fn virtual_one(tree: &Tree, vendor: &'static str) -> Device {
    tree.link(&format!("{FUNCTION}/physfn"), "../0000:81:00.1");
    let mut device = Device { vendor: vendor.into(), ..Device::default() };
    pci::Function::read(&tree.path(FUNCTION)).attach(&tree.host, &mut device);
    device
}
