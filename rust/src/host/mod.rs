//! The host's trees: where they are, and how they are read.

pub mod attribute;
pub mod directory;
mod listing;
pub mod mounts;
pub mod node;
pub mod reads;
pub mod resolve;
mod root;
pub mod sight;

pub use root::Host;
