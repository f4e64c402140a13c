//! Finds the cards of a host: entries of the class directories of both drivers, grouped by physical PCI function.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::VENDOR;
use crate::bus::pci;
use crate::device::{Found, NotExamined, Problem};
use crate::host::Host;
use crate::host::attribute::Cause;
use crate::host::directory::{Directory, is_numbered};

/// A card. It is read as one and hangs as one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Card {
    /// Address of the physical function; if there is none, the name of the class entry.
    pub(super) key: String,
    /// Directory of the physical function.
    pub(super) function: Option<PathBuf>,
    /// Class entries of the card, never empty.
    pub(super) entries: Vec<Entry>,
    /// The regions of the card's DFL management engines in the class directory.
    pub(super) fme_regions: Vec<PathBuf>,
}

/// One entry of a class directory: `intel-fpga-dev.0`, `region0`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) driver: Driver,
    /// The path in the class directory, with the host root.
    pub(super) class_path: PathBuf,
    /// The target of the class entry's link, with the host root.
    pub(super) path: PathBuf,
    /// Directory of the PCI function that contains the entry, physical or virtual.
    pub(super) function: Option<PathBuf>,
}

/// The class directory of a driver: `/sys/class/fpga`, `/sys/class/fpga_region`.
fn class_directory(host: &Host, driver: Driver) -> PathBuf {
    host.sys("class").join(driver.class())
}

/// The cards of both drivers. Errors, and cards that cannot be examined, are added to `found`.
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

/// Assigns regions of management engines to their cards.
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

/// Name and link target of every card in a class directory; the target is `None` if the entry is a plain directory.
fn class_entries(host: &Host, driver: Driver, found: &mut Found) -> Vec<(String, Option<PathBuf>)> {
    let path = class_directory(host, driver);
    let (directory, names) =
        match Directory::open(&path).and_then(|open| open.names_of_links().map(|names| (open, names))) {
            Ok(listed) => listed,
            // The driver is not loaded.
            Err(error) if error.cause == Cause::System(Errno::NOENT) => return Vec::new(),
            Err(error) => {
                found.problems.push(Problem::new(VENDOR, host.own_path(&path), error.cause));
                found.unseen.push(NotExamined::new(VENDOR, None));
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

/// The directory of a card whose class entry is a plain directory, as in trees written by hand: the search goes through
/// the functions.
fn behind_plain_entry(
    host: &Host,
    driver: Driver,
    name: &str,
    functions: &mut Option<Vec<PathBuf>>,
) -> Option<PathBuf> {
    let functions = functions.get_or_insert_with(|| pci::functions(host));
    functions.iter().map(|function| function.join(driver.class()).join(name)).find(|path| Directory::open(path).is_ok())
}

fn is_inside_fme(path: &Path) -> bool {
    path.components().filter_map(|part| part.as_os_str().to_str()).any(is_fme_region)
}

/// A kernel driver for Intel FPGA cards. One host can have both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Driver {
    /// Out of tree, <https://github.com/OPAE/opae-sdk>.
    Opae,
    /// In the kernel, <https://docs.kernel.org/fpga/dfl.html>.
    Dfl,
}

impl Driver {
    const ALL: [Self; 2] = [Self::Opae, Self::Dfl];

    /// The value of the attribute `driver`.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Opae => "opae",
            Self::Dfl => "dfl",
        }
    }

    /// The name of the directory with its cards, below /sys/class and below the PCI function.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Opae => "fpga",
            Self::Dfl => "fpga_region",
        }
    }

    /// Whether an entry of the class directory is a card.
    pub(super) fn is_card(self, name: &str) -> bool {
        is_numbered(name, if self == Self::Opae { "intel-fpga-dev." } else { "region" })
    }

    /// Whether an entry of a card is a port: one slot for an accelerator function.
    pub(super) fn is_port(self, name: &str) -> bool {
        is_numbered(name, if self == Self::Opae { "intel-fpga-port." } else { "dfl-port." })
    }

    /// Whether an entry of a card is its management engine.
    pub(super) fn is_fme(self, name: &str) -> bool {
        is_numbered(name, if self == Self::Opae { "intel-fpga-fme." } else { "dfl-fme." })
    }
}

/// Whether an entry of a DFL management engine is a region that is programmed on its own.
pub(super) fn is_fme_region(name: &str) -> bool {
    is_numbered(name, "dfl-fme-region.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_whole() {
        assert!(Driver::Opae.is_card("intel-fpga-dev.0") && Driver::Dfl.is_card("region10"));
        assert!(Driver::Opae.is_port("intel-fpga-port.2") && Driver::Dfl.is_port("dfl-port.0"));
        assert!(Driver::Opae.is_fme("intel-fpga-fme.1") && Driver::Dfl.is_fme("dfl-fme.0"));
        for name in
            ["", "dir", "region", "region1a", "regions0", "region-1", "xregion0", "region0 ", "dfl-port.0", "region٣"]
        {
            assert!(!Driver::Dfl.is_card(name), "{name}");
        }
        for name in
            ["intel-fpga-dev0", "intel-fpga-devX0", "intel-fpga-dev.", "intel-fpga-dev.0.1", "intel-fpga-dev.-1"]
        {
            assert!(!Driver::Opae.is_card(name), "{name}");
        }
        assert!(
            is_fme_region("dfl-fme-region.3") && !is_fme_region("dfl-fme-region.3/") && !is_fme_region("dfl-fme.0")
        );
    }
}
