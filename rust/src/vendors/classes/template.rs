//! Texts with places in braces: templates, which facts fill, and patterns, which the kernel's names fill.

use std::borrow::Cow;
use std::fmt;

/// A part of such a text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// Text as it is.
    Text(String),
    /// `{n}`.
    Place(String),
}

/// The pieces of a text.
fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let wrong = || format!("`{text}`: a brace is open: a place is written `{{name}}`");
        let (place, behind) = after.split_once('}').ok_or_else(wrong)?;
        if before.contains('}') || place.contains('{') {
            return Err(wrong());
        }
        if !is_fact_name(place) {
            return Err(format!("`{text}`: `{place}` is no name of a fact: lower case letters, digits and `_`"));
        }
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        pieces.push(Piece::Place(place.to_owned()));
        rest = behind;
    }
    if rest.contains('}') {
        return Err(format!("`{text}`: `}}` without `{{`"));
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

/// Whether a fact may have this name: `cu_count`.
pub(super) fn is_fact_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// A text that is complete when facts are in its places: `accel/{name}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

impl Template {
    /// # Errors
    /// What is wrong with the text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        pieces(text).map(Self)
    }

    /// The facts that it needs.
    pub(super) fn places(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Place(name) => Some(name.as_str()),
        })
    }

    /// The text with these values.
    ///
    /// # Errors
    /// The first error of `value`.
    pub(super) fn filled<'v, E>(&self, mut value: impl FnMut(&str) -> Result<Cow<'v, str>, E>) -> Result<String, E> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(own) => text.push_str(own),
                Piece::Place(name) => text.push_str(&value(name)?),
            }
        }
        Ok(text)
    }
}

/// The parts of a name that were found in the places of a pattern.
pub(super) type Parts = Vec<(String, String)>;

/// A kernel name in which each place stands for a number: `accel{n}`. `!`, by which sysfs writes `/`, and `/` are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamePattern(Vec<Piece>);

impl fmt::Display for NamePattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => formatter.write_str(text),
            Piece::Place(name) => write!(formatter, "{{{name}}}"),
        })
    }
}

impl NamePattern {
    /// # Errors
    /// What is wrong with the text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let pieces = pieces(&plain(text))?;
        let is_beside = |pair: &[Piece]| pair.iter().all(|piece| matches!(piece, Piece::Place(_)));
        if pieces.is_empty() || pieces.windows(2).any(is_beside) {
            return Err(format!("`{text}`: two places have nothing between them, or there is nothing at all"));
        }
        Ok(Self(pieces))
    }

    /// The names of its parts.
    pub(super) fn places(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Place(name) => Some(name.as_str()),
        })
    }

    /// The parts of a name that fits; a part that is among `known` must have the same value. `None` if it does not fit.
    pub(super) fn parts(&self, name: &str, known: &[(String, String)]) -> Option<Parts> {
        let name = plain(name);
        let mut rest: &str = &name;
        let mut parts = Parts::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(own) => rest = rest.strip_prefix(own.as_str())?,
                Piece::Place(place) => {
                    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                    let (value, behind) = rest.split_at(digits);
                    let mut same = known.iter().chain(&parts).filter(|(known, _)| known == place);
                    if !is_number(value) || !same.all(|(_, known)| known == value) {
                        return None;
                    }
                    parts.push((place.clone(), value.to_owned()));
                    rest = behind;
                }
            }
        }
        rest.is_empty().then_some(parts)
    }
}

/// A number as the kernel writes it: without leading zeros.
fn is_number(digits: &str) -> bool {
    digits.parse::<i64>().is_ok() && (digits == "0" || !digits.starts_with('0'))
}

/// A name of sysfs with `/` for `!`, as udev does.
pub(super) fn plain(name: &str) -> String {
    name.replace('!', "/")
}

/// Whether a name fits a text in which `*` stands for any characters.
pub(super) fn fits(name: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return name.ends_with(part);
        }
        let Some(place) = name.find(part) else { return false };
        name = &name[place + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn parts(pattern: &str, name: &str) -> Option<Parts> {
        NamePattern::parse(pattern).unwrap().parts(name, &[("d".to_owned(), "4".to_owned())])
    }

    #[test]
    fn a_name_fits_where_its_places_are_numbers_and_the_rest_is_the_same() {
        let found = |parts: &[(&str, &str)]| {
            Some(parts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Parts>())
        };
        for (pattern, name, expected) in [
            ("accel{n}", "accel12", found(&[("n", "12")])),
            ("accel{n}", "accel_controlD0", None),
            ("accel{n}", "accel", None),
            ("accel{n}", "accel1x", None),
            ("accel{n}", "accel01", None),
            ("accel{n}", "accel0", found(&[("n", "0")])),
            ("accel{n}", "accel99999999999999999999", None),
            ("tenstorrent!{n}", "tenstorrent!3", found(&[("n", "3")])),
            ("tenstorrent/{n}", "tenstorrent!3", found(&[("n", "3")])),
            ("kvm", "kvm", found(&[])),
            ("kvm", "kvm0", None),
            ("wq{d}.{q}", "wq4.0", found(&[("d", "4"), ("q", "0")])),
            ("wq{d}.{q}", "wq5.0", None),
            ("{n}", "7", found(&[("n", "7")])),
        ] {
            assert_eq!(parts(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for text in ["{", "}", "{n", "n}", "{n{m}}", "{}", "{N}", "{a b}", "{{n}}", "{1}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
        assert!(NamePattern::parse("{a}{b}").is_err() && NamePattern::parse("").is_err());
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (name, pattern, expected) in [
            ("uverbs0", "uverbs*", true),
            ("xuverbs0", "uverbs*", false),
            ("a-b-c", "a*c", true),
            ("a-b-c", "*b*", true),
            ("abc", "abc", true),
            ("abcd", "abc", false),
            ("a", "a*a", false),
            ("aa", "a*a", true),
        ] {
            assert_eq!(fits(name, pattern), expected, "{name} {pattern}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_template_or_is_refused(text: String, name: String) {
            let _ = NamePattern::parse(&text).map(|pattern| pattern.parts(&name, &Parts::new()));
            fits(&name, &text);
            if let Ok(template) = Template::parse(&text) {
                let same = template.filled(|place| Ok::<_, Infallible>(format!("{{{place}}}").into()));
                prop_assert_eq!(same, Ok(text));
            }
        }
    }
}
