//! A card: the unit that hangs together and is polled together, with the devices on it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::kept_file::{Base, Keeping, ReadOnce, Unchanged};
use super::replaced::Replaced;
use super::source::{Class, Count, Observation, Source};
use super::sources::scan;
use super::watched::{Busy, EACH, Key, Moment, Name, Watched};
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
    pub(super) key: Arc<str>,
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
    place_in_line: AtomicU64,
    /// Every subject once, however many devices share it.
    pub(super) watched: Vec<Arc<Watched>>,
    /// Directories of its PCI functions, without the host root.
    functions: BTreeSet<String>,
    /// Whether a later process may have to know something new about it.
    has_news: AtomicBool,
    /// Whether counts may have changed since they were last asked for.
    has_counted: AtomicBool,
    /// The last round in which [`Card::is_well`] was found: the subjects do not know of it.
    well_in: AtomicU64,
    /// The index of the subject whose file is being read meanwhile; any other number if none.
    reading: AtomicUsize,
}

const NONE: usize = usize::MAX;

/// What shows that subjects of each round are as they were when all was well: their files.
#[derive(Debug)]
pub(super) struct Well {
    /// See [`Replaced::changes`].
    changes: u64,
    files: Vec<(usize, Unchanged)>,
}

impl Well {
    /// Whether it shows something of the subject with this index.
    pub(super) fn is_of(&self, place: usize) -> bool {
        self.files.iter().any(|(of, _)| *of == place)
    }
}

/// The result of the last looks at a card and the rounds of the next ones. Until somebody looks again, a poll touches
/// only this: there may be thousands of cards, each with dozens of subjects.
#[derive(Debug)]
pub(super) struct LastResult {
    /// Devices with findings or with sources that did not look.
    pub(super) looks: Vec<Look>,
    /// What shows of subjects of each round, without a look at them, that it would find nothing new; `None` if of none.
    pub(super) well: Option<Arc<Well>>,
    /// The round in which each subject is due.
    due: Vec<u64>,
    /// The first of these.
    pub(super) first_due: u64,
}

impl LastResult {
    fn new(looks: Vec<Look>, well: Option<Well>, due: Vec<u64>) -> Self {
        let first_due = first(&due);
        Self { looks, well: well.map(Arc::new), due, first_due }
    }

    /// Indexes of the subjects that are due.
    pub(super) fn due(&self, moment: Moment) -> Vec<usize> {
        if moment.round < self.first_due {
            return Vec::new();
        }
        (0..).zip(&self.due).filter(|&(_, &round)| moment.round >= round).map(|(place, _)| place).collect()
    }

    /// The same result after a poll that has found nothing new: these subjects were looked at and are due in these
    /// rounds, and what is shown by its file was asked.
    pub(super) fn renewed(mut self, looked_at: Vec<(usize, u64)>, moment: Moment) -> Self {
        let asked = self.well.iter().flat_map(|well| &well.files).map(|(place, _)| (*place, moment.round + EACH));
        for (place, round) in asked.chain(looked_at) {
            self.due[place] = round;
        }
        Self { first_due: first(&self.due), ..self }
    }
}

fn first(due: &[u64]) -> u64 {
    due.iter().copied().min().unwrap_or(u64::MAX)
}

/// A device of a card.
#[derive(Debug)]
struct Member {
    device: Arc<Device>,
    /// Its attribute; several addresses if it has several functions.
    pci_address: String,
    /// Indexes into the card's subjects.
    subjects: Vec<usize>,
    /// Whether it is the same as before the card was made, and so are its subjects.
    is_kept: bool,
}

/// What subjects follow from, beside the device.
#[derive(Debug)]
pub(super) struct Surroundings<'s> {
    pub(super) sources: &'s [&'static dyn Source],
    pub(super) host: &'s Host,
    /// See [`Keeping::replaced`].
    pub(super) replaced: Option<&'s Arc<Replaced>>,
}

