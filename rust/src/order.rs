//! Natural order: `port.2` before `port.10`, and PCI addresses as hexadecimal numbers: `0000:09:00.0` before
//! `0000:0a:00.0` before `0000:10:00.0`.

use std::cmp::Ordering;

/// Compares runs of digits as decimal numbers, PCI addresses as hexadecimal numbers, and everything else as text. Equal
/// numbers in different spelling (`1`, `01`) still have an order.
#[must_use]
pub fn natural(left: &str, right: &str) -> Ordering {
    Parts::of(left).cmp(Parts::of(right)).then_with(|| left.cmp(right))
}

/// Number of digits of a PCI domain: domains behind VMD have more than four.
const SHORTEST_DOMAIN: usize = 4;
const LONGEST_DOMAIN: usize = 8;

/// A part of a name. The order of the variants is their sort order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part<'t> {
    /// Text whose first character sorts before all digits.
    Punctuation(&'t str),
    /// A number: count of digits, and the digits, without leading zeros.
    Number(usize, &'t str),
    /// Domain, bus, device and function; an address without a function sorts before addresses with one.
    Address(u32, u8, u8, Option<u8>),
    /// Any other text.
    Text(&'t str),
}

/// The parts of a name, from left to right.
struct Parts<'t> {
    rest: &'t str,
    /// Whether a word or a number begins here: an address can begin only at such a border.
    is_at_border: bool,
}

impl<'t> Parts<'t> {
    fn of(text: &'t str) -> Self {
        Self { rest: text, is_at_border: true }
    }
}

impl<'t> Iterator for Parts<'t> {
    type Item = Part<'t>;

    fn next(&mut self) -> Option<Part<'t>> {
        let first = self.rest.chars().next()?;
        if let Some((address, after)) = Some(self.rest).filter(|_| self.is_at_border).and_then(address) {
            (self.rest, self.is_at_border) = (after, false);
            return Some(address);
        }
        let is_number = first.is_ascii_digit();
        let (part, after) = self.rest.split_at(if is_number { digits(self.rest) } else { text(self.rest) });
        (self.rest, self.is_at_border) = (after, !part.ends_with(|last: char| last.is_ascii_alphanumeric()));
        Some(match first {
            _ if is_number => {
                let number = part.trim_start_matches('0');
                Part::Number(number.len(), number)
            }
            ..'0' => Part::Punctuation(part),
            _ => Part::Text(part),
        })
    }
}

/// Length of the digits at the start of the text.
fn digits(text: &str) -> usize {
    text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len())
}

/// Length of the text up to the next number or address.
fn text(whole: &str) -> usize {
    let mut before = 'a'; // no address begins here
    let mut is_end = |place: usize, character: char| {
        let is_at_border = !std::mem::replace(&mut before, character).is_ascii_alphanumeric();
        character.is_ascii_digit() || is_at_border && address(&whole[place..]).is_some()
    };
    whole.char_indices().find(|&(place, character)| is_end(place, character)).map_or(whole.len(), |(place, _)| place)
}

/// The PCI address at the start of the text, `0000:3b:00.0` or `0000:3b:00`, and the rest; the rest does not begin with
/// a letter or digit.
fn address(text: &str) -> Option<(Part<'_>, &str)> {
    let end =
        text.bytes().take(LONGEST_DOMAIN + 1).position(|byte| byte == b':').filter(|&end| end >= SHORTEST_DOMAIN)?;
    let (domain, rest) = text.split_at_checked(end)?;
    let (bus, rest) = rest.strip_prefix(':')?.split_at_checked(2)?;
    let (device, rest) = rest.strip_prefix(':')?.split_at_checked(2)?;
    let function = rest.strip_prefix('.').and_then(|rest| rest.split_at_checked(1));
    let function = function.and_then(|(digit, rest)| Some((byte(digit).filter(|&number| number < 8)?, rest)));
    let (function, rest) = function.map_or((None, rest), |(function, rest)| (Some(function), rest));
    let is_whole = !rest.starts_with(|next: char| next.is_ascii_alphanumeric());
    let domain = Some(domain).filter(|domain| is_hexadecimal(domain))?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    Some((Part::Address(domain, byte(bus)?, byte(device)?, function), rest)).filter(|_| is_whole)
}

fn byte(text: &str) -> Option<u8> {
    Some(text).filter(|text| is_hexadecimal(text)).and_then(|text| u8::from_str_radix(text, 16).ok())
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sorted<const N: usize>(mut names: [&str; N]) -> [&str; N] {
        names.sort_by(|left, right| natural(left, right));
        names
    }

    #[test]
    fn numbers_count_as_numbers() {
        let names = ["dfl-port.10", "dfl-port.2", "a", "dfl-port.1", "dfl-port.02", "dfl-port", "10", "9"];
        let expected = ["9", "10", "a", "dfl-port", "dfl-port.1", "dfl-port.02", "dfl-port.2", "dfl-port.10"];
        assert_eq!(sorted(names), expected);
        assert_eq!(sorted(["card10", "card9", "card-1"]), ["card9", "card10", "card-1"]);
    }

    #[test]
    fn addresses_of_pci_count_as_hexadecimal_numbers() {
        for (prefix, suffix) in [("", ""), ("xcu250-", "-3"), ("", "::1"), ("gpu ", " 10")] {
            let name = |address: &str| format!("{prefix}{address}{suffix}");
            let names =
                ["10000:00:00.0", "0000:10:00.0", "0000:0a:00.1", "0000:0A:00.0", "0000:09:1f.0", "0000:09:02.7"]
                    .map(name);
            let expected =
                ["0000:09:02.7", "0000:09:1f.0", "0000:0A:00.0", "0000:0a:00.1", "0000:10:00.0", "10000:00:00.0"]
                    .map(name);
            assert_eq!(sorted(names.each_ref().map(String::as_str)), expected.each_ref().map(String::as_str));
        }
        // Text that only resembles an address is compared as text and decimal numbers.
        assert_eq!(sorted(["z0000:10:00.0", "z0000:9:00.0"]), ["z0000:9:00.0", "z0000:10:00.0"]);
        assert_eq!(sorted(["0000:10:00.00", "0000:0a:00.00"]), ["0000:0a:00.00", "0000:10:00.00"]);
    }

    proptest! {
        #[test]
        fn the_order_of_addresses_is_that_of_their_numbers(
            left: (u16, u8, u8, u8), right: (u16, u8, u8, u8), prefix in "[a-z]{0,3}[-: ]|", suffix in "|[-: ][a-z0-9]{0,3}"
        ) {
            let numbers = |(domain, bus, device, function): (u16, u8, u8, u8)| (domain, bus, device % 32, function % 8);
            let name = |of| {
                let (domain, bus, device, function) = numbers(of);
                format!("{prefix}{domain:04x}:{bus:02x}:{device:02x}.{function}{suffix}")
            };
            prop_assert_eq!(natural(&name(left), &name(right)), numbers(left).cmp(&numbers(right)));
        }

        #[test]
        fn it_is_a_total_order(
            a in "([a-b0-2.]{0,6}|[ab-]?(000[01]:[01][0a]:00([.][07])?){1,2}[.a1]?)",
            b in "([a-b0-2.]{0,6}|[ab-]?(000[01]:[01][0a]:00([.][07])?){1,2}[.a1]?)",
            c in "([a-b0-2.]{0,6}|[ab-]?(000[01]:[01][0a]:00([.][07])?){1,2}[.a1]?)",
        ) {
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
