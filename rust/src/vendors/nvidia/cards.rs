//! The GPUs that the driver lists, each read for itself.

use super::gpu::{self, Gpu};
use super::{VENDOR, driver};
use crate::attribute::AttributeError;
use crate::device::{Found, Problem, Reason, Unseen};
use crate::host::Host;
use crate::pci::Function;
use crate::probe::{Fence, Outcome};

/// One GPU in its place.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) function: Function,
    /// `None` for one that cannot be read now.
    pub(super) gpu: Option<Gpu>,
}

impl Card {
    pub(super) fn address(&self) -> &str {
        self.function.address()
    }
}

/// All of them in PCI order. What cannot be read is told in `found`; `None` where nobody can tell what there is.
pub(super) fn read(host: &Host, fence: &Fence, found: &mut Found) -> Option<Vec<Card>> {
    let addresses = match driver::gpus(host) {
        Ok(addresses) => addresses,
        Err(error) => {
            found.problems.push(problem(host, &error));
            found.unseen.push(Unseen { vendor: VENDOR, card: None, reason: None });
            return None;
        }
    };
    let functions: Vec<Function> = addresses.iter().map(|address| gpu::function(host, address)).collect();
    let behind_fence = host.clone();
    let key = |function: &Function| function.address().to_owned();
    let outcomes = fence.each(functions.clone(), key, move |function| Gpu::read(&behind_fence, function));
    let read = |(function, outcome)| Card { gpu: settled(host, &function, outcome, found), function };
    Some(functions.into_iter().zip(outcomes).map(read).collect())
}

fn settled(
    host: &Host,
    function: &Function,
    outcome: Outcome<Result<Gpu, AttributeError>>,
    found: &mut Found,
) -> Option<Gpu> {
    let of_gpu = |error: &str| Problem::new(VENDOR, host.own_path(&function.path), error);
    let (problem, reason) = match outcome {
        Outcome::Done(Ok(gpu)) => return Some(gpu),
        Outcome::Done(Err(error)) => (problem(host, &error), None),
        Outcome::Overdue => {
            let error = "the GPU does not answer: a read has not come back; look for NVRM in the kernel log";
            (of_gpu(error), Some(Reason::ProbeTimeout))
        }
        Outcome::Panicked(message) => (of_gpu(&format!("defect in the scan: {message}")), None),
    };
    found.problems.push(problem.of(function.address()));
    found.unseen.push(Unseen { vendor: VENDOR, card: Some(function.address().to_owned()), reason });
    None
}

fn problem(host: &Host, error: &AttributeError) -> Problem {
    Problem::new(VENDOR, host.own_path(&error.path), &error.cause)
}
