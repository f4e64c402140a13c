//! Counters of PCI errors: each rise is an event, counted from the first look on.
//!
//! <https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats>: an error of a function may
//! be counted at the port above it instead, the other end of its link. Both counters are read and shown as metrics.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::bus::pci;
use crate::device::Device;
use crate::health::kept_file::KeptFile;
use crate::health::source::{
    About, Class, Count, Examination, LookContext, Meaning, Observation, Pace, Source, Subject, failed_read, is_failure,
};
use crate::host::Host;

const PCI_AER: &str = "pci-aer";

/// Metric name.
const METRIC: &str = "pci-errors";

/// An error is over after this many seconds without another one.
const QUIET: u32 = 600;

const DOCUMENT: &str = "https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats";

/// More correctable errors per minute than this are a warning.
const MOST_A_MINUTE: u64 = 60;

const MINUTE: Duration = Duration::from_secs(60);

const SEAT: &str = "read the kernel log's AER lines (dmesg); if it comes again, drain and power off the node, reseat \
     or exchange the card[ {place}]";

static FATAL: About = About {
    name: "pci-aer-fatal",
    reads: Class::KernelMemory,
    pace: Pace::EachUnlessLogged,
    document: DOCUMENT,
    meanings: &[Meaning::unhealthy(
        PCI_AER,
        "aer_dev_fatal of the function or of the port above it has risen since it was first read",
        SEAT,
    )
    .until_quiet_for(QUIET)],
};

static NONFATAL: About = About {
    name: "pci-aer-nonfatal",
    reads: Class::KernelMemory,
    pace: Pace::Tenth,
    document: DOCUMENT,
    meanings: &[Meaning::warning(
        PCI_AER,
        "aer_dev_nonfatal of the function or of the port above it has risen since it was first read",
        SEAT,
    )
    .until_quiet_for(QUIET)],
};

static CORRECTABLE: About = About {
    name: "pci-aer-correctable",
    reads: Class::KernelMemory,
    pace: Pace::Tenth,
    document: DOCUMENT,
    meanings: &[Meaning::ignored(
        PCI_AER,
        "aer_dev_correctable of the function or of the port above it has risen",
        "do nothing: the hardware has corrected the errors",
    )
    .until_quiet_for(QUIET)],
};

static CORRECTABLE_RATE: About = About {
    name: "pci-aer-correctable-rate",
    reads: Class::KernelMemory,
    pace: Pace::Tenth,
    document: DOCUMENT,
    meanings: &[Meaning::warning(PCI_AER, "aer_dev_correctable has risen by more than 60 in a minute", SEAT)
        .until_quiet_for(QUIET)],
};

/// The two ends of a function's link.
const DEVICE: &str = "device";
const PORT: &str = "port";

/// The source for one counter.
#[derive(Debug)]
pub(super) struct PciAer {
    about: &'static About,
    counter: &'static str,
    /// Whether another source reads the same counter.
    is_shared: bool,
    /// Errors per minute that do not count.
    free_a_minute: u64,
}

impl PciAer {
    /// Errors that make the link unreliable.
    pub(super) const FATAL: Self = Self { about: &FATAL, counter: "aer_dev_fatal", is_shared: false, free_a_minute: 0 };
    /// Errors that cost a transaction.
    pub(super) const NONFATAL: Self =
        Self { about: &NONFATAL, counter: "aer_dev_nonfatal", is_shared: false, free_a_minute: 0 };
    /// Errors that the hardware has corrected.
    pub(super) const CORRECTABLE: Self =
        Self { about: &CORRECTABLE, counter: "aer_dev_correctable", is_shared: true, free_a_minute: 0 };
    /// Correctable errors at a high rate.
    pub(super) const CORRECTABLE_RATE: Self = Self {
        about: &CORRECTABLE_RATE,
        counter: "aer_dev_correctable",
        is_shared: true,
        free_a_minute: MOST_A_MINUTE,
    };
}

