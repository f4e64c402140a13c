//! /dev/dri/by-path: udev's links to the nodes of each card, by PCI address.

use super::options::IntelGpuByPath;
use crate::device::HostPath;
use crate::host::Host;
use crate::host::directory::Directory;

const DIRECTORY: &str = "/dev/dri/by-path";

/// What containers get of it.
#[derive(Debug)]
pub(super) struct ByPath {
    choice: IntelGpuByPath,
    /// Entries of the directory; `None` if it is missing or not wanted.
    names: Option<Vec<String>>,
}

impl ByPath {
    /// Reads what there is now: links come and go with the cards.
    pub(super) fn read(host: &Host, choice: IntelGpuByPath) -> Self {
        let read = || Directory::open(host.absolute(DIRECTORY)).and_then(|directory| directory.names()).ok();
        Self { choice, names: (choice != IntelGpuByPath::None).then(read).flatten() }
    }

    /// Whether a card's own links are wanted, which takes its address.
    pub(super) fn needs_address(&self) -> bool {
        self.choice == IntelGpuByPath::Single && self.names.is_some()
    }

    /// The links of a card.
    pub(super) fn links(&self, address: Option<&str>) -> Vec<HostPath> {
        match (self.choice, &self.names, address) {
            (IntelGpuByPath::All, Some(_), _) => vec![HostPath::file(DIRECTORY)],
            (IntelGpuByPath::Single, Some(names), Some(address)) => {
                let prefix = format!("pci-{address}-");
                let own = names.iter().filter(|name| name.starts_with(&prefix));
                own.map(|name| HostPath::file(format!("{DIRECTORY}/{name}"))).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked(choice: IntelGpuByPath, names: Option<&[&str]>, address: Option<&str>) -> Vec<String> {
        let names = names.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        ByPath { choice, names }.links(address).into_iter().map(|link| link.path).collect()
    }

    #[test]
    fn a_card_has_the_links_of_its_own_address() {
        let names = ["pci-0000:00:02.0-card", "pci-0000:00:02.0-render", "pci-0000:00:02.01-card", "platform-gpu"];
        let single = IntelGpuByPath::Single;
        let own = ["/dev/dri/by-path/pci-0000:00:02.0-card", "/dev/dri/by-path/pci-0000:00:02.0-render"];
        assert_eq!(linked(single, Some(&names), Some("0000:00:02.0")), own);
        assert!(linked(single, Some(&names), Some("0000:03:00.0")).is_empty());
        assert!(linked(single, Some(&names), None).is_empty());
        assert!(linked(single, None, Some("0000:00:02.0")).is_empty());
        assert_eq!(linked(IntelGpuByPath::All, Some(&names), None), ["/dev/dri/by-path"]);
        assert!(linked(IntelGpuByPath::None, Some(&names), Some("0000:00:02.0")).is_empty());
    }
}
