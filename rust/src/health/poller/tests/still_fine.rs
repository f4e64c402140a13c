//! A subject that is asked cheaply whether it is still fine says what one that looks each time says.

use super::*;
use crate::health::kept_file::{Base, Keeping};
use crate::health::sources::{self, fpga_power};
use crate::health::watched::Watched;

/// An examination that never answers cheaply.
#[derive(Debug)]
struct Looking(Box<dyn Examination>);

impl Examination for Looking {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        self.0.look(context)
    }

    fn memory(&self) -> Option<String> {
        self.0.memory()
    }

    fn is_counting(&self) -> bool {
        self.0.is_counting()
    }

    fn counts(&self) -> Vec<Count> {
        self.0.counts()
    }
}

/// What happens to a file between two looks.
#[derive(Debug, Clone)]
enum Step {
    /// The same file gets another text.
    Written(&'static [u8]),
    /// Another file is put in its place.
    Replaced(&'static [u8]),
    /// Another file, made in its place after the old one was removed.
    Anew(&'static [u8]),
    Gone,
    /// Its directory is removed with it.
    DirectoryGone,
    /// Something that is no file.
    Directory,
    Nothing,
}

const TEXTS: [&[u8]; 14] = [
    b"0x0\n",
    b"0x0\0\n",
    b"0",
    b"0x4\n",
    b"",
    b"operating\n",
    b"write error\n",
    b"20000\n",
    b"95000\n",
    b"70000\n",
    b"TOTAL_ERR 0\n",
    b"TOTAL_ERR 3\n",
    b"\xff\xfe\n",
    &[b'0'; 5000],
];

fn step() -> impl Strategy<Value = Step> {
    let text = || prop::sample::select(&TEXTS[..]);
    prop_oneof![
        4 => text().prop_map(Step::Written),
        3 => text().prop_map(Step::Replaced),
        1 => text().prop_map(Step::Anew),
        1 => Just(Step::Gone),
        1 => Just(Step::DirectoryGone),
        1 => Just(Step::Directory),
        4 => Just(Step::Nothing),
    ]
}

fn take(tree: &Tree, file: &str, step: &Step) {
    let path = tree.path(file);
    let remove = || std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path)).unwrap_or_default();
    match step {
        Step::Written(_) if path.is_dir() => {}
        Step::Written(text) => tree.write(file, text),
        Step::Replaced(text) => {
            let beside = tree.path("/sys/beside");
            tree.write("/sys/beside", text);
            if path.is_dir() {
                remove();
            }
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::rename(beside, path).unwrap();
        }
        Step::Anew(text) => {
            remove();
            tree.write(file, text);
        }
        Step::Gone => remove(),
        Step::DirectoryGone => std::fs::remove_dir_all(path.parent().unwrap()).unwrap_or_default(),
        Step::Directory => {
            remove();
            std::fs::create_dir_all(path).unwrap();
        }
        Step::Nothing => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn what_is_asked_cheaply_is_found_as_by_looking(
        steps in prop::collection::vec((step(), any::<bool>(), 0_u64..80), 1..24), is_watched in any::<bool>(),
    ) {
        let tree = Tree::new();
        // AER counters are beside their function; the others are readings.
        let file = format!("{FUNCTION}/aer_dev_fatal");
        let readings = vec![
            fpga_errors::of_port(&file),
            fpga_manager::of_manager(&file),
            fpga_power::of_port(&file),
            temperature::below(&file, 90_000, None),
            temperature::alarm(&file),
        ];
        let device = Device { readings, ..with_function("card", "port.0") };
        let subjects = |wrap: &dyn Fn(Box<dyn Examination>) -> Box<dyn Examination>| {
            let of_source = |source: &&'static dyn Source| {
                let about = source.about();
                source.subjects(&tree.host, &device).into_iter().map(move |subject| (about, subject))
            };
            let own = sources::ALL.iter().flat_map(of_source).filter(|(_, subject)| subject.file == file);
            let wrapped = |(about, subject): (_, Subject)| {
                Watched::new(about, Subject { examination: wrap(subject.examination), ..subject })
            };
            own.map(wrapped).collect::<Vec<_>>()
        };
        let (asked, looking) = (subjects(&|examination| examination), subjects(&|examination| Box::new(Looking(examination))));
        assert_eq!(asked.len(), 6);
        let base = Base::new(tree.path(FUNCTION));
        let (replaced, blind) = (Replaced::default(), Replaced::default());
        if is_watched {
            replaced.start();
        }
        let mut now = *BEGAN;
        for (round, (step, open, seconds)) in (0..).zip(steps) {
            take(&tree, &file, &step);
            now += Duration::from_secs(seconds);
            let moment = Moment { round, is_logged: false, now };
            replaced.look();
            for (asked, looking) in asked.iter().zip(&looking) {
                asked.look(&tree.host, Keeping { open, replaced: Some(&replaced), base: Some(&base), read_once: None }, moment);
                looking.look(&tree.host, Keeping { open: false, replaced: Some(&blind), base: None, read_once: None }, moment);
                prop_assert_eq!(asked.observation().unwrap(), looking.observation().unwrap(), "{} {:?}", asked.source.name, step);
                prop_assert_eq!(asked.counts().unwrap(), looking.counts().unwrap());
                prop_assert_eq!(asked.memory().unwrap(), looking.memory().unwrap());
                prop_assert_eq!(asked.due(0, false), looking.due(0, false));
            }
        }
    }
}

#[test]
fn a_card_on_which_all_was_well_is_asked_by_its_files_alone_whether_it_still_is() {
    let tree = Tree::new();
    let mut poller = poller(&tree);
    poller.replaced.start();
    tree.write(PORT, "0x0");
    tree.write(ENGINE, "0x0");
    let readings = vec![fpga_errors::of_port(PORT), fpga_errors::of_engine(ENGINE)];
    poller.watch_all(&[device("card", "port.0", readings)]);
    assert_eq!(polled(&mut poller), []);
    let watched = Arc::clone(&poller.cards[0].card.watched[0]);
    let (locked, nobody_waits) = (watched.lock(), PollReason::Regular(HashMap::new()));
    for _ in 0..3 {
        assert_eq!(poller.poll_at(*BEGAN, &nobody_waits, &|| {}), [], "a look would wait for the subject");
    }
    drop(locked);
    assert!(poller.cards[0].card.due(poller.moment()).is_empty(), "what was asked in this round is not due in it");
    for (file, text, reason) in [(PORT, "0x1", "port-error"), (ENGINE, "0x4", "fme-error")] {
        tree.write(file, text);
        for _ in 0..2 {
            assert_eq!(reasons(&poller.poll_at(*BEGAN, &nobody_waits, &|| {})), [("port.0", vec![reason])]);
        }
        tree.write(file, "0x0");
        assert_eq!(poller.poll_at(*BEGAN, &nobody_waits, &|| {}), []);
    }
}
