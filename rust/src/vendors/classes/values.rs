//! Texts of the kernel ─► values of facts; texts of templates ─► names.

use crate::device::Value;
use crate::fact_kinds::FactKind;
use crate::host::attribute::{decimal, hexadecimal};

/// The text after `Key = ` or `Key: `; the case of the key is ignored.
pub(super) fn value_of<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let pairs = text.lines().filter_map(|line| line.split_once(['=', ':']));
    let mut pairs = pairs.map(|(name, value)| (name.trim(), value.trim()));
    pairs.find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
}

/// The value of a text, in the kernel's ways to write it.
pub(super) fn value_as(kind: FactKind, text: &str) -> Option<Value> {
    match kind {
        FactKind::Text => Some(text.into()),
        FactKind::Number => {
            let number = decimal(text).or_else(|| i64::try_from(hexadecimal(text.strip_prefix("0x")?)?).ok());
            number.map(Value::Number)
        }
        FactKind::Boolean => match text {
            "1" | "Y" | "y" | "true" | "yes" | "on" => Some(true.into()),
            "0" | "N" | "n" | "false" | "no" | "off" => Some(false.into()),
            _ => None,
        },
        FactKind::Version => {
            text.starts_with(|first: char| first.is_ascii_digit()).then(|| Value::Version(text.to_owned()))
        }
    }
}

/// Whether it is a name that the kubelet takes, with a domain: `example.com/widget`.
pub(super) fn is_resource_name(name: &str) -> bool {
    let is_part = |part: &str, longest: usize| {
        let is_outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = part.as_bytes();
        is_outer(bytes.first())
            && is_outer(bytes.last())
            && bytes.len() <= longest
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    };
    name.split_once('/').is_some_and(|(domain, name)| is_part(domain, 253) && is_part(name, 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_behind_its_key() {
        let text = "Board\nProduct Name = Alveo MA35D \nproduct serial number=XFL1\nState: well\n";
        for (key, expected) in [
            ("Product name", Some("Alveo MA35D")),
            ("Product serial number", Some("XFL1")),
            ("state", Some("well")),
            ("Board", None),
        ] {
            assert_eq!(value_of(text, key), expected, "{key}");
        }
    }

    #[test]
    fn a_value_is_of_the_kind_that_the_class_says_or_none() {
        use FactKind::{Boolean, Number, Text, Version};
        for (kind, text, expected) in [
            (Text, "x", Some("x".into())),
            (Number, "-12", Some(Value::Number(-12))),
            (Number, "0x1f", Some(Value::Number(31))),
            (Number, "0x+1", None),
            (Number, "many", None),
            (Boolean, "Y", Some(true.into())),
            (Boolean, "0", Some(false.into())),
            (Boolean, "2", None),
            (Version, "1.2.3-rc1", Some(Value::Version("1.2.3-rc1".to_owned()))),
            (Version, "v1", None),
        ] {
            assert_eq!(value_as(kind, text), expected, "{kind:?} {text}");
        }
    }

    #[test]
    fn a_resource_name_has_a_domain_and_no_strange_letters() {
        for (name, expected) in [
            ("example.com/widget", true),
            ("example.com/wid_get-1.2", true),
            ("widget", false),
            ("example.com/", false),
            ("example.com/a b", false),
            ("example.com/a/b", false),
            ("example.com/-a", false),
        ] {
            assert_eq!(is_resource_name(name), expected, "{name}");
        }
        assert!(!is_resource_name(&format!("example.com/{}", "a".repeat(64))));
    }
}
