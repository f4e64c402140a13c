//! Polls the devices that the last scan found: each subject as often as its class of read allows, and immediately if an
//! event concerns it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::cards::{Awaited, Card, LastResult, Look, Surroundings, Well};
use super::replaced::Replaced;
use super::source::{About, Count, Source};
use super::sources;
use super::sources::device_dump::{self, DUMPS};
use super::sources::scan;
use super::watched::{Busy, EACH, Key, Moment, Rounds, Watched};
use crate::device::Device;
use crate::fence::{FULL, Fence, Outcome};
use crate::finding::Finding;
use crate::host::Host;

/// Why a poll is made, and so what it looks at.
#[derive(Debug, Clone)]
pub enum PollReason {
    /// Anything may have changed: looks at everything.
    Anything,
    /// A regular poll: looks at what is due, and at subjects of awaited findings, by card.
    Regular(HashMap<String, Vec<Awaited>>),
    /// Events: look at what they concern.
    Events {
        /// Paths without the host root: everything on cards at, above or below them in sysfs, and these nodes and other
        /// paths themselves.
        named: Vec<PathBuf>,
        /// Whether nodes came or went: all nodes and other paths.
        paths: bool,
    },
}

/// Rounds from one regular poll to the next, at most, while no source looks in each round.
const LONGEST_PAUSE: u64 = 5;

/// Cards that are too few for a poll of all of them to take long.
const MOST_TOGETHER: usize = 64;

/// Cards whose files are too few to watch directories for.
const FEW: usize = 16;

/// Card, source, file and variant of a subject.
pub type Place = (String, String, String, String);

/// What a later process must know about this boot, by subject, in each source's own format.
pub type Memories = BTreeMap<Place, String>;

/// A card, and the result of its last looks; `None` if each of its subjects must be asked.
#[derive(Debug)]
struct Polled {
    card: Arc<Card>,
    last_result: Option<LastResult>,
    /// Indexes of the subjects of devices that no poll has looked at since they were found.
    new: Vec<usize>,
    /// Counts of the card when they were last asked for: cards take turns, and most counts are unchanged.
    counts: Vec<Count>,
}

impl Polled {
    fn new(card: Card) -> Self {
        let new = card.of_new_devices();
        Self { card: Arc::new(card), last_result: None, new, counts: Vec::new() }
    }
}

/// What looking at a card has brought.
enum Found {
    /// Nothing new; the subjects that were looked at, and the rounds in which they are due.
    Nothing(Vec<(usize, u64)>),
    Result(LastResult),
}

/// The subjects to look at on a card.
struct Wanted {
    card: Arc<Card>,
    places: Vec<usize>,
    /// Whether these are the routine subjects of the last result, which stays valid if nothing has changed.
    is_routine: bool,
    /// What may show of these that nothing has.
    well: Option<Arc<Well>>,
}

/// The watched devices, card by card.
#[derive(Debug)]
pub struct Poller {
    host: Host,
    fence: Arc<Fence>,
    /// Whether open files were replaced, if the host's sysfs is not the kernel's.
    replaced: Arc<Replaced>,
    sources: Vec<&'static dyn Source>,
    devices: Vec<Arc<Device>>,
    /// Those of them that the last scan could not examine.
    kept: Vec<Arc<Device>>,
    cards: Vec<Polled>,
    /// Subjects of devices that the last scan did not find; their counts go on if the devices come back.
    absent: HashMap<Key, Arc<Watched>>,
    /// Includes subjects that are not watched at present.
    memories: Memories,
    /// Sources that are not looked at for now.
    left_alone: BTreeSet<String>,
    /// Whether the cards or the excluded sources have changed since counts were last asked for.
    counts_others: bool,
    rounds: Rounds,
    /// See [`Poller::reads_kernel_log`].
    is_logged: bool,
}

impl Poller {
    /// A poller that watches nothing.
    #[must_use]
    pub fn new(host: Host, fence: Arc<Fence>) -> Self {
        Self {
            host,
            fence,
            replaced: Arc::default(),
            sources: sources::ALL.to_vec(),
            devices: Vec::new(),
            kept: Vec::new(),
            cards: Vec::new(),
            absent: HashMap::new(),
            memories: Memories::new(),
            left_alone: BTreeSet::new(),
            counts_others: false,
            rounds: Rounds::default(),
            is_logged: false,
        }
    }

