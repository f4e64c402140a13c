//! The request to NVML about this host, and its answer. The scan does not wait: process `source:nvml` takes the request
//! from a file and leaves its answer in another.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cards::Card;
use super::nvml_facts::NvmlFacts;
use super::{NvidiaOptions, VENDOR, driver, mig};
use crate::device::{Found, Problem};
use crate::host::Host;
use crate::nvml::NvmlSettings;
use crate::nvml::answer::Answer;
use crate::nvml::locate::{self, SONAME};
use crate::nvml::request::{GpuState, InstanceState, Request};

/// Name of the source, of its process and of its files.
const SOURCE: &str = "nvml";

/// An attempt takes ten times the patience at most, and its process has this long to start.
const ATTEMPT: u32 = 10;
const START: Duration = Duration::from_secs(15);

const NOT_ASKED: &str =
    "NVML has not been asked — process source:nvml is not running or does not answer — see `devherd ctl status`";

/// Asks NVML through files.
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

    /// Whether GPUs must not be offered before NVML has spoken.
    pub(super) fn is_needed(&self) -> bool {
        self.settings.needed
    }

    /// What NVML has said of these GPUs. Its problems, and the request for more, go to `found`.
    pub(super) fn facts(&self, host: &Host, options: &NvidiaOptions, cards: &[Card], found: &mut Found) -> NvmlFacts {
        if self.settings.answers.is_empty() {
            return NvmlFacts::default();
        }
        let request = self.request(host, options, cards);
        // A simulated node must not load the library of the machine it is simulated on.
        let is_asked = request.library.is_some() || locate::below(&request.driver_root).is_some();
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

    /// The last request, kept while the list of GPUs is unknown.
    pub(super) fn last_request(&self) -> Option<(&'static str, String)> {
        lock(&self.last_request).clone().map(|text| (SOURCE, text))
    }

    /// Whether an answer about this driver is overdue by more than an attempt can take.
    fn is_silent(&self, answer: &Answer, request: &Request) -> bool {
        let answer = answer.clone().to(request);
        let mut since = lock(&self.unanswered_since);
        if answer.facts.is_some() || answer.failures > 0 {
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
    let gpu = card.gpu.as_ref()?;
    let minor = gpu.information.minor.unwrap_or_default();
    let instances = gpu.instances.iter().flatten().map(|&instance| InstanceState {
        gpu: instance.gpu,
        compute: instance.compute,
        birth: mig::birth(host, minor, instance),
    });
    Some(GpuState { uuid: gpu.information.uuid.clone(), instances: instances.collect() })
}
