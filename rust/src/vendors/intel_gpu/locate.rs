//! Finds the cards of a host: entries of /sys/class/drm. Reads only links and ids, and therefore touches no hardware.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::{INTEL, VENDOR};
use crate::bus::pci;
use crate::device::{Found, NotExamined, Problem};
use crate::host::Host;
use crate::host::attribute::{Attribute, Cause};
use crate::host::directory::{Directory, is_numbered};

/// One DRM card made by Intel or by an unknown maker.
#[derive(Debug, Clone)]
pub(super) struct Card {
    /// `card0`.
    pub(super) name: String,
    /// The directory of its device: the directory of the PCI function, or the target of the card's `device`.
    pub(super) device: PathBuf,
    /// Address of its PCI function, if the class entry leads to one.
    pub(super) address: Option<String>,
}

impl Card {
    /// The key of the unit that is examined as one.
    pub(super) fn key(&self) -> &str {
        self.address.as_deref().unwrap_or(&self.name)
    }

    /// Whether the class entry leads to a directory that is not below a PCI function.
    pub(super) fn is_on_no_bus(&self) -> bool {
        self.address.is_none() && self.device.parent().is_some_and(|entry| Directory::open(entry).is_ok())
    }

    /// Whether the class still lists the card: the kernel removes the entry before the card.
    pub(super) fn is_listed(&self, host: &Host) -> bool {
        Directory::open(class_directory(host))
            .and_then(|class| class.names())
            .is_ok_and(|names| names.contains(&self.name))
    }
}

/// `/sys/class/drm`.
fn class_directory(host: &Host) -> PathBuf {
    host.sys("class/drm")
}

/// Every card in the class directory that may be made by Intel.
pub(super) fn cards(host: &Host, found: &mut Found) -> Vec<Card> {
    let path = class_directory(host);
    let read = Directory::open(&path).and_then(|directory| Ok((directory.names()?, directory)));
    let (names, directory) = match read {
        Ok(read) => read,
        // No DRM driver is loaded.
        Err(error) if error.cause == Cause::System(Errno::NOENT) => return Vec::new(),
        Err(error) => {
            found.problems.push(Problem::new(VENDOR, host.own_path(&path), error.cause));
            found.unseen.push(NotExamined::new(VENDOR, None));
            return Vec::new();
        }
    };
    let cards = names.into_iter().filter(|name| is_card(name));
    let cards = cards.map(|name| card(host, &path, directory.link(&name).ok().as_deref(), name));
    cards.filter(|card| !is_of_other_maker(card)).collect()
}

/// Whether the card is made by another vendor. Such cards are skipped, mainly because they may hang. The kernel knows
/// the id without asking the card.
fn is_of_other_maker(card: &Card) -> bool {
    let vendor = Attribute::read(card.device.join("vendor")).and_then(|vendor| vendor.hexadecimal());
    vendor.is_ok_and(|vendor| vendor != u64::from(INTEL))
}

/// A card behind a link. If the entry is a plain directory, as in trees written by hand, the card has no address.
fn card(host: &Host, class: &Path, link: Option<&Path>, name: String) -> Card {
    let path = link.map_or_else(|| class.join(&name), |target| host.behind_link(class, target));
    let function = pci::function_of(&path).filter(|function| path == function.join("drm").join(&name));
    Card {
        address: function.and_then(pci::address_of).map(str::to_owned),
        device: function.map_or_else(|| path.join("device"), Path::to_path_buf),
        name,
    }
}

/// Whether a whole name matches a card: `card0-DP-1` is a connector, `renderD128` a second node of its card.
fn is_card(name: &str) -> bool {
    is_numbered(name, "card")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_matched_whole() {
        assert!(is_card("card0") && is_card("card63"));
        for name in ["", "card", "card0-DP-1", "renderD128", "non_gpu_card", "version", "card٣", "xcard0"] {
            assert!(!is_card(name), "{name}");
        }
    }

    #[test]
    fn a_card_of_another_maker_is_not_looked_at_any_further() {
        let root = tempfile::tempdir().unwrap();
        for (name, vendor) in [("card0", "0x1002"), ("card1", "0x8086"), ("card2", "unreadable")] {
            let device = root.path().join("sys/class/drm").join(name).join("device");
            std::fs::create_dir_all(&device).unwrap();
            std::fs::write(device.join("vendor"), vendor).unwrap();
        }
        let mut found = Found::default();
        let mut names: Vec<String> =
            cards(&Host::new(root.path()), &mut found).into_iter().map(|card| card.name).collect();
        names.sort_unstable();
        assert_eq!((names, found), (vec!["card1".to_owned(), "card2".to_owned()], Found::default()));
    }

    #[test]
    fn only_a_link_to_a_card_of_a_pci_function_tells_an_address() {
        let (host, class) = (Host::new("/host"), Path::new("/host/sys/class/drm"));
        let located = |link: Option<&str>| {
            let card = card(&host, class, link.map(Path::new), "card0".to_owned());
            (card.address, card.device.to_string_lossy().into_owned())
        };
        let function = "/host/sys/devices/pci0000:00/0000:00:02.0";
        assert_eq!(
            located(Some("../../devices/pci0000:00/0000:00:02.0/drm/card0")),
            (Some("0000:00:02.0".to_owned()), function.to_owned())
        );
        for (link, device) in [
            (None, "/host/sys/class/drm/card0/device".to_owned()),
            (Some("../../devices/pci0000:00/0000:00:02.0/drm/card1"), format!("{function}/drm/card1/device")),
            (
                Some("../../devices/0000:0G:02.0/drm/card0"),
                "/host/sys/devices/0000:0G:02.0/drm/card0/device".to_owned(),
            ),
        ] {
            assert_eq!(located(link), (None, device));
        }
    }
}