impl Surroundings<'_> {
    /// Whether the subjects of the device may be others although it is the same.
    fn decide_about(&self, device: &Device) -> bool {
        let asked = self.sources.iter().filter(|source| source.asks_the_host());
        asked.into_iter().any(|source| !source.subjects(self.host, device).is_empty())
    }

    fn subjects(&self, device: &Device) -> Vec<Arc<Watched>> {
        let of_source = |source: &&'static dyn Source| {
            let about = source.about();
            let subjects = source.subjects(self.host, device).into_iter();
            subjects.map(|subject| Arc::new(Watched::new(about, subject))).collect::<Vec<_>>()
        };
        self.sources.iter().flat_map(of_source).collect()
    }
}

/// The subjects of a card while it is put together, each once.
struct Places<'b> {
    watched: Vec<Arc<Watched>>,
    earlier: &'b [Arc<Watched>],
    /// Indexes of the earlier subjects among these; `None` if no device has it any more.
    moved: Vec<Option<usize>>,
    /// Indexes of the earlier subjects that devices have that are new, by name.
    known: HashMap<Name<'b>, usize>,
    /// Indexes of the other subjects of such devices.
    new: HashMap<Name<'b>, usize>,
}

impl<'b> Places<'b> {
    fn new(earlier: &'b [Arc<Watched>], of_new_devices: impl Iterator<Item = &'b Arc<Watched>>) -> Self {
        let names: HashSet<_> = of_new_devices.map(|watched| watched.name()).collect();
        let known = (0..).zip(earlier).filter(|(_, watched)| !names.is_empty() && names.contains(&watched.name()));
        let known = known.map(|(place, watched)| (watched.name(), place)).collect();
        Self { watched: Vec::new(), earlier, moved: vec![None; earlier.len()], known, new: HashMap::new() }
    }

    /// The place of an earlier subject.
    fn of_earlier(&mut self, earlier: usize) -> usize {
        self.moved[earlier].unwrap_or_else(|| {
            self.watched.push(Arc::clone(&self.earlier[earlier]));
            self.moved[earlier] = Some(self.watched.len() - 1);
            self.watched.len() - 1
        })
    }

    /// The place of a subject of a new device; `back` returns the same one of a device that was here before.
    fn of_new(&mut self, watched: &'b Arc<Watched>, back: impl FnOnce() -> Option<Arc<Watched>>) -> usize {
        if let Some(&earlier) = self.known.get(&watched.name()) {
            return self.of_earlier(earlier);
        }
        *self.new.entry(watched.name()).or_insert_with(|| {
            self.watched.push(back().unwrap_or_else(|| Arc::clone(watched)));
            self.watched.len() - 1
        })
    }

    /// All of them, and the earlier ones that are not among them.
    fn split(self) -> (Vec<Arc<Watched>>, Vec<Arc<Watched>>) {
        let left = self.earlier.iter().zip(self.moved).filter(|(_, place)| place.is_none());
        (self.watched, left.map(|(watched, _)| Arc::clone(watched)).collect())
    }
}

