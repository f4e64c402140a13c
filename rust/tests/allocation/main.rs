//! Preferred allocation: by properties, by cases, and in comparison with the vendors' own plugins.

mod aligned;
mod answers;
mod peers;
