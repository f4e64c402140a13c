//! Looks again, cheaply, at the devices that the last scan found: at each thing as often as its class of read allows, and
//! at once where an event says that something has happened.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::card::{Awaited, Card, Look, Standing};
use super::count::Count;
use super::open_files::keep_open;
use super::rounds::Rounds;
use super::source::Source;
use super::sources;
use super::watched::{Busy, Key, Moment, Watched};
use crate::device::Device;
use crate::fence::{FULL, Fence, Outcome};
use crate::host::Host;

/// `SYSFS_MAGIC` of <https://man7.org/linux/man-pages/man2/statfs.2.html>.
const SYSFS: i64 = 0x6265_6572;

/// Why it is looked now, and with that at what.
#[derive(Debug, Clone)]
pub enum Occasion {
    /// Anything may have changed: at everything.
    Anything,
    /// A regular poll: at what is due, and where a finding goes after good looks at what its source looks at, by card.
    Regular(HashMap<String, Vec<Awaited>>),
    /// Events.
    Events {
        /// Of these places of sysfs, as the host names them: at everything of the cards there, above and below.
        named: Vec<PathBuf>,
        /// Whether nodes came or went: at all nodes and other paths.
        paths: bool,
    },
}

/// Card, source, file and variant of something that is looked at.
pub type Place = (String, String, String, String);

/// What looks have seen in this boot that a later process has to know, in words of the sources' own.
pub type Memories = BTreeMap<Place, String>;

/// A card, and how it was left; `None` where that has to be asked of each of its subjects.
#[derive(Debug)]
struct Polled {
    card: Arc<Card>,
    standing: Option<Standing>,
    /// When they were asked for last: cards are read in turns, and what each reads is mostly what it read before.
    counts: Vec<Count>,
}

impl Polled {
    fn new(card: Card) -> Self {
        Self { card: Arc::new(card), standing: None, counts: Vec::new() }
    }
}

/// Where to look on a card.
struct Wanted {
    card: Arc<Card>,
    places: Vec<usize>,
    /// Whether these are the places that its standing says, which goes on where nothing has changed.
    is_routine: bool,
}

/// The devices looked at, card by card.
#[derive(Debug)]
pub struct Poller {
    host: Host,
    fence: Arc<Fence>,
    sources: &'static [&'static dyn Source],
    cards: Vec<Polled>,
    /// Subjects of devices that the last scan did not find, whose counts go on when they come back.
    absent: HashMap<Key, Arc<Watched>>,
    /// Also of what is not watched at present.
    memories: Memories,
    /// Sources that somebody else asks for now.
    left_alone: BTreeSet<String>,
    /// Other devices are watched than at the last poll.
    is_news: bool,
    /// Other cards, or by other sources, are watched than when it was last asked what was counted.
    counts_others: bool,
    rounds: Rounds,
}

impl Poller {
    /// Looks at nothing yet.
    #[must_use]
    pub fn new(host: Host, fence: Arc<Fence>) -> Self {
        Self {
            host,
            fence,
            sources: sources::ALL,
            cards: Vec::new(),
            absent: HashMap::new(),
            memories: Memories::new(),
            left_alone: BTreeSet::new(),
            is_news: false,
            counts_others: false,
            rounds: Rounds::default(),
        }
    }

