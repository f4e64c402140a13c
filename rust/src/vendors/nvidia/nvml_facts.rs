//! The request to NVML for this host, and its answer, compared with the current state of the driver.
//!
//! Everything works without NVML; only its facts are missing then. The scan does not wait for it: process `source:nvml`
//! reads the request from a file and writes its answer to another file.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::card::Card;
use super::mig::{self, Instance};
use super::{NvidiaOptions, VENDOR, driver};
use crate::device::{Device, Found, Problem};
use crate::host::Host;
use crate::nvml::NvmlSettings;
use crate::nvml::facts::{Answer, Facts, Gpu, GpuState, InstanceState, MigDevice, Request};
use crate::nvml::library::{self, SONAME};

/// The source of a fact from NVML.
pub(super) const FACT_SOURCE: &str = "NVML";

/// Names of the facts that NVML may give of a GPU.
const OF_A_GPU: [&str; 14] = [
    "addressing_mode",
    "architecture",
    "brand",
    "compute_capability",
    "cuda_version",
    "driver_version",
    "fabric_clique",
    "gpu_uuid",
    "memory_bytes",
    "minor",
    "model",
    "nvlink_gpus",
    "nvswitch_ports",
    "serial",
];
/// Further ones of a whole GPU.
const OF_A_WHOLE_GPU: [&str; 1] = ["mig_mode"];
/// Further ones of a MIG device.
const OF_A_MIG_DEVICE: [&str; 13] = [
    "compute_slices",
    "engines_copy",
    "engines_decoder",
    "engines_encoder",
    "engines_jpeg",
    "engines_ofa",
    "gpu_slices",
    "mig_index",
    "mig_placement_size",
    "mig_placement_start",
    "mig_profile",
    "mig_profile_id",
    "multiprocessors",
];

/// NVML's answer, and the current request.
#[derive(Debug, Clone, Default)]
pub(super) struct NvmlFacts {
    answer: Answer,
    request: Request,
    /// Whether another answer is expected.
    is_asked: bool,
}

impl NvmlFacts {
    /// The facts in the answer from the file. If `is_asked` is false, no further answer will come.
    pub(super) fn new(answer: Answer, request: Request, is_asked: bool) -> Self {
        Self { answer: answer.to(&request), request, is_asked }
    }

    /// Whether a new answer about a GPU is expected. Until it comes, missing facts mean nothing.
    pub(super) fn is_awaited(&self, address: &str) -> bool {
        self.is_asked && self.answer.is_awaited(&self.request, address)
    }

    /// Notes which facts of a GPU or MIG device NVML may still give: none once it has answered for the GPU, has failed,
    /// or is not asked.
    pub(super) fn note_awaited(&self, device: &mut Device, is_whole: bool) {
        if self.is_awaited(&device.card) {
            let of_kind = if is_whole { &OF_A_WHOLE_GPU[..] } else { &OF_A_MIG_DEVICE[..] };
            device.awaits(OF_A_GPU.iter().chain(of_kind));
        }
    }

    /// Whether NVML has not answered at all, although it is asked.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_asked && self.answer.facts.is_none() && self.answer.failures == 0
    }

    pub(super) fn facts(&self) -> Option<&Facts> {
        self.answer.facts.as_ref()
    }

    /// NVML's problems, in words.
    pub(super) fn problems(&self) -> impl Iterator<Item = &String> {
        self.facts().into_iter().flat_map(|facts| &facts.problems).chain(&self.answer.problem)
    }

    pub(super) fn gpu(&self, address: &str) -> Option<&Gpu> {
        self.facts()?.gpus.iter().find(|gpu| gpu.pci_address == address)
    }

    /// The GPU at this address, unless NVML's answer is about another GPU there.
    pub(super) fn gpu_with(&self, address: &str, uuid: Option<&String>) -> Option<&Gpu> {
        let is_same = |gpu: &&Gpu| uuid.is_none() || gpu.uuid.is_none() || gpu.uuid.as_ref() == uuid;
        self.gpu(address).filter(is_same)
    }

    /// The MIG device of a GPU with the ids of this instance, unless NVML's answer is about an earlier MIG device with
    /// the same ids.
    pub(super) fn mig_device<'a>(&self, gpu: &'a Gpu, instance: Instance) -> Option<&'a MigDevice> {
        let state = |request: &Request| request.instance(&gpu.pci_address, instance.gpu, instance.compute);
        let is_same = self.answer.facts_of.as_ref().is_none_or(|of| state(of) == state(&self.request));
        gpu.mig_devices.iter().find(|device| Instance::of(device) == instance).filter(|_| is_same)
    }
}

