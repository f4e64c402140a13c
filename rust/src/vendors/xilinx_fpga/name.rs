//! Resource names, as the vendor's own plugin makes them, and numbers of nodes.

use super::options::U30NameConvention;

const NAMESPACE: &str = "amd.com";
const U30_SHELL: &str = "xilinx_u30";
const U30_NAME: &str = "ama_u30";
/// The kubelet takes no longer name after the namespace.
const LONGEST: usize = 63;

/// Whether a shell is that of a U30 card.
pub(super) fn is_u30(vbnv: &str) -> bool {
    vbnv.contains(U30_SHELL)
}

/// `amd.com/<VBNV>-<timestamp>`; `None` where the timestamp is needed and not known.
///
/// A name that the kubelet would refuse for its length is that of the card's type instead.
pub(super) fn of_shell(vbnv: &str, timestamp: Option<&str>, convention: U30NameConvention) -> Option<String> {
    if is_u30(vbnv) && convention == U30NameConvention::CommonName {
        return Some(format!("{NAMESPACE}/{U30_NAME}"));
    }
    let timestamp = timestamp?;
    let full = legal(&format!("{vbnv}-{timestamp}"));
    let name = if full.len() <= LONGEST { full } else { legal(&format!("{}-{timestamp}", card_type(vbnv))) };
    Some(format!("{NAMESPACE}/{name}"))
}

/// `u200` of `xilinx_u200_xdma_201830_2`; all of it where it has no such parts.
pub(super) fn card_type(vbnv: &str) -> &str {
    vbnv.split('_').nth(1).unwrap_or(vbnv)
}

/// What may stand in a resource's name, in place of what may not.
fn legal(name: &str) -> String {
    let legal =
        |character: char| if character.is_ascii_alphanumeric() || "-_.".contains(character) { character } else { '_' };
    name.chars().map(legal).collect()
}

/// The number in the name of a function's DMA node: domain, bus, device and function in one.
pub(super) fn instance(address: &str) -> Option<u64> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut parts = address.split([':', '.']);
    let (domain, bus) = (number(parts.next()?)?, number(parts.next()?)?);
    let (device, function) = (number(parts.next()?)?, number(parts.next()?)?);
    Some(domain * 65536 + bus * 256 + device * 8 + function)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exact(vbnv: &str, timestamp: Option<&str>) -> Option<String> {
        of_shell(vbnv, timestamp, U30NameConvention::ExactName)
    }

    #[test]
    fn names_are_those_of_the_vendors_plugin() {
        let (u200, u30) = ("xilinx_u200_xdma_201830_2", "xilinx_u30_gen3x4_base_1");
        assert_eq!(exact(u200, Some("1561465320")).unwrap(), "amd.com/xilinx_u200_xdma_201830_2-1561465320");
        assert_eq!(exact(u30, Some("1")).unwrap(), "amd.com/xilinx_u30_gen3x4_base_1-1");
        assert_eq!(of_shell(u30, None, U30NameConvention::CommonName).unwrap(), "amd.com/ama_u30");
        assert_eq!(of_shell(u200, Some("1"), U30NameConvention::CommonName), exact(u200, Some("1")));
        assert_eq!(exact(u200, None), None);
    }

    #[test]
    fn a_name_that_is_too_long_is_that_of_the_cards_type() {
        let vbnv = format!("xilinx_u200_{}", "x".repeat(52));
        assert_eq!(exact(&vbnv, Some("1561465320")).unwrap(), "amd.com/u200-1561465320");
    }

    #[test]
    fn an_instance_is_the_address_as_a_number() {
        assert_eq!(instance("0000:65:00.1"), Some(0x6501));
        assert_eq!(instance("0001:02:03.4"), Some(65536 + 2 * 256 + 3 * 8 + 4));
        assert_eq!((instance("0000:65:00"), instance("x"), instance("")), (None, None, None));
    }

    proptest! {
        #[test]
        fn any_shell_has_a_name_of_legal_characters(vbnv in ".{1,80}", timestamp in "[0-9]{1,10}") {
            let name = exact(&vbnv, Some(&timestamp)).unwrap();
            let last = name.strip_prefix("amd.com/").unwrap();
            prop_assert!(last.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
        }
    }
}
