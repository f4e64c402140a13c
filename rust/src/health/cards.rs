//! A card: the unit that hangs together and is polled together, with the devices on it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::kept_file::ReadOnce;
use super::source::{Class, Count, Observation};
use super::sources::scan;
use super::watched::{Busy, Key, Moment, News, Watched};
use crate::device::Device;
use crate::finding::Finding;
use crate::host::Host;

/// Key of `Look::not_looked` if no source looked at the device.
pub const EVERY_SOURCE: &str = "";

/// The result of a poll for one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Vendor of the device.
    pub vendor: String,
    /// Card of the device.
    pub card: String,
    /// Id of the device.
    pub id: String,
    /// Findings, in their order.
    pub findings: Vec<Finding>,
    /// Sources that did not look, with the reason: their earlier findings stay valid. [`EVERY_SOURCE`] if none looked.
    pub not_looked: BTreeMap<&'static str, String>,
    /// Whether another look in a second finds out more.
    pub is_unsure: bool,
}

/// A device with findings that end after good looks, and the sources of these findings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Awaited {
    /// Vendor of the device.
    pub vendor: String,
    /// Id of the device.
    pub id: String,
    /// Names of the sources.
    pub sources: BTreeSet<String>,
}

/// A card with its devices and subjects.
#[derive(Debug)]
pub(super) struct Card {
    /// Name of the card; scans use the same key for the fence, so that one hang is waited for once.
    pub(super) key: Arc<str>,
    host: Host,
    /// Position among the cards, which take turns.
    place_in_line: u64,
    members: Vec<Member>,
    /// Every subject once, however many devices share it.
    pub(super) watched: Vec<Arc<Watched>>,
    /// Directories of its PCI functions, without the host root.
    functions: BTreeSet<String>,
}

/// A device of a card.
#[derive(Debug)]
struct Member {
    device: Arc<Device>,
    /// Indexes into the card's subjects.
    subjects: Vec<usize>,
}

impl Card {
    /// A card with these devices, each with its subjects. Those that are among the `known` ones are taken from there.
    pub(super) fn new(
        (key, place_in_line): (&str, u64),
        devices: Vec<(Arc<Device>, Vec<Watched>)>,
        host: &Host,
        known: &mut HashMap<Key, Arc<Watched>>,
    ) -> Self {
        let mut all = Vec::new();
        let mut places: HashMap<Key, usize> = HashMap::new();
        let mut place = |watched: Watched| {
            *places.entry(watched.key(key)).or_insert_with_key(|name| {
                all.push(known.remove(name).unwrap_or_else(|| Arc::new(watched)));
                all.len() - 1
            })
        };
        let mut member = |(device, subjects): (_, Vec<Watched>)| {
            let subjects = subjects.into_iter().map(&mut place).collect();
            Member { device, subjects }
        };
        let members: Vec<Member> = devices.into_iter().map(&mut member).collect();
        let functions = members.iter().flat_map(|member| &member.device.functions);
        let functions = functions.map(|function| function.path.to_string_lossy().into_owned()).collect();
        Self { key: key.into(), host: host.clone(), place_in_line, members, watched: all, functions }
    }

    /// Whether it has these devices, the same objects in the same order.
    pub(super) fn is_of(&self, devices: &[&Arc<Device>]) -> bool {
        let is_same = |(member, device): (&Member, &&Arc<Device>)| Arc::ptr_eq(&member.device, device);
        self.members.len() == devices.len() && self.members.iter().zip(devices).all(is_same)
    }

    /// Its position, and its devices with the places of their subjects.
    #[cfg(test)]
    pub(super) fn shape(&self) -> (u64, Vec<(&str, &[usize])>) {
        (self.place_in_line, self.members.iter().map(|member| (&*member.device.id, &*member.subjects)).collect())
    }

    /// The counts of its sources except `left_alone`, in order, summed over the functions of a device; and whether
    /// counts are missing because their subjects are being looked at.
    pub(super) fn counts(&self, left_alone: &BTreeSet<String>) -> (Vec<Count>, bool) {
        let mut numbers: BTreeMap<Count, u64> = BTreeMap::new();
        let mut is_partial = false;
        for (place, watched) in self.watched.iter().enumerate() {
            if !watched.is_counting || left_alone.contains(watched.source.name) {
                continue;
            }
            let Ok(counts) = watched.counts() else {
                is_partial = true;
                continue;
            };
            for one in counts {
                let number = one.number;
                for of_device in self.of_devices(place, Count { number: 0, ..one }) {
                    let sum = numbers.entry(of_device).or_default();
                    *sum = sum.saturating_add(number);
                }
            }
        }
        (numbers.into_iter().map(|(one, number)| Count { number, ..one }).collect(), is_partial)
    }

    /// The count with the address that it names, or once for each address of the devices that have this subject.
    fn of_devices(&self, place: usize, count: Count) -> Vec<Count> {
        if !count.pci_address.is_empty() {
            return vec![count];
        }
        let looks_at_it = self.members.iter().filter(|member| member.subjects.contains(&place));
        // Several addresses in one if the device has several functions.
        let addresses: BTreeSet<String> = looks_at_it.filter_map(|member| member.device.text("pci_address")).collect();
        let addresses = addresses.into_iter().filter(|address| !address.is_empty());
        addresses.map(|pci_address| Count { pci_address, ..count.clone() }).collect()
    }

