//! NVML, asked about this host: where its library is looked for, and when there is something new to ask.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use super::cards::Card;
use super::{NvidiaOptions, VENDOR, driver, mig};
use crate::device::{Found, Problem};
use crate::host::Host;
use crate::nvml::locate::{self, SONAME};
use crate::nvml::process::{Answer, Nvml};

/// Asks NVML, once there is something to ask it about.
#[derive(Debug)]
pub(super) struct Inquiry {
    patience: Duration,
    nvml: OnceLock<Nvml>,
}

impl Inquiry {
    /// A scan waits `patience` for NVML at most.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, nvml: OnceLock::new() }
    }

    /// What NVML knows of these GPUs; its problems go to `found`.
    pub(super) fn answer(&self, host: &Host, options: &NvidiaOptions, cards: &[Card], found: &mut Found) -> Answer {
        let driver_root = host.absolute(&options.driver_root);
        // A simulated node has no library but its own, and must not be told of the GPUs of the machine it is simulated on.
        if options.nvml_probe.is_empty() || host.is_simulated() && locate::below(&driver_root).is_none() {
            return Answer::default();
        }
        let nvml = self.nvml.get_or_init(|| Nvml::new(command(host, options, &driver_root), self.patience));
        let answer = nvml.answer(&present(host, cards));
        let complaints = answer.facts.iter().flat_map(|facts| &facts.problems).chain(&answer.problem);
        found.problems.extend(complaints.map(|complaint| Problem::new(VENDOR, SONAME, complaint)));
        answer
    }
}

/// The library of the host, or else the one that the container runtime has put among this system's own.
fn command(host: &Host, options: &NvidiaOptions, driver_root: &Path) -> Vec<String> {
    let mut command = options.nvml_probe.clone();
    command.extend(["--driver-root".to_owned(), driver_root.to_string_lossy().into_owned()]);
    if !host.is_simulated() {
        command.extend(["--library", SONAME].map(str::to_owned));
    }
    command
}

/// The driver, its GPUs and their MIG devices: NVML has something new to say when this is another text.
fn present(host: &Host, cards: &[Card]) -> String {
    let version = driver::version(host).map(|(version, _)| version).unwrap_or_default();
    let gpus = cards.iter().filter_map(|card| {
        let gpu = card.gpu.as_ref()?;
        let instances = gpu.instances.iter().flatten();
        let minor = gpu.information.minor.unwrap_or_default();
        let instances: Vec<_> = instances.map(|&instance| (instance, mig::birth(host, minor, instance))).collect();
        Some(format!("{} {:?} {instances:?}", card.address(), gpu.information.uuid))
    });
    [version].into_iter().chain(gpus).collect::<Vec<_>>().join("\n")
}
