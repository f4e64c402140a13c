//! Finds the entries of sysfs that may be devices of a class: by their names, and by the PCI function that they belong to.
//! Looks at names and links only, so no device can make it hang.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::assembly::Lacking;
use super::definition::{DeviceClass, Find, Within};
use super::files::directory_in_sys;
use super::not_examined;
use super::template::Parts;
use crate::bus::functions::Functions;
use crate::bus::pci;
use crate::bus::usb::Port;
use crate::device::{Found, Problem};
use crate::host::Host;
use crate::host::attribute::AttributeError;
use crate::host::directory::Directory;
use crate::host::resolve::in_root;

/// An entry, and the classes whose names it fits.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its name in sysfs: `tenstorrent!0`.
    pub(super) name: String,
    /// Its directory, the link to it followed.
    pub(super) path: PathBuf,
    /// The PCI function that it belongs to.
    pub(super) function: Option<PathBuf>,
    /// The classes, by their places in the list, with the parts of the name.
    pub(super) classes: Vec<(usize, Parts)>,
}

impl Entry {
    /// The unit that hangs as one: the PCI function, or the entry.
    pub(super) fn card(&self) -> &str {
        self.function.as_deref().and_then(pci::address_of).unwrap_or(&self.name)
    }
}

/// Why there is no directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// It is not there.
    Absent,
    /// It cannot be read, or not be found: a problem, which was told.
    Unknown,
}

/// A directory of entries.
struct Listing {
    open: Directory,
    names: Vec<String>,
    /// The directories of entries that were asked for, by name.
    paths: HashMap<String, Result<PathBuf, Missing>>,
}

/// The search of one scan.
struct Search<'s> {
    host: &'s Host,
    vendor: &'static str,
    /// By path below /sys.
    listed: BTreeMap<String, Result<Listing, Missing>>,
    entries: Vec<Entry>,
    /// Places in `entries`, by path.
    places: HashMap<OsString, usize>,
    found: &'s mut Found,
}

/// The entries that may be devices of these classes, in the order of the classes, each once. Those that cannot be found are
/// lacking.
pub(super) fn entries(
    host: &Host,
    vendor: &'static str,
    classes: &[DeviceClass],
    found: &mut Found,
    lacking: &mut Lacking,
) -> Vec<Entry> {
    let mut search = Search::new(host, vendor, found);
    for (place, class) in classes.iter().enumerate() {
        for directory in directories(&class.find) {
            if search.add(place, class, &directory) == Err(Missing::Unknown) {
                lacking.add_any([place]);
            }
        }
    }
    search.entries
}

/// Where the entries of a class are, below /sys. A PCI driver has a directory of its own functions, which are fewer than
/// all.
fn directories(find: &Find) -> Vec<String> {
    match &find.within {
        Within::Bus(bus) if bus == "pci" && !find.drivers.is_empty() => {
            find.drivers.iter().map(|driver| format!("bus/pci/drivers/{driver}")).collect()
        }
        Within::Bus(bus) => vec![format!("bus/{bus}/devices")],
        Within::Class(class) => vec![format!("class/{class}")],
    }
}

/// Every entry of the directories of a class, whether it fits or not.
pub(super) fn looked_at(host: &Host, vendor: &'static str, find: &Find, found: &mut Found) -> Vec<Entry> {
    let mut search = Search::new(host, vendor, found);
    let mut all = Vec::new();
    for directory in directories(find) {
        let Ok(Listing { open, names, .. }) = search.list(&directory) else { continue };
        let is_pci = find.within == Within::Bus("pci".to_owned());
        for name in names.into_iter().filter(|name| !is_pci || pci::is_address(name)) {
            let Ok(path) = search.behind(&open, &name) else { continue };
            let function = function_of(&path).map(Path::to_path_buf);
            all.push(Entry { name, path, function, classes: Vec::new() });
        }
    }
    all
}

/// The parts of an entry's name, if name and PCI function are what a class asks for.
///
/// # Errors
/// What does not fit.
pub(super) fn refusal(host: &Host, find: &Find, entry: &Entry) -> Result<Parts, String> {
    let parts = match &find.name {
        None => Parts::new(),
        Some(pattern) => {
            let refused = || format!("the name does not fit `{pattern}`");
            pattern.parts(&entry.name, &Parts::new()).ok_or_else(refused)?
        }
    };
    if !find.is_of_function() {
        return Ok(parts);
    }
    let without = || match Port::of(&entry.path) {
        Some(_) => {
            "it is on USB, and `driver`, `vendor` and `device` are of a PCI function: `attr` or `above` can ask for idVendor"
        }
        None => "it belongs to no PCI function",
    };
    let address = entry.function.as_deref().and_then(pci::address_of).ok_or_else(without)?;
    let functions = Functions::of(host).ok_or("there is no PCI bus")?;
    let driver = functions.driver(address).unwrap_or_default();
    if !find.drivers.is_empty() && !find.drivers.contains(&driver) {
        let driver =
            if driver.is_empty() { "there is no driver".to_owned() } else { format!("the driver is `{driver}`") };
        return Err(format!("{driver}, not `{}`", find.drivers.join("` or `")));
    }
    for (name, wanted, id) in
        [("vendor", &find.makers, functions.maker(address)), ("device", &find.models, functions.model(address))]
    {
        let id = id.unwrap_or_default();
        if !wanted.is_empty() && !wanted.contains(&id) {
            return Err(format!("`{name}` of the PCI function is {id:#06x}"));
        }
    }
    Ok(parts)
}

