//! Health: what sources see of the devices that the last scan found.
//!
//! ```text
//! source      what a source is: reasons, subjects of a device, how a subject is examined
//! sources/    one file a source
//! poller      polls: which cards, for which reason
//!   └─► cards      the subjects of one card, looked at behind the fence
//!         └─► watched    one subject: when it is due, its last observation
//! reasons     what sources in Python are: their reasons
//! kept_file, power, reading   what sources share: files that are read, sleeping functions, numbers with limits
//! ```

mod cards;
mod kept_file;
mod poller;
mod power;
mod reading;
pub mod reasons;
pub mod source;
pub mod sources;
mod watched;

pub use cards::{Awaited, EVERY_SOURCE, Look};
pub use poller::{Memories, Place, PollReason, Poller};
pub use power::is_awake;