impl Card {
    /// A card with these devices, and the subjects of `before` that none of them has any more. A device that is the same
    /// object as in `before`, if that is known, has the same subjects; of the others those in `before` and in `absent` are
    /// taken over.
    pub(super) fn new(
        (key, place_in_line): (&str, u64),
        devices: &[&Arc<Device>],
        surroundings: &Surroundings<'_>,
        before: Option<(&Self, bool)>,
        absent: &mut HashMap<Key, Arc<Watched>>,
    ) -> (Self, Vec<Arc<Watched>>) {
        let same = before.filter(|(_, is_known)| *is_known).map(|(card, _)| &*card.devices);
        let same = same.unwrap_or_default().iter().map(|member| (Arc::as_ptr(&member.device), member));
        let same: HashMap<_, _> = same.collect();
        let kept =
            |device: &&Arc<Device>| same.get(&Arc::as_ptr(device)).filter(|_| !surroundings.decide_about(device));
        let kept: Vec<Option<&&Member>> = devices.iter().map(kept).collect();
        let of_new = |(device, kept): (&&Arc<Device>, &Option<_>)| match kept {
            None => surroundings.subjects(device),
            Some(_) => Vec::new(),
        };
        let new: Vec<Vec<Arc<Watched>>> = devices.iter().zip(&kept).map(of_new).collect();
        let earlier = before.map(|(card, _)| &*card.watched).unwrap_or_default();
        let mut places = Places::new(earlier, new.iter().flatten());
        let mut back = |watched: &Watched| if absent.is_empty() { None } else { absent.remove(&watched.key(key)) };
        let mut member = |((&device, kept), new): ((&&Arc<Device>, Option<&&Member>), _)| {
            let new: &Vec<Arc<Watched>> = new;
            let subjects = match kept {
                None => new.iter().map(|watched| places.of_new(watched, || back(watched))).collect(),
                Some(member) => member.subjects.iter().map(|&earlier| places.of_earlier(earlier)).collect(),
            };
            let pci_address = match kept {
                None => device.text("pci_address").unwrap_or_default(),
                Some(member) => member.pci_address.clone(),
            };
            Member { device: Arc::clone(device), pci_address, subjects, is_kept: kept.is_some() }
        };
        let members = devices.iter().zip(kept).zip(&new).map(&mut member).collect();
        let functions = devices.iter().flat_map(|device| &device.functions);
        let functions = functions.map(|function| function.path.to_string_lossy().into_owned()).collect();
        let base = devices.iter().flat_map(|device| &device.functions).next().map(|function| {
            let port = function.path.parent().filter(|port| pci::address_of(port).is_some());
            Base::new(surroundings.host.absolute(port.unwrap_or(&function.path)))
        });
        let (watched, left) = places.split();
        let card = Self {
            key: key.into(),
            devices: members,
            replaced: surroundings.replaced.map(Arc::clone),
            base,
            keeps_frequent: AtomicBool::new(false),
            keeps_seldom: AtomicBool::new(false),
            host: surroundings.host.clone(),
            place_in_line: AtomicU64::new(place_in_line),
            watched,
            functions,
            has_news: AtomicBool::new(true),
            has_counted: AtomicBool::new(false),
            well_in: AtomicU64::new(0),
            reading: AtomicUsize::new(NONE),
        };
        (card, left)
    }

    /// Whether it has these devices, the same objects in the same order, and their subjects are still the same.
    pub(super) fn is_of(&self, devices: &[&Arc<Device>], surroundings: &Surroundings<'_>) -> bool {
        let is_same = |(member, device): (&Member, &&Arc<Device>)| Arc::ptr_eq(&member.device, device);
        self.devices.len() == devices.len()
            && self.devices.iter().zip(devices).all(is_same)
            && !devices.iter().any(|device| surroundings.decide_about(device))
    }

    /// Gives it another position among the cards.
    pub(super) fn move_to(&self, place_in_line: u64) {
        self.place_in_line.store(place_in_line, Ordering::Relaxed);
    }

    /// Its position, and its devices with the places of their subjects.
    #[cfg(test)]
    pub(super) fn shape(&self) -> (u64, Vec<(&str, &[usize])>) {
        (self.place_in_line(), self.devices.iter().map(|member| (&*member.device.id, &*member.subjects)).collect())
    }

    /// Has it be in the middle of the read of a subject's file, in [`Card::is_well`].
    #[cfg(test)]
    pub(super) fn reads(&self, place: usize) {
        self.reading.store(place, Ordering::Relaxed);
    }

    fn place_in_line(&self) -> u64 {
        self.place_in_line.load(Ordering::Relaxed)
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

    /// Sets which files stay open, and closes the others. Returns whether frequent ones stay open no more.
    pub(super) fn keep_open(&self, (frequent, seldom): (bool, bool), is_logged: bool) -> bool {
        let kept_frequent = self.keeps_frequent.swap(frequent, Ordering::Relaxed);
        self.keeps_seldom.store(seldom, Ordering::Relaxed);
        for watched in self.watched.iter().filter(|watched| !self.keeps_open(watched, is_logged)) {
            watched.close();
        }
        if !frequent {
            self.base.iter().for_each(Base::close);
        }
        kept_frequent && !frequent
    }

    /// Whether the card is at, above or below this sysfs path, given without the host root.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let lie_together = |function: &String| Path::new(function).starts_with(path) || path.starts_with(function);
        self.functions.iter().any(lie_together)
    }

