//! Memory and other blocks of an AMD GPU: uncorrectable errors counted by amdgpu, and memory pages that it could not
//! retire.
//!
//! <https://docs.kernel.org/gpu/amdgpu/ras.html>. A read asks the card's firmware. While the GPU is being reset, the
//! files contain a sentence.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::bus::pci;
use crate::device::{Device, PciFunction};
use crate::finding::Finding;
use crate::health::power::Power;
use crate::health::source::{
    About, Class, Count, Examination, LookContext, Meaning, Observation, Pace, Source, Subject, failed_read,
};
use crate::host::Host;
use crate::host::attribute::{AttributeError, decimal};
use crate::host::directory::Directory;

const ECC: &str = "ecc";

/// An error is over after this many seconds without another one.
const QUIET: u32 = 3600;

const DOCUMENT: &str = "https://docs.kernel.org/gpu/amdgpu/ras.html";

/// Metric name.
const METRIC: &str = "ras-errors";

const UNCORRECTED: &str = "uncorrected";
const KINDS: [(&str, &str); 3] = [("ue", UNCORRECTED), ("ce", "corrected"), ("de", "deferred")];

static ERRORS: About = About {
    name: "amd-ras",
    reads: Class::Firmware,
    pace: Pace::Sixtieth,
    document: DOCUMENT,
    meanings: &[Meaning::warning(
        ECC,
        "the uncorrectable errors (ue) of a block in ras/ have risen since they were first read",
        "restart the pods that failed on it; if it comes again, see amd-smi bad-pages[ -g \
         {pci_address}] and ask AMD",
    )
    .until_quiet_for(QUIET)],
};

static PAGES: About = About {
    name: "amd-bad-pages",
    reads: Class::Firmware,
    pace: Pace::Sixtieth,
    document: DOCUMENT,
    meanings: &[Meaning::unhealthy(
        ECC,
        "ras/gpu_vram_bad_pages has a page that could not be reserved (F)",
        "end its pods and reboot: the driver reserves bad pages when it starts; if the F \
         stays, ask AMD",
    )],
};

/// The source of uncorrectable errors.
#[derive(Debug)]
pub(super) struct Errors;

/// The source of pages that could not be retired.
#[derive(Debug)]
pub(super) struct BadPages;

impl Source for Errors {
    fn about(&self) -> &'static About {
        &ERRORS
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        let subject = |function: PathBuf| {
            let directory = function.join("ras");
            let own = host.own_path(&directory);
            let power = Power::of(&function);
            Subject::new(
                own.to_string_lossy(),
                Blocks {
                    power,
                    directory,
                    last: BTreeMap::new(),
                    numbers: Vec::new(),
                    events: 0,
                    block: String::new(),
                },
            )
        };
        functions(host, device).map(subject).collect()
    }
}

impl Source for BadPages {
    fn about(&self) -> &'static About {
        &PAGES
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        let subject = |function: PathBuf| {
            let file = function.join("ras/gpu_vram_bad_pages");
            let own = host.own_path(&file);
            Subject::new(own.to_string_lossy(), Pages { power: Power::of(&function), file })
        };
        functions(host, device).map(subject).collect()
    }
}

/// The functions under amdgpu. Virtual functions have no such files.
fn functions<'d>(host: &'d Host, device: &'d Device) -> impl Iterator<Item = PathBuf> + 'd {
    let is_under_amdgpu = |function: &&PciFunction| function.driver.as_deref() == Some("amdgpu");
    device.functions.iter().filter(is_under_amdgpu).map(|function| host.absolute(&function.path))
}

/// The counters of all blocks of a GPU.
#[derive(Debug)]
struct Blocks {
    power: Power,
    directory: PathBuf,
    /// Uncorrectable errors at the last look, by file.
    last: BTreeMap<String, u64>,
    /// All counts of the last look: file, kind, number.
    numbers: Vec<(String, &'static str, u64)>,
    /// Number of errors seen by this process. Never falls.
    events: u64,
    /// The file that rose last.
    block: String,
}

impl Examination for Blocks {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        if let Some(asleep) = self.power.asleep(context.reads) {
            return Observation::NotLooked(asleep);
        }
        match self.numbers() {
            Ok(numbers) => self.take_in_all(numbers),
            Err(error) if self.events == 0 => return failed_read(&error.cause),
            Err(_) => {}
        }
        match self.events {
            0 if self.last.is_empty() => Observation::Nothing,
            0 => Observation::Fine,
            events => Observation::Seen(self.finding(context, events)),
        }
    }

