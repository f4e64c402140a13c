//! AMD GPUs, under amdgpu for containers, under gim or vfio-pci for virtual machines.
//!
//! The driver is looked for on every scan, so one that loads late is seen. A card is everything of one GPU: its PCI function,
//! which stands for its first partition, and the platform devices of its further partitions.
//!
//! ```text
//! mode         whom the GPUs are for
//! container    for containers:
//!   topology     KFD's nodes; links: how they are linked, when that changed    (behind the fence, all as one)
//!   locate       functions and partitions ─► cards                             (touches no hardware)
//!   card         a card ─► facts                                               (behind the fence, card by card)
//!   advertise    facts of all cards ─► devices and problems
//! passthrough  for virtual machines
//! ```

mod advertise;
mod card;
mod container;
mod distance;
mod kind;
mod links;
mod locate;
mod mode;
mod options;
mod passthrough;
mod place;
mod properties;
mod render;
mod topology;
mod unbound;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Vendor;
use crate::device::{Found, Problem, Reason, Unseen};
use crate::host::Host;
use crate::order::natural;
use crate::probe::{Fence, Outcome};
use links::KnownFabric;
use mode::Mode;
pub use options::*;
use unbound::BoundBefore;

/// The word in `vendor` of JSON, metrics and problems.
const VENDOR: &str = "amd";

/// Looks for AMD GPUs.
#[derive(Debug)]
pub struct Amd {
    options: AmdOptions,
    /// What is known of links.
    fabric: Arc<KnownFabric>,
    bound: BoundBefore,
}

impl Amd {
    /// Advertises what the options say.
    #[must_use]
    pub fn new(options: AmdOptions) -> Self {
        Self { options, fabric: Arc::default(), bound: BoundBefore::default() }
    }

    fn for_virtual_machines(&self, host: &Host, fence: &Fence, mode: Mode, found: &mut Found) {
        if !mode.directory(host).is_dir() {
            found.problems.extend(container::awaited(host, &mode.directory(host), self.options.required));
            return;
        }
        let cards = passthrough::cards(host, mode, found);
        let places = cards.iter().map(|card| (card.key.clone(), card.path.clone())).collect();
        let behind_fence = host.clone();
        let work = move |card| passthrough::read(&behind_fence, &card);
        let outcomes = fence.each(cards, |card| card.key.clone(), work);
        let mut given = Vec::new();
        for (functions, problems) in settled(host, places, outcomes, found) {
            given.extend(functions);
            found.problems.extend(problems);
        }
        found.devices = passthrough::devices(host, given, mode, self.options.naming);
    }
}

impl Vendor for Amd {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        let bound = match Mode::of(self.options.driver_type, host).unwrap_or(Mode::Container) {
            Mode::Container => container::scan(host, fence, &self.options, &self.fabric, &mut found),
            mode => {
                self.for_virtual_machines(host, fence, mode, &mut found);
                Some(Vec::new())
            }
        };
        if let Some(bound) = bound {
            self.bound.renew(host, bound, &mut found);
        }
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }

    fn watched_directories(&self, host: &Host) -> Vec<PathBuf> {
        let mut watched = vec![
            topology::nodes_directory(host),
            locate::driver_directory(host),
            locate::platform_directory(host),
            host.dev("dri"),
            host.dev("vfio"),
        ];
        watched.extend(Mode::ALL.map(|mode| mode.directory(host)));
        // What is not there yet is told of by the directory above it.
        let root = host.absolute("/");
        let above = |path: &PathBuf| {
            let mut within = path.ancestors().skip(1).take_while(|above| above.starts_with(&root));
            within.find(|above| above.is_dir()).map(Path::to_path_buf)
        };
        let parents: Vec<PathBuf> = watched.iter().filter(|path| !path.is_dir()).filter_map(above).collect();
        watched.extend(parents);
        watched
    }
}

/// What became of each card; those that did not answer stay as they were last seen.
fn settled<R>(host: &Host, places: Vec<(String, PathBuf)>, outcomes: Vec<Outcome<R>>, found: &mut Found) -> Vec<R> {
    let mut done = Vec::new();
    for ((key, path), outcome) in places.into_iter().zip(outcomes) {
        let problem = |error: &str| Problem::new(VENDOR, host.own_path(&path), error);
        match outcome {
            Outcome::Done(result) => done.push(result),
            Outcome::Overdue => {
                let error =
                    "the GPU does not answer: a read has not come back; look for blocked tasks in the kernel log";
                leave_out(found, Some(key), problem(error), Some(Reason::ProbeTimeout));
            }
            Outcome::Panicked(message) => {
                leave_out(found, Some(key), problem(&format!("defect in the scan: {message}")), None);
            }
        }
    }
    done
}

fn leave_out(found: &mut Found, card: Option<String>, problem: Problem, reason: Option<Reason>) {
    found.problems.push(problem);
    found.unseen.push(Unseen { vendor: VENDOR, card, reason });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_does_not_answer_costs_itself_alone() {
        let places =
            ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"].map(|key| (key.to_owned(), PathBuf::from("/sys")));
        let outcomes = vec![Outcome::Done(1), Outcome::Overdue, Outcome::Panicked("oh".to_owned())];
        let mut found = Found::default();
        assert_eq!(settled(&Host::new("/"), places.to_vec(), outcomes, &mut found), [1]);
        let unseen = |card: &str, reason| Unseen { vendor: VENDOR, card: Some(card.to_owned()), reason };
        assert_eq!(found.unseen, [unseen("0000:02:00.0", Some(Reason::ProbeTimeout)), unseen("0000:03:00.0", None)]);
        assert_eq!(found.problems.len(), 2);
    }
}
