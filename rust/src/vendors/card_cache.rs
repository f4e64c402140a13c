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
    located: Mutex<Known<Cached<L>>>,
    cards: Mutex<HashMap<String, Examined<C, T>>>,
    /// Number of `forget` calls: the result of a look that began before such a call, and maybe hung, is not cached
    /// after it.
    forgotten: AtomicU64,
}

/// State of the knowledge about a part of the host.
#[derive(Debug)]
enum Known<A> {
    /// It was not examined yet.
    Nothing,
    /// It was examined once: from now on, looks at it are recorded.
    Seen,
    /// The answer of the last look.
    Answer(Arc<A>),
}

#[derive(Debug)]
struct Cached<A> {
    reads: ReadLog,
    answer: A,
    at: Instant,
}

/// A card that was examined once: from now on, looks at it are recorded.
#[derive(Debug)]
struct Examined<C, T> {
    /// The answer of the last look. An equal answer does not replace it, so that its devices stay the same objects.
    last: T,
    /// Absent if the last look was not recorded, or may not be reused.
    cached: Option<Arc<CachedCard<C, T>>>,
}

#[derive(Debug)]
struct CachedCard<C, T> {
    card: Arc<C>,
    cached: Cached<T>,
}

impl<L, C, T> Default for CardCache<L, C, T> {
    fn default() -> Self {
        Self { located: Mutex::new(Known::Nothing), cards: Mutex::default(), forgotten: AtomicU64::new(0) }
    }
}

impl<L: Clone, C: Located, T: Clone + PartialEq> CardCache<L, C, T> {
    /// The located cards, from the cache or from `locate`. `locate` also returns whether it could read everything.
    pub(super) fn located(&self, host: &Host, locate: impl FnOnce() -> (L, bool)) -> L {
        let (known, is_first) = {
            let located = lock(&self.located);
            (located.answer(), located.is_nothing())
        };
        if let Some(known) = known.filter(|known| known.still_holds()) {
            return known.answer.clone();
        }
        if is_first {
            *lock(&self.located) = Known::Seen;
            return locate().0;
        }
        let (at, forgotten) = (Instant::now(), self.forgotten());
        let ((answer, is_well), reads) = recorded(host.has_kernel_sysfs(), locate);
        let mut located = lock(&self.located);
        let is_kept = is_well && reads.is_settled() && forgotten == self.forgotten();
        *located =
            if is_kept { Known::Answer(Cached { reads, answer: answer.clone(), at }.into()) } else { Known::Seen };
        answer
    }

    /// The answer of a card, from the cache or from `look`. `look` also returns whether the answer may be kept.
    /// `is_current` checks contents that change although sysfs does not show it.
    pub(super) fn examined(
        &self,
        host: &Host,
        card: Arc<C>,
        look: impl FnOnce(&C) -> (T, bool),
        is_current: impl FnOnce(&T) -> bool,
    ) -> T {
        let Some(known) = lock(&self.cards).get(card.key()).map(|known| known.cached.clone()) else {
            let last = look(&card).0;
            lock(&self.cards).insert(card.key().to_owned(), Examined { last: last.clone(), cached: None });
            return last;
        };
        let is_same = |known: &CachedCard<C, T>| Arc::ptr_eq(&known.card, &card) || known.card == card;
        if let Some(known) = known.filter(|known| is_same(known) && known.cached.still_holds())
            && (known.cached.reads.covers_contents() || is_current(&known.cached.answer))
        {
            return known.cached.answer.clone();
        }
        let (at, forgotten) = (Instant::now(), self.forgotten());
        let ((answer, is_well), reads) = recorded(host.has_kernel_sysfs(), || look(&card));
        let mut cards = lock(&self.cards);
        let Some(known) = cards.get_mut(card.key()) else { return answer };
        if known.last != answer {
            known.last = answer;
        }
        let answer = known.last.clone();
        let is_kept = is_well && reads.is_settled() && forgotten == self.forgotten();
        known.cached =
            is_kept.then(|| Arc::new(CachedCard { card, cached: Cached { reads, answer: answer.clone(), at } }));
        answer
    }

    /// Forgets all cards except these.
    pub(super) fn forget_others<'c>(&self, cards: impl Iterator<Item = &'c C>)
    where
        C: 'c,
    {
        let present: BTreeSet<&str> = cards.map(Located::key).collect();
        lock(&self.cards).retain(|key, _| present.contains(key.as_str()));
    }

    /// Drops everything, so that all cards are examined again.
    pub(super) fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        lock(&self.located).drop_answer();
        lock(&self.cards).values_mut().for_each(|card| card.cached = None);
    }

    fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }
}

impl<A> Known<A> {
    fn answer(&self) -> Option<Arc<A>> {
        if let Self::Answer(answer) = self { Some(Arc::clone(answer)) } else { None }
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    fn drop_answer(&mut self) {
        if !self.is_nothing() {
            *self = Self::Seen;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<A> Cached<A> {
    fn still_holds(&self) -> bool {
        self.at.elapsed() < LONGEST && self.reads.still_holds()
    }
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
            let text = self.cache.examined(&Host::new(self.root.path()), card(entry), look, |_| true);
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
            looked.cache.examined(&host, card("a"), look, |_| true);
            let cards = lock(&looked.cache.cards);
            (lock(&looked.cache.located).answer().is_some(), cards.values().any(|card| card.cached.is_some()))
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
        let look = |text: &str| cache.examined(&host, card("a"), |_| (Arc::new(text.to_owned()), true), |_| true);
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
        let known = lock(&looked.cache.cards).remove("card").unwrap().cached.unwrap();
        let cached = Arc::into_inner(known).unwrap().cached;
        assert!(cached.still_holds());
        assert!(!Cached { at: cached.at.checked_sub(LONGEST).unwrap(), ..cached }.still_holds());
    }
}
