//! A cache of cards without problems. Cards have thousands of attributes that never change while a driver is bound; a
//! cached card is reused as long as the files that were read show no change.
//!
//! Recording the state of the files costs as much as reading them, so the first look at a card is not recorded: a host
//! that is scanned once, or a card that is seen once, does not pay for later scans.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::host::Host;
use crate::host::read_log::{ReadLog, recorded};

/// The longest reuse of a cached answer. A change that leaves the kernel object the same, such as a NUMA node set by
/// the operator, is noticed only after this time.
const LONGEST: Duration = Duration::from_secs(60);

/// A located card: the unit that is examined as one.
pub(super) trait Located: PartialEq {
    /// The card's name among the cards of its vendor.
    fn key(&self) -> &str;
}

/// The cached answers of the search for cards and of each look at a card. `L` is the result of the search, `C` one card
/// of it, `T` the answer of a look.
#[derive(Debug)]
pub(super) struct CardCache<L, C, T> {
    located: Answers<L>,
    cards: Answers<(Arc<C>, T)>,
}

impl<L, C, T> Default for CardCache<L, C, T> {
    fn default() -> Self {
        Self { located: Answers::default(), cards: Answers::default() }
    }
}

impl<L: Clone + PartialEq, C: Located, T: Clone + PartialEq> CardCache<L, C, T> {
    /// The located cards, from the cache or from `locate`. `locate` also returns whether it could read everything.
    pub(super) fn located(&self, host: &Host, locate: impl FnOnce() -> (L, bool)) -> L {
        self.located.of(host, "", locate, |_, _| true)
    }

    /// The answer of a card, from the cache or from `look`. `look` also returns whether the answer may be kept.
    /// `is_current` checks contents that change although sysfs does not show it.
    pub(super) fn examined(
        &self,
        host: &Host,
        card: &Arc<C>,
        look: impl FnOnce(&C) -> (T, bool),
        is_current: impl FnOnce(&T) -> bool,
    ) -> T {
        let look_at_it = || {
            let (answer, is_well) = look(card);
            ((Arc::clone(card), answer), is_well)
        };
        let holds = |(of, answer): &(Arc<C>, T), reads: &ReadLog| {
            (Arc::ptr_eq(of, card) || of == card) && (reads.covers_contents() || is_current(answer))
        };
        self.cards.of(host, card.key(), look_at_it, holds).1
    }

    /// Forgets all cards except these.
    pub(super) fn forget_others<'c>(&self, cards: impl Iterator<Item = &'c C>)
    where
        C: 'c,
    {
        let present: BTreeSet<&str> = cards.map(Located::key).collect();
        lock(&self.cards.by_key).retain(|key, _| present.contains(key.as_str()));
    }

    /// Drops everything, so that all cards are examined again.
    pub(super) fn forget(&self) {
        self.located.forget();
        self.cards.forget();
    }
}

/// The cached answers, by key.
#[derive(Debug)]
struct Answers<A> {
    by_key: Mutex<HashMap<String, Known<A>>>,
    /// Number of `forget` calls: the result of a look that began before such a call, and maybe hung, is not cached
    /// after it.
    forgotten: AtomicU64,
}

#[derive(Debug)]
struct Known<A> {
    /// The answer of the last look. An equal answer does not replace it, so that its devices stay the same objects.
    last: A,
    /// `None` if the last look was not recorded, or its answer may not be reused: the next look is recorded.
    cached: Option<Arc<Cached<A>>>,
}

#[derive(Debug)]
struct Cached<A> {
    reads: ReadLog,
    answer: A,
    at: Instant,
}

impl<A> Default for Answers<A> {
    fn default() -> Self {
        Self { by_key: Mutex::default(), forgotten: AtomicU64::new(0) }
    }
}

impl<A: Clone + PartialEq> Answers<A> {
    /// The cached answer if nothing that was read for it has changed and it `holds`; otherwise the answer of `look`, which
    /// also returns whether it may be kept.
    fn of(
        &self,
        host: &Host,
        key: &str,
        look: impl FnOnce() -> (A, bool),
        holds: impl FnOnce(&A, &ReadLog) -> bool,
    ) -> A {
        let Some(cached) = lock(&self.by_key).get(key).map(|known| known.cached.clone()) else {
            let (last, _) = look();
            lock(&self.by_key).insert(key.to_owned(), Known { last: last.clone(), cached: None });
            return last;
        };
        if let Some(cached) = cached.filter(|cached| cached.still_holds() && holds(&cached.answer, &cached.reads)) {
            return cached.answer.clone();
        }
        let (at, forgotten) = (Instant::now(), self.forgotten.load(Ordering::SeqCst));
        let ((answer, is_well), reads) = recorded(host.has_kernel_sysfs(), look);
        let mut by_key = lock(&self.by_key);
        let Some(known) = by_key.get_mut(key) else { return answer };
        if known.last != answer {
            known.last = answer;
        }
        let answer = known.last.clone();
        let is_kept = is_well && reads.is_settled() && forgotten == self.forgotten.load(Ordering::SeqCst);
        known.cached = is_kept.then(|| Arc::new(Cached { reads, answer: answer.clone(), at }));
        answer
    }

    fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        lock(&self.by_key).values_mut().for_each(|known| known.cached = None);
    }
}

