//! What became of each entry that a class looked at, for people who write one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::VENDOR;
use super::definition::{Above, CLASS, DeviceClass, Find, NAME};
use super::entries::{Entry, looked_at, refusal};
use super::files::Files;
use super::inspection::{Answer, inspect};
use crate::device::{Device, Found};
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

/// The entries of each class, in the order of the classes. Those that `devices` were made of are not looked at again.
pub(super) fn explained(
    host: &Host,
    fence: &Fence,
    classes: &Arc<[DeviceClass]>,
    devices: &[Arc<Device>],
) -> Vec<ClassEntry> {
    // The name is of the entry.
    let own = |device: &Arc<Device>| Some((device.attributes.get(NAME)?.source.clone(), device.text(CLASS)?));
    let taken: HashSet<(String, String)> =
        devices.iter().filter(|device| device.vendor == VENDOR).filter_map(own).collect();
    let mut all = Vec::new();
    let mut owners: HashMap<PathBuf, String> = HashMap::new();
    for class in classes.iter() {
        let entries = looked_at(host, VENDOR, &class.find, &mut Found::default());
        let paths: Vec<PathBuf> = entries.iter().map(|entry| host.own_path(&entry.path)).collect();
        let is_taken = |path: &PathBuf| taken.contains(&(path.display().to_string(), class.name.clone()));
        let units = entries.into_iter().zip(paths.iter().map(is_taken)).collect();
        let (behind_fence, own) = (host.clone(), [class.clone()]);
        let work = move |(entry, is_taken)| if is_taken { None } else { why_not(&behind_fence, &own, entry) };
        let outcomes = fence.each(units, |(entry, _): &(Entry, bool)| entry.card().to_owned(), work);
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
        Answer::NotOurs => Some(differs(host, &own.find, &entry)),
    }
}

/// The first attribute that is not what the class asks for, of the entry or of the directory above it that comes nearest.
fn differs(host: &Host, find: &Find, entry: &Entry) -> String {
    let mut files = Files::new(host);
    let own = attribute(&mut files, &find.attributes, &entry.path);
    let above = || find.above.as_ref().map(|above| directory_above(&mut Files::new(host), above, entry));
    own.or_else(above).unwrap_or_default()
}

/// Why the directories above an entry do not fit: what the nearest that could have shows instead.
fn directory_above(files: &mut Files<'_>, above: &Above, entry: &Entry) -> String {
    let directories: Vec<&Path> =
        entry.path.ancestors().skip(1).take_while(|directory| files.is_device(directory)).collect();
    let name = |directory: &Path| directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let known = entry.classes.first().map(|(_, parts)| parts.as_slice()).unwrap_or_default();
    let is_named =
        |directory: &Path| above.name.as_ref().is_none_or(|pattern| pattern.parts(&name(directory), known).is_some());
    let named: Vec<&Path> = directories.iter().copied().filter(|directory| is_named(directory)).collect();
    let mut has_one = |directory: &&Path| above.attributes.keys().any(|file| files.read(directory, file).is_ok());
    let nearest = named.iter().copied().find(&mut has_one);
    let nearest = nearest.or_else(|| named.first().copied().filter(|_| above.name.is_some()));
    let what = match (nearest, &above.name) {
        (Some(directory), _) => {
            let differs = attribute(files, &above.attributes, directory).unwrap_or_default();
            format!("{}: {differs}", name(directory))
        }
        (None, Some(pattern)) => {
            let all: Vec<_> = directories.iter().map(|directory| name(directory)).collect();
            format!("none of {} is named `{pattern}`", all.join(", "))
        }
        (None, None) => {
            let files: Vec<_> = above.attributes.keys().map(|file| format!("`{file}`")).collect();
            format!("none has {}", files.join(" or "))
        }
    };
    format!("no directory above it fits `above`: {what}")
}

/// The first of these files that has not its text.
fn attribute(files: &mut Files<'_>, attributes: &BTreeMap<String, String>, directory: &Path) -> Option<String> {
    attributes.iter().find_map(|(name, wanted)| match files.read(directory, name) {
        Ok(attribute) if attribute.text() == wanted => None,
        Ok(attribute) => Some(format!("`{name}` is `{}`, not `{wanted}`", attribute.text())),
        Err(error) => Some(format!("`{name}`: {}", error.cause)),
    })
}
