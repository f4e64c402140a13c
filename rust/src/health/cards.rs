//! A card: the unit that hangs together and is polled together, with the devices on it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::kept_file::{Base, Keeping, ReadOnce};
use super::replaced::Replaced;
use super::source::{About, Class, Count, Observation, Source, Subject};
use super::sources::scan;
use super::watched::{Busy, EACH, Key, Moment, Watched};
use crate::bus::pci;
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
    pub(super) key: String,
    devices: Vec<Member>,
    /// See [`Keeping::replaced`].
    replaced: Option<Arc<Replaced>>,
    /// The directory of its first function, or of the port above that, whose counters are read with it.
    base: Option<Base>,
    /// Whether the files that are read in each poll stay open, and the directory.
    pub(super) keeps_frequent: AtomicBool,
    /// Whether all other files stay open, too.
    pub(super) keeps_seldom: AtomicBool,
    host: Host,
    /// Position among the cards, which take turns.
    place_in_line: u64,
    /// Every subject once, however many devices share it.
    pub(super) watched: Vec<Arc<Watched>>,
    /// Directories of its PCI functions, without the host root.
    functions: BTreeSet<String>,
    /// Whether a later process may have to know something new about it.
    has_news: AtomicBool,
    /// Whether counts may have changed since they were last asked for.
    has_counted: AtomicBool,
}

/// The result of the last looks at a card and the rounds of the next ones. Until somebody looks again, a poll touches
/// only this: there may be thousands of cards, each with dozens of subjects.
#[derive(Debug)]
pub(super) struct LastResult {
    /// Devices with findings or with sources that did not look.
    pub(super) looks: Vec<Look>,
    /// Indexes of the subjects that are looked at in each round, and the round in which they are due.
    each_round: Vec<usize>,
    next: Option<u64>,
    /// The round in which any other subject is due.
    later: Option<u64>,
}

impl LastResult {
    /// Indexes of the subjects that are due; `None` if each subject must be asked.
    pub(super) fn due(&self, moment: Moment) -> Option<&[usize]> {
        let is_due = |round: Option<u64>| round.is_some_and(|round| moment.round >= round);
        (!is_due(self.later)).then(|| if is_due(self.next) { self.each_round.as_slice() } else { &[] })
    }

    /// The first round in which a subject is due.
    pub(super) fn due_in(&self) -> u64 {
        self.next.into_iter().chain(self.later).min().unwrap_or(u64::MAX)
    }

    /// The same result after looking, in this moment, at the subjects of each round.
    pub(super) fn renewed(self, moment: Moment) -> Self {
        Self { next: self.next.map(|_| moment.round + EACH), ..self }
    }
}

/// A device of a card.
#[derive(Debug)]
struct Member {
    vendor: String,
    id: String,
    /// Its attribute; several addresses if it has several functions.
    pci_address: String,
    /// Indexes into the card's subjects.
    subjects: Vec<usize>,
}

impl Card {
    pub(super) fn new(
        (key, place_in_line): (String, u64),
        devices: &[&Device],
        (sources, host, replaced): (&[&'static dyn Source], &Host, Option<&Arc<Replaced>>),
        known: &mut HashMap<Key, Arc<Watched>>,
    ) -> Self {
        let mut places = HashMap::new();
        let mut watched = Vec::new();
        let mut place = |source: &'static About, subject: Subject| {
            let subject = Watched::new(source, subject);
            *places.entry(subject.key(&key)).or_insert_with_key(|key| {
                watched.push(known.remove(key).unwrap_or_else(|| Arc::new(subject)));
                watched.len() - 1
            })
        };
        let mut member = |device: &&Device| {
            let of_source = |source: &&'static dyn Source| {
                let about = source.about();
                source.subjects(host, device).into_iter().map(move |subject| (about, subject)).collect::<Vec<_>>()
            };
            let subjects = sources.iter().flat_map(of_source).map(|(about, subject)| place(about, subject)).collect();
            let pci_address = device.text("pci_address").unwrap_or_default();
            Member { vendor: device.vendor.to_string(), id: device.id.clone(), pci_address, subjects }
        };
        let functions = devices.iter().flat_map(|device| &device.functions);
        let functions = functions.map(|function| function.path.to_string_lossy().into_owned()).collect();
        let base = devices.iter().flat_map(|device| &device.functions).next().map(|function| {
            let port = function.path.parent().filter(|port| pci::address_of(port).is_some());
            Base::new(host.absolute(port.unwrap_or(&function.path)))
        });
        let devices = devices.iter().map(&mut member).collect();
        let has_news = AtomicBool::new(true);
        let has_counted = AtomicBool::new(false);
        Self {
            key,
            devices,
            replaced: replaced.map(Arc::clone),
            base,
            keeps_frequent: AtomicBool::new(false),
            keeps_seldom: AtomicBool::new(false),
            host: host.clone(),
            place_in_line,
            watched,
            functions,
            has_news,
            has_counted,
        }
    }

