//! Polls the devices that the last scan found: each subject as often as its class of read allows, and immediately if an
//! event concerns it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::cards::{Awaited, Card, Look};
use super::source::{About, Count, Source};
use super::sources;
use super::sources::device_dump::{self, DUMPS};
use super::sources::scan;
use super::watched::{Busy, EACH, Key, Moment, News, Rounds, Watched};
use crate::device::Device;
use crate::fence::{FULL, Fence, Outcome};
use crate::finding::Finding;
use crate::host::Host;

/// The reason for a poll, which decides what it looks at.
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

/// Maximum of rounds from one regular poll to the next while no source looks in each round.
const LONGEST_PAUSE: u64 = 5;

/// Up to this number of cards, a poll of all of them is short.
const MOST_TOGETHER: usize = 64;

/// Card, source, file and variant of a subject.
pub type Place = (String, String, String, String);

/// What a later process must know about this boot, by subject, in each source's own format.
pub type Memories = BTreeMap<Place, String>;

/// A card, and what has happened to it.
#[derive(Debug)]
struct Polled {
    card: Arc<Card>,
    /// Whether the next poll looks at all of it, whatever its reason.
    is_new: bool,
    /// Whether the files that are read in each round stay open.
    keeps_open: bool,
    /// What may have changed since it was last asked for.
    news: News,
    /// Its counts when they were last asked for.
    counts: Vec<Count>,
}

/// The subjects to look at on a card.
struct Wanted {
    card: Arc<Card>,
    /// Their indexes.
    places: Vec<usize>,
    keeps_open: bool,
}

/// The watched devices, card by card.
#[derive(Debug)]
pub struct Poller {
    host: Host,
    fence: Arc<Fence>,
    sources: Vec<&'static dyn Source>,
    devices: Vec<Arc<Device>>,
    /// The watched devices that the last scan could not examine.
    kept: Vec<Arc<Device>>,
    cards: Vec<Polled>,
    /// Subjects of devices that the last scan did not find; their counts go on if the devices come back.
    absent: HashMap<Key, Arc<Watched>>,
    /// Includes subjects that are not watched at present.
    memories: Memories,
    /// Sources that are not looked at for now.
    left_alone: BTreeSet<String>,
    /// Whether the cards have changed since counts were last asked for.
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

    /// Switches these sources off and all others on.
    pub fn switch_off(&mut self, off: &BTreeSet<String>) {
        let is_off = |source: &&dyn Source| off.contains(source.about().name);
        let sources: Vec<_> = sources::ALL.iter().copied().filter(|source| !is_off(source)).collect();
        if !sources.iter().map(|source| source.about().name).eq(self.sources.iter().map(|source| source.about().name)) {
            self.sources = sources;
            self.make_cards();
        }
    }

    /// Sets whether the kernel log is read and its reports are acted on: the faults that it reports are then polled
    /// less often.
    pub fn reads_kernel_log(&mut self, is_logged: bool) {
        if std::mem::replace(&mut self.is_logged, is_logged) != is_logged {
            self.keep_open();
        }
    }

    /// Watches exactly these devices from now on: the ones that a scan has found, and the ones of earlier scans that it
    /// could not examine (`kept`), except any that it has found in another form. Files still needed stay open, and
    /// counts go on. Whatever its reason, the next poll looks at all of a card whose devices have changed, or on which
    /// the scan before could still examine a device that is now kept.
    pub fn watch(&mut self, found: &[Arc<Device>], kept: &[Arc<Device>]) {
        let keys: HashSet<_> =
            if kept.is_empty() { HashSet::new() } else { found.iter().map(|one| one.key()).collect() };
        let kept: Vec<_> = kept.iter().filter(|device| !keys.contains(&device.key())).cloned().collect();
        self.devices = found.iter().chain(&kept).cloned().collect();
        self.make_cards();
        let before: HashSet<_> = self.kept.iter().map(Arc::as_ptr).collect();
        let newly_kept = kept.iter().filter(|device| !before.contains(&Arc::as_ptr(device)));
        let cards: HashSet<_> = newly_kept.map(|device| &*device.card).collect();
        for polled in &mut self.cards {
            polled.is_new |= cards.contains(&*polled.card.key);
        }
        self.kept = kept;
    }

