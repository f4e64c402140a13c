//! Rules that find events of devices in records of the kernel log. A pattern is compiled when it is first needed.
//!
//! A rule is a literal that the text must contain, and a pattern with named groups. The groups `bdf` (a PCI address),
//! `uuid`, `gi` and `ci` (a MIG instance) name the device; `bdf` and `link` name a port of a switch that the device is
//! connected to; `xid` and `value` distinguish events of one rule.

use std::io;
use std::sync::OnceLock;

use regex::bytes::{Captures, Regex, RegexBuilder};

use super::kernel_log::Record;

/// Limit in bytes, for a compiled pattern and for its cache: the largest shipped pattern uses a tenth.
const LARGEST_PATTERN: usize = 1 << 19;

/// Length limit for a record's text that is shown to people.
const LONGEST_DETAIL: usize = 200;

/// A rule as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The name of its events.
    pub name: String,
    /// A literal that a text must contain before the pattern is tried.
    pub contains: String,
    /// A regular expression over bytes: <https://docs.rs/regex/latest/regex/bytes/>.
    pub pattern: String,
}

/// The match of a record with a rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Match {
    /// The name of the rule.
    pub rule: String,
    /// The device's address, with or without its function; empty if the record has none.
    pub pci_address: String,
    /// The device's UUID, or empty.
    pub uuid: String,
    /// The GPU instance, if the record concerns one.
    pub gpu_instance: Option<u32>,
    /// The compute instance, if the record concerns one.
    pub compute_instance: Option<u32>,
    /// The number of the link, if the record concerns a link of the switch at `pci_address`.
    pub link: Option<u32>,
    /// The code of an Xid, or empty.
    pub xid: String,
    /// The text that the pattern's group `value` matched, or empty.
    pub value: String,
}

/// The rules in order: the first that matches a record decides.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Matches every text that contains the literal of any rule, so that most records cost a single search.
    any: Regex,
}

/// A rule and its pattern. The pattern is compiled once a text contains the rule's literal, which on most hosts never
/// happens.
#[derive(Debug)]
struct Rule {
    row: Row,
    pattern: OnceLock<Option<Regex>>,
}

impl Rule {
    /// The groups that the pattern matches in `text`; `escaped` is the same text in the kernel's form. A pattern that
    /// `Rules::check` refuses matches nothing.
    fn captures<'text>(&self, escaped: &[u8], text: &'text [u8]) -> Option<Captures<'text>> {
        let wanted = self.row.contains.as_bytes();
        if !wanted.is_empty() && !escaped.windows(wanted.len()).any(|part| part == wanted) {
            return None;
        }
        self.pattern.get_or_init(|| compiled(&self.row.name, &self.row.pattern).ok()).as_ref()?.captures(text)
    }
}

impl Rules {
    /// Checks the patterns of rules.
    ///
    /// # Errors
    /// `InvalidInput`, with the rule's name, for a pattern that is invalid or too large.
    pub fn check(rows: &[Row]) -> io::Result<()> {
        rows.iter().try_for_each(|row| compiled(&row.name, &row.pattern).map(drop))
    }

    /// Takes rules whose patterns have been checked.
    ///
    /// # Errors
    /// `InvalidInput` if the literals take too much space.
    pub fn new(rows: Vec<Row>) -> io::Result<Self> {
        let literals: Vec<String> = rows.iter().map(|row| regex::escape(&row.contains)).collect();
        // An empty alternation would match every text; an empty class matches none.
        let any = if rows.is_empty() { "[^\\x00-\\xff]".to_owned() } else { literals.join("|") };
        let any = compiled("", &any)?;
        let rules = rows.into_iter().map(|row| Rule { row, pattern: OnceLock::new() }).collect();
        Ok(Self { rules, any })
    }

    /// Matches a record; returns the match and its text for people, or `None` if no rule matches.
    #[must_use]
    pub fn read(&self, record: &Record) -> Option<(Match, String)> {
        if !self.any.is_match(record.escaped) {
            return None;
        }
        let text = record.text();
        let captures = |rule: &Rule| rule.captures(record.escaped, &text);
        let (rule, groups) = self.rules.iter().find_map(|rule| Some((rule, captures(rule)?)))?;
        let number = |name| group(&groups, name).parse().ok();
        let written = |name| group(&groups, name).to_ascii_lowercase();
        let pci_address = Some(written("bdf")).filter(|address| !address.is_empty());
        let matched = Match {
            rule: rule.row.name.clone(),
            pci_address: pci_address.unwrap_or_else(|| record.pci_address.unwrap_or_default().to_ascii_lowercase()),
            uuid: group(&groups, "uuid"),
            gpu_instance: number("gi"),
            compute_instance: number("ci"),
            link: number("link"),
            xid: group(&groups, "xid"),
            value: group(&groups, "value"),
        };
        Some((matched, detail(&text)))
    }
}

