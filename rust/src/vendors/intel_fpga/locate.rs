//! Which cards there are: entries of the class directories, grouped by physical PCI function.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::VENDOR;
use super::driver::{self, Driver};
use crate::bus::pci;
use crate::device::{Found, NotExamined, Problem};
use crate::host::Host;
use crate::host::attribute::Cause;
use crate::host::directory::Directory;

/// What is probed as one and hangs as one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Card {
    /// Address of the physical function; the name of the class entry if there is none.
    pub(super) key: String,
    /// Directory of the physical function.
    pub(super) function: Option<PathBuf>,
    /// Never empty.
    pub(super) entries: Vec<Entry>,
    /// Regions of DFL management engines that the class directory has.
    pub(super) fme_regions: Vec<PathBuf>,
}

/// One entry of a class directory: `intel-fpga-dev.0`, `region0`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) driver: Driver,
    /// Its place in the class directory, with the host root.
    pub(super) class_path: PathBuf,
    /// The directory behind the link, with the host root.
    pub(super) path: PathBuf,
    /// Directory of the PCI function it lies in, physical or virtual.
    pub(super) function: Option<PathBuf>,
}

/// `/sys/class/fpga`, `/sys/class/fpga_region`.
pub(super) fn class_directory(host: &Host, driver: Driver) -> PathBuf {
    host.sys("class").join(driver.class())
}

/// The cards of both drivers. What could not be looked at goes into `found`.
pub(super) fn cards(host: &Host, found: &mut Found) -> Vec<Card> {
    let mut cards = BTreeMap::new();
    let mut fme_regions = Vec::new();
    let mut functions = None;
    for driver in Driver::ALL {
        for (name, link) in class_entries(host, driver, found) {
            let path = link.or_else(|| behind_plain_entry(host, driver, &name, &mut functions));
            let class_path = class_directory(host, driver).join(&name);
            let path = path.unwrap_or_else(|| class_path.clone());
            if is_inside_fme(&path) {
                fme_regions.push(path);
            } else {
                add(host, &mut cards, &name, (driver, class_path, path));
            }
        }
    }
    let mut cards: Vec<Card> = cards.into_values().collect();
    give_out(fme_regions, &mut cards);
    cards
}

/// Gives regions of management engines to the cards that they lie in.
fn give_out(fme_regions: Vec<PathBuf>, cards: &mut [Card]) {
    let mut holders: HashMap<PathBuf, Vec<usize>> = HashMap::new();
    for (place, card) in cards.iter().enumerate() {
        for entry in &card.entries {
            holders.entry(entry.path.clone()).or_default().push(place);
        }
    }
    for region in fme_regions {
        let within: BTreeSet<usize> =
            region.ancestors().filter_map(|above| holders.get(above)).flatten().copied().collect();
        for place in within {
            cards[place].fme_regions.push(region.clone());
        }
    }
}

fn add(
    host: &Host,
    cards: &mut BTreeMap<String, Card>,
    name: &str,
    (driver, class_path, path): (Driver, PathBuf, PathBuf),
) {
    let function = pci::function_of(&path).map(Path::to_path_buf);
    let physical = function.as_ref().map(|function| pci::physical_function(host, function).unwrap_or(function.clone()));
    let address = physical.as_deref().and_then(pci::address_of);
    let key = address.unwrap_or(name).to_owned();
    let card = cards.entry(key.clone()).or_insert_with(|| Card {
        key,
        function: physical.clone(),
        entries: Vec::new(),
        fme_regions: Vec::new(),
    });
    card.entries.push(Entry { driver, class_path, path, function });
}

/// Name and link target of every card of a class directory; `None` for an entry that is a plain directory.
fn class_entries(host: &Host, driver: Driver, found: &mut Found) -> Vec<(String, Option<PathBuf>)> {
    let path = class_directory(host, driver);
    let (directory, names) = match Directory::open(&path).and_then(|open| open.names().map(|names| (open, names))) {
        Ok(listed) => listed,
        // The driver is not loaded.
        Err(error) if error.cause == Cause::System(Errno::NOENT) => return Vec::new(),
        Err(error) => {
            found.problems.push(Problem::new(VENDOR, host.own_path(&path), error.cause));
            found.unseen.push(NotExamined { vendor: VENDOR, card: None, finding: None });
            return Vec::new();
        }
    };
    let mut entries = Vec::new();
    for name in names.into_iter().filter(|name| driver.is_card(name)) {
        match directory.link(&name) {
            Ok(target) => entries.push((name, Some(host.behind_link(&path, &target)))),
            Err(error) if error.cause == Cause::System(Errno::INVAL) => entries.push((name, None)),
            Err(error) => found.problems.push(Problem::new(VENDOR, host.own_path(&error.path), error.cause)),
        }
    }
    entries
}

/// Trees written by hand may have plain directories in place of links: the card is then looked for below the functions.
fn behind_plain_entry(
    host: &Host,
    driver: Driver,
    name: &str,
    functions: &mut Option<Vec<PathBuf>>,
) -> Option<PathBuf> {
    let functions = functions.get_or_insert_with(|| pci::functions(host));
    functions.iter().map(|function| function.join(driver.class()).join(name)).find(|path| path.is_dir())
}

fn is_inside_fme(path: &Path) -> bool {
    path.components().filter_map(|part| part.as_os_str().to_str()).any(driver::is_fme_region)
}
