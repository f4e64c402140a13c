//! Settings as Python gives them: its defaults, which `make models` has written beside this file, and changes.

#![allow(dead_code, unreachable_pub, reason = "a part of each test binary, which uses some of it")]
#![allow(clippy::missing_panics_doc, reason = "a test ends where it fails")]

use serde_json::{Value, json};

/// The JSON of the default configuration with these changes; a section is changed key by key, a list as a whole.
#[must_use]
pub fn json(change: &Value) -> String {
    let mut whole = serde_json::from_str(include_str!("defaults.json")).unwrap();
    merge(&mut whole, change);
    whole.to_string()
}

fn merge(whole: &mut Value, change: &Value) {
    match (whole.as_object_mut(), change.as_object()) {
        (Some(section), Some(keys)) => {
            for (key, value) in keys {
                merge(section.entry(key).or_insert(Value::Null), value);
            }
        }
        _ => *whole = change.clone(),
    }
}

/// A resource of generic devices with one group of these members.
#[must_use]
pub fn generic(name: &str, members: &[Value]) -> Value {
    json!({"name": name, "groups": [{"count": 1, "paths": members, "usb": [], "separate": false}]})
}

/// A member of a group, by path.
#[must_use]
pub fn member(path: &str, change: &Value) -> Value {
    let mut whole = json!({
        "path": path, "mountPath": "", "type": "Device", "permissions": "mrw", "readOnly": false, "limit": 1,
        "optional": false,
    });
    merge(&mut whole, change);
    whole
}

/// A class of /sys/class/widget with these changes; its facts, nodes and conditions need only what they say.
#[must_use]
pub fn class(change: &Value) -> Value {
    let mut whole = json!({
        "name": "widget", "find": {"class": "widget", "driver": [], "vendor": [], "device": [], "attr": {}}, "facts": [],
        "nodes": [], "permissions": "rw", "health": [], "resource": "example.com/widget", "id": "{name}", "shares": 1,
        "env": {}, "vm": false,
    });
    merge(&mut whole, change);
    let blank = [
        ("facts", json!({"map": {}, "type": "text", "optional": false})),
        ("nodes", json!({"optional": false, "common": false})),
        ("health", json!({"absent": false})),
    ];
    for (key, blank) in blank {
        for one in whole[key].as_array_mut().unwrap() {
            let mut full = blank.clone();
            merge(&mut full, one);
            *one = full;
        }
    }
    if let Some(above) = whole["find"].get_mut("above") {
        let mut full = json!({"attr": {}});
        merge(&mut full, above);
        *above = full;
    }
    whole
}
