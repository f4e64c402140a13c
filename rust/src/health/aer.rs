//! Counts of PCI errors: <https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats>.

/// How many errors `aer_dev_fatal`, `aer_dev_nonfatal` or `aer_dev_correctable` counts: its `TOTAL_ERR_…` line, or the sum
/// of all lines where there is none. `None` for text that counts nothing.
pub(super) fn total(text: &str) -> Option<u64> {
    let counts: Vec<(&str, u64)> = text.lines().filter_map(count).collect();
    let total = counts.iter().find(|(name, _)| name.starts_with("TOTAL_ERR_")).map(|&(_, count)| count);
    let sum = || counts.iter().map(|&(_, count)| count).reduce(u64::saturating_add);
    total.or_else(sum)
}

/// `Data Link Protocol 0`, `DLP 0`: a name and, last, a number.
fn count(line: &str) -> Option<(&str, u64)> {
    let (name, count) = line.trim().rsplit_once(char::is_whitespace)?;
    Some((name, count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_total_counts_or_else_the_sum() {
        for (text, expected) in [
            ("Undefined 0\nDLP 2\nTOTAL_ERR_FATAL 7\n", Some(7)),
            ("Undefined 0\nDLP 2\nTLP 3\n", Some(5)),
            ("Data Link Protocol 4", Some(4)),
            ("TOTAL_ERR_NONFATAL 0", Some(0)),
            ("TOTAL_ERR_FATAL many\nDLP 1", Some(1)),
            ("A 18446744073709551615\nB 1", Some(u64::MAX)),
            ("garbage", None),
            ("", None),
        ] {
            assert_eq!(total(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_counted(text: String) {
            prop_assert!(total(&text).is_none() || text.contains(char::is_numeric));
        }
    }
}
