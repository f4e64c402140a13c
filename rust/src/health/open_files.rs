//! Which files stay open between two looks at them: a process may have so many, and each costs memory.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::card::Card;

/// Descriptors that the rest of the process may need.
const RESERVED_FILES: u64 = 256;

/// Descriptors for what is not urgent. An open attribute takes a page of the kernel's memory and more, which is
/// charged to this process; opening one anew takes a few microseconds.
pub(super) const SELDOM_FILES: u64 = 1024;

/// Decides which cards' files stay open: as many as may, what is urgent first.
pub(super) fn keep_open(cards: &mut [Card]) {
    let wanted = |is_urgent| cards.iter().map(|card| card.most_open(is_urgent)).sum::<u64>();
    let (urgent, seldom) = (wanted(true), wanted(false).min(SELDOM_FILES));
    let mut left = may_open(urgent + seldom);
    for card in &mut *cards {
        card.keeps_urgent = take(&mut left, card.most_open(true));
    }
    let mut left = left.min(SELDOM_FILES);
    for card in cards {
        card.keeps_seldom = card.keeps_urgent && take(&mut left, card.most_open(false));
        card.close_others();
    }
}

/// Whether there was as much left.
fn take(left: &mut u64, needed: u64) -> bool {
    let rest = left.checked_sub(needed);
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

/// How many descriptors may be kept open, when this many are wanted: the soft limit is raised as far as needed.
fn may_open(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let present = limit.current.unwrap_or(u64::MAX);
    let needed = (wanted + RESERVED_FILES).min(limit.maximum.unwrap_or(u64::MAX));
    let raised = Rlimit { current: Some(needed), ..limit };
    let open = if needed > present && setrlimit(Resource::Nofile, raised).is_ok() { needed } else { present };
    open.saturating_sub(RESERVED_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_raised_only_as_far_as_allowed() {
        let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert!(may_open(10) >= 10);
        assert!(may_open(u64::MAX / 2) <= maximum.saturating_sub(RESERVED_FILES).max(1));
    }
}
