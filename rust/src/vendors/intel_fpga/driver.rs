//! The two drivers and what each calls things.

use crate::host::directory::is_numbered;

/// A kernel driver for Intel FPGA cards. One host can have both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Driver {
    /// Out of tree, <https://github.com/OPAE/opae-sdk>.
    Opae,
    /// In the kernel, <https://docs.kernel.org/fpga/dfl.html>.
    Dfl,
}

impl Driver {
    pub(super) const ALL: [Self; 2] = [Self::Opae, Self::Dfl];

    /// The word in the attribute `driver`.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Opae => "opae",
            Self::Dfl => "dfl",
        }
    }

    /// The directory below /sys/class, and below the PCI function, that holds its cards.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Opae => "fpga",
            Self::Dfl => "fpga_region",
        }
    }

    /// Whether an entry of the class directory is a card of its own kind.
    pub(super) fn is_card(self, name: &str) -> bool {
        is_numbered(name, if self == Self::Opae { "intel-fpga-dev." } else { "region" })
    }

    /// Whether an entry of a card is a port: one slot for an accelerator function.
    pub(super) fn is_port(self, name: &str) -> bool {
        is_numbered(name, if self == Self::Opae { "intel-fpga-port." } else { "dfl-port." })
    }

    /// Whether an entry of a card is its management engine.
    pub(super) fn is_fme(self, name: &str) -> bool {
        is_numbered(name, if self == Self::Opae { "intel-fpga-fme." } else { "dfl-fme." })
    }
}

/// Whether an entry of a DFL management engine is a region that is programmed by itself.
pub(super) fn is_fme_region(name: &str) -> bool {
    is_numbered(name, "dfl-fme-region.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_whole() {
        assert!(Driver::Opae.is_card("intel-fpga-dev.0") && Driver::Dfl.is_card("region10"));
        assert!(Driver::Opae.is_port("intel-fpga-port.2") && Driver::Dfl.is_port("dfl-port.0"));
        assert!(Driver::Opae.is_fme("intel-fpga-fme.1") && Driver::Dfl.is_fme("dfl-fme.0"));
        for name in
            ["", "dir", "region", "region1a", "regions0", "region-1", "xregion0", "region0 ", "dfl-port.0", "region٣"]
        {
            assert!(!Driver::Dfl.is_card(name), "{name}");
        }
        for name in
            ["intel-fpga-dev0", "intel-fpga-devX0", "intel-fpga-dev.", "intel-fpga-dev.0.1", "intel-fpga-dev.-1"]
        {
            assert!(!Driver::Opae.is_card(name), "{name}");
        }
        assert!(
            is_fme_region("dfl-fme-region.3") && !is_fme_region("dfl-fme-region.3/") && !is_fme_region("dfl-fme.0")
        );
    }
}