    /// Number of files that stay open, if they may.
    pub(super) fn most_open(&self, is_logged: bool) -> u64 {
        self.watched.iter().filter(|watched| watched.is_frequent(is_logged)).count() as u64
    }

    /// Closes the files that may not stay open.
    pub(super) fn close_others(&self, keeps_open: bool, is_logged: bool) {
        for watched in self.watched.iter().filter(|watched| !keeps_open || !watched.is_frequent(is_logged)) {
            watched.close();
        }
    }

    /// Whether the card is at, above or below this sysfs path, given without the host root.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let lie_together = |function: &String| Path::new(function).starts_with(path) || path.starts_with(function);
        self.functions.iter().any(lie_together)
    }

    /// Indexes of all subjects.
    pub(super) fn everything(&self) -> Vec<usize> {
        (0..self.watched.len()).collect()
    }

    /// Indexes of the subjects that are nodes and other paths.
    pub(super) fn paths(&self) -> Vec<usize> {
        self.places(|watched| watched.source.reads == Class::Filesystem)
    }

    /// Indexes of the nodes and other paths at one of these places.
    pub(super) fn paths_at(&self, named: &[PathBuf]) -> Vec<usize> {
        let is_at = |watched: &Watched| named.iter().any(|path| path.as_os_str() == watched.file.as_str());
        self.places(|watched| watched.source.reads == Class::Filesystem && is_at(watched))
    }

    /// Indexes of the subjects that are due.
    pub(super) fn due(&self, moment: Moment) -> Vec<usize> {
        self.places(|watched| moment.round >= watched.due(self.place_in_line, moment.is_logged))
    }

    /// The round in which the first subject is due; `None` if it has none.
    pub(super) fn first_due(&self, is_logged: bool) -> Option<u64> {
        self.watched.iter().map(|watched| watched.due(self.place_in_line, is_logged)).min()
    }

    /// Indexes of the subjects whose good looks are needed before an awaited finding ends; all subjects after a probe
    /// timeout.
    pub(super) fn recovering(&self, awaited: &Awaited) -> Vec<usize> {
        if awaited.sources.contains(scan::probe_name()) {
            return self.everything();
        }
        let is_awaited = |member: &&Member| member.device.id == awaited.id && member.device.vendor == awaited.vendor;
        let places = self.members.iter().filter(is_awaited).flat_map(|member| member.subjects.iter().copied());
        let of_sources = places.filter(|&place| awaited.sources.contains(self.watched[place].source.name));
        of_sources.filter(|&place| !self.watched[place].has_finding()).collect()
    }

    fn places(&self, wanted: impl Fn(&Watched) -> bool) -> Vec<usize> {
        (0..self.watched.len()).filter(|&place| wanted(&self.watched[place])).collect()
    }

    /// Looks at the subjects with these indexes.
    pub(super) fn look(&self, places: &[usize], keeps_open: bool, moment: Moment) -> News {
        let reads = ReadOnce::default();
        let look = |&place: &usize| {
            let watched = &self.watched[place];
            let stays_open = keeps_open && watched.is_frequent(moment.is_logged);
            watched.look(&self.host, stays_open, &reads, moment)
        };
        places.iter().map(look).fold(News::default(), News::and)
    }

    /// The devices with findings or with sources that did not look, by the last looks. Fails immediately while a subject is
    /// being looked at.
    pub(super) fn looks(&self) -> Result<Vec<Look>, Busy> {
        let observations: Vec<Option<Observation>> =
            self.watched.iter().map(|watched| watched.observation()).collect::<Result<_, _>>()?;
        if observations.iter().all(Option::is_none) {
            return Ok(Vec::new());
        }
        let looks = self.members.iter().map(|member| {
            let mut look = self.nothing_of(member);
            for &place in &member.subjects {
                match &observations[place] {
                    None | Some(Observation::Fine | Observation::Nothing) => {}
                    Some(Observation::Seen(finding)) => look.findings.push(finding.clone()),
                    Some(observation @ (Observation::NotLooked(why) | Observation::Unsure(why))) => {
                        look.is_unsure |= matches!(observation, Observation::Unsure(_));
                        look.not_looked.entry(self.watched[place].source.name).or_insert_with(|| why.clone());
                    }
                }
            }
            look.findings.sort_unstable();
            look
        });
        Ok(looks.filter(|look| !look.findings.is_empty() || !look.not_looked.is_empty()).collect())
    }

    /// The looks to report while a look hangs.
    pub(super) fn overdue(&self, deadline: Duration) -> Vec<Look> {
        let hanging = self.watched.iter().find(|watched| watched.is_being_looked_at());
        let finding = scan::probe_timeout(deadline, hanging.map_or("", |watched| &watched.file));
        let looks = self.not_looked("the card does not answer").into_iter();
        looks.map(|look| Look { findings: vec![finding.clone()], ..look }).collect()
    }

    pub(super) fn not_looked(&self, why: &str) -> Vec<Look> {
        let not_looked = || BTreeMap::from([(EVERY_SOURCE, why.to_owned())]);
        self.members.iter().map(|member| Look { not_looked: not_looked(), ..self.nothing_of(member) }).collect()
    }

    fn nothing_of(&self, member: &Member) -> Look {
        Look {
            vendor: member.device.vendor.to_string(),
            card: self.key.to_string(),
            id: member.device.id.clone(),
            findings: Vec::new(),
            not_looked: BTreeMap::new(),
            is_unsure: false,
        }
    }
}
