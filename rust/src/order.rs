//! Natural order: `port.2` before `port.10`.

use std::cmp::Ordering;

/// Compares runs of digits as numbers and all else as text; equal numbers spelt differently (`1`, `01`) are still ordered.
#[must_use]
pub fn natural(left: &str, right: &str) -> Ordering {
    let (mut rest_left, mut rest_right) = (left, right);
    while !rest_left.is_empty() && !rest_right.is_empty() {
        let (part_left, after_left) = first_part(rest_left);
        let (part_right, after_right) = first_part(rest_right);
        let order = parts(part_left, part_right);
        if order != Ordering::Equal {
            return order;
        }
        (rest_left, rest_right) = (after_left, after_right);
    }
    rest_left.len().cmp(&rest_right.len()).then_with(|| left.cmp(right))
}

fn first_part(text: &str) -> (&str, &str) {
    let digits = text.starts_with(|character: char| character.is_ascii_digit());
    let end = text.find(|character: char| character.is_ascii_digit() != digits).unwrap_or(text.len());
    text.split_at(end)
}

fn parts(left: &str, right: &str) -> Ordering {
    if !(left.starts_with(|c: char| c.is_ascii_digit()) && right.starts_with(|c: char| c.is_ascii_digit())) {
        return left.cmp(right);
    }
    // Without leading zeros the longer number is the larger one, however many digits it has.
    let (left, right) = (left.trim_start_matches('0'), right.trim_start_matches('0'));
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_count_as_numbers() {
        let mut names = ["dfl-port.10", "dfl-port.2", "a", "dfl-port.1", "dfl-port.02", "dfl-port", "10", "9"];
        names.sort_by(|left, right| natural(left, right));
        assert_eq!(names, ["9", "10", "a", "dfl-port", "dfl-port.1", "dfl-port.02", "dfl-port.2", "dfl-port.10"]);
    }

    proptest! {
        #[test]
        fn it_is_a_total_order(a in "[a-b0-2.]{0,6}", b in "[a-b0-2.]{0,6}", c in "[a-b0-2.]{0,6}") {
            prop_assert_eq!(natural(&a, &b), natural(&b, &a).reverse());
            prop_assert_eq!(natural(&a, &b) == Ordering::Equal, a == b);
            if natural(&a, &b).is_le() && natural(&b, &c).is_le() {
                prop_assert!(natural(&a, &c).is_le());
            }
        }

        #[test]
        fn any_text_can_be_compared(a in ".*", b in ".*") {
            prop_assert_eq!(natural(&a, &b), natural(&b, &a).reverse());
        }
    }
}
