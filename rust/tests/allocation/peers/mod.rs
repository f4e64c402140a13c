//! The choices of the vendors' own plugins, restated from their behaviour: the reference for preferred allocation.
//!
//! Each is quicker here than in its plugin: tables in place of maps, no library calls, no fruitless subsets.

pub(crate) mod amd;
pub(crate) mod hosts;
pub(crate) mod intel;
pub(crate) mod nvidia;
pub(crate) mod nvidia_greedy;
