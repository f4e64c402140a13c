//! GPUs for containers, under amdgpu and its compute driver, KFD.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::advertise::Advertiser;
use super::card::Facts;
use super::driver::Mode;
use super::kfd_topology::{self, StableTree, Topology};
use super::links::Fabric;
use super::product_names::ProductNames;
use super::{AmdOptions, VENDOR, locate};
use crate::device::{Found, NotExamined, Problem};
use crate::fence::{Fence, Outcome};
use crate::host::Host;
use crate::vendors::per_card::per_card;

/// The fence's key for the topology: it belongs to no single card.
const TOPOLOGY: &str = "amd topology";

const REBUILT: &str = "KFD is building its topology anew: GPUs stay as they were until two looks see the same";

/// The state of the driver.
#[derive(Debug)]
enum Known {
    /// KFD and amdgpu are loaded.
    Here(Topology, Arc<Fabric>),
    /// One of them is missing, with its path.
    Awaited(PathBuf),
    /// They cannot be read.
    NotExamined,
}

/// Finds GPUs for containers. Returns address and directory of each function that amdgpu has; `None` if that is
/// unknown.
pub(super) fn scan(
    host: &Host,
    fence: &Fence,
    options: &AmdOptions,
    (stable_tree, names): (&Arc<StableTree>, &Arc<ProductNames>),
    found: &mut Found,
) -> Option<Vec<(String, PathBuf)>> {
    let (topology, fabric) = match topology(host, fence, stable_tree, found) {
        Known::Here(topology, fabric) => (Arc::new(topology), fabric),
        Known::Awaited(missing) => {
            found.problems.extend(awaited(host, &missing, options.required));
            return Some(Vec::new());
        }
        Known::NotExamined => return None,
    };
    let cards = locate::cards(host, &topology, found);
    let functions = cards.iter().filter_map(|card| Some((card.key.clone(), card.function.clone()?)));
    let functions = functions.collect();
    let driver = host.own_path(locate::driver_directory(host));
    let cards = cards.into_iter().map(|card| ((card.key.clone(), driver.join(&card.key)), card)).collect();
    let (behind_fence, known, names) = (host.clone(), Arc::clone(&topology), Arc::clone(names));
    let work = move |card| Facts::read(&behind_fence, card, &known, &names);
    let facts = per_card(VENDOR, found, fence, cards, work);
    Advertiser::new(host, options.naming, &topology, &fabric).devices(facts, found);
    Some(functions)
}

fn topology(host: &Host, fence: &Fence, stable_tree: &Arc<StableTree>, found: &mut Found) -> Known {
    let (behind_fence, stable_tree) = (host.clone(), Arc::clone(stable_tree));
    let read = move |()| stable_tree.look(&behind_fence);
    let outcome = fence.each(vec![()], |()| TOPOLOGY.to_owned(), read).pop().unwrap_or_else(Outcome::full);
    let error = match outcome {
        Outcome::Done(Ok(Some((topology, fabric)))) => return beside_driver(host, topology, fabric, found),
        Outcome::Done(Ok(None)) => {
            found.look_again = true;
            REBUILT.to_owned()
        }
        Outcome::Done(Err(error)) if error.is_absent() => return Known::Awaited(Mode::Container.directory(host)),
        Outcome::Done(Err(error)) => error.cause.to_string(),
        Outcome::Overdue => "KFD does not answer: look for blocked tasks in the kernel log".to_owned(),
        Outcome::NotStarted(why) => why,
        Outcome::Panicked(message) => format!("defect in the scan: {message}"),
    };
    let path = host.own_path(kfd_topology::nodes_directory(host));
    found.problems.push(Problem::new(VENDOR, path, error));
    found.unseen.push(NotExamined::new(VENDOR, None));
    Known::NotExamined
}

fn beside_driver(host: &Host, mut topology: Topology, fabric: Arc<Fabric>, found: &mut Found) -> Known {
    let driver = locate::driver_directory(host);
    if !driver.is_dir() {
        return Known::Awaited(driver);
    }
    found.problems.append(&mut topology.problems);
    Known::Here(topology, fabric)
}

/// The problem of a missing part of the driver. A host without any part has no problem, unless the driver is required;
/// a host with one part waits for the rest.
pub(super) fn awaited(host: &Host, missing: &Path, required: bool) -> Option<Problem> {
    let parts = [Mode::Container.directory(host), locate::driver_directory(host)];
    let error = "not present yet: waiting for its driver to load";
    let is_awaited = required || parts.iter().any(|part| part.is_dir());
    is_awaited.then(|| Problem::new(VENDOR, host.own_path(missing), error))
}