    /// Makes [`Card::take_news`] return true once more.
    pub(super) fn may_have_news(&self) {
        self.has_news.store(true, Ordering::Relaxed);
    }

    /// Whether a later process may have to know something new since the last call.
    pub(super) fn take_news(&self) -> bool {
        self.has_news.swap(false, Ordering::Relaxed)
    }

    /// Makes [`Card::take_counted`] return true once more.
    fn may_have_counted(&self) {
        self.has_counted.store(true, Ordering::Relaxed);
    }

    /// Whether counts may have changed since the last call.
    pub(super) fn take_counted(&self) -> bool {
        self.has_counted.swap(false, Ordering::Relaxed)
    }

    /// The counts of its sources except `left_alone`, in order, summed over the functions of a device. Counts of
    /// subjects that are being looked at are left for later.
    pub(super) fn counts(&self, left_alone: &BTreeSet<String>) -> Vec<Count> {
        let mut numbers: BTreeMap<Count, u64> = BTreeMap::new();
        for (place, watched) in self.watched.iter().enumerate() {
            if !watched.is_counting || left_alone.contains(watched.source.name) {
                continue;
            }
            let Ok(counts) = watched.counts() else {
                self.may_have_counted();
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
        numbers.into_iter().map(|(one, number)| Count { number, ..one }).collect()
    }

    /// The count with the address that it names, or once for each device that has this subject.
    fn of_devices(&self, place: usize, count: Count) -> Vec<Count> {
        if !count.pci_address.is_empty() {
            return vec![count];
        }
        let looks_at_it = |member: &&Member| member.subjects.contains(&place) && !member.pci_address.is_empty();
        let addresses = self.devices.iter().filter(looks_at_it).map(|member| member.pci_address.as_str());
        let addresses: BTreeSet<&str> = addresses.collect();
        addresses.into_iter().map(|address| Count { pci_address: address.to_owned(), ..count.clone() }).collect()
    }

    /// Number of descriptors that it keeps open at most: its directory's and those of frequent subjects, and those of all
    /// others.
    pub(super) fn most_open(&self, is_logged: bool) -> (u64, u64) {
        let is_frequent = |watched: &&Arc<Watched>| watched.is_frequent(is_logged);
        let frequent: u64 = self.watched.iter().filter(is_frequent).map(|watched| watched.most_open).sum();
        let all: u64 = self.watched.iter().map(|watched| watched.most_open).sum();
        (frequent + u64::from(self.base.is_some()), all - frequent)
    }

    /// Sets which files stay open, and closes the others.
    pub(super) fn keep_open(&self, (frequent, seldom): (bool, bool), is_logged: bool) {
        self.keeps_frequent.store(frequent, Ordering::Relaxed);
        self.keeps_seldom.store(seldom, Ordering::Relaxed);
        for watched in self.watched.iter().filter(|watched| !self.keeps_open(watched, is_logged)) {
            watched.close();
        }
        if !frequent {
            self.base.iter().for_each(Base::close);
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

    /// Indexes of the subjects that are due.
    pub(super) fn due(&self, moment: Moment) -> Vec<usize> {
        // A hanging subject is due, so that its hang is reported again.
        self.places(|watched| {
            watched.due(self.place_in_line, moment.is_logged).is_none_or(|(round, _)| moment.round >= round)
        })
    }

    /// Indexes of subjects without a finding that must stay so before an awaited finding ends; all subjects after a
    /// probe timeout.
    pub(super) fn recovering(&self, awaited: &Awaited) -> Vec<usize> {
        if awaited.sources.contains(scan::probe_name()) {
            return self.everything();
        }
        let is_awaited = |member: &&Member| member.id == awaited.id && member.vendor == awaited.vendor;
        let places = self.devices.iter().filter(is_awaited).flat_map(|member| member.subjects.iter().copied());
        let of_sources = places.filter(|&place| awaited.sources.contains(self.watched[place].source.name));
        of_sources.filter(|&place| !self.watched[place].has_finding()).collect()
    }

    fn places(&self, wanted: impl Fn(&Watched) -> bool) -> Vec<usize> {
        (0..self.watched.len()).filter(|&place| wanted(&self.watched[place])).collect()
    }

    /// Looks at the subjects with these indexes. Returns whether an observation has changed.
    pub(super) fn look(&self, places: &[usize], moment: Moment) -> bool {
        let mut is_other = false;
        let read_once = ReadOnce::default();
        for &place in places {
            let watched = &self.watched[place];
            let keeping = Keeping {
                open: self.keeps_open(watched, moment.is_logged),
                replaced: self.replaced.as_deref(),
                base: self.base.as_ref().filter(|_| self.keeps_frequent.load(Ordering::Relaxed)),
                read_once: Some(&read_once),
            };
            let news = watched.look(&self.host, keeping, moment);
            is_other |= news.observation;
            if news.memory {
                self.may_have_news();
            }
            if news.counts {
                self.may_have_counted();
            }
        }
        is_other
    }

    /// Whether the files of a subject stay open between two looks.
    fn keeps_open(&self, watched: &Watched, is_logged: bool) -> bool {
        let keeps = if watched.is_frequent(is_logged) { &self.keeps_frequent } else { &self.keeps_seldom };
        keeps.load(Ordering::Relaxed)
    }

    /// The result of the last looks. Fails immediately while a subject is being looked at.
    pub(super) fn last_result(&self, is_logged: bool) -> Result<LastResult, Busy> {
        let sooner = |so_far: &mut Option<u64>, due: u64| *so_far = Some(so_far.map_or(due, |one| one.min(due)));
        let mut last_result = LastResult { looks: self.looks()?, each_round: Vec::new(), next: None, later: None };
        for (place, watched) in self.watched.iter().enumerate() {
            let (due, is_each_round) = watched.due(self.place_in_line, is_logged).ok_or(Busy)?;
            if is_each_round {
                last_result.each_round.push(place);
                sooner(&mut last_result.next, due);
            } else {
                sooner(&mut last_result.later, due);
            }
        }
        Ok(last_result)
    }

    /// The devices with findings or with sources that did not look, by the last looks.
    fn looks(&self) -> Result<Vec<Look>, Busy> {
        let observations: Vec<Option<Observation>> =
            self.watched.iter().map(|watched| watched.observation()).collect::<Result<_, _>>()?;
        if observations.iter().all(Option::is_none) {
            return Ok(Vec::new());
        }
        let looks = self.devices.iter().map(|member| {
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
        self.devices.iter().map(|member| Look { not_looked: not_looked(), ..self.nothing_of(member) }).collect()
    }

    fn nothing_of(&self, member: &Member) -> Look {
        Look {
            vendor: member.vendor.clone(),
            card: self.key.clone(),
            id: member.id.clone(),
            findings: Vec::new(),
            not_looked: BTreeMap::new(),
            is_unsure: false,
        }
    }
}
