//! Files of KFD: lines of `key value`, keys compared whole, values unsigned and up to 64 bits wide.

use std::path::Path;

use crate::host::attribute::{Attribute, AttributeError};

/// One such file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Properties(Attribute);

impl Properties {
    pub(super) fn read(path: &Path) -> Result<Self, AttributeError> {
        Attribute::read(path).map(Self)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// `None` where there is no such key, or its value is not a number.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        number(self.0.text(), key)
    }
}

/// The first line with this key decides.
fn number(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        (name == key).then_some(value)
    })?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NODE: &str = "cpu_cores_count 0\nsimd_count 256\nsimd_id_base 2147487744\nunique_id 18446744073709551615\n";

    #[test]
    fn keys_are_whole_and_values_may_have_64_bits() {
        for (key, value) in [
            ("simd_count", Some(256)),
            ("simd_id_base", Some(2_147_487_744)),
            ("unique_id", Some(u64::MAX)),
            ("count", None),
            ("simd", None),
            ("asdf", None),
            ("", None),
        ] {
            assert_eq!(number(NODE, key), value, "{key}");
        }
    }

    #[test]
    fn a_value_that_is_no_number_is_none() {
        for text in ["domain", "domain ", "domain x", "domain -1", "domain 1 2", "domain 18446744073709551616"] {
            assert_eq!(number(text, "domain"), None, "{text}");
        }
        assert_eq!(number("domain 1\ndomain 2", "domain"), Some(1));
    }

    proptest! {
        #[test]
        fn any_text_can_be_asked_for_anything(text: String, key: String) {
            number(&text, &key);
        }

        #[test]
        fn what_was_written_is_found(values: Vec<u64>) {
            let lines = values.iter().enumerate().map(|(index, value)| format!("key{index} {value}"));
            let text = lines.collect::<Vec<_>>().join("\n");
            for (index, value) in values.iter().enumerate() {
                prop_assert_eq!(number(&text, &format!("key{index}")), Some(*value));
            }
        }
    }
}