impl Source for PciAer {
    fn about(&self) -> &'static About {
        self.about
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        let subject = |(end, function): (&'static str, &Path)| {
            let file = function.join(self.counter);
            let path = host.absolute(&file);
            let counter = Counter {
                about: self.about,
                end,
                kind: self.counter.strip_prefix("aer_dev_").unwrap_or(self.counter),
                free_a_minute: self.free_a_minute,
                is_shared: self.is_shared,
                file: KeptFile::new(path),
                last: None,
                begun: None,
                events: 0,
            };
            Subject::new(file.to_string_lossy(), counter)
        };
        let ends = |function: &Path| {
            let port = function.parent().filter(|port| pci::address_of(port).is_some());
            let both = [(DEVICE, Some(function)), (PORT, port)].into_iter();
            both.filter_map(|(end, function)| Some(subject((end, function?)))).collect::<Vec<_>>()
        };
        device.functions.iter().flat_map(|function| ends(&function.path)).collect()
    }
}

#[derive(Debug)]
struct Counter {
    about: &'static About,
    /// The end of the device's link at which the errors are counted.
    end: &'static str,
    /// `fatal`, `nonfatal`, `correctable`.
    kind: &'static str,
    free_a_minute: u64,
    /// Whether another subject reads the file, too.
    is_shared: bool,
    file: KeptFile,
    /// The kernel's count at the last look.
    last: Option<u64>,
    /// If some errors per minute do not count: start of the current minute, and errors in it.
    begun: Option<(Instant, u64)>,
    /// Number of errors seen by this process. Never falls, so that no error is lost together with the result of a look.
    events: u64,
}

impl Counter {
    /// A total that has fallen is from a function that was removed and came back: it counts from zero again.
    fn take_in(&mut self, total: u64, now: Instant) {
        let before = self.last.replace(total).unwrap_or(total);
        let news = total.saturating_sub(before);
        if self.free_a_minute == 0 {
            self.events = self.events.saturating_add(news);
            return;
        }
        let (begun, counted) = self.begun.unwrap_or((now, 0));
        let counted = counted.saturating_add(news);
        self.begun = Some((begun, counted));
        let lasted = now.saturating_duration_since(begun);
        if lasted >= MINUTE {
            let is_much =
                u128::from(counted) * MINUTE.as_millis() > u128::from(self.free_a_minute) * lasted.as_millis();
            self.events = self.events.saturating_add(if is_much { counted } else { 0 });
            self.begun = Some((now, 0));
        }
    }
}

impl Examination for Counter {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        let read = if self.is_shared { context.read(self.file.path()) } else { self.file.read(context.stays_open) };
        let read = read.map(|text| total(&text));
        if let Ok(Some(total)) = read {
            self.take_in(total, context.now);
        }
        match (self.events, read) {
            // A failed read is not a counted PCI error.
            (0, Err(cause)) if is_failure(&cause) => Observation::NotLooked(format!("cannot be read: {cause}")),
            (0, Err(cause)) => failed_read(&cause),
            (0, Ok(_)) => Observation::Fine,
            (events, _) => {
                let name = context.file.rsplit('/').next().unwrap_or_default();
                let total = self.last.unwrap_or_default();
                let detail = format!("{name} has risen to {total}, by {events} since devherd first looked");
                let finding = self.about.finding(PCI_AER).at(context.file).reading(&total.to_string());
                Observation::Seen(finding.because(&detail).counted(events))
            }
        }
    }

    fn has_counted(&self) -> bool {
        self.last.is_some()
    }

    fn is_counting(&self) -> bool {
        self.free_a_minute == 0 // the other source of the same file reports it
    }

    fn counts(&self) -> Vec<Count> {
        let count = |number| Count {
            pci_address: String::new(),
            ibdev: String::new(),
            part: self.end.to_owned(),
            name: METRIC,
            kind: self.kind.into(),
            number,
        };
        self.last.map(count).into_iter().collect()
    }

    fn close(&mut self) {
        self.file.close();
    }
}

/// The number of errors in `aer_dev_fatal`, `aer_dev_nonfatal` or `aer_dev_correctable`: the `TOTAL_ERR_…` line, or the
/// sum of all lines if there is none. `None` if the text contains no count.
fn total(text: &str) -> Option<u64> {
    let counts: Vec<(&str, u64)> = text.lines().filter_map(count).collect();
    let total = counts.iter().find(|(name, _)| name.starts_with("TOTAL_ERR_")).map(|&(_, count)| count);
    let sum = || counts.iter().map(|&(_, count)| count).reduce(u64::saturating_add);
    total.or_else(sum)
}