    fn has_counted(&self) -> bool {
        !self.last.is_empty()
    }

    fn is_counting(&self) -> bool {
        true
    }

    fn counts(&self) -> Vec<Count> {
        let address = pci::function_of(&self.directory).and_then(pci::address_of).unwrap_or_default();
        let count = |(file, kind, number): &(String, &'static str, u64)| Count {
            pci_address: address.to_owned(),
            ibdev: String::new(),
            part: block_of(file).to_owned(),
            name: METRIC,
            kind: (*kind).into(),
            number: *number,
        };
        self.numbers.iter().map(count).collect()
    }
}

impl Blocks {
    /// File, kind and number of each file that contains numbers now.
    fn numbers(&self) -> Result<Vec<(String, &'static str, u64)>, AttributeError> {
        let directory = Directory::open(&self.directory)?;
        let names = directory.names()?.into_iter().filter(|name| block_of(name) != name);
        let of_file = |name: String| {
            let text = directory.attribute(&name).map_or(String::new(), |attribute| attribute.text().to_owned());
            counted(&text).into_iter().map(move |(kind, number)| (name.clone(), kind, number)).collect::<Vec<_>>()
        };
        Ok(names.flat_map(of_file).collect())
    }

    /// While a GPU is being reset its files contain no numbers: the last ones stay.
    fn take_in_all(&mut self, numbers: Vec<(String, &'static str, u64)>) {
        for (file, _, number) in numbers.iter().filter(|(_, kind, _)| *kind == UNCORRECTED) {
            self.take_in(file.clone(), *number);
        }
        if !numbers.is_empty() {
            self.numbers = numbers;
        }
    }

    /// A count that has fallen is from a driver that was loaded again.
    fn take_in(&mut self, file: String, count: u64) {
        let before = self.last.insert(file.clone(), count).unwrap_or(count);
        if count > before {
            self.events = self.events.saturating_add(count - before);
            self.block = file;
        }
    }

    fn finding(&self, context: LookContext<'_>, events: u64) -> Finding {
        let count = self.last.get(&self.block).copied().unwrap_or_default();
        let detail = format!(
            "uncorrectable errors of {} have risen to {count}, those of the GPU by {events} since devherd first looked",
            self.block
        );
        ERRORS.finding(ECC).at(context.file).reading(&count.to_string()).because(&detail).counted(events)
    }
}

/// `umc` of `umc_err_count`, and of `aca_umc` on GPUs with the accelerator check architecture; the name itself if it is
/// not a counter.
fn block_of(name: &str) -> &str {
    name.strip_suffix("_err_count").or_else(|| name.strip_prefix("aca_")).unwrap_or(name)
}

/// The counts in the lines `ue: 0`, `ce: 0` and `de: 0`, by kind; other lines are ignored.
fn counted(text: &str) -> Vec<(&'static str, u64)> {
    let number = |line: &str| {
        let (word, number) = line.trim().split_once(':')?;
        let (_, kind) = KINDS.into_iter().find(|(abbreviation, _)| *abbreviation == word)?;
        Some((kind, decimal(number.trim())?.try_into().ok()?))
    };
    text.lines().filter_map(number).collect()
}

/// The list of bad pages.
#[derive(Debug)]
struct Pages {
    power: Power,
    file: PathBuf,
}

impl Examination for Pages {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        if let Some(asleep) = self.power.asleep(context.reads) {
            return Observation::NotLooked(asleep);
        }
        match context.read(&self.file) {
            Ok(text) => match text.lines().find(|line| is_unreserved(line)) {
                Some(line) => {
                    let detail = "a bad page of the GPU's memory is in use and could not be reserved";
                    Observation::Seen(PAGES.finding(ECC).at(context.file).reading(line.trim()).because(detail))
                }
                None => Observation::Fine,
            },
            Err(cause) => failed_read(&cause),
        }
    }
}