    fn make_cards(&mut self) {
        let before: HashMap<_, _> = self.cards.drain(..).map(|polled| (Arc::clone(&polled.card.key), polled)).collect();
        for Polled { card, .. } in before.values() {
            self.absent.extend(card.watched.iter().map(|watched| (watched.key(&card.key), Arc::clone(watched))));
        }
        let by_card = by_card(&self.devices);
        // Few cards look together, so that there are pauses between their looks.
        let step = if by_card.len() > MOST_TOGETHER { EACH } else { LONGEST_PAUSE };
        for (place_in_line, (key, devices)) in (0..).map(|place| place * step).zip(by_card) {
            let is_as_before = before.get(key).is_some_and(|polled| !polled.is_new && polled.card.is_of(&devices));
            let with_subjects = devices.into_iter().map(|device| (Arc::clone(device), self.subjects(device))).collect();
            let card = Card::new((key, place_in_line), with_subjects, &self.host, &mut self.absent);
            if !card.watched.is_empty() {
                remind(&card, &self.memories);
                self.cards.push(Polled {
                    card: Arc::new(card),
                    is_new: !is_as_before,
                    keeps_open: false,
                    news: News::ANYTHING,
                    counts: Vec::new(),
                });
            }
        }
        self.keep_open();
        for watched in self.absent.values() {
            watched.close();
        }
        self.absent.retain(|_, watched| watched.is_worth_keeping());
        self.counts_others = true;
    }

    fn subjects(&self, device: &Device) -> Vec<Watched> {
        let of_source = |source: &&'static dyn Source| {
            let about = source.about();
            source.subjects(&self.host, device).into_iter().map(|subject| Watched::new(about, subject))
        };
        self.sources.iter().flat_map(of_source).collect()
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
        let all: Vec<Vec<usize>> = self.cards.iter().map(|polled| self.places(polled, reason, moment)).collect();
        let is_looked_at: Vec<bool> = all.iter().map(|places| !places.is_empty()).collect();
        let wanted = self.cards.iter().zip(all).filter(|(_, places)| !places.is_empty());
        let wanted = wanted.map(|(polled, places)| {
            let (card, keeps_open) = (Arc::clone(&polled.card), polled.keeps_open);
            Wanted { card, places, keeps_open }
        });
        let key = |wanted: &Wanted| Arc::clone(&wanted.card.key);
        let look = move |wanted: Wanted| wanted.card.look(&wanted.places, wanted.keeps_open, moment);
        let deadline = self.fence.deadline();
        let mut outcomes = self.fence.each_within(deadline, wanted.collect(), key, look, beat).into_iter();
        let mut looks = Vec::new();
        for (polled, is_looked_at) in self.cards.iter_mut().zip(is_looked_at) {
            let outcome = if is_looked_at { outcomes.next() } else { None };
            looks.extend(polled.looks_after(outcome, deadline));
        }
        looks
    }

    /// Rounds until a regular poll has something to look at, from one to `LONGEST_PAUSE`. A round lasts at least a
    /// second.
    #[must_use]
    pub fn pause(&self) -> u64 {
        let due = |polled: &Polled| if polled.is_new { Some(0) } else { polled.card.first_due(self.is_logged) };
        let first = self.cards.iter().filter_map(due).min().unwrap_or(u64::MAX);
        first.saturating_sub(self.rounds.now()).clamp(EACH, LONGEST_PAUSE)
    }

    /// Indexes of the subjects of a card to look at, in their order.
    fn places(&self, Polled { card, is_new, .. }: &Polled, reason: &PollReason, moment: Moment) -> Vec<usize> {
        let mut places = match reason {
            _ if *is_new => card.everything(),
            PollReason::Anything => card.everything(),
            PollReason::Events { named, .. } if named.iter().any(|path| card.is_at(path)) => card.everything(),
            PollReason::Events { paths: true, .. } => card.paths(),
            PollReason::Events { named, .. } => card.paths_at(named),
            PollReason::Regular(awaited) => {
                let awaited = awaited.get(&*card.key).map(Vec::as_slice).unwrap_or_default();
                awaited.iter().flat_map(|device| card.recovering(device)).collect()
            }
        };
        places.extend(card.due(moment));
        places.sort_unstable();
        places.dedup();
        // A hanging look is still waited for: its result is known only when it has ended.
        places.retain(|&place| {
            let watched = &card.watched[place];
            !self.left_alone.contains(watched.source.name) || watched.is_being_looked_at()
        });
        places
    }

    /// The dumps of drivers, for all devices: see [`device_dump::dumps`]. `beat` is called every half second meanwhile.
    ///
    /// # Errors
    /// The reason why they cannot be listed, as text for users.
    pub fn device_dumps(&self, beat: &dyn Fn()) -> Result<Vec<(String, Finding)>, String> {
        let (host, deadline) = (self.host.clone(), self.fence.deadline());
        let list = move |()| device_dump::dumps(&host);
        let outcomes = self.fence.each_within(deadline, vec![()], |()| DUMPS.to_owned(), list, beat);
        let why = match outcomes.into_iter().next() {
            Some(Outcome::Done(Ok(dumps))) => return Ok(dumps),
            Some(Outcome::Done(Err(error))) => error.cause.to_string(),
            Some(Outcome::Overdue) => scan::probe_timeout(deadline, DUMPS).detail,
            Some(Outcome::NotStarted(why)) => why,
            None => FULL.to_owned(),
            Some(Outcome::Panicked(message)) => format!("defect in a look: {message}"),
        };
        Err(format!("{DUMPS}: {why}"))
    }

    /// Excludes these sources until the next call; their last observations stay.
    pub fn leave_alone(&mut self, sources: BTreeSet<String>) {
        if sources != self.left_alone {
            self.left_alone = sources;
            self.cards.iter_mut().for_each(|polled| polled.news.counts = true);
        }
    }

    /// What a later process must know; `None` if unchanged since the last call.
    pub fn new_memories(&mut self) -> Option<Memories> {
        let mut is_other = false;
        for Polled { card, news, .. } in self.cards.iter_mut().filter(|polled| polled.news.memory) {
            news.memory = false;
            for watched in &card.watched {
                let Ok(memory) = watched.memory() else {
                    news.memory = true;
                    continue;
                };
                if memory.is_none() && self.memories.is_empty() {
                    continue;
                }
                let place = place_of(watched.key(&card.key));
                if memory.as_ref() != self.memories.get(&place) {
                    is_other = true;
                    match memory {
                        Some(memory) => self.memories.insert(place, memory),
                        None => self.memories.remove(&place),
                    };
                }
            }
        }
        is_other.then(|| self.memories.clone())
    }

    /// The counts of all sources; `None` if unchanged since the last call.
    pub fn new_counts(&mut self) -> Option<Vec<Count>> {
        let mut is_other = std::mem::take(&mut self.counts_others);
        for polled in self.cards.iter_mut().filter(|polled| polled.news.counts) {
            let (counts, is_partial) = polled.card.counts(&self.left_alone);
            polled.news.counts = is_partial;
            is_other |= std::mem::replace(&mut polled.counts, counts) != polled.counts;
        }
        is_other.then(|| self.cards.iter().flat_map(|polled| polled.counts.iter().cloned()).collect())
    }

    /// Forgets the best states of a card that this reason is relative to: an operator has declared the present state
    /// right.
    pub fn forget_best(&mut self, card: &str, reason: &str) {
        let is_meant = |about: &About| about.meanings.iter().any(|one| one.is_relative && one.reason == reason);
        for polled in self.cards.iter_mut().filter(|polled| *polled.card.key == *card) {
            for watched in polled.card.watched.iter().filter(|watched| is_meant(watched.source)) {
                watched.forget_best();
                self.memories.remove(&place_of(watched.key(card)));
            }
            polled.news.memory = true;
        }
    }

    /// Takes over what an earlier process knew.
    pub fn recall(&mut self, memories: Memories) {
        self.memories.extend(memories);
        for polled in &mut self.cards {
            remind(&polled.card, &self.memories);
            polled.news.memory = true;
        }
    }

    /// Decides which cards' files stay open: as many as possible, and only in the kernel's sysfs: see `kept_file.rs`.
    fn keep_open(&mut self) {
        let wanted = self.cards.iter().map(|polled| polled.card.most_open(self.is_logged)).sum();
        self.keep_most_open(if self.host.has_kernel_sysfs() { may_open(wanted) } else { 0 });
    }

    fn keep_most_open(&mut self, mut left: u64) {
        for polled in &mut self.cards {
            let rest = left.checked_sub(polled.card.most_open(self.is_logged));
            polled.keeps_open = rest.is_some();
            left = rest.unwrap_or(left);
            polled.card.close_others(polled.keeps_open, self.is_logged);
        }
    }
}

