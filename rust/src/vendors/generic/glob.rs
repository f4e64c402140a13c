//! Finds the paths of the host that match a pattern, by the rules of Go's `filepath.Glob`, as generic-device-plugin
//! does.
//!
//! No crate has these rules: `**` is the same as `*`, `^` negates a class, a backslash makes the next character
//! literal, and a pattern without any of these is a plain path, taken literally.

use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::host::attribute::{AttributeError, Cause};
use crate::host::directory::Directory;
use crate::host::resolve::{followed, followed_to_last};

/// Matching paths, and errors on the way.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Matches {
    /// Sorted as strings.
    pub paths: Vec<Match>,
    /// Errors other than absence.
    pub errors: Vec<AttributeError>,
}

/// A matching path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// The path on the host.
    pub path: String,
    /// The path in this process: links on the way are followed, but not the last one.
    pub place: PathBuf,
}

/// The paths of the host that match a pattern.
///
/// # Errors
/// When the pattern is malformed.
pub(super) fn find(host: &Host, pattern: &str) -> Result<Matches, String> {
    let mut matches = Matches::default();
    if !has_meta(pattern) {
        matches.add_if_there(host, pattern.to_owned());
        return Ok(matches);
    }
    let mut paths = vec![String::new()];
    let mut parts = pattern.split('/').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        if has_meta(part) {
            let tokens = parse(part).map_err(|error| format!("{pattern:?}: {error}"))?;
            let found = matches.below(host, &paths, &tokens);
            if parts.peek().is_none() {
                matches.paths = found;
            } else {
                paths = found.into_iter().map(|found| found.path).collect();
            }
        } else {
            for path in &mut paths {
                *path = format!("{path}/{part}");
            }
            if parts.peek().is_none() {
                // The wildcard's matches exist; a plain part behind them may not.
                for path in paths.drain(..) {
                    matches.add_if_there(host, path);
                }
            }
        }
    }
    matches.paths.sort_unstable_by(|left, right| left.path.cmp(&right.path));
    Ok(matches)
}

impl Matches {
    /// The entries of all these directories that match one part of the pattern.
    fn below(&mut self, host: &Host, directories: &[String], tokens: &[Token]) -> Vec<Match> {
        let mut found = Vec::new();
        for directory in directories {
            let place = followed(host, Path::new(if directory.is_empty() { "/" } else { directory }));
            match Directory::open(&place).and_then(|open| open.names()) {
                Ok(names) => {
                    let fitting = names.iter().filter(|name| fits(tokens, name));
                    found.extend(
                        fitting.map(|name| Match { path: format!("{directory}/{name}"), place: place.join(name) }),
                    );
                }
                Err(error) if error.is_absent() => {}
                Err(error) => self.errors.push(error),
            }
        }
        found
    }

    /// Adds the path if anything exists there, even a dangling link.
    fn add_if_there(&mut self, host: &Host, path: String) {
        let place = followed_to_last(host, Path::new(&path));
        match rustix::fs::lstat(&place).map_err(Cause::System) {
            Ok(_) => self.paths.push(Match { path, place }),
            Err(cause) if cause.is_absent() => {}
            Err(cause) => self.errors.push(AttributeError { path: place, cause }),
        }
    }
}

fn has_meta(text: &str) -> bool {
    text.contains(['*', '?', '[', '\\'])
}

/// A part of a pattern, which matches one or more characters.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    /// This character itself.
    One(char),
    /// `?`: any one character.
    Any,
    /// `*`: any number of characters.
    Many,
    /// `[a-z]`, or `[^a-z]` when negated.
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Token {
    fn takes(&self, character: char) -> bool {
        match self {
            Self::One(own) => *own == character,
            Self::Any => true,
            Self::Many => false,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|&(first, last)| (first..=last).contains(&character)) != *negated
            }
        }
    }
}

