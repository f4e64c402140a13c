//! What hangs as one and is looked at as one: a card, with the devices on it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::count::Count;
use super::finding::Finding;
use super::kept_file::Keeping;
use super::read_once::ReadOnce;
use super::rounds::EACH;
use super::source::{About, Class, Sight, Source, Subject};
use super::sources::probe;
use super::watched::{Busy, Key, Moment, Watched};
use crate::device::Device;
use crate::host::Host;

/// What stands for all sources of a device where none looked at it.
pub const EVERY_SOURCE: &str = "";

/// What a poll says of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Of the device.
    pub vendor: String,
    /// Of the device.
    pub card: String,
    /// Of the device.
    pub id: String,
    /// What is the matter with it, in the order of findings.
    pub findings: Vec<Finding>,
    /// Why a source did not look, by the source's name: what it said before still stands. [`EVERY_SOURCE`] where none did.
    pub not_looked: BTreeMap<&'static str, String>,
    /// Whether another look in a second tells more.
    pub is_unsure: bool,
}

/// A device whose findings are to go after good looks, and the names of the sources that said them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Awaited {
    /// Of the device.
    pub vendor: String,
    /// Of the device.
    pub id: String,
    /// The sources.
    pub sources: BTreeSet<String>,
}

/// A card.
#[derive(Debug)]
pub(super) struct Card {
    /// Its name; the fence knows it by the same in scans, so that one hang is waited for once.
    pub(super) key: String,
    devices: Vec<Member>,
    /// See [`Keeping::check_links`].
    check_links: bool,
    /// Whether files that are read with each poll stay open.
    pub(super) keeps_urgent: bool,
    /// Whether others stay open, too.
    pub(super) keeps_seldom: bool,
    host: Host,
    /// Its place among the cards, which take turns.
    place_in_line: u64,
    /// Each subject once, however many devices share it.
    pub(super) watched: Vec<Arc<Watched>>,
    /// The directories of its PCI functions, as the host names them.
    functions: BTreeSet<String>,
    /// Whether a later process may have to know something else of it.
    has_news: AtomicBool,
    /// Whether numbers that are no findings may have been read since they were asked for.
    has_counted: AtomicBool,
}

/// How a card was left by the looks at it: it stays so until somebody looks again, and memory of it is all that is touched
/// meanwhile. There may be thousands of cards, each with dozens of subjects.
#[derive(Debug)]
pub(super) struct Standing {
    /// What there is to say.
    pub(super) said: Vec<Look>,
    /// The places of what is looked at in each round, and in which that is due.
    each_round: Vec<usize>,
    next: Option<u64>,
    /// In which round anything else is due.
    later: Option<u64>,
}

impl Standing {
    /// The places of what is due; `None` where that has to be asked of each subject.
    pub(super) fn due(&self, moment: Moment) -> Option<&[usize]> {
        let is_due = |round: Option<u64>| round.is_some_and(|round| moment.round >= round);
        (!is_due(self.later)).then(|| if is_due(self.next) { self.each_round.as_slice() } else { &[] })
    }

    /// The same, after a look in this moment at what is looked at in each round.
    pub(super) fn gone_on(self, moment: Moment) -> Self {
        Self { next: self.next.map(|_| moment.round + EACH), ..self }
    }
}

/// A device of a card.
#[derive(Debug)]
struct Member {
    vendor: String,
    id: String,
    /// As its attribute has it; several where it has several functions.
    pci_address: String,
    /// Places in the card's subjects.
    subjects: Vec<usize>,
}