    /// Lets these sources read nothing, and all others read.
    pub fn switch_off(&mut self, off: &BTreeSet<String>) {
        let is_off = |source: &&dyn Source| off.contains(source.about().name);
        let sources: Vec<_> = sources::ALL.iter().copied().filter(|source| !is_off(source)).collect();
        if !sources.iter().map(|source| source.about().name).eq(self.sources.iter().map(|source| source.about().name)) {
            self.sources = sources;
            self.make_cards(false);
        }
    }

    /// Whether somebody reads the kernel log, and has looked at what it reports: it is then looked at less often.
    pub fn reads_kernel_log(&mut self, is_logged: bool) {
        if std::mem::replace(&mut self.is_logged, is_logged) != is_logged {
            self.cards.iter_mut().for_each(|polled| polled.last_result = None);
            self.keep_open();
        }
    }

    /// Watches from now on the devices that a scan has found, those of earlier scans that it could not examine unless it
    /// has found them in another form, and no others. Files still needed stay open, and counts go on. A card whose devices
    /// are the same objects as before stays as it is, and of another one only other devices are looked into. The next poll
    /// looks, whatever its reason, at other devices, and at cards with a device that the scan before had examined.
    pub fn watch(&mut self, found: &[Arc<Device>], kept: &[Arc<Device>]) {
        let keys: HashSet<_> =
            if kept.is_empty() { HashSet::new() } else { found.iter().map(|one| one.key()).collect() };
        let kept: Vec<_> = kept.iter().filter(|device| !keys.contains(&device.key())).cloned().collect();
        self.devices = found.iter().chain(&kept).cloned().collect();
        self.make_cards(true);
        let before: HashSet<_> = self.kept.iter().map(Arc::as_ptr).collect();
        let newly_kept = kept.iter().filter(|device| !before.contains(&Arc::as_ptr(device)));
        let cards: HashSet<_> = newly_kept.map(|device| &*device.card).collect();
        for polled in self.cards.iter_mut().filter(|polled| cards.contains(&*polled.card.key)) {
            polled.new = polled.card.everything();
        }
        self.kept = kept;
    }

    /// Makes the cards of the devices. With `has_same_sources`, what is as before stays.
    fn make_cards(&mut self, has_same_sources: bool) {
        let mut before: HashMap<_, _> =
            self.cards.drain(..).map(|polled| (Arc::clone(&polled.card.key), polled)).collect();
        let mut left = Vec::new();
        let replaced = (!self.host.has_kernel_sysfs()).then_some(&self.replaced);
        let surroundings = Surroundings { sources: &self.sources, host: &self.host, replaced };
        let by_card = by_card(&self.devices);
        if let Some(replaced) = replaced.filter(|_| by_card.len() > FEW) {
            replaced.start();
        }
        // Few cards look together, so that there are pauses between their looks.
        let step = if by_card.len() > MOST_TOGETHER { EACH } else { LONGEST_PAUSE };
        for (place_in_line, (key, devices)) in (0..).map(|place| place * step).zip(by_card) {
            let earlier = before.remove(key);
            let same = earlier.as_ref().filter(|polled| has_same_sources && polled.card.is_of(&devices, &surroundings));
            if let Some(polled) = same {
                polled.card.move_to(place_in_line);
                self.cards.extend(earlier);
                continue;
            }
            // What no poll has looked at yet is as new as before.
            let is_known = |polled: &Polled| has_same_sources && polled.new.is_empty();
            let earlier = earlier.as_ref().map(|polled| (&*polled.card, is_known(polled)));
            let (card, gone) = Card::new((key, place_in_line), &devices, &surroundings, earlier, &mut self.absent);
            left.extend(gone.into_iter().map(|watched| (watched.key(key), watched)));
            if !card.watched.is_empty() {
                remind(&card, &self.memories);
                self.cards.push(Polled::new(card));
            }
        }
        for Polled { card, .. } in before.into_values() {
            left.extend(card.watched.iter().map(|watched| (watched.key(&card.key), Arc::clone(watched))));
        }
        self.keep_open();
        self.absent.extend(left);
        for watched in self.absent.values() {
            watched.close();
        }
        self.absent.retain(|_, watched| watched.is_worth_keeping());
        self.counts_others = true;
    }