    /// Indexes of the subjects of devices that are not the same as before the card was made.
    pub(super) fn of_new_devices(&self) -> Vec<usize> {
        self.devices
            .iter()
            .filter(|member| !member.is_kept)
            .flat_map(|member| member.subjects.iter().copied())
            .collect()
    }

    /// Indexes of all subjects.
    pub(super) fn everything(&self) -> Vec<usize> {
        (0..self.watched.len()).collect()
    }

    /// Indexes of the subjects that are nodes and other paths.
    pub(super) fn paths(&self) -> Vec<usize> {
        self.places(|watched| watched.source.reads == Class::Filesystem)
    }

    /// Indexes of those at one of these places.
    pub(super) fn paths_at(&self, named: &[PathBuf]) -> Vec<usize> {
        let is_at = |watched: &Watched| named.iter().any(|path| path.as_os_str() == watched.file.as_str());
        self.places(|watched| watched.source.reads == Class::Filesystem && is_at(watched))
    }

    /// Indexes of the subjects that are due.
    pub(super) fn due(&self, moment: Moment) -> Vec<usize> {
        // A hanging subject is due, so that its hang is reported again.
        self.places(|watched| self.due_in(watched, moment.is_logged).is_none_or(|(round, _)| moment.round >= round))
    }

    /// These subjects with the rounds in which they are due. Fails while one is being looked at.
    pub(super) fn rounds(&self, places: &[usize], is_logged: bool) -> Result<Vec<(usize, u64)>, Busy> {
        let round = |&place: &usize| Ok((place, self.due_in(&self.watched[place], is_logged).ok_or(Busy)?.0));
        places.iter().map(round).collect()
    }

    /// The round in which a subject is due, and whether it is in each one; `None` while it is being looked at.
    fn due_in(&self, watched: &Watched, is_logged: bool) -> Option<(u64, bool)> {
        let (round, is_each_round) = watched.due(self.place_in_line(), is_logged)?;
        let after = if is_each_round { self.well_in.load(Ordering::Relaxed) + EACH } else { 0 };
        Some((round.max(after), is_each_round))
    }

    /// Whether these subjects of each round are as they were when all was well. The same reads as by looking at them, and a
    /// fraction of the memory.
    pub(super) fn is_well(&self, well: &Well, moment: Moment) -> bool {
        if self.changes() != well.changes {
            return false;
        }
        let is_so = well.files.iter().all(|(place, file)| {
            self.reading.store(*place, Ordering::Relaxed);
            file.is_so()
        });
        self.reading.store(NONE, Ordering::Relaxed);
        if is_so {
            self.well_in.store(moment.round, Ordering::Relaxed);
        }
        is_so
    }

    fn changes(&self) -> u64 {
        self.replaced.as_ref().map_or(0, |replaced| replaced.changes())
    }

    /// Indexes of subjects without a finding that must stay so before an awaited finding ends; all subjects after a
    /// probe timeout.
    pub(super) fn recovering(&self, awaited: &Awaited) -> Vec<usize> {
        if awaited.sources.contains(scan::probe_name()) {
            return self.everything();
        }
        let is_awaited = |member: &&Member| member.device.id == awaited.id && member.device.vendor == awaited.vendor;
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
        let due_in = |watched: &Arc<Watched>| self.due_in(watched, is_logged).ok_or(Busy);
        let due: Vec<_> = self.watched.iter().map(due_in).collect::<Result<_, _>>()?;
        let each_round = due.iter().enumerate().filter(|(_, (_, is_each_round))| *is_each_round);
        let changes = self.changes();
        let unchanged = |(place, _): (usize, _)| Some((place, self.watched[place].unchanged(changes)?));
        let files: Vec<_> = each_round.filter_map(unchanged).collect();
        let well = (!files.is_empty()).then_some(Well { changes, files });
        Ok(LastResult::new(self.looks()?, well, due.into_iter().map(|(round, _)| round).collect()))
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
        let hanging = hanging.or_else(|| self.watched.get(self.reading.load(Ordering::Relaxed)));
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
            vendor: member.device.vendor.to_string(),
            card: self.key.to_string(),
            id: member.device.id.clone(),
            findings: Vec::new(),
            not_looked: BTreeMap::new(),
            is_unsure: false,
        }
    }
}
