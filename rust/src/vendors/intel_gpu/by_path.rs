//! /dev/dri/by-path: udev's links to the nodes of each card, by PCI address.

use super::options::IntelGpuByPath;
use crate::device::Mount;
use crate::directory::Directory;
use crate::host::Host;

const DIRECTORY: &str = "/dev/dri/by-path";

/// What containers get of it.
#[derive(Debug)]
pub(super) struct ByPath {
    choice: IntelGpuByPath,
    /// Entries of the directory; `None` where there is none, or none is wanted.
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

    /// The mounts of a card.
    pub(super) fn mounts(&self, address: Option<&str>) -> Vec<Mount> {
        match (self.choice, &self.names, address) {
            (IntelGpuByPath::All, Some(_), _) => vec![mount(DIRECTORY.to_owned())],
            (IntelGpuByPath::Single, Some(names), Some(address)) => {
                let prefix = format!("pci-{address}-");
                let own = names.iter().filter(|name| name.starts_with(&prefix));
                own.map(|name| mount(format!("{DIRECTORY}/{name}"))).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn mount(path: String) -> Mount {
    Mount { host_path: path.clone(), container_path: path, read_only: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(choice: IntelGpuByPath, names: Option<&[&str]>, address: Option<&str>) -> Vec<String> {
        let names = names.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        ByPath { choice, names }.mounts(address).into_iter().map(|mount| mount.host_path).collect()
    }

    #[test]
    fn a_card_has_the_links_of_its_own_address() {
        let names = ["pci-0000:00:02.0-card", "pci-0000:00:02.0-render", "pci-0000:00:02.01-card", "platform-gpu"];
        let single = IntelGpuByPath::Single;
        let own = ["/dev/dri/by-path/pci-0000:00:02.0-card", "/dev/dri/by-path/pci-0000:00:02.0-render"];
        assert_eq!(mounted(single, Some(&names), Some("0000:00:02.0")), own);
        assert!(mounted(single, Some(&names), Some("0000:03:00.0")).is_empty());
        assert!(mounted(single, Some(&names), None).is_empty());
        assert!(mounted(single, None, Some("0000:00:02.0")).is_empty());
        assert_eq!(mounted(IntelGpuByPath::All, Some(&names), None), ["/dev/dri/by-path"]);
        assert!(mounted(IntelGpuByPath::None, Some(&names), Some("0000:00:02.0")).is_empty());
    }
}