/// Name of the source; its process and its files have the same name.
const PROCESS: &str = "nvml";

/// An attempt takes at most this many times the patience, plus at most [`START`] to start its process.
const ATTEMPT: u32 = 10;
const START: Duration = Duration::from_secs(15);

const NOT_ASKED: &str =
    "NVML has not been asked — process source:nvml is not running or does not answer — see `devherd ctl status`";

/// Exchanges files with process `source:nvml`.
#[derive(Debug)]
pub(super) struct NvmlQuery {
    settings: NvmlSettings,
    patience: Duration,
    unanswered_since: Mutex<Option<Instant>>,
    last_request: Mutex<Option<String>>,
}

impl NvmlQuery {
    pub(super) fn new(settings: NvmlSettings, patience: Duration) -> Self {
        Self { settings, patience, unanswered_since: Mutex::default(), last_request: Mutex::default() }
    }

    /// Whether GPUs must not be offered before NVML has answered.
    pub(super) fn is_needed(&self) -> bool {
        self.settings.needed
    }

    /// NVML's facts about these GPUs. Its problems, and the request, are added to `found`.
    pub(super) fn facts(&self, host: &Host, options: &NvidiaOptions, cards: &[Card], found: &mut Found) -> NvmlFacts {
        if self.settings.answers.is_empty() {
            return NvmlFacts::default();
        }
        let request = self.request(host, options, cards);
        // A simulated node must not load the NVML library of the machine on which it runs.
        let is_asked = request.library.is_some() || library::below(&request.driver_root).is_some();
        *lock(&self.last_request) = is_asked.then(|| serde_json::to_string(&request).ok()).flatten();
        found.requests.extend(self.last_request());
        let answer = Answer::read(&self.settings.answers);
        let is_silent = is_asked && self.is_silent(&answer, &request);
        let facts = NvmlFacts::new(answer, request, is_asked && !is_silent);
        let complaint = is_silent.then(|| NOT_ASKED.to_owned());
        let complaints = facts.problems().chain(&complaint);
        found.problems.extend(complaints.map(|complaint| Problem::new(VENDOR, SONAME, complaint)));
        facts
    }

    /// The last request; it stays valid while the list of GPUs is unknown.
    pub(super) fn last_request(&self) -> Option<(&'static str, String)> {
        lock(&self.last_request).clone().map(|text| (PROCESS, text))
    }

    /// Whether an answer about this driver, or about one of these GPUs, takes longer than any attempt can take.
    fn is_silent(&self, answer: &Answer, request: &Request) -> bool {
        let answer = answer.clone().to(request);
        let is_answered = answer.facts.is_some() || answer.failures > 0;
        let mut since = lock(&self.unanswered_since);
        if is_answered && !request.gpus.keys().any(|address| answer.is_awaited(request, address)) {
            *since = None;
            return false;
        }
        since.get_or_insert_with(Instant::now).elapsed() > self.patience * ATTEMPT + START
    }

