//! The GPUs that the driver lists, each read on its own.

use std::path::PathBuf;

use super::gpu::{self, Gpu};
use super::{VENDOR, driver};
use crate::bus::pci::{self, Function};
use crate::device::{Found, NotExamined, Problem};
use crate::fence::{FULL, Fence, Outcome};
use crate::health::sources::probe;
use crate::host::Host;
use crate::host::attribute::AttributeError;

/// One GPU in its place.
#[derive(Debug)]
pub(super) struct Card {
    /// Of a card that hangs, only the path is known.
    pub(super) function: Function,
    /// `None` if it cannot be read now.
    pub(super) gpu: Option<Gpu>,
}

impl Card {
    pub(super) fn address(&self) -> &str {
        self.function.address()
    }
}

/// All of them in PCI order. What cannot be read is a problem in `found`; `None` where it is unknown what there is.
pub(super) fn read(host: &Host, fence: &Fence, found: &mut Found) -> Option<Vec<Card>> {
    let addresses = match driver::gpus(host) {
        Ok(addresses) => addresses,
        Err(error) => {
            found.problems.push(problem(host, &error));
            found.unseen.push(NotExamined { vendor: VENDOR, card: None, finding: None });
            return None;
        }
    };
    let paths: Vec<PathBuf> = addresses.iter().map(|address| gpu::function_path(host, address)).collect();
    let behind_fence = host.clone();
    let key = |path: &PathBuf| pci::address_of(path).unwrap_or_default().to_owned();
    let outcomes = fence.each(paths.clone(), key, move |path| {
        let function = Function::read(&path);
        let gpu = Gpu::read(&behind_fence, function.clone());
        (function, gpu)
    });
    let settle = |(path, outcome)| settled((host, fence), path, outcome, found);
    Some(paths.into_iter().zip(outcomes).map(settle).collect())
}

fn settled(
    (host, fence): (&Host, &Fence),
    path: PathBuf,
    outcome: Outcome<(Function, Result<Gpu, AttributeError>)>,
    found: &mut Found,
) -> Card {
    let mut function = Function { path, ..Function::default() };
    let of_gpu = |error: &str| Problem::new(VENDOR, host.own_path(&function.path), error);
    let (problem, finding) = match outcome {
        Outcome::Done((function, Ok(gpu))) => return Card { function, gpu: Some(gpu) },
        Outcome::Done((read, Err(error))) => {
            function = read;
            (problem(host, &error), None)
        }
        Outcome::Overdue => {
            let error = "the GPU does not answer: a read has not come back; look for NVRM in the kernel log";
            let place = host.own_path(&function.path);
            (of_gpu(error), Some(probe::timeout(fence.deadline(), &place.to_string_lossy())))
        }
        Outcome::NotStarted => (of_gpu(FULL), None),
        Outcome::Panicked(message) => (of_gpu(&format!("defect in the scan: {message}")), None),
    };
    found.problems.push(problem.of(function.address()));
    found.unseen.push(NotExamined { vendor: VENDOR, card: Some(function.address().to_owned()), finding });
    Card { function, gpu: None }
}

fn problem(host: &Host, error: &AttributeError) -> Problem {
    Problem::new(VENDOR, host.own_path(&error.path), &error.cause)
}