/// `0x00000001 : 0x00001000 : F`: page, size, and R (reserved), P (pending) or F (could not be reserved).
fn is_unreserved(line: &str) -> bool {
    line.rsplit_once(':').is_some_and(|(_, flag)| flag.trim() == "F")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::health::source::Action;
    use crate::health::sources::testing::{FUNCTION, Tree, Watching, device};

    fn watching<'t>(tree: &'t Tree, source: &dyn Source) -> Watching<'t> {
        tree.watch(source, &device("amd", Some("amdgpu")))
    }

    #[test]
    fn uncorrectable_errors_are_counted_over_all_blocks_from_the_first_look_on() {
        let tree = Tree::new();
        let mut watching = watching(&tree, &Errors);
        assert_eq!(watching.observation(), Observation::Nothing, "a GPU without RAS");
        tree.set("ras/umc_err_count", "ue: 3\nce: 9\n");
        tree.set("ras/aca_gfx", "ue: 0\nce: 0\nde: 0\n");
        tree.set("ras/features", "feature mask: 0x1\n");
        assert_eq!(watching.observation(), Observation::Fine);
        tree.set("ras/umc_err_count", "ue: 4\nce: 99\n");
        let expected = ERRORS.finding("ecc").at(format!("{FUNCTION}/ras")).reading("4").counted(1);
        let detail =
            "uncorrectable errors of umc_err_count have risen to 4, those of the GPU by 1 since devherd first looked";
        assert_eq!(watching.finding(), expected.because(detail));
        tree.set("ras/aca_gfx", "ue: 2\nce: 0\nde: 0\n");
        assert_eq!(watching.finding().count, 3);
        assert_eq!(ERRORS.meanings[0].action, Action::Warn);
    }

    #[test]
    fn counts_of_the_blocks_are_reported_by_kind_also_while_the_gpu_is_reset() {
        let tree = Tree::new();
        let mut watching = watching(&tree, &Errors);
        tree.set("ras/umc_err_count", "ue: 3\nce: 9\n");
        tree.set("ras/aca_gfx", "ue: 0\nce: 1\nde: 2\n");
        assert_eq!(watching.observation(), Observation::Fine);
        let counts = |watching: &Watching<'_>| -> Vec<String> {
            let counts = watching.subjects[0].examination.counts().into_iter();
            counts.map(|one| format!("{} {} {} {}", one.pci_address, one.part, one.kind, one.number)).collect()
        };
        let expected = [
            "0000:81:00.0 gfx uncorrected 0",
            "0000:81:00.0 gfx corrected 1",
            "0000:81:00.0 gfx deferred 2",
            "0000:81:00.0 umc uncorrected 3",
            "0000:81:00.0 umc corrected 9",
        ];
        assert_eq!(counts(&watching), expected);
        for file in ["ras/umc_err_count", "ras/aca_gfx"] {
            tree.set(file, "Query currently inaccessible\n");
        }
        watching.observation();
        assert_eq!(counts(&watching), expected);
    }

    #[test]
    fn while_a_gpu_is_reset_its_counters_say_nothing_and_none_is_lost() {
        let tree = Tree::new();
        let mut watching = watching(&tree, &Errors);
        for (text, count) in [
            ("ue: 1\nce: 0\n", 0),
            ("Query currently inaccessible\n", 0),
            ("ue: 3\nce: 0\n", 2),
            ("Query currently inaccessible\n", 2),
            ("ue: 0\nce: 0\n", 2),
            ("ue: 1\nce: 0\n", 3),
        ] {
            tree.set("ras/umc_err_count", text);
            let counted = if let Observation::Seen(finding) = watching.observation() { finding.count } else { 0 };
            assert_eq!(counted, count, "{text}");
        }
    }

    #[test]
    fn a_bad_page_that_could_not_be_reserved_makes_the_gpu_unhealthy() {
        let tree = Tree::new();
        let mut watching = watching(&tree, &BadPages);
        assert_eq!(watching.observation(), Observation::Nothing);
        tree.set("ras/gpu_vram_bad_pages", "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P\n");
        assert_eq!(watching.observation(), Observation::Fine);
        tree.set("ras/gpu_vram_bad_pages", "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : F\n");
        let finding = watching.finding();
        assert_eq!((&*finding.reason, &*finding.value), ("ecc", "0x00000002 : 0x00001000 : F"));
        assert_eq!(PAGES.meanings[0].action, Action::Unhealthy);
    }

    #[test]
    fn a_gpu_that_sleeps_and_one_under_another_driver_are_left_alone() {
        let tree = Tree::new();
        tree.set("ras/umc_err_count", "ue: 1\nce: 0\n");
        tree.set("power/runtime_status", "suspended\n");
        for source in [&Errors as &dyn Source, &BadPages] {
            assert!(matches!(watching(&tree, source).observation(), Observation::NotLooked(_)));
            assert!(tree.watch(source, &device("amd", Some("vfio-pci"))).subjects.is_empty());
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_a_count_or_a_page(text: String) {
            counted(&text);
            block_of(&text);
            is_unreserved(&text);
        }
    }
}
