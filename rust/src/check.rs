//! What health polling looks at between scans: data made by a scan, carried out by `health`.

use std::path::PathBuf;

use crate::device::Reason;

/// One thing about a device that can be looked at again cheaply. Paths include the host root.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Check {
    /// The /dev node is there and is a device node of this number (`None`: any; plain files count on a simulated node).
    NodePresent {
        /// The node.
        path: PathBuf,
        /// Major and minor number.
        number: Option<(u32, u32)>,
    },
    /// Something else that must be there: a mounted file, directory or socket.
    PathPresent {
        /// The path.
        path: PathBuf,
    },
    /// A bit mask or flag that is zero when all is well.
    Zero {
        /// The attribute.
        attribute: PathBuf,
        /// What a value other than zero means.
        reason: Reason,
    },
    /// A reading that must stay below a limit, in the attribute's own unit.
    Below {
        /// The attribute.
        attribute: PathBuf,
        /// The first value that is too much.
        limit: i64,
        /// What reaching the limit means.
        reason: Reason,
    },
    /// The PCI link: `current_link_width` and `current_link_speed` against what both ends can do.
    Link {
        /// Directory of the PCI function.
        function: PathBuf,
    },
    /// Uncorrectable error counts of the PCI function; a rise since the last poll is a fault.
    /// <https://docs.kernel.org/PCI/pcieaer-howto.html>
    AerRise {
        /// `aer_dev_fatal` or `aer_dev_nonfatal`.
        attribute: PathBuf,
    },
}