fn compiled(name: &str, pattern: &str) -> io::Result<Regex> {
    let mut builder = RegexBuilder::new(pattern);
    builder.unicode(false).size_limit(LARGEST_PATTERN).dfa_size_limit(LARGEST_PATTERN);
    builder.build().map_err(|error| {
        let error = error.to_string(); // the message shows the pattern first and ends with the error
        let wrong = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        io::Error::new(io::ErrorKind::InvalidInput, format!("rule {name}: its pattern: {wrong}"))
    })
}

fn group(groups: &Captures, name: &str) -> String {
    groups.name(name).map(|found| String::from_utf8_lossy(found.as_bytes()).into_owned()).unwrap_or_default()
}

/// The text as one line, shortened.
fn detail(text: &[u8]) -> String {
    let line = |one: char| if one.is_control() { ' ' } else { one };
    String::from_utf8_lossy(text).chars().map(line).take(LONGEST_DETAIL).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rows: &[(&str, &str, &str)]) -> io::Result<Rules> {
        let row = |&(name, contains, pattern): &(&str, &str, &str)| Row {
            name: name.into(),
            contains: contains.into(),
            pattern: pattern.into(),
        };
        Rules::new(rows.iter().map(row).collect())
    }

    fn record(text: &'static str, device: Option<&'static str>) -> Record<'static> {
        Record { facility: 0, sequence: 1, microseconds: 2, escaped: text.as_bytes(), pci_address: device }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = rules(&[
            ("xid", "Xid", r"Xid \((?P<bdf>[\da-fA-F:]+) GPU-I:(?P<gi>\d+)\): (?P<xid>\d+)"),
            ("any", "Xid", r"Xid .* (?P<value>\w+)$"),
        ])
        .unwrap();
        let (matched, text) = rules.read(&record("Xid (0000:3B:00 GPU-I:05): 94, x\\x0ay", None)).unwrap();
        let expected = Match {
            rule: "xid".into(),
            pci_address: "0000:3b:00".into(),
            gpu_instance: Some(5),
            xid: "94".into(),
            ..Match::default()
        };
        assert_eq!((matched, text.as_str()), (expected, "Xid (0000:3B:00 GPU-I:05): 94, x y"));
        let (matched, _) = rules.read(&record("Xid without address", Some("0000:5e:00.0"))).unwrap();
        assert_eq!((matched.rule.as_str(), matched.pci_address.as_str()), ("any", "0000:5e:00.0"));
        assert_eq!(matched.value, "address");
    }

    #[test]
    fn what_a_rule_wants_is_taken_as_it_is_written() {
        let rules = rules(&[("brackets", "a(b", "^")]).unwrap();
        assert!(rules.read(&record("has a(b in it", None)).is_some());
        assert!(rules.read(&record("has ab in it", None)).is_none());
    }

    #[test]
    fn a_pattern_is_tried_only_on_a_text_that_contains_what_its_rule_wants() {
        let rules = rules(&[("greedy", "wanted", "lost"), ("other", "is lost", "(?P<value>lost)")]).unwrap();
        let (matched, _) = rules.read(&record("card 7 is lost", None)).unwrap();
        assert_eq!((matched.rule.as_str(), matched.value.as_str()), ("other", "lost"));
        assert_eq!(rules.read(&record("wanted, and lost", None)).unwrap().0.rule, "greedy");
    }

    #[test]
    fn without_rules_nothing_is_of_interest() {
        assert_eq!(rules(&[]).unwrap().read(&record("NVRM: Xid", None)), None);
    }

    #[test]
    fn an_invalid_or_too_large_pattern_is_refused_with_its_rule() {
        for pattern in ["(", r"(?P<bdf>\w{1000}){1000}"] {
            let row = Row { name: "mine".into(), contains: String::new(), pattern: pattern.into() };
            let error = Rules::check(&[row]).unwrap_err();
            assert!(
                error.kind() == io::ErrorKind::InvalidInput
                    && error.to_string().starts_with("rule mine: its pattern: ")
            );
        }
    }
}