/// Parses one part of a pattern, between two slashes.
fn parse(part: &str) -> Result<Vec<Token>, &'static str> {
    let mut characters = part.chars().peekable();
    let mut tokens = Vec::new();
    while let Some(character) = characters.next() {
        tokens.push(match character {
            '*' => Token::Many,
            '?' => Token::Any,
            '[' => parse_class(&mut characters)?,
            '\\' => Token::One(characters.next().ok_or("ends in a backslash")?),
            other => Token::One(other),
        });
    }
    Ok(tokens)
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Parses a class from behind its opening bracket to its closing bracket.
fn parse_class(characters: &mut Characters<'_>) -> Result<Token, &'static str> {
    let negated = characters.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    while ranges.is_empty() || characters.next_if_eq(&']').is_none() {
        let first = class_member(characters)?;
        let last = if characters.next_if_eq(&'-').is_some() { class_member(characters)? } else { first };
        ranges.push((first, last));
    }
    Ok(Token::Class { negated, ranges })
}

fn class_member(characters: &mut Characters<'_>) -> Result<char, &'static str> {
    match characters.next() {
        Some('-' | ']') => {
            Err("has an empty class or a bare `-` in a class; escape literal characters with a backslash")
        }
        Some('\\') => characters.next().ok_or("ends in a backslash"),
        Some(character) => Ok(character),
        None => Err("has a `[` without a matching `]`"),
    }
}

/// Whether a name matches. After a mismatch, only the last `*` is extended by one character, so the time is bounded by
/// the product of both lengths.
fn fits(tokens: &[Token], name: &str) -> bool {
    let (mut token, mut rest) = (0, name.chars());
    let mut last_star = None;
    while let Some(character) = rest.clone().next() {
        if tokens.get(token) == Some(&Token::Many) {
            last_star = Some((token, rest.clone()));
            token += 1;
        } else if tokens.get(token).is_some_and(|token| token.takes(character)) {
            token += 1;
            rest.next();
        } else if let Some((star, taken)) = &mut last_star {
            taken.next();
            (token, rest) = (*star + 1, taken.clone());
        } else {
            return false;
        }
    }
    tokens[token..].iter().all(|token| *token == Token::Many)
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    fn matched(pattern: &str, name: &str) -> bool {
        fits(&parse(pattern).unwrap(), name)
    }

    #[test]
    fn patterns_follow_the_rules_of_go() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", ".hidden", true),
            ("ttyUSB*", "ttyUSB0", true),
            ("ttyUSB*", "ttyUSB", true),
            ("ttyUSB*", "ttyACM0", false),
            ("tty**", "ttyUSB0", true),
            ("tty?", "tty1", true),
            ("tty?", "tty", false),
            ("tty?", "tty10", false),
            ("video[0-3]", "video2", true),
            ("video[0-3]", "video4", false),
            ("video[^0-3]", "video4", true),
            ("video[^0-3]", "video0", false),
            ("video[!0]", "video!", true),
            ("a[\\]]", "a]", true),
            ("a[\\-x]", "a-", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a*b*c", "aXbbYc", true),
            ("a*b*c", "aXbbYcd", false),
            ("*é?", "caféx", true),
        ] {
            assert_eq!(matched(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_without_sense_is_refused_with_its_text() {
        for pattern in ["/dev/a[", "/dev/a[b", "/dev/[]a]", "/dev/[-a]", "/dev/[a-]", "/dev/[^]", "/dev/a\\"] {
            let error = find(&Host::new("/nonexistent"), pattern).unwrap_err();
            assert!(error.contains(&format!("{pattern:?}")), "{error}");
        }
    }

    #[test]
    fn a_star_that_could_take_forever_does_not() {
        assert!(!matched(&"a*".repeat(100), &"a".repeat(99)));
        assert!(!matched(&format!("{}b", "a*".repeat(100)), &"a".repeat(4000)));
    }

    fn host() -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        create_dir_all(root.path().join("dev/snd")).unwrap();
        create_dir_all(root.path().join("dev/bus/1")).unwrap();
        for name in ["ttyUSB10", "ttyUSB9", "ttyACM0", "snd/controlC0", "bus/1/x", "odd[name"] {
            write(root.path().join("dev").join(name), "").unwrap();
        }
        symlink("nowhere", root.path().join("dev/ttyUSBdangling")).unwrap();
        symlink("/dev/snd", root.path().join("dev/audio")).unwrap();
        let host = Host::new(root.path());
        (root, host)
    }

    fn found(pattern: &str) -> Vec<String> {
        let (_root, host) = host();
        let matches = find(&host, pattern).unwrap();
        assert_eq!(matches.errors, []);
        paths(matches)
    }

    fn paths(matches: Matches) -> Vec<String> {
        matches.paths.into_iter().map(|found| found.path).collect()
    }

    #[test]
    fn matches_are_host_paths_sorted_as_strings() {
        assert_eq!(found("/dev/ttyUSB*"), ["/dev/ttyUSB10", "/dev/ttyUSB9", "/dev/ttyUSBdangling"]);
        assert_eq!(found("/*/snd/*"), ["/dev/snd/controlC0"]);
        assert_eq!(found("/dev/*/1/x"), ["/dev/bus/1/x"]);
        assert_eq!(found("/dev/*/missing"), Vec::<String>::new());
        assert_eq!(found("/missing/*"), Vec::<String>::new());
        assert_eq!(found("/dev/ttyACM0/*"), Vec::<String>::new());
    }

    #[test]
    fn a_plain_path_is_returned_as_given() {
        assert_eq!(found("/dev/snd"), ["/dev/snd"]);
        assert_eq!(found("/dev//ttyACM0"), ["/dev//ttyACM0"]);
        assert_eq!(found("/dev/ttyUSBdangling"), ["/dev/ttyUSBdangling"]);
        assert_eq!(found("/dev/missing"), Vec::<String>::new());
        assert_eq!(found("/dev/odd\\[name"), ["/dev/odd[name"]);
    }

    #[test]
    fn absolute_links_are_followed_below_the_host_root() {
        let (root, host) = host();
        for pattern in ["/dev/audio/control*", "/dev/audio/controlC0"] {
            let path = "/dev/audio/controlC0".to_owned();
            let place = root.path().join("dev/snd/controlC0");
            assert_eq!(find(&host, pattern).unwrap().paths, [Match { path, place }]);
        }
    }

    #[test]
    fn a_directory_that_cannot_be_looked_into_costs_no_other_match() {
        let (root, host) = host();
        symlink("loop", root.path().join("dev/bus/loop")).unwrap();
        let matches = find(&host, "/dev/bus/*/x").unwrap();
        assert_eq!(matches.errors.len(), 1, "{:?}", matches.errors);
        assert_eq!(paths(matches), ["/dev/bus/1/x"]);
        let matches = find(&host, "/dev/bus/*/*").unwrap();
        assert_eq!(matches.errors.len(), 1, "{:?}", matches.errors);
        assert_eq!(paths(matches), ["/dev/bus/1/x"]);
        let matches = find(&host, "/dev/bus/loop/x").unwrap();
        assert_eq!(matches.errors.len(), 1, "{:?}", matches.errors);
        assert_eq!(paths(matches), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn no_pattern_is_too_odd(pattern in "[a*?\\[\\]^\\\\-]{0,12}", name in "[a\\]^\\\\*-]{0,12}") {
            if let Ok(tokens) = parse(&pattern) {
                fits(&tokens, &name);
            }
        }

        #[test]
        fn an_escaped_name_fits_itself_alone(name in "[a-c*?\\[\\]^\\\\-]{1,8}", other in "[a-c*?\\[\\]^\\\\-]{1,8}") {
            let escaped: String = name.chars().flat_map(|character| ['\\', character]).collect();
            prop_assert!(matched(&escaped, &name));
            prop_assert_eq!(matched(&escaped, &other), name == other);
        }

        #[test]
        fn a_name_cut_short_by_a_star_fits(name in "[a-c]{0,8}", end in 0_usize..8) {
            let pattern = format!("{}*", &name[..end.min(name.len())]);
            prop_assert!(matched(&pattern, &name));
        }
    }
}