    /// Polls, and returns the devices with findings or with sources that did not look; subjects that are not looked at
    /// now keep their last observation. A card that hangs is overdue, and the others do not wait for it. `beat` is
    /// called every half second meanwhile.
    pub fn poll(&mut self, reason: &PollReason, beat: &dyn Fn()) -> Vec<Look> {
        self.poll_at(Instant::now(), reason, beat)
    }

    fn poll_at(&mut self, now: Instant, reason: &PollReason, beat: &dyn Fn()) -> Vec<Look> {
        if matches!(reason, PollReason::Regular(_)) {
            self.rounds.go_on(now);
        }
        let moment = Moment { round: self.rounds.now(), is_logged: self.is_logged, now };
        self.replaced.look();
        let wanted: Vec<_> = self.cards.iter().map(|polled| self.wanted(polled, reason, moment)).collect();
        let looked_at: Vec<_> = wanted.iter().map(Option::is_some).collect();
        let deadline = self.fence.deadline();
        let key = |wanted: &Wanted| Arc::clone(&wanted.card.key);
        let look = move |wanted: Wanted| {
            let Wanted { card, mut places, is_routine, well } = wanted;
            let is_as_it_was = well.is_none_or(|well| {
                let is_well = card.is_well(&well, moment);
                places.retain(|&place| !(is_well && well.is_of(place)));
                is_well
            });
            let is_other = card.look(&places, moment);
            if is_routine && is_as_it_was && !is_other {
                card.rounds(&places, moment.is_logged).map(Found::Nothing)
            } else {
                card.last_result(moment.is_logged).map(Found::Result)
            }
        };
        let wanted = wanted.into_iter().flatten().collect();
        let mut outcomes = self.fence.each_within(deadline, wanted, key, look, beat).into_iter();
        let mut looks = Vec::new();
        for (polled, is_looked_at) in self.cards.iter_mut().zip(looked_at) {
            let outcome = if is_looked_at { outcomes.next() } else { None };
            looks.extend(polled.looks_after(outcome, moment, deadline));
            polled.new.clear();
        }
        looks
    }

    /// Rounds, of a second at least, until a regular poll has something to look at: one at least, and `LONGEST_PAUSE` at
    /// most.
    #[must_use]
    pub fn pause(&self) -> u64 {
        let due = |polled: &Polled| polled.last_result.as_ref().map_or(0, |last_result| last_result.first_due);
        let first = self.cards.iter().map(due).min().unwrap_or(u64::MAX);
        first.saturating_sub(self.rounds.now()).clamp(EACH, LONGEST_PAUSE)
    }

    /// What to look at on a card; `None` if nothing.
    fn wanted(&self, polled: &Polled, reason: &PollReason, moment: Moment) -> Option<Wanted> {
        let card = &polled.card;
        let (mut places, is_routine) = match polled.routine(reason, moment) {
            Some(places) => (places, true),
            None => (places(polled, reason, moment), false),
        };
        if !self.left_alone.is_empty() {
            // A hanging look is still waited for: its result is known only when it has ended.
            places.retain(|&place| {
                let watched = &card.watched[place];
                !self.left_alone.contains(watched.source.name) || watched.is_being_looked_at()
            });
        }
        let last_result = polled.last_result.as_ref().filter(|_| is_routine && self.left_alone.is_empty());
        let well = last_result.and_then(|last_result| last_result.well.clone());
        (!places.is_empty()).then(|| Wanted { card: Arc::clone(card), places, is_routine, well })
    }

    /// The dumps of drivers, for all devices: see [`device_dump::dumps`]. `beat` is called every half second meanwhile.
    ///
    /// # Errors
    /// Why they cannot be listed, for people.
    pub fn device_dumps(&self, beat: &dyn Fn()) -> Result<Vec<(String, Finding)>, String> {
        let (host, deadline) = (self.host.clone(), self.fence.deadline());
        let list = move |()| device_dump::dumps(&host);
        let outcomes = self.fence.each_within(deadline, vec![()], |()| DUMPS.to_owned(), list, beat);
        let why = match outcomes.into_iter().next() {
            Some(Outcome::Done(Ok(dumps))) => return Ok(dumps),
            Some(Outcome::Done(Err(error))) => error.cause.to_string(),
            Some(Outcome::Overdue) => scan::probe_timeout(deadline, DUMPS).detail,
            Some(Outcome::NotStarted) | None => FULL.to_owned(),
            Some(Outcome::Panicked(message)) => format!("defect in a look: {message}"),
        };
        Err(format!("{DUMPS}: {why}"))
    }

