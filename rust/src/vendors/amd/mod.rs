//! AMD GPUs, under amdgpu for containers, under gim or vfio-pci for virtual machines.
//!
//! The driver is looked for on every scan, so one that loads late is seen. A card is everything of one GPU: its PCI function,
//! which stands for its first partition, and the platform devices of its further partitions.
//!
//! ```text
//! mode       whom the GPUs are for
//! topology   KFD's nodes;  links  how they are linked, when that changed     (behind the fence, all as one)
//! locate     functions and partitions ─► cards                               (touches no hardware)
//! card       a card ─► facts                                                 (behind the fence, card by card)
//! advertise  facts of all cards ─► devices and problems
//! ```

mod advertise;
mod card;
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
use advertise::Advertiser;
use card::Facts;
use links::{Fabric, KnownFabric};
use mode::Mode;
pub use options::*;
use topology::Topology;
use unbound::BoundBefore;

/// The word in `vendor` of JSON, metrics and problems.
const VENDOR: &str = "amd";

/// What the fence knows the topology by: it is of no card.
const TOPOLOGY: &str = "amd topology";

/// Looks for AMD GPUs.
#[derive(Debug)]
pub struct Amd {
    options: AmdOptions,
    fabric: Arc<KnownFabric>,
    bound: BoundBefore,
}

impl Amd {
    /// Advertises what the options say.
    #[must_use]
    pub fn new(options: AmdOptions) -> Self {
        Self { options, fabric: Arc::default(), bound: BoundBefore::default() }
    }

    /// Address and directory of each function that amdgpu has; `None` where that cannot be told.
    fn for_containers(&self, host: &Host, fence: &Fence, found: &mut Found) -> Option<Vec<(String, PathBuf)>> {
        let (topology, fabric) = match self.topology(host, fence, found) {
            Known::Here(topology, fabric) => (Arc::new(topology), fabric),
            Known::Awaited => return Some(Vec::new()),
            Known::Unseen => return None,
        };
        let cards = locate::cards(host, &topology, found);
        let functions = cards.iter().filter_map(|card| Some((card.key.clone(), card.function.clone()?)));
        let functions = functions.collect();
        let places =
            cards.iter().map(|card| (card.key.clone(), locate::driver_directory(host).join(&card.key))).collect();
        let (behind_fence, known) = (host.clone(), Arc::clone(&topology));
        let work = move |card| Facts::read(&behind_fence, card, &known);
        let outcomes = fence.each(cards, |card| card.key.clone(), work);
        let facts = settled(host, places, outcomes, found);
        Advertiser::new(host, self.options.naming, &topology, &fabric).devices(facts, found);
        Some(functions)
    }

    fn topology(&self, host: &Host, fence: &Fence, found: &mut Found) -> Known {
        let (behind_fence, known) = (host.clone(), Arc::clone(&self.fabric));
        let read = move |()| Topology::read(&behind_fence).map(|topology| (known.of(&topology), topology));
        let outcome = fence.each(vec![()], |()| TOPOLOGY.to_owned(), read).pop().unwrap_or(Outcome::Overdue);
        let error = match outcome {
            Outcome::Done(Ok((fabric, topology))) => return self.beside_driver(host, topology, fabric, found),
            Outcome::Done(Err(error)) if error.is_absent() => {
                self.note_awaited(host, &Mode::Container.directory(host), found);
                return Known::Awaited;
            }
            Outcome::Done(Err(error)) => error.cause.to_string(),
            Outcome::Overdue => "KFD does not answer: look for blocked tasks in the kernel log".to_owned(),
            Outcome::Panicked(message) => format!("defect in the scan: {message}"),
        };
        let path = host.own_path(topology::nodes_directory(host));
        leave_out(found, None, Problem::new(VENDOR, path, error), None);
        Known::Unseen
    }

    fn beside_driver(&self, host: &Host, mut topology: Topology, fabric: Arc<Fabric>, found: &mut Found) -> Known {
        found.problems.append(&mut topology.problems);
        let driver = locate::driver_directory(host);
        if driver.is_dir() {
            return Known::Here(topology, fabric);
        }
        self.note_awaited(host, &driver, found);
        Known::Awaited
    }

    /// A host without any of it is in order, unless it must be there; one with a part of it awaits the rest.
    fn note_awaited(&self, host: &Host, missing: &Path, found: &mut Found) {
        let here = [Mode::Container.directory(host), locate::driver_directory(host)];
        if self.options.required || here.iter().any(|directory| directory.is_dir()) {
            let error = "awaited: it is there when the driver is loaded, and GPUs are served then";
            found.problems.push(Problem::new(VENDOR, host.own_path(missing), error));
        }
    }

    fn for_virtual_machines(&self, host: &Host, fence: &Fence, mode: Mode, found: &mut Found) {
        if !mode.directory(host).is_dir() {
            self.note_awaited(host, &mode.directory(host), found);
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
            Mode::Container => self.for_containers(host, fence, &mut found),
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
        let above = |path: &PathBuf| path.ancestors().skip(1).find(|above| above.is_dir()).map(Path::to_path_buf);
        let parents: Vec<PathBuf> = watched.iter().filter(|path| !path.is_dir()).filter_map(above).collect();
        watched.extend(parents);
        watched
    }
}

/// What can be told of the driver for containers.
#[derive(Debug)]
enum Known {
    /// KFD and amdgpu are there.
    Here(Topology, Arc<Fabric>),
    /// Not both are there.
    Awaited,
    /// What is there cannot be read.
    Unseen,
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
