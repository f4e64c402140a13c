//! One record of the kernel log: <https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg>.
//!
//! `priority,sequence,microseconds,flags[,more];text`, then lines that begin with a space: `SUBSYSTEM=pci`,
//! `DEVICE=+pci:0000:3b:00.0`, where a driver names the device that it speaks of.

use std::borrow::Cow;

/// A record, as far as it is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// Who wrote it: 0 is the kernel, and nobody else can say so.
    pub facility: u32,
    /// Its number, one more than that of the record before.
    pub sequence: u64,
    /// When it was written, by the kernel's own clock, which began with the boot.
    pub microseconds: u64,
    /// What it says, as the kernel gives it: see [`Record::text`].
    pub escaped: &'a [u8],
    /// The address of the PCI device that it is about, where its driver says so.
    pub pci_address: Option<&'a str>,
}

impl<'a> Record<'a> {
    /// The record that one read of the device gave; `None` for anything else.
    #[must_use]
    pub fn parsed(record: &'a [u8]) -> Option<Self> {
        let separator = record.iter().position(|&byte| byte == b';')?;
        let (prefix, message) = (std::str::from_utf8(&record[..separator]).ok()?, &record[separator + 1..]);
        let mut fields = prefix.split(',');
        let priority: u32 = fields.next()?.parse().ok()?;
        let sequence = fields.next()?.parse().ok()?;
        let microseconds = fields.next()?.parse().ok()?;
        let mut lines = message.split(|&byte| byte == b'\n');
        let escaped = lines.next()?;
        let pci_address = lines.find_map(|line| std::str::from_utf8(line.strip_prefix(b" DEVICE=+pci:")?).ok());
        Some(Self { facility: priority >> 3, sequence, microseconds, escaped, pci_address })
    }

    /// What it says, with what the kernel writes as `\x0a` put back.
    #[must_use]
    pub fn text(&self) -> Cow<'a, [u8]> {
        let mut rest = self.escaped;
        let Some(first) = next_escape(rest) else { return Cow::Borrowed(rest) };
        let mut text = Vec::with_capacity(rest.len());
        let mut escape = Some(first);
        while let Some((place, byte)) = escape {
            text.extend_from_slice(&rest[..place]);
            text.push(byte);
            rest = &rest[place + ESCAPE_LENGTH..];
            escape = next_escape(rest);
        }
        text.extend_from_slice(rest);
        Cow::Owned(text)
    }
}

/// `\x0a`.
const ESCAPE_LENGTH: usize = 4;

/// Where the next escaped byte is, and which.
fn next_escape(text: &[u8]) -> Option<(usize, u8)> {
    text.windows(ESCAPE_LENGTH).enumerate().find_map(|(place, escape)| {
        let digits = std::str::from_utf8(escape.strip_prefix(b"\\x")?).ok()?;
        Some((place, u8::from_str_radix(digits, 16).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_is_a_prefix_a_text_and_what_device_it_is_about() {
        let about_a_device = b"3,812,5140900,-;nvme 0000:5e:00.0: gone\n SUBSYSTEM=pci\n DEVICE=+pci:0000:5e:00.0\n";
        let expected = Record {
            facility: 0,
            sequence: 812,
            microseconds: 5_140_900,
            escaped: b"nvme 0000:5e:00.0: gone",
            pci_address: Some("0000:5e:00.0"),
        };
        assert_eq!(Record::parsed(about_a_device), Some(expected));
        let of_a_later_kernel = Record::parsed(b"30,1,2,c,caller=T1;systemd[1]: a; b\n DEVICE=b8:0\n").unwrap();
        assert_eq!((of_a_later_kernel.facility, of_a_later_kernel.escaped), (3, &b"systemd[1]: a; b"[..]));
        assert_eq!(of_a_later_kernel.pci_address, None);
    }

    #[test]
    fn what_the_kernel_escapes_is_put_back() {
        let text = |escaped: &'static [u8]| {
            Record { facility: 0, sequence: 0, microseconds: 0, escaped, pci_address: None }.text().into_owned()
        };
        assert_eq!(text(b"NVRM: one\\x0aNVRM: two\\x5c"), b"NVRM: one\nNVRM: two\\");
        assert_eq!(text(b"\\x"), b"\\x");
        assert_eq!(text(b"\\xzz\\x0"), b"\\xzz\\x0");
    }

    #[test]
    fn what_is_no_record_is_none() {
        for record in [&b""[..], b"no prefix", b"6,1;too short", b"a,1,2,-;x", b"6,-1,2,-;x", b"\xff,1,2,-;x"] {
            assert_eq!(Record::parsed(record), None);
        }
    }

    proptest! {
        #[test]
        fn no_record_is_too_odd(record: Vec<u8>) {
            prop_assert!(Record::parsed(&record).is_none_or(|parsed| parsed.text().len() <= record.len()));
        }
    }
}