/// `Data Link Protocol 0`, `DLP 0`: a name, and a number at the end.
fn count(line: &str) -> Option<(&str, u64)> {
    let (name, count) = line.trim().rsplit_once(char::is_whitespace)?;
    Some((name, count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::health::source::{Action, Clears};
    use crate::health::sources::testing::{FUNCTION, Tree, device};

    /// The number of events after each of these contents; `None` makes the counter absent.
    fn counts(contents: &[Option<&str>]) -> Vec<u64> {
        let tree = Tree::new();
        let mut watching = tree.watch(&PciAer::FATAL, &device("nvidia", Some("nvidia")));
        let path = tree.path(&format!("{FUNCTION}/aer_dev_fatal"));
        let mut count = |content: Option<&str>| {
            match content {
                Some(content) => tree.set("aer_dev_fatal", content),
                None => std::fs::remove_file(&path).unwrap_or_default(),
            }
            match watching.observation() {
                Observation::Seen(finding) => finding.count,
                _ => 0,
            }
        };
        contents.iter().copied().map(&mut count).collect()
    }

    #[test]
    fn errors_are_counted_from_the_first_look_on_and_are_not_forgotten() {
        let texts = ["DLP 1\nTOTAL_ERR_FATAL 1", "TOTAL_ERR_FATAL 1", "TOTAL_ERR_FATAL 2", "TOTAL_ERR_FATAL 2"];
        assert_eq!(counts(&texts.map(Some)), [0, 0, 1, 1]);
    }

    #[test]
    fn a_total_that_falls_takes_no_event_back() {
        let texts = [5, 7, 0, 1, 4].map(|total| format!("TOTAL_ERR_FATAL {total}"));
        let texts: Vec<_> = texts.iter().map(|text| Some(text.as_str())).collect();
        assert_eq!(counts(&texts), [0, 2, 2, 3, 6]);
    }

    #[test]
    fn a_look_that_reads_nothing_takes_no_event_back() {
        let (one, two) = (Some("TOTAL_ERR_FATAL 1"), Some("TOTAL_ERR_FATAL 2"));
        assert_eq!(counts(&[None, one, two, None, Some("garbage"), two]), [0, 0, 1, 1, 1, 1]);
        assert_eq!(counts(&[one, None, two]), [0, 0, 1]);
    }

    #[test]
    fn a_rise_is_found_with_what_was_read() {
        let tree = Tree::new();
        for (source, action) in [(PciAer::FATAL, Action::Unhealthy), (PciAer::NONFATAL, Action::Warn)] {
            let mut watching = tree.watch(&source, &device("nvidia", Some("nvidia")));
            tree.set(source.counter, "TOTAL_ERR 3");
            assert_eq!(watching.observation(), Observation::Fine);
            tree.set(source.counter, "TOTAL_ERR 5");
            let detail = format!("{} has risen to 5, by 2 since devherd first looked", source.counter);
            let expected = source.about.finding("pci-aer").at(format!("{FUNCTION}/{}", source.counter));
            assert_eq!(watching.finding(), expected.reading("5").because(&detail).counted(2));
            assert_eq!(
                (source.about.meanings[0].action, source.about.meanings[0].clears),
                (action, Clears::Quiet(QUIET))
            );
        }
    }

    #[test]
    fn errors_that_the_other_end_of_the_link_counts_are_the_function_s_as_well() {
        let tree = Tree::new();
        let port = FUNCTION.rsplit_once('/').unwrap().0;
        let counter = format!("{port}/aer_dev_fatal");
        tree.set("aer_dev_fatal", "TOTAL_ERR_FATAL 0");
        tree.write(&counter, "TOTAL_ERR_FATAL 7");
        let mut watching = tree.watch(&PciAer::FATAL, &device("nvidia", Some("nvidia")));
        assert_eq!(watching.observations(), [Observation::Fine, Observation::Fine]);
        tree.write(&counter, "TOTAL_ERR_FATAL 8");
        let observations = watching.observations();
        let [Observation::Fine, Observation::Seen(finding)] = observations.as_slice() else {
            panic!("{observations:?}")
        };
        assert_eq!((&*finding.reason, &finding.file, finding.count), ("pci-aer", &counter, 1));
    }

    #[test]
    fn the_counts_of_either_end_are_reported_by_one_source() {
        let tree = Tree::new();
        let port = FUNCTION.rsplit_once('/').unwrap().0;
        tree.write(&format!("{port}/aer_dev_correctable"), "TOTAL_ERR_COR 7");
        let device = device("nvidia", Some("nvidia"));
        let mut watching = tree.watch(&PciAer::CORRECTABLE, &device);
        let mut counts = |errors: Option<&str>| {
            if let Some(errors) = errors {
                tree.set("aer_dev_correctable", errors);
            }
            watching.observations();
            let counts = watching.subjects.iter().flat_map(|subject| subject.examination.counts());
            counts.map(|one| format!("{} {} {}", one.part, one.kind, one.number)).collect::<Vec<_>>()
        };
        assert_eq!(counts(None), ["port correctable 7"]);
        for text in ["RxErr 3", "RxErr 1\nBadTLP 2"] {
            assert_eq!(counts(Some(text)), ["device correctable 3", "port correctable 7"], "{text}");
        }
        assert_eq!(counts(Some("TOTAL_ERR_COR 0"))[0], "device correctable 0", "a function that came back");
        let rate = tree.watch(&PciAer::CORRECTABLE_RATE, &device);
        assert!(rate.subjects.iter().all(|subject| !subject.examination.is_counting()), "it is the same number");
    }

    #[test]
    fn correctable_errors_are_a_warning_when_there_are_more_than_sixty_in_a_minute() {
        let tree = Tree::new();
        let device = device("nvidia", Some("nvidia"));
        let mut watching = tree.watch(&PciAer::CORRECTABLE_RATE, &device);
        let mut total = 0;
        // Seconds that pass, errors in them, and events so far.
        for (seconds, errors, expected) in [
            (0.0, 5, 0),
            (60.0, 60, 0),
            (30.0, 60, 0),
            (30.0, 1, 61),
            (10.0, 50, 61),
            (110.0, 50, 61),
            (60.0, 100, 161),
        ] {
            total += errors;
            watching.wait(seconds);
            tree.set("aer_dev_correctable", format!("TOTAL_ERR_COR {total}"));
            let count = if let Observation::Seen(finding) = watching.observation() { finding.count } else { 0 };
            assert_eq!(count, expected, "after {seconds} s with {errors} errors");
        }
        let mut every = tree.watch(&PciAer::CORRECTABLE, &device);
        assert_eq!(every.observation(), Observation::Fine);
        tree.set("aer_dev_correctable", format!("TOTAL_ERR_COR {}", total + 1));
        assert_eq!(every.finding().count, 1);
        let actions = [CORRECTABLE.meanings[0].action, CORRECTABLE_RATE.meanings[0].action];
        assert_eq!(actions, [Action::Ignore, Action::Warn]);
    }

    #[test]
    fn counters_are_read_of_a_function_that_sleeps() {
        let tree = Tree::new();
        tree.set("power/runtime_status", "suspended\n");
        tree.set("aer_dev_fatal", "TOTAL_ERR_FATAL 0");
        let mut watching = tree.watch(&PciAer::FATAL, &device("nvidia", Some("nvidia")));
        assert_eq!(watching.observation(), Observation::Fine);
    }

    #[test]
    fn the_total_counts_or_else_the_sum() {
        for (text, expected) in [
            ("Undefined 0\nDLP 2\nTOTAL_ERR_FATAL 7\n", Some(7)),
            ("Undefined 0\nDLP 2\nTLP 3\n", Some(5)),
            ("Data Link Protocol 4", Some(4)),
            ("TOTAL_ERR_NONFATAL 0", Some(0)),
            ("TOTAL_ERR_FATAL many\nDLP 1", Some(1)),
            ("A 18446744073709551615\nB 1", Some(u64::MAX)),
            ("garbage", None),
            ("", None),
        ] {
            assert_eq!(total(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_counted(text: String) {
            prop_assert!(total(&text).is_none() || text.contains(char::is_numeric));
        }
    }
}
