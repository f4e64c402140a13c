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

/// The longest domain of a resource name: the kubelet checks `requests.<domain>` against 253.
const LONGEST_DOMAIN: usize = 244;

/// Whether it is a name that the kubelet takes, with a domain: `example.com/widget`. The rules of `resource_name_refusal` in
/// `text.py`.
pub(super) fn is_resource_name(name: &str) -> bool {
    let is_part = |part: &str, is_outer: fn(&u8) -> bool, inner: &[u8]| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(is_outer)
            && bytes.last().is_some_and(is_outer)
            && bytes.iter().all(|byte| is_outer(byte) || inner.contains(byte))
    };
    let is_label = |label: &str| is_part(label, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit(), b"-");
    let Some((domain, last)) = name.split_once('/') else { return false };
    !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && domain.len() <= LONGEST_DOMAIN
        && domain.split('.').all(is_label)
        && last.len() <= 63
        && is_part(last, u8::is_ascii_alphanumeric, b"-_.")
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
    fn a_resource_name_is_one_that_the_kubelet_takes() {
        for (name, expected) in [
            ("example.com/widget", true),
            ("example.com/wid_get-1.2", true),
            ("widget", false),
            ("example.com/", false),
            ("example.com/a b", false),
            ("example.com/a/b", false),
            ("example.com/-a", false),
            ("example.com/Widget", true),
            ("Example.com/widget", false),
            ("ex_ample.com/widget", false),
            ("example..com/widget", false),
            ("example-.com/widget", false),
            (".example.com/widget", false),
            ("devices.kubevirt.io/kvm", true),
            ("kubernetes.io/widget", false),
            ("a.kubernetes.io/widget", false),
            ("requests.example.com/widget", false),
        ] {
            assert_eq!(is_resource_name(name), expected, "{name}");
        }
        for (domain, last, expected) in [(11, 63, true), (11, 64, false), (244, 1, true), (245, 1, false)] {
            let name = format!("{}/{}", "a".repeat(domain), "a".repeat(last));
            assert_eq!(is_resource_name(&name), expected, "{domain} {last}");
        }
    }
}
