//! How the vendors' own plugins choose, restated from their behaviour: the reference for preferred allocation.
//!
//! Each is quicker here than there: tables instead of maps, no calls of a library, no fruitless subsets.

pub(crate) mod amd;
pub(crate) mod hosts;
pub(crate) mod intel;
pub(crate) mod nvidia;
pub(crate) mod nvidia_greedy;
