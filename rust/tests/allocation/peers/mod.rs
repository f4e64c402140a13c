//! How the vendors' own plugins choose, told anew from their behaviour: what preferred allocation is measured by.
//!
//! Each is quicker here than there: tables instead of maps, no calls of a library, no fruitless subsets.

pub(crate) mod amd;
pub(crate) mod hosts;
pub(crate) mod intel;
pub(crate) mod nvidia;
pub(crate) mod nvidia_greedy;
