//! Devices that classes describe: what they are on a host's tree, and that no class and no tree makes a scan crash, hang,
//! or leave the host root.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it fails")]

mod devices;
mod limits;
mod not_taken;
mod random_classes;
#[path = "../settings/mod.rs"]
mod settings;
#[path = "../tree/mod.rs"]
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::slice::from_ref;
use std::sync::Arc;

use devherd_native::device::{Device, Platform};
use devherd_native::edits::{Edits, Way};
use devherd_native::host::resolve::in_root;
use devherd_native::scan::{Scan, Scanner};
use devherd_native::settings::Settings;
use devherd_native::vendors::classes::ClassEntry;
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use settings::class;
use tree::{Tree, polled};

fn settings_of(classes: &[Value]) -> Settings {
    Settings::from_json(&settings::json(&json!({"vendors": {"classes": classes}}))).unwrap()
}

fn scanner(tree: &Tree, classes: &[Value]) -> Scanner {
    Scanner::new(tree.host(), &settings_of(classes))
}

fn scan(tree: &Tree, classes: &[Value]) -> Arc<Scan> {
    scanner(tree, classes).scan(&|| {})
}

fn ids(scan: &Scan) -> Vec<&str> {
    scan.devices.iter().map(|device| device.id.as_str()).collect()
}

fn paths(device: &Device) -> Vec<&str> {
    device.paths.iter().map(|path| path.path.as_str()).collect()
}

fn problems(scan: &Scan) -> Vec<String> {
    scan.problems.iter().map(|problem| format!("{}: {}", problem.path.display(), problem.error)).collect()
}

/// The notices of classes: path and error.
fn notices(scan: &Scan) -> Vec<String> {
    let of_classes = scan.not_offered.iter().filter(|notice| notice.vendor == "classes");
    of_classes.map(|notice| format!("{}: {}", notice.path.display(), notice.error)).collect()
}

fn unseen(scan: &Scan) -> Vec<&str> {
    scan.unseen.iter().map(|part| part.card.as_deref().unwrap_or("*")).collect()
}

fn edits(classes: &[Value], device: &Device, resource: &str) -> Edits {
    let scanner = Scanner::new(Tree::new("").host(), &settings_of(classes));
    scanner.edits(device, &Platform::default(), Way::DevicePlugin, resource, None).unwrap()
}

/// The number of random classes and trees: `PROPTEST_CASES`, or few.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|number| number.parse().ok()).unwrap_or(128)
}

const ROOT: &str = "sys/devices/pci0000:00";

/// A function of a maker under a driver.
fn function(address: &str, driver: &str, id: &str) -> String {
    let (maker, model) = id.split_once(':').unwrap();
    let path = format!("{ROOT}/{address}");
    format!(
        "{path}/vendor = 0x{maker}\n{path}/device = 0x{model}\n{path}/class = 0x120000\n{path}/numa_node = 1\n\
         {path}/driver -> ../../../bus/pci/drivers/{driver}\n\
         sys/bus/pci/devices/{address} -> ../../../devices/pci0000:00/{address}\n\
         sys/bus/pci/drivers/{driver}/{address} -> ../../../../devices/pci0000:00/{address}\n"
    )
}

/// A class device below another directory, with its node.
fn class_device(class: &str, below: &str, node: &str, number: &str) -> String {
    let name = node.replace('/', "!");
    let path = format!("{below}/{class}/{name}");
    format!(
        "{path}/dev = {number}\nsys/class/{class}/{name} -> ../../{}\ndev/{node}\n",
        path.strip_prefix("sys/").unwrap()
    )
}

fn uevent(tree: &Tree, path: &str, node: &str, number: &str) {
    let (major, minor) = number.split_once(':').unwrap();
    tree.write(&format!("{path}/uevent"), &format!("MAJOR={major}\nMINOR={minor}\nDEVNAME={node}\n"));
}

/// Two NPUs, and what is beside them in the class.
fn npus() -> Tree {
    let tree = Tree::new("");
    for (number, address) in [(0, "0000:00:0b.0"), (1, "0000:00:0c.0")] {
        tree.add(&function(address, "intel_vpu", "8086:7d1d"));
        let below = format!("{ROOT}/{address}");
        tree.write(&format!("{below}/accel/accel{number}/dev"), &format!("261:{number}\n"));
        uevent(
            &tree,
            &format!("{below}/accel/accel{number}"),
            &format!("accel/accel{number}"),
            &format!("261:{number}"),
        );
        tree.add(&format!(
            "sys/class/accel/accel{number} -> ../../devices/pci0000:00/{address}/accel/accel{number}\n\
             dev/accel/accel{number}\n"
        ));
    }
    tree.add("sys/class/accel/accel_controlD0/dev = 261:9");
    tree
}

fn npu() -> Value {
    class(&json!({
        "name": "intel-npu", "resource": "npu.intel.com/accel", "id": "{name}-{share}",
        "find": {"class": "accel", "name": "accel{n}", "driver": ["intel_vpu"], "vendor": ["0x8086"]},
    }))
}

/// One widget with these files.
fn widget(files: &str) -> Tree {
    let tree = Tree::new(&class_device("widget", "sys/devices/virtual", "widget0", "10:7"));
    let lines = files.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.for_each(|line| tree.add(&format!("sys/devices/virtual/widget/widget0/{line}")));
    tree
}
