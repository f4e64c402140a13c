//! Preferred allocation: by property, by cases, and beside the policies of the vendors' own plugins.

mod aligned;
mod answers;
mod peers;
