//! What became of each entry that a class looked at, for people who write one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::VENDOR;
use super::definition::{DeviceClass, Find};
use super::entries::{Entry, looked_at, refusal};
use super::files::Files;
use super::inspection::{Answer, inspect};
use crate::device::Found;
use crate::fence::{Fence, Outcome};
use crate::host::Host;

/// An entry of a directory in which a class looks for devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassEntry {
    /// The entry, without the host root.
    pub path: PathBuf,
    /// The class.
    pub class: String,
    /// Whether it is a device of the class, or a part of one.
    pub is_taken: bool,
    /// Why it is none; empty if it is one.
    pub why: String,
}

/// The entries of each class, in the order of the classes.
pub(super) fn explained(host: &Host, fence: &Fence, classes: &Arc<[DeviceClass]>) -> Vec<ClassEntry> {
    let mut all = Vec::new();
    let mut owners: HashMap<PathBuf, String> = HashMap::new();
    for class in classes.iter() {
        let entries = looked_at(host, VENDOR, &class.find, &mut Found::default());
        let paths: Vec<PathBuf> = entries.iter().map(|entry| host.own_path(&entry.path)).collect();
        let (behind_fence, own) = (host.clone(), [class.clone()]);
        let work = move |entry: Entry| why_not(&behind_fence, &own, entry);
        let outcomes = fence.each(entries, |entry| entry.card().to_owned(), work);
        for (path, outcome) in paths.into_iter().zip(outcomes) {
            let why = match outcome {
                Outcome::Done(why) => why,
                Outcome::Overdue => Some("a read does not come back".to_owned()),
                Outcome::NotStarted(why) | Outcome::Panicked(why) => Some(why),
            };
            let why = why.or_else(|| owners.get(&path).map(|owner| format!("class `{owner}` has it")));
            if why.is_none() {
                owners.insert(path.clone(), class.name.clone());
            }
            all.push(ClassEntry {
                path,
                class: class.name.clone(),
                is_taken: why.is_none(),
                why: why.unwrap_or_default(),
            });
        }
    }
    all
}

fn why_not(host: &Host, class: &[DeviceClass; 1], mut entry: Entry) -> Option<String> {
    let [own] = class;
    match refusal(host, &own.find, &entry) {
        Ok(parts) => entry.classes = vec![(0, parts)],
        Err(why) => return Some(why),
    }
    match inspect(host, VENDOR, class, &entry) {
        Answer::Made(_) => None,
        Answer::NotKnown(one) => Some(format!("{}: {}", one.problem.path.display(), one.problem.error)),
        Answer::NotOurs => Some(attribute(host, &own.find, &entry.path)),
    }
}

/// The first attribute that is not what the class asks for.
fn attribute(host: &Host, find: &Find, directory: &Path) -> String {
    let mut files = Files::new(host);
    let differs = find.attributes.iter().find_map(|(name, wanted)| match files.read(directory, name) {
        Ok(attribute) if attribute.text() == wanted => None,
        Ok(attribute) => Some(format!("`{name}` is `{}`, not `{wanted}`", attribute.text())),
        Err(error) => Some(format!("`{name}`: {}", error.cause)),
    });
    differs.unwrap_or_else(|| "no directory above it fits `above`".to_owned())
}
