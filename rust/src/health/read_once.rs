//! What has been read in one look at a card of the attributes at which several of its subjects look.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use crate::host::attribute::Cause;

/// Begins empty with each look at a card, which is one thread's.
#[derive(Debug, Default)]
pub struct ReadOnce(RefCell<Vec<(PathBuf, Result<String, Cause>)>>);

impl ReadOnce {
    /// What an attribute said, if it was read in this look.
    pub(super) fn text(&self, path: &Path) -> Option<Result<String, Cause>> {
        let read = self.0.borrow();
        let of_path = read.iter().find(|(read, _)| read.as_os_str() == path.as_os_str());
        of_path.map(|(_, said)| said.clone())
    }

    /// Keeps what it said for the rest of the look.
    pub(super) fn keep(&self, path: &Path, said: Result<String, Cause>) {
        self.0.borrow_mut().push((path.to_path_buf(), said));
    }
}