    /// Excludes sources until others are given; their last observations stay.
    pub fn leave_alone(&mut self, sources: BTreeSet<String>) {
        self.counts_others |= sources != self.left_alone;
        self.left_alone = sources;
    }

    /// What a later process must know; `None` if unchanged since the last call.
    pub fn new_memories(&mut self) -> Option<Memories> {
        let mut news = false;
        for card in self.cards.iter().map(|polled| &polled.card).filter(|card| card.take_news()) {
            for watched in &card.watched {
                let Ok(memory) = watched.memory() else {
                    card.may_have_news();
                    continue;
                };
                if memory.is_none() && self.memories.is_empty() {
                    continue;
                }
                let place = place_of(watched.key(&card.key));
                if memory.as_ref() != self.memories.get(&place) {
                    news = true;
                    match memory {
                        Some(memory) => self.memories.insert(place, memory),
                        None => self.memories.remove(&place),
                    };
                }
            }
        }
        news.then(|| self.memories.clone())
    }

    /// The counts of all sources; `None` if unchanged since the last call.
    pub fn new_counts(&mut self) -> Option<Vec<Count>> {
        let asks_all = std::mem::take(&mut self.counts_others);
        let mut is_other = asks_all;
        for Polled { card, counts, .. } in &mut self.cards {
            if card.take_counted() || asks_all {
                let now = card.counts(&self.left_alone);
                is_other |= *counts != now;
                *counts = now;
            }
        }
        is_other.then(|| self.cards.iter().flat_map(|polled| polled.counts.iter().cloned()).collect())
    }

    /// An operator says that what is now on a card is right: what this reason is relative to begins again.
    pub fn forget_best(&mut self, card: &str, reason: &str) {
        let is_meant = |about: &About| about.meanings.iter().any(|one| one.is_relative && one.reason == reason);
        for polled in self.cards.iter_mut().filter(|polled| *polled.card.key == *card) {
            for watched in polled.card.watched.iter().filter(|watched| is_meant(watched.source)) {
                watched.forget_best();
                self.memories.remove(&place_of(watched.key(card)));
            }
            polled.last_result = None;
            polled.card.may_have_news();
        }
    }

    /// Takes over what an earlier process knew.
    pub fn recall(&mut self, memories: Memories) {
        self.memories.extend(memories);
        for polled in &self.cards {
            remind(&polled.card, &self.memories);
        }
    }

    /// Decides which cards' files stay open: as many as possible, those that are read in each round first.
    fn keep_open(&mut self) {
        let most: Vec<_> = self.cards.iter().map(|polled| polled.card.most_open(self.is_logged)).collect();
        let (frequent, seldom) = most.iter().fold((0, 0), |sums, card| (sums.0 + card.0, sums.1 + card.1));
        let left = may_open(frequent + seldom.min(SELDOM_FILES));
        let mut left_frequent = left;
        let keeps: Vec<_> = most.iter().map(|&(frequent, _)| take(&mut left_frequent, frequent)).collect();
        let mut left_seldom = left_frequent.min(SELDOM_FILES);
        for ((polled, (_, seldom)), keeps) in self.cards.iter_mut().zip(most).zip(keeps) {
            let seldom = keeps && take(&mut left_seldom, seldom);
            if polled.card.keep_open((keeps, seldom), self.is_logged) {
                polled.last_result = None; // it may have the files open
            }
        }
    }
}

/// Tells the subjects of a card what an earlier process knew.
fn remind(card: &Card, memories: &Memories) {
    card.may_have_news();
    for watched in card.watched.iter().filter(|_| !memories.is_empty()) {
        if let Some(memory) = memories.get(&place_of(watched.key(&card.key))) {
            watched.recall(memory);
        }
    }
}

