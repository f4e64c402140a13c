//! Models and families of Intel's GPUs by PCI device id, in the words that Intel's DRA driver publishes:
//! <https://github.com/intel/intel-resource-drivers-for-kubernetes/blob/1da939faa33a90dd641d0327cdcdcbbfaa1acdb4/pkg/gpu/device/models.go>
//! of 2026-08-11.

/// The model and the family of a GPU: `("Flex 170", "Data Center Flex")`; `None` for an id that the driver does not
/// know.
#[must_use]
pub(super) fn named(device_id: u16) -> Option<(&'static str, &'static str)> {
    FAMILIES.iter().find_map(|(family, models)| {
        let (_, model) = models.iter().find(|(id, _)| *id == device_id)?;
        Some((*model, *family))
    })
}

type Models = &'static [(u16, &'static str)];

const FAMILIES: &[(&str, Models)] = &[
    ("Arc A-Series", &[(0x56a0, "A770"), (0x56a1, "A750"), (0x56a2, "A580"), (0x56a5, "A380"), (0x56a6, "A310")]),
    ("Arc Pro A-Series", &[(0x56b0, "A30M"), (0x56b1, "A40/A50"), (0x56b2, "A60M"), (0x56b3, "A60")]),
    (
        "Arc B-Series",
        &[
            (0xb080, "B390"),
            (0xb081, "B370"),
            (0xb082, "B390"),
            (0xb083, "B370"),
            (0xb084, "B390"),
            (0xb085, "B370"),
            (0xb086, "B390"),
            (0xb087, "B370"),
            (0xe20b, "B580"),
            (0xe20c, "B570"),
        ],
    ),
    ("Arc Pro B-Series", &[(0xe211, "B60"), (0xe212, "B50"), (0xe222, "B65"), (0xe223, "B70")]),
    ("Data Center Flex", &[(0x56c0, "Flex 170"), (0x56c1, "Flex 140")]),
    (
        "Data Center Max",
        &[
            (0x0b69, "Max 1550"),
            (0x0bd0, "Max 1550"),
            (0x0bd5, "Max 1550"),
            (0x0bd6, "Max 1450"),
            (0x0bd9, "Max 1100"),
            (0x0bda, "Max 1100"),
            (0x0bdb, "Max 1100"),
        ],
    ),
    ("Intel Graphics", &[(0x7d67, "Arrow Lake-S")]),
    ("Iris Xe", &[(0x4626, "Alder Lake-P"), (0xa7a0, "Raptor Lake-P")]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_model_of_one_family() {
        assert_eq!(named(0x56c0), Some(("Flex 170", "Data Center Flex")));
        assert_eq!(named(0x0b69), Some(("Max 1550", "Data Center Max")));
        assert_eq!(named(0xffff), None);
        let mut ids: Vec<u16> = FAMILIES.iter().flat_map(|(_, models)| models.iter().map(|(id, _)| *id)).collect();
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }
}