impl Card {
    pub(super) fn new(
        (key, place_in_line): (String, u64),
        devices: &[&Device],
        (sources, host, check_links): (&[&'static dyn Source], &Host, bool),
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
        let devices = devices.iter().map(&mut member).collect();
        let has_news = AtomicBool::new(true);
        let has_counted = AtomicBool::new(false);
        Self {
            key,
            devices,
            check_links,
            keeps_urgent: false,
            keeps_seldom: false,
            host: host.clone(),
            place_in_line,
            watched,
            functions,
            has_news,
            has_counted,
        }
    }

    /// Has it asked once more what a later process has to know.
    pub(super) fn may_have_news(&self) {
        self.has_news.store(true, Ordering::Relaxed);
    }

    /// Whether a later process may have to know something else than when this was asked last.
    pub(super) fn take_news(&self) -> bool {
        self.has_news.swap(false, Ordering::Relaxed)
    }

    /// Has it asked once more what was counted of it.
    fn may_have_counted(&self) {
        self.has_counted.store(true, Ordering::Relaxed);
    }

    /// Whether numbers may have been read since this was asked last.
    pub(super) fn take_counted(&self) -> bool {
        self.has_counted.swap(false, Ordering::Relaxed)
    }

    /// The numbers that sources have read that are no findings, but for those of these sources, in order: of the functions of a
    /// device together. Those of what is being looked at are left for later.
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

    /// What a subject counts under an address: its own, or that of each device for which it is looked at.
    fn of_devices(&self, place: usize, count: Count) -> Vec<Count> {
        if !count.pci_address.is_empty() {
            return vec![count];
        }
        let looks_at_it = |member: &&Member| member.subjects.contains(&place) && !member.pci_address.is_empty();
        let addresses = self.devices.iter().filter(looks_at_it).map(|member| member.pci_address.as_str());
        let addresses: BTreeSet<&str> = addresses.collect();
        addresses.into_iter().map(|address| Count { pci_address: address.to_owned(), ..count.clone() }).collect()
    }

    /// How many descriptors it keeps open at most: for what is urgent, or for all else.
    pub(super) fn most_open(&self, is_urgent: bool) -> u64 {
        self.watched.iter().filter(|watched| watched.is_urgent == is_urgent).map(|watched| watched.most_open).sum()
    }

    /// Whether it is, is above or is below what the host calls this.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let lie_together = |function: &String| Path::new(function).starts_with(path) || path.starts_with(function);
        self.functions.iter().any(lie_together)
    }

    /// The places of all subjects.
    pub(super) fn everything(&self) -> Vec<usize> {
        (0..self.watched.len()).collect()
    }

    /// The places of its nodes and other paths.
    pub(super) fn paths(&self) -> Vec<usize> {
        self.places(|watched| watched.source.reads == Class::Filesystem)
    }

    /// The places of what is due.
    pub(super) fn due(&self, moment: Moment) -> Vec<usize> {
        // What hangs is due, so that it is not forgotten that it does.
        self.places(|watched| watched.due(self.place_in_line).is_none_or(|(round, _)| moment.round >= round))
    }

    /// The places of what has been found in order and has to be so again before a finding goes; of all, where a read hung.
    pub(super) fn recovering(&self, awaited: &Awaited) -> Vec<usize> {
        if awaited.sources.contains(probe::name()) {
            return self.everything();
        }
        let is_awaited = |member: &&Member| member.id == awaited.id && member.vendor == awaited.vendor;
        let places = self.devices.iter().filter(is_awaited).flat_map(|member| member.subjects.iter().copied());
        let of_sources = places.filter(|&place| awaited.sources.contains(self.watched[place].source.name));
        of_sources.filter(|&place| !self.watched[place].stands()).collect()
    }

    fn places(&self, wanted: impl Fn(&Watched) -> bool) -> Vec<usize> {
        (0..self.watched.len()).filter(|&place| wanted(&self.watched[place])).collect()
    }

    /// Looks at the subjects in these places; whether a look came to something else than the one before.
    pub(super) fn look(&self, places: &[usize], moment: Moment) -> bool {
        let mut is_other = false;
        let read_once = ReadOnce::default();
        for &place in places {
            let watched = &self.watched[place];
            let open = self.keeps_open(watched);
            let keeping = Keeping { open, check_links: self.check_links, read_once: Some(&read_once) };
            let news = watched.look(&self.host, keeping, moment);
            is_other |= news.sight;
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
    fn keeps_open(&self, watched: &Watched) -> bool {
        if watched.is_urgent { self.keeps_urgent } else { self.keeps_seldom }
    }

    /// Closes the files that do not stay open, which may be open from a time when they did.
    pub(super) fn close_others(&self) {
        for watched in self.watched.iter().filter(|watched| !self.keeps_open(watched)) {
            watched.close();
        }
    }

    /// How the last looks at its subjects have left it; an error, at once, while one of them is being looked at.
    pub(super) fn standing(&self) -> Result<Standing, Busy> {
        let sooner = |so_far: &mut Option<u64>, due: u64| *so_far = Some(so_far.map_or(due, |one| one.min(due)));
        let mut standing = Standing { said: self.said()?, each_round: Vec::new(), next: None, later: None };
        for (place, watched) in self.watched.iter().enumerate() {
            let (due, is_each_round) = watched.due(self.place_in_line).ok_or(Busy)?;
            if is_each_round {
                standing.each_round.push(place);
                sooner(&mut standing.next, due);
            } else {
                sooner(&mut standing.later, due);
            }
        }
        Ok(standing)
    }

    /// What the last looks at its subjects came to, of the devices that there is something to say about.
    fn said(&self) -> Result<Vec<Look>, Busy> {
        let sights: Vec<Option<Sight>> = self.watched.iter().map(|watched| watched.said()).collect::<Result<_, _>>()?;
        if sights.iter().all(Option::is_none) {
            return Ok(Vec::new());
        }
        let looks = self.devices.iter().map(|member| {
            let mut look = self.nothing_of(member);
            for &place in &member.subjects {
                match &sights[place] {
                    None | Some(Sight::Fine | Sight::Nothing) => {}
                    Some(Sight::Seen(finding)) => look.findings.push(finding.clone()),
                    Some(sight @ (Sight::NotLooked(why) | Sight::Unsure(why))) => {
                        look.is_unsure |= matches!(sight, Sight::Unsure(_));
                        look.not_looked.entry(self.watched[place].source.name).or_insert_with(|| why.clone());
                    }
                }
            }
            look.findings.sort_unstable();
            look
        });
        Ok(looks.filter(|look| !look.findings.is_empty() || !look.not_looked.is_empty()).collect())
    }

    /// What is said of its devices while a look hangs.
    pub(super) fn overdue(&self, deadline: Duration) -> Vec<Look> {
        let hanging = self.watched.iter().find(|watched| watched.is_being_looked_at());
        let finding = probe::timeout(deadline, hanging.map_or("", |watched| &watched.file));
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
