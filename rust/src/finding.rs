//! One observation by a health source about one device, with the evidence.

use std::borrow::Cow;

/// Longest detail, in characters; the rest is cut off.
const LONGEST_DETAIL: usize = 200;

/// Longest value, in characters; the rest is cut off.
const LONGEST_VALUE: usize = 100;

/// One observation by a source about one device. It is no verdict: the policy decides about the consequences.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Finding {
    /// The source's registered name: `pci-link`.
    pub source: Cow<'static, str>,
    /// A reason that the source has registered: `link-degraded`.
    pub reason: Cow<'static, str>,
    /// The file that was read, without the host root; empty if it was not a file.
    pub file: String,
    /// The fault, for people.
    pub detail: String,
    /// The content that was read; empty if there was none.
    pub value: String,
    /// Number of events that the source has counted since it started. Zero for a finding that lasts only while its
    /// fault is seen.
    pub count: u64,
}

impl Finding {
    /// A finding without evidence.
    pub fn new(source: impl Into<Cow<'static, str>>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { source: source.into(), reason: reason.into(), ..Self::default() }
    }

    /// Sets the file that was read.
    #[must_use]
    pub fn at(mut self, file: impl Into<String>) -> Self {
        self.file = file.into();
        self
    }

    /// Sets the explanation for people, cut to one line of bounded length.
    #[must_use]
    pub fn because(mut self, detail: &str) -> Self {
        self.detail = one_line(detail, LONGEST_DETAIL);
        self
    }

    /// Sets the content that was read, cut to one line of bounded length.
    #[must_use]
    pub fn reading(mut self, value: &str) -> Self {
        self.value = one_line(value, LONGEST_VALUE);
        self
    }

    /// Sets the number of events.
    #[must_use]
    pub fn counted(mut self, count: u64) -> Self {
        self.count = count;
        self
    }
}

/// Text as one line of at most `longest` characters: files can have any content.
fn one_line(text: &str, longest: usize) -> String {
    let is_break = |character: char| character.is_whitespace() || character.is_control();
    let line = text.split(is_break).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    if line.chars().count() <= longest {
        return line;
    }
    let kept: String = line.chars().take(longest - 1).collect();
    kept.trim_end().to_owned() + "…"
}

/// Content of a file, short enough to be quoted in a sentence.
pub(crate) fn quoted(text: &str) -> String {
    one_line(text, LONGEST_VALUE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn evidence_is_one_line_of_bounded_length() {
        let finding = Finding::new("temperature", "temperature").because(&"hot ".repeat(100)).reading("1\n2\0\t3\n");
        assert_eq!(finding.detail.chars().count(), LONGEST_DETAIL);
        assert!(finding.detail.ends_with('…'));
        assert_eq!(finding.value, "1 2 3");
    }

    proptest! {
        #[test]
        fn shortened_text_is_not_shortened_again(text: String) {
            let short = one_line(&text, 20);
            prop_assert!(short.chars().count() <= 20);
            prop_assert_eq!(one_line(&short, 20), short);
        }
    }
}
