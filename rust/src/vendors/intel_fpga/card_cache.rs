//! A cache of cards without problems. Cards have thousands of attributes that never change while a driver is bound; a
//! cached card is reused as long as the files that were read show no change.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::locate::Card;
use crate::device::{Device, Found, Problem};
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::host::read_log::{ReadLog, recorded};

/// The longest reuse. A change on the same kernel object, such as a NUMA node that the operator sets, is noticed after
/// that time.
const LONGEST: Duration = Duration::from_secs(60);

/// The cached contents of the class directories, and of each card.
#[derive(Debug, Default)]
pub(super) struct CardCache {
    located: Mutex<Option<Arc<CachedCards>>>,
    cards: Mutex<HashMap<String, Arc<CachedCard>>>,
    /// Number of `forget` calls: the result of a look that began before such a call, and maybe hung, is not cached
    /// after it.
    forgotten: AtomicU64,
}

#[derive(Debug)]
struct CachedCards {
    reads: ReadLog,
    cards: Vec<Arc<Card>>,
    at: Instant,
}

#[derive(Debug)]
struct CachedCard {
    card: Arc<Card>,
    reads: ReadLog,
    devices: Vec<Arc<Device>>,
    at: Instant,
}

impl CardCache {
    /// The cards from the cache, or from `locate`, which adds its errors to `found`.
    pub(super) fn cards(
        &self,
        host: &Host,
        found: &mut Found,
        locate: impl FnOnce(&mut Found) -> Vec<Card>,
    ) -> Vec<Arc<Card>> {
        let known = lock(&self.located).clone();
        if let Some(known) = known.filter(|known| known.still_holds()) {
            return known.cards.clone();
        }
        let (at, forgotten) = (Instant::now(), self.forgotten());
        let (cards, reads) = recorded(host.has_kernel_sysfs(), || locate(found));
        let cards: Vec<Arc<Card>> = cards.into_iter().map(Arc::new).collect();
        let is_well = found.problems.is_empty() && found.unseen.is_empty() && reads.is_settled();
        let mut located = lock(&self.located);
        let is_kept = is_well && forgotten == self.forgotten();
        *located = is_kept.then(|| Arc::new(CachedCards { reads, cards: cards.clone(), at }));
        drop(located);
        self.forget_others(&cards);
        cards
    }

    /// The devices of a card from the cache, or from `look`.
    pub(super) fn devices(
        &self,
        host: &Host,
        card: Arc<Card>,
        look: impl FnOnce(&Card) -> (Vec<Device>, Vec<Problem>),
    ) -> (Vec<Arc<Device>>, Vec<Problem>) {
        let known = lock(&self.cards).get(&card.key).cloned();
        if let Some(known) = known.filter(|known| known.card == card && known.still_holds(host)) {
            return (known.devices.clone(), Vec::new());
        }
        let (at, forgotten) = (Instant::now(), self.forgotten());
        let ((devices, problems), reads) = recorded(host.has_kernel_sysfs(), || look(&card));
        let devices: Vec<Arc<Device>> = devices.into_iter().map(Arc::new).collect();
        let is_well = problems.is_empty() && devices.iter().all(|device| device.findings.is_empty());
        let mut cards = lock(&self.cards);
        if is_well && reads.is_settled() && forgotten == self.forgotten() {
            let key = card.key.clone();
            cards.insert(key, Arc::new(CachedCard { card, reads, devices: devices.clone(), at }));
        } else {
            cards.remove(&card.key);
        }
        (devices, problems)
    }

    fn forget_others(&self, cards: &[Arc<Card>]) {
        let present: BTreeSet<&str> = cards.iter().map(|card| card.key.as_str()).collect();
        lock(&self.cards).retain(|key, _| present.contains(key.as_str()));
    }

    /// Drops everything, so that all cards are examined again.
    pub(super) fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        *lock(&self.located) = None;
        lock(&self.cards).clear();
    }

    fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CachedCards {
    fn still_holds(&self) -> bool {
        self.at.elapsed() < LONGEST && self.reads.still_holds()
    }
}

impl CachedCard {
    fn still_holds(&self, host: &Host) -> bool {
        self.at.elapsed() < LONGEST
            && self.reads.still_holds()
            && (self.reads.covers_contents() || self.devices.iter().all(|device| has_loaded(host, device)))
    }
}