impl<'s> Search<'s> {
    fn new(host: &'s Host, vendor: &'static str, found: &'s mut Found) -> Self {
        let (listed, entries, places) = (BTreeMap::new(), Vec::new(), HashMap::new());
        Self { host, vendor, listed, entries, places, found }
    }

    /// Adds the entries of a directory that fit a class.
    ///
    /// # Errors
    /// If the directory is missing, or an entry is not known.
    fn add(&mut self, place: usize, class: &DeviceClass, directory: &str) -> Result<(), Missing> {
        let find = &class.find;
        let mut listing = match self.listed.remove(directory).unwrap_or_else(|| self.list(directory)) {
            Ok(listing) => listing,
            Err(missing) => {
                if missing == Missing::Unknown {
                    self.found.unseen.push(not_examined(self.vendor, class, None));
                }
                self.listed.insert(directory.to_owned(), Err(missing));
                return Err(missing);
            }
        };
        let mut added = Ok(());
        let is_pci = find.within == Within::Bus("pci".to_owned());
        for name in listing.names.iter().filter(|name| !is_pci || pci::is_address(name)) {
            let parts = find.name.as_ref().map_or(Some(Parts::new()), |pattern| pattern.parts(name, &Parts::new()));
            let Some(parts) = parts else { continue };
            // Of a thousand functions most are refused here, before their links are read.
            if is_pci && !self.fits(find, Some(name)) {
                continue;
            }
            let path = match listing.paths.get(name) {
                Some(known) => known.clone(),
                None => listing.paths.entry(name.clone()).or_insert(self.path(&listing.open, name)).clone(),
            };
            match path {
                Ok(path) => self.take(place, find, name, path, parts),
                Err(Missing::Unknown) => {
                    self.found.unseen.push(not_examined(self.vendor, class, Some(name.clone())));
                    added = Err(Missing::Unknown);
                }
                Err(Missing::Absent) => {}
            }
        }
        self.listed.insert(directory.to_owned(), Ok(listing));
        added
    }

    /// The directory of an entry. That it cannot be found is a problem, unless the entry has gone.
    fn path(&mut self, open: &Directory, name: &str) -> Result<PathBuf, Missing> {
        self.behind(open, name).map_err(|error| self.missing(error))
    }

    /// Tells of an error, unless nothing is there.
    fn missing(&mut self, error: AttributeError) -> Missing {
        if error.is_absent() {
            return Missing::Absent;
        }
        self.found.problems.push(Problem::new(self.vendor, self.host.own_path(&error.path), error.cause));
        Missing::Unknown
    }

    fn take(&mut self, place: usize, find: &Find, name: &str, path: PathBuf, parts: Parts) {
        let function = function_of(&path).map(Path::to_path_buf);
        if find.is_of_function() && !self.fits(find, function.as_deref().and_then(pci::address_of)) {
            return;
        }
        if let Some(&known) = self.places.get(path.as_os_str()) {
            self.entries[known].classes.push((place, parts));
            return;
        }
        self.places.insert(path.clone().into_os_string(), self.entries.len());
        self.entries.push(Entry { name: name.to_owned(), path, function, classes: vec![(place, parts)] });
    }

    fn list(&mut self, directory: &str) -> Result<Listing, Missing> {
        let path = self.host.sys(directory);
        let opened = Directory::open(&path).and_then(|open| {
            // Somewhere on the way may be a link that leads out of the host root.
            let place = in_root(self.host, &self.host.own_path(&path));
            if place.as_ref().is_ok_and(|place| *place == path) {
                Ok(open)
            } else {
                Directory::open(place.unwrap_or(path.clone()))
            }
        });
        match opened.and_then(|open| Ok((open.names()?, open))) {
            Ok((names, open)) => Ok(Listing { open, names, paths: HashMap::new() }),
            Err(error) => Err(self.missing(error)),
        }
    }

    /// The directory of an entry, all links followed.
    fn behind(&self, open: &Directory, name: &str) -> Result<PathBuf, AttributeError> {
        let path = match open.link(name) {
            Ok(target) => self.host.behind_link(open.path(), &target),
            Err(error) if error.is_absent() => return Err(error),
            Err(_) => open.path().join(name),
        };
        directory_in_sys(self.host, &self.host.own_path(path))
    }

    /// Whether the PCI function with this address, if there is one, is what a class asks for.
    fn fits(&self, find: &Find, address: Option<&str>) -> bool {
        let Some(address) = address else { return false };
        let Some(functions) = Functions::of(self.host) else { return false };
        let is_among = |ids: &[u64], id: Option<u64>| ids.is_empty() || id.is_some_and(|id| ids.contains(&id));
        (find.drivers.is_empty() || functions.driver(address).is_ok_and(|driver| find.drivers.contains(&driver)))
            && (find.makers.is_empty() || is_among(&find.makers, functions.maker(address)))
            && (find.models.is_empty() || is_among(&find.models, functions.model(address)))
    }
}

/// The PCI function that an entry belongs to: none for a USB device, which is plugged into one of many ports of a
/// function.
fn function_of(path: &Path) -> Option<&Path> {
    pci::function_of(path).filter(|_| Port::of(path).is_none())
}
