//! A host tree for the tests of sources: what a source sees of one device, look after look.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::device::{Device, PciFunction};
use crate::health::finding::Finding;
use crate::health::kept_file::Keeping;
use crate::health::read_once::ReadOnce;
use crate::health::source::{Here, Sight, Source, Subject};
use crate::host::Host;

/// The PCI function of most tests, as the host names it.
pub(in crate::health) const FUNCTION: &str = "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0";

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

    /// Where the tree has what the host calls this.
    pub(in crate::health) fn path(&self, own: &str) -> PathBuf {
        self.root.path().join(own.trim_start_matches('/'))
    }

    pub(in crate::health) fn write(&self, own: &str, content: impl AsRef<[u8]>) {
        let path = self.path(own);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// An attribute of the function.
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

    /// What this source looks at for the device.
    pub(in crate::health) fn watch(&self, source: &dyn Source, device: &Device) -> Watching<'_> {
        Watching { host: &self.host, subjects: source.subjects(&self.host, device), now: Instant::now() }
    }
}

/// What one source looks at for one device.
pub(in crate::health) struct Watching<'t> {
    host: &'t Host,
    pub(in crate::health) subjects: Vec<Subject>,
    now: Instant,
}

impl Watching<'_> {
    /// Time goes by until the next look.
    pub(in crate::health) fn wait(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
    }

    /// What each subject comes to.
    pub(in crate::health) fn sights(&mut self) -> Vec<Sight> {
        let read_once = ReadOnce::default();
        let keeping = Keeping { open: true, check_links: true, read_once: Some(&read_once) };
        let look = |subject: &mut Subject| {
            let Subject { file, examination, .. } = subject;
            examination.look(Here { host: self.host, file, keeping, now: self.now })
        };
        self.subjects.iter_mut().map(look).collect()
    }

    /// What the one subject comes to of which there is anything.
    pub(in crate::health) fn sight(&mut self) -> Sight {
        let mut sights = self.sights();
        assert!(!sights.is_empty());
        sights.retain(|sight| *sight != Sight::Nothing);
        assert!(sights.len() <= 1, "{sights:?}");
        sights.pop().unwrap_or(Sight::Nothing)
    }

    /// What the one subject is found to be.
    pub(in crate::health) fn finding(&mut self) -> Finding {
        match self.sight() {
            Sight::Seen(finding) => finding,
            other => panic!("nothing was found: {other:?}"),
        }
    }
}

/// A device that is the function, driven by this driver.
pub(in crate::health) fn device(vendor: &'static str, driver: Option<&str>) -> Device {
    let function = PciFunction { path: FUNCTION.into(), driver: driver.map(str::to_owned) };
    Device { vendor: vendor.into(), functions: vec![function], ..Device::default() }
}
