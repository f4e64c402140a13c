//! A number that a source reads on its way and that is no finding: metrics show it.

use std::borrow::Cow;

/// What was counted of the devices at a PCI address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    /// Of the PCI function; where a source leaves it empty, that of each device for which it looks at the subject.
    pub pci_address: String,
    /// Which RDMA device it is, of several at that address: `mlx5_0`. Empty for all devices there.
    pub ibdev: String,
    /// What part of it: a port, a block. Empty where it is counted as a whole.
    pub part: String,
    /// The word for the metric: `rdma-errors`.
    pub name: &'static str,
    /// Of the things counted.
    pub kind: Cow<'static, str>,
    /// How many.
    pub number: u64,
}