impl Polled {
    /// Indexes of the due routine subjects; `None` if the reason concerns this card, or each subject must be asked.
    fn routine(&self, reason: &PollReason, moment: Moment) -> Option<Vec<usize>> {
        let is_named = match reason {
            PollReason::Anything | PollReason::Events { paths: true, .. } => true,
            PollReason::Events { named, .. } => {
                named.iter().any(|path| self.card.is_at(path)) || !self.card.paths_at(named).is_empty()
            }
            PollReason::Regular(awaited) => awaited.contains_key(&*self.card.key),
        };
        let last_result = self.last_result.as_ref().filter(|_| !is_named && self.new.is_empty())?;
        Some(last_result.due(moment))
    }

    /// The looks to report after the card was looked at, or was not.
    fn looks_after(
        &mut self,
        outcome: Option<Outcome<Result<Found, Busy>>>,
        moment: Moment,
        deadline: Duration,
    ) -> Vec<Look> {
        let before = self.last_result.take();
        self.last_result = match outcome {
            None => before,
            Some(Outcome::Done(Ok(Found::Result(last_result)))) => Some(last_result),
            Some(Outcome::Done(Ok(Found::Nothing(looked_at)))) => {
                before.map(|last_result| last_result.renewed(looked_at, moment))
            }
            Some(Outcome::Done(Err(Busy)) | Outcome::Overdue) => return self.card.overdue(deadline),
            Some(Outcome::NotStarted) => return self.card.not_looked(FULL),
            Some(Outcome::Panicked(message)) => return self.card.not_looked(&format!("defect in a look: {message}")),
        };
        let last_result = match self.last_result.take() {
            Some(last_result) => last_result,
            // A look that still runs was given up.
            None => match self.card.last_result(moment.is_logged) {
                Ok(last_result) => last_result,
                Err(Busy) => return self.card.overdue(deadline),
            },
        };
        self.last_result.insert(last_result).looks.clone()
    }
}

fn place_of((card, source, file, variant): Key) -> Place {
    (card, source.to_owned(), file, variant)
}

/// Indexes of the subjects of a card to look at, in their order.
fn places(Polled { card, new, .. }: &Polled, reason: &PollReason, moment: Moment) -> Vec<usize> {
    let mut places = match reason {
        PollReason::Anything => return card.everything(),
        PollReason::Events { named, .. } if named.iter().any(|path| card.is_at(path)) => return card.everything(),
        PollReason::Events { paths: true, .. } => card.paths(),
        PollReason::Events { named, .. } => card.paths_at(named),
        PollReason::Regular(awaited) => {
            let awaited = awaited.get(&*card.key).map(Vec::as_slice).unwrap_or_default();
            awaited.iter().flat_map(|device| card.recovering(device)).collect()
        }
    };
    places.extend(new);
    places.extend(card.due(moment));
    places.sort_unstable();
    places.dedup();
    places
}

/// Devices by card, in their own order.
fn by_card(devices: &[Arc<Device>]) -> Vec<(&str, Vec<&Arc<Device>>)> {
    let mut places = HashMap::new();
    let mut cards: Vec<(&str, Vec<&Arc<Device>>)> = Vec::new();
    for device in devices {
        let place = *places.entry(&*device.card).or_insert_with(|| {
            cards.push((&device.card, Vec::new()));
            cards.len() - 1
        });
        cards[place].1.push(device);
    }
    cards
}

/// Descriptors reserved for the rest of the process.
const RESERVED_FILES: u64 = 256;

/// Limit of descriptors for subjects that are not looked at in each round. An open attribute takes at least a page of
/// kernel memory, which is charged to this process; opening it again takes a few microseconds.
const SELDOM_FILES: u64 = 1024;

/// Takes `needed` from `left`; false if there is not enough.
fn take(left: &mut u64, needed: u64) -> bool {
    let rest = left.checked_sub(needed);
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

/// Number of descriptors that may stay open if `wanted` are wanted. Raises the soft limit as far as needed.
fn may_open(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let present = limit.current.unwrap_or(u64::MAX);
    let needed = (wanted + RESERVED_FILES).min(limit.maximum.unwrap_or(u64::MAX));
    let raised = Rlimit { current: Some(needed), ..limit };
    let open = if needed > present && setrlimit(Resource::Nofile, raised).is_ok() { needed } else { present };
    open.saturating_sub(RESERVED_FILES)
}

#[cfg(test)]
mod tests;