/// Whether a port still has the function that it had: ports are programmed while their driver stays.
fn has_loaded(host: &Host, device: &Device) -> bool {
    let Some(known) = device.attributes.get("afu_id") else { return true };
    let loaded = Attribute::read(host.absolute(Path::new(&known.source))).and_then(|attribute| attribute.uuid());
    loaded.is_ok_and(|loaded| known.value.as_text() == Some(&loaded))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::health::sources::scan;
    use crate::vendors::intel_fpga::locate::{Driver, Entry};

    const AFU: &str = "d8424dc4a4a3c413f89e433683f9040b";

    /// A tree with a port, and how often its card was examined.
    struct Looked {
        root: tempfile::TempDir,
        cache: CardCache,
        times: Cell<u32>,
    }

    impl Looked {
        fn new() -> Self {
            let looked = Self { root: tempfile::tempdir().unwrap(), cache: CardCache::default(), times: Cell::new(0) };
            looked.write("afu_id", AFU);
            looked.write("dev", "244:0");
            looked
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.root.path().join(name), text).unwrap();
        }

        /// The devices of the card, and whether they took a look; some time after the last change.
        fn again(&self, entries: Vec<Entry>, is_well: bool) -> (Vec<Arc<Device>>, bool) {
            std::thread::sleep(Duration::from_millis(50));
            let host = Host::new(self.root.path());
            let before = self.times.get();
            let card = Card { key: "card".to_owned(), function: None, entries, fme_regions: Vec::new() };
            let card = Arc::new(card);
            let (devices, _) = self.cache.devices(&host, card, |_| {
                self.times.set(before + 1);
                let mut device = Device::default();
                for name in ["afu_id", "dev"] {
                    let text = Attribute::read(self.root.path().join(name)).unwrap().text().to_owned();
                    device.note(name, text, format!("/{name}"));
                }
                device.findings.extend((!is_well).then(|| scan::finding(scan::PORT_ERROR, "/dev", "")));
                (vec![device], Vec::new())
            });
            (devices, self.times.get() > before)
        }
    }

    #[test]
    fn a_healthy_card_is_not_read_again_until_something_changes_or_all_is_forgotten() {
        let looked = Looked::new();
        let (found, _) = looked.again(Vec::new(), true);
        for _ in 0..2 {
            assert_eq!(looked.again(Vec::new(), true), (found.clone(), false));
        }
        looked.write("dev", "244:1");
        let (found, is_looked_at) = looked.again(Vec::new(), true);
        assert_eq!((found[0].text("dev").as_deref(), is_looked_at), (Some("244:1"), true));
        assert_eq!(looked.again(Vec::new(), true), (found.clone(), false));
        looked.cache.forget();
        assert_eq!(looked.again(Vec::new(), true), (found.clone(), true));
        looked.cache.forget_others(&[]);
        assert_eq!(looked.again(Vec::new(), true), (found.clone(), true));
        let entry = Entry { driver: Driver::Dfl, class_path: "/a".into(), path: "/b".into(), function: None };
        assert_eq!(looked.again(vec![entry], true), (found, true), "the class directory has something else");
    }

    #[test]
    fn what_was_looked_at_when_all_was_forgotten_is_not_remembered() {
        let looked = Looked::new();
        std::thread::sleep(Duration::from_millis(50));
        let host = Host::new(looked.root.path());
        let card = || Card { key: "card".to_owned(), function: None, entries: Vec::new(), fme_regions: Vec::new() };
        let during = |happens: fn(&CardCache)| {
            let mut found = Found::default();
            looked.cache.cards(&host, &mut found, |_| {
                happens(&looked.cache);
                vec![card()]
            });
            looked.cache.devices(&host, Arc::new(card()), |_| {
                Attribute::read(looked.root.path().join("dev")).unwrap();
                happens(&looked.cache);
                (vec![Device::default()], Vec::new())
            });
            (lock(&looked.cache.located).is_some(), lock(&looked.cache.cards).len())
        };
        assert_eq!(during(CardCache::forget), (false, 0), "as by an event, while a read hangs");
        assert_eq!(during(|_| ()), (true, 1));
    }

    #[test]
    fn a_card_on_which_something_is_the_matter_is_looked_at_each_time() {
        let looked = Looked::new();
        assert!(looked.again(Vec::new(), false).1);
        assert!(looked.again(Vec::new(), false).1);
    }

    #[test]
    fn what_is_loaded_in_a_port_is_read_each_time() {
        let looked = Looked::new();
        let (found, _) = looked.again(Vec::new(), true);
        let host = Host::new(looked.root.path());
        assert!(has_loaded(&host, &found[0]));
        for other in ["f7df405cbd7acf7222f144b0b93acd18", "garbage"] {
            looked.write("afu_id", other);
            assert!(!has_loaded(&host, &found[0]), "{other}");
        }
    }

    #[test]
    fn after_a_minute_a_card_is_looked_at_again() {
        let looked = Looked::new();
        looked.again(Vec::new(), true);
        let host = Host::new(looked.root.path());
        let known = lock(&looked.cache.cards).remove("card").unwrap();
        assert!(known.still_holds(&host));
        let at = known.at.checked_sub(LONGEST).unwrap();
        assert!(!CachedCard { at, ..Arc::into_inner(known).unwrap() }.still_holds(&host));
    }
}
