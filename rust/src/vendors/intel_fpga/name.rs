//! Resource names, as the vendor's own plugin makes them.

use data_encoding::BASE64URL_NOPAD;

const NAMESPACE: &str = "fpga.intel.com";

/// `fpga.intel.com/af-<3 of interface>.<3 of function>.<base64url of both ids>`: 54 characters after the namespace.
///
/// Both ids are 32 hexadecimal digits. The last character carries four bits of them and two zeros, so it is always a letter
/// or a digit and the name a legal one.
pub(super) fn of_function(interface_id: &str, afu_id: &str) -> String {
    let bytes = bytes_of(interface_id).chain(bytes_of(afu_id));
    let encoded = BASE64URL_NOPAD.encode(&bytes.collect::<Vec<u8>>());
    format!("{NAMESPACE}/af-{}.{}.{encoded}", start(interface_id), start(afu_id))
}

/// `fpga.intel.com/region-<interface id>`.
pub(super) fn of_region(interface_id: &str) -> String {
    format!("{NAMESPACE}/region-{interface_id}")
}

fn start(id: &str) -> &str {
    id.get(..3).unwrap_or(id)
}

fn bytes_of(id: &str) -> impl Iterator<Item = u8> + '_ {
    (0..id.len() / 2).filter_map(|index| u8::from_str_radix(id.get(2 * index..2 * index + 2)?, 16).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IF: &str = "69528db6eb31577a8c3668f9faa081f6";
    const IF2: &str = "ce48969398f05f33946d560708be108a";
    const A1: &str = "d8424dc4a4a3c413f89e433683f9040b";
    const A2: &str = "f7df405cbd7acf7222f144b0b93acd18";

    #[test]
    fn names_are_those_of_the_vendors_plugin() {
        let (failed, blank) = ("f".repeat(32), "0".repeat(32));
        for (interface_id, afu_id, name) in [
            (IF2, A1, "af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"),
            ("bfac4d851ee856fe8c95865ce1bbaa2d", A2, "af-bfa.f7d.v6xNhR7oVv6MlYZc4buqLfffQFy9es9yIvFEsLk6zRg"),
            (IF, A1, "af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"),
            (IF, A2, "af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg"),
            (IF, &failed, "af-695.fff.aVKNtusxV3qMNmj5-qCB9v____________________8"),
            (&failed, &failed, "af-fff.fff.__________________________________________8"),
            (&blank, &blank, "af-000.000.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
        ] {
            assert_eq!(of_function(interface_id, afu_id), format!("fpga.intel.com/{name}"));
        }
        assert_eq!(of_region(IF), "fpga.intel.com/region-69528db6eb31577a8c3668f9faa081f6");
    }

    proptest! {
        #[test]
        fn every_name_is_a_legal_label(interface_id in "[0-9a-f]{32}", afu_id in "[0-9a-f]{32}") {
            let name = of_function(&interface_id, &afu_id);
            let label = name.strip_prefix("fpga.intel.com/").unwrap();
            prop_assert_eq!(label.len(), 54);
            prop_assert!(label.ends_with(|c: char| c.is_ascii_alphanumeric()));
            prop_assert!(label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)));
        }

        #[test]
        fn different_ids_have_different_names(a in "[0-9a-f]{32}", b in "[0-9a-f]{32}", c in "[0-9a-f]{32}") {
            prop_assert_eq!(of_function(&a, &b) == of_function(&a, &c), b == c);
            prop_assert_eq!(of_function(&b, &a) == of_function(&c, &a), b == c);
        }
    }
}
