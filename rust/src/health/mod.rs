//! Health: what sources see of the devices that the last scan found.

mod card;
pub mod count;
pub mod finding;
mod kept_file;
mod open_files;
mod poller;
mod power;
mod read_once;
pub mod reading;
mod rounds;
pub mod source;
pub mod sources;
mod watched;

pub use card::{Awaited, EVERY_SOURCE, Look};
pub use poller::{Memories, Occasion, Place, Poller};