    /// Looks at these devices from now on, and at no others. Files that they go on needing stay open, and counts go on.
    pub fn watch<'d>(&mut self, devices: impl IntoIterator<Item = &'d Device>) {
        let mut known = self.take_known();
        let mut cards: Vec<Card> = Vec::new();
        let check_links = !self.is_kernel_sysfs();
        for (place_in_line, (key, devices)) in (0..).zip(by_card(devices)) {
            let card = Card::new((key, place_in_line), &devices, (self.sources, &self.host, check_links), &mut known);
            cards.extend((!card.watched.is_empty()).then_some(card));
        }
        keep_open(&mut cards);
        self.cards = cards.into_iter().map(Polled::new).collect();
        for watched in known.values() {
            watched.close();
        }
        known.retain(|_, watched| watched.is_worth_keeping());
        self.absent = known;
        self.remind();
        self.is_news = true;
        self.counts_others = true;
    }

    /// Looks at devices and answers those that there is something to say about: what was not looked at now is as it was
    /// last. A card that hangs is overdue, and the others do not wait for it. `beat` is called every half second meanwhile.
    pub fn poll(&mut self, occasion: &Occasion, beat: &dyn Fn()) -> Vec<Look> {
        self.poll_at(Instant::now(), occasion, beat)
    }

    fn poll_at(&mut self, now: Instant, occasion: &Occasion, beat: &dyn Fn()) -> Vec<Look> {
        if matches!(occasion, Occasion::Regular(_)) {
            self.rounds.go_on(now);
        }
        let moment = Moment { round: self.rounds.now(), now };
        let occasion = if std::mem::take(&mut self.is_news) { &Occasion::Anything } else { occasion };
        let wanted: Vec<_> = self.cards.iter().map(|polled| self.wanted(polled, occasion, moment)).collect();
        let looked_at: Vec<_> = wanted.iter().map(Option::is_some).collect();
        let deadline = self.fence.deadline();
        let key = |wanted: &Wanted| wanted.card.key.clone();
        let look = move |wanted: Wanted| {
            let is_other = wanted.card.look(&wanted.places, moment);
            if is_other || !wanted.is_routine { wanted.card.standing().map(Some) } else { Ok(None) }
        };
        let wanted = wanted.into_iter().flatten().collect();
        let mut outcomes = self.fence.each_within(deadline, wanted, key, look, beat).into_iter();
        let mut said = Vec::new();
        for (polled, is_looked_at) in self.cards.iter_mut().zip(looked_at) {
            let outcome = if is_looked_at { outcomes.next() } else { None };
            said.extend(polled.said_after(outcome, moment, deadline));
        }
        said
    }

    /// Where to look on a card; `None` where nowhere.
    fn wanted(&self, polled: &Polled, occasion: &Occasion, moment: Moment) -> Option<Wanted> {
        let card = &polled.card;
        let (mut places, is_routine) = match polled.routine(occasion, moment) {
            Some(places) => (places.to_vec(), true),
            None => (places(card, occasion, moment), false),
        };
        if !self.left_alone.is_empty() {
            // A look that hangs goes on being waited for: what it says is known once it has ended.
            places.retain(|&place| {
                let watched = &card.watched[place];
                !self.left_alone.contains(watched.source.name) || watched.is_being_looked_at()
            });
        }
        (!places.is_empty()).then(|| Wanted { card: Arc::clone(card), places, is_routine })
    }

    /// Looks at nothing for these sources until others are given: what they last said stays.
    pub fn leave_alone(&mut self, sources: BTreeSet<String>) {
        self.counts_others |= sources != self.left_alone;
        self.left_alone = sources;
    }

    /// What a later process has to know; `None` where that is what it was when this was asked last.
    pub fn new_memories(&mut self) -> Option<Memories> {
        let mut news = false;
        for card in self.cards.iter().map(|polled| &polled.card).filter(|card| card.take_news()) {
            for watched in &card.watched {
                let Ok(memory) = watched.memory() else {
                    card.may_have_news();
                    continue;
                };
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

    /// The numbers that sources have read that are no findings; `None` where they are those of when this was asked last.
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

    /// What a later process has to know.
    pub fn memories(&mut self) -> Memories {
        self.new_memories().unwrap_or_else(|| self.memories.clone())
    }

    /// Takes in what an earlier process, or poller, knew.
    pub fn recall(&mut self, memories: Memories) {
        self.memories.extend(memories);
        self.remind();
    }

    fn remind(&self) {
        for Polled { card, .. } in &self.cards {
            card.may_have_news();
            for watched in &card.watched {
                if let Some(memory) = self.memories.get(&place_of(watched.key(&card.key))) {
                    watched.recall(memory);
                }
            }
        }
    }

    /// What was watched so far, what is being looked at included.
    fn take_known(&mut self) -> HashMap<Key, Arc<Watched>> {
        let mut known = std::mem::take(&mut self.absent);
        for Polled { card, .. } in &self.cards {
            known.extend(card.watched.iter().map(|watched| (watched.key(&card.key), Arc::clone(watched))));
        }
        known
    }

    fn is_kernel_sysfs(&self) -> bool {
        rustix::fs::statfs(self.host.sys("")).is_ok_and(|found| found.f_type == SYSFS)
    }
}

impl Polled {
    /// The places where to look, as far as its standing says them.
    fn routine(&self, occasion: &Occasion, moment: Moment) -> Option<&[usize]> {
        let is_named = match occasion {
            Occasion::Anything | Occasion::Events { paths: true, .. } => true,
            Occasion::Events { named, .. } => named.iter().any(|path| self.card.is_at(path)),
            Occasion::Regular(awaited) => awaited.contains_key(&self.card.key),
        };
        self.standing.as_ref().filter(|_| !is_named)?.due(moment)
    }

    /// What is said of its devices after a look, which answers how that has left the card unless as before, or without one.
    fn said_after(
        &mut self,
        outcome: Option<Outcome<Result<Option<Standing>, Busy>>>,
        moment: Moment,
        deadline: Duration,
    ) -> Vec<Look> {
        let before = self.standing.take();
        self.standing = match outcome {
            None => before,
            Some(Outcome::Done(Ok(Some(standing)))) => Some(standing),
            Some(Outcome::Done(Ok(None))) => before.map(|standing| standing.gone_on(moment)),
            Some(Outcome::Done(Err(Busy)) | Outcome::Overdue) => return self.card.overdue(deadline),
            Some(Outcome::NotStarted) => return self.card.not_looked(FULL),
            Some(Outcome::Panicked(message)) => return self.card.not_looked(&format!("defect in a look: {message}")),
        };
        let standing = match self.standing.take() {
            Some(standing) => standing,
            // Whoever still looks at it has been given up.
            None => match self.card.standing() {
                Ok(standing) => standing,
                Err(Busy) => return self.card.overdue(deadline),
            },
        };
        self.standing.insert(standing).said.clone()
    }
}

fn place_of((card, source, file, variant): Key) -> Place {
    (card, source.to_owned(), file, variant)
}

/// At which subjects of a card to look, in their order.
fn places(card: &Card, occasion: &Occasion, moment: Moment) -> Vec<usize> {
    let mut places = match occasion {
        Occasion::Anything => return card.everything(),
        Occasion::Events { named, .. } if named.iter().any(|path| card.is_at(path)) => return card.everything(),
        Occasion::Events { paths: true, .. } => card.paths(),
        Occasion::Events { .. } => Vec::new(),
        Occasion::Regular(awaited) => {
            let awaited = awaited.get(&card.key).map(Vec::as_slice).unwrap_or_default();
            awaited.iter().flat_map(|device| card.recovering(device)).collect()
        }
    };
    places.extend(card.due(moment));
    places.sort_unstable();
    places.dedup();
    places
}

/// Devices by card, in their own order.
fn by_card<'d>(devices: impl IntoIterator<Item = &'d Device>) -> Vec<(String, Vec<&'d Device>)> {
    let mut places = HashMap::new();
    let mut cards: Vec<(String, Vec<&Device>)> = Vec::new();
    for device in devices {
        let place = *places.entry(&device.card).or_insert_with(|| {
            cards.push((device.card.clone(), Vec::new()));
            cards.len() - 1
        });
        cards[place].1.push(device);
    }
    cards
}

#[cfg(test)]
mod tests;