/// Tells the subjects of a card what an earlier process knew.
fn remind(card: &Card, memories: &Memories) {
    for watched in card.watched.iter().filter(|_| !memories.is_empty()) {
        if let Some(memory) = memories.get(&place_of(watched.key(&card.key))) {
            watched.recall(memory);
        }
    }
}

impl Polled {
    /// The looks to report after the card was looked at, or was not.
    fn looks_after(&mut self, outcome: Option<Outcome<News>>, deadline: Duration) -> Vec<Look> {
        let (news, looks) = match outcome {
            None => (News::default(), None),
            Some(Outcome::Done(news)) => {
                self.is_new = false;
                (news, None)
            }
            Some(Outcome::Overdue) => (News::ANYTHING, Some(self.card.overdue(deadline))),
            Some(Outcome::NotStarted(why)) => (News::default(), Some(self.card.not_looked(&why))),
            Some(Outcome::Panicked(message)) => {
                (News::ANYTHING, Some(self.card.not_looked(&format!("defect in a look: {message}"))))
            }
        };
        self.news = self.news.and(news);
        // A look that was given up may still run.
        looks.unwrap_or_else(|| self.card.looks().unwrap_or_else(|Busy| self.card.overdue(deadline)))
    }
}

fn place_of((card, source, file, variant): Key) -> Place {
    (card, source.to_owned(), file, variant)
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