    fn request(&self, host: &Host, options: &NvidiaOptions, cards: &[Card]) -> Request {
        let gpus = cards.iter().filter_map(|card| Some((card.address().to_owned(), state(host, card)?)));
        Request {
            driver_root: host.absolute(&options.driver_root),
            library: (!host.is_simulated()).then(|| SONAME.to_owned()),
            patience_seconds: self.patience.as_secs_f64(),
            boot_id: host.boot_id(),
            driver_version: driver::version(host).map(|(version, _)| version),
            keep_open: options.keep_open,
            gpus: gpus.collect(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn state(host: &Host, card: &Card) -> Option<GpuState> {
    let gpu = card.gpu.as_ref().filter(|gpu| !gpu.information.is_excluded)?;
    // A simulated node has nodes of its own. On a real host, the process opens the nodes in its own /dev.
    let dev = if host.is_simulated() { host.absolute("/dev") } else { PathBuf::from("/dev") };
    let node = gpu.information.minor.map(|minor| dev.join(format!("nvidia{minor}")));
    let minor = gpu.information.minor.unwrap_or_default();
    let instances = gpu.instances.iter().flatten().map(|&instance| InstanceState {
        gpu: instance.gpu,
        compute: instance.compute,
        birth: mig::birth(host, minor, instance),
    });
    Some(GpuState { uuid: gpu.information.uuid.clone(), node, instances: instances.collect() })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    const ADDRESS: &str = "0000:3b:00.0";

    fn request() -> Request {
        Request { gpus: BTreeMap::from([(ADDRESS.to_owned(), GpuState::default())]), ..Request::default() }
    }

    fn awaited(facts: &NvmlFacts, known: &[&str], is_whole: bool) -> BTreeSet<String> {
        let mut device = Device { card: ADDRESS.to_owned(), ..Device::default() };
        for name in known {
            device.note(name, "x", FACT_SOURCE);
        }
        facts.note_awaited(&mut device, is_whole);
        device.awaited
    }

    #[test]
    fn a_mig_device_awaits_its_profile_and_a_whole_gpu_its_mode() {
        let unanswered = NvmlFacts::new(Answer::default(), request(), true);
        let (whole, part) = (awaited(&unanswered, &[], true), awaited(&unanswered, &[], false));
        assert!(whole.contains("mig_mode") && !whole.contains("mig_profile_id"));
        assert!(part.contains("mig_profile_id") && !part.contains("mig_mode"));
        assert!(whole.is_superset(&OF_A_GPU.map(str::to_owned).into()) && part.contains("brand"));
    }

    #[test]
    fn what_nvml_has_not_told_of_a_new_gpu_is_awaited_until_it_takes_longer_than_any_attempt() {
        let query = NvmlQuery::new(NvmlSettings::default(), Duration::ZERO);
        let answer = Answer { facts: Some(Facts::default()), facts_of: Some(request()), ..Answer::default() };
        let is_overdue_then = |answer: &Answer, request: &Request| {
            let mut since = lock(&query.unanswered_since);
            *since = since.and_then(|since| since.checked_sub(START * 2));
            drop(since);
            query.is_silent(answer, request)
        };
        let mut wider = request();
        wider.gpus.insert("0000:5e:00.0".to_owned(), GpuState::default());
        assert!(!is_overdue_then(&answer, &request()) && !is_overdue_then(&answer, &request()));
        assert!(!is_overdue_then(&answer, &wider) && is_overdue_then(&answer, &wider));
        assert!(!is_overdue_then(&Answer { facts_of: Some(wider.clone()), ..answer.clone() }, &wider));
        assert!(!is_overdue_then(&Answer::default(), &Request::default()));
        assert!(is_overdue_then(&Answer::default(), &Request::default()));
        assert!(!is_overdue_then(&Answer { failures: 1, ..answer }, &wider));
    }

    proptest! {
        #[test]
        fn a_fact_is_known_or_awaited_or_neither_once_no_answer_will_bring_it(
            known in prop::sample::subsequence(OF_A_GPU.to_vec(), 0..=OF_A_GPU.len()),
            is_asked: bool,
            is_answered: bool,
            is_whole: bool,
            failures in 0_u32..3,
        ) {
            let facts = is_answered.then(Facts::default);
            let answer = Answer { facts, facts_of: is_answered.then(request), failures, ..Answer::default() };
            let found = awaited(&NvmlFacts::new(answer, request(), is_asked), &known, is_whole);
            prop_assert!(known.iter().all(|name| !found.contains(*name)));
            let may_come = is_asked && !is_answered && failures == 0;
            prop_assert!(OF_A_GPU.iter().all(|name| found.contains(*name) == (may_come && !known.contains(name))));
        }
    }
}