impl<A> Cached<A> {
    fn still_holds(&self) -> bool {
        self.at.elapsed() < LONGEST && self.reads.still_holds()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::host::attribute::Attribute;

    #[derive(Debug, PartialEq)]
    struct Card {
        key: &'static str,
        entry: &'static str,
    }

    fn card(entry: &'static str) -> Arc<Card> {
        Arc::new(Card { key: "card", entry })
    }

    impl Located for Card {
        fn key(&self) -> &str {
            self.key
        }
    }

    type Cache = CardCache<Vec<Arc<Card>>, Card, String>;

    /// A tree with a file, and how often its card was examined.
    struct Looked {
        root: tempfile::TempDir,
        cache: Cache,
        times: Cell<u32>,
    }

    impl Looked {
        fn new() -> Self {
            let looked = Self { root: tempfile::tempdir().unwrap(), cache: CardCache::default(), times: Cell::new(0) };
            looked.write("244:0");
            looked
        }

        fn write(&self, text: &str) {
            std::fs::write(self.root.path().join("dev"), text).unwrap();
        }

        /// What the card says, and whether that took a look; some time after the last change.
        fn again(&self, entry: &'static str, is_well: bool) -> (String, bool) {
            std::thread::sleep(Duration::from_millis(50));
            let before = self.times.get();
            let look = |_: &Card| {
                self.times.set(before + 1);
                (Attribute::read(self.root.path().join("dev")).unwrap().text().to_owned(), is_well)
            };
            let text = self.cache.examined(&Host::new(self.root.path()), &card(entry), look, |_| true);
            (text, self.times.get() > before)
        }
    }

    fn text(text: &str, is_looked_at: bool) -> (String, bool) {
        (text.to_owned(), is_looked_at)
    }

    #[test]
    fn a_healthy_card_is_not_read_again_until_something_changes_or_all_is_forgotten() {
        let looked = Looked::new();
        assert_eq!(looked.again("a", true), text("244:0", true), "the first look is not recorded");
        assert_eq!(looked.again("a", true), text("244:0", true));
        for _ in 0..2 {
            assert_eq!(looked.again("a", true), text("244:0", false));
        }
        looked.write("244:1");
        assert_eq!(looked.again("a", true), text("244:1", true));
        assert_eq!(looked.again("a", true), text("244:1", false));
        looked.cache.forget();
        assert_eq!(looked.again("a", true), text("244:1", true));
        assert_eq!(looked.again("a", true), text("244:1", false));
        looked.cache.forget_others(std::iter::empty());
        assert_eq!(looked.again("a", true), text("244:1", true));
        assert_eq!(looked.again("a", true), text("244:1", true), "as at the first look");
        assert_eq!(looked.again("a", true), text("244:1", false));
        assert_eq!(looked.again("b", true), text("244:1", true), "the class directory has something else");
    }

    fn is_kept<A>(answers: &Answers<A>) -> bool {
        lock(&answers.by_key).values().any(|known| known.cached.is_some())
    }

    #[test]
    fn what_was_looked_at_when_all_was_forgotten_is_not_remembered() {
        let looked = Looked::new();
        std::thread::sleep(Duration::from_millis(50));
        let host = Host::new(looked.root.path());
        let during = |happens: fn(&Cache)| {
            looked.cache.located(&host, || {
                happens(&looked.cache);
                (vec![card("a")], true)
            });
            let look = |_: &Card| {
                Attribute::read(looked.root.path().join("dev")).unwrap();
                happens(&looked.cache);
                (String::new(), true)
            };
            looked.cache.examined(&host, &card("a"), look, |_| true);
            (is_kept(&looked.cache.located), is_kept(&looked.cache.cards))
        };
        assert_eq!(during(|_| ()), (false, false), "the first look");
        assert_eq!(during(Cache::forget), (false, false), "as by an event, while a read hangs");
        assert_eq!(during(|_| ()), (true, true));
    }

    #[test]
    fn a_look_that_finds_a_card_as_it_was_returns_the_same_objects() {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(root.path());
        let cache: CardCache<(), Card, Arc<String>> = CardCache::default();
        let look = |text: &str| cache.examined(&host, &card("a"), |_| (Arc::new(text.to_owned()), true), |_| true);
        let first = look("x");
        assert!(Arc::ptr_eq(&first, &look("x")), "the one that is recorded");
        cache.forget();
        assert!(Arc::ptr_eq(&first, &look("x")));
        cache.forget();
        assert_eq!(*look("y"), "y");
    }

    #[test]
    fn a_card_on_which_something_is_the_matter_is_looked_at_each_time() {
        let looked = Looked::new();
        for _ in 0..4 {
            assert!(looked.again("a", false).1);
        }
    }

    #[test]
    fn after_a_minute_a_card_is_looked_at_again() {
        let looked = Looked::new();
        looked.again("a", true);
        looked.again("a", true);
        let cached = lock(&looked.cache.cards.by_key).remove("card").unwrap().cached.unwrap();
        let cached = Arc::into_inner(cached).unwrap();
        assert!(cached.still_holds());
        assert!(!Cached { at: cached.at.checked_sub(LONGEST).unwrap(), ..cached }.still_holds());
    }
}
