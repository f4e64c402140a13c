//! Devices that classes describe: what they are on a host's tree, and that no class and no tree makes a scan crash, hang,
//! or leave the host root.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it fails")]

mod settings;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
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
    scanner.edits(device, &Platform::default(), Way::DevicePlugin, resource).unwrap()
}

/// Random classes and trees.
const CASES: u32 = 1000;

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

#[test]
fn a_device_of_a_class_has_its_id_its_node_its_function_and_its_class_as_a_fact() {
    let scan = scan(&npus(), &[npu()]);
    assert_eq!((ids(&scan), problems(&scan), notices(&scan)), (vec!["accel0-0", "accel1-0"], vec![], vec![]));
    let device = &scan.devices[1];
    assert_eq!((&*device.vendor, &*device.card), ("classes", "0000:00:0c.0"));
    assert_eq!(device.resource_name.as_deref(), Some("npu.intel.com/accel"));
    assert_eq!((device.numa_nodes.as_slice(), device.functions.len()), (&[1][..], 1));
    assert_eq!((paths(device), device.paths[0].number), (vec!["/dev/accel/accel1"], Some((261, 1))));
    for (name, value) in [
        ("class", "intel-npu"),
        ("name", "accel1"),
        ("n", "1"),
        ("pci_address", "0000:00:0c.0"),
        ("vendor_id", "0x8086"),
        ("pcie_root", "pci0000:00"),
    ] {
        assert_eq!(device.text(name).as_deref(), Some(value), "{name}");
    }
    let source = &device.attributes["n"].source;
    assert_eq!(source, &format!("/{ROOT}/0000:00:0c.0/accel/accel1"));
    let edits = edits(&[npu()], device, "npu.intel.com/accel");
    assert_eq!((edits.nodes.len(), edits.nodes[0].permissions.as_str()), (1, "rw"));
}

#[test]
fn what_does_not_fit_is_not_mentioned() {
    let tree = npus();
    for change in [
        json!({"find": {"name": "npu{n}"}}),
        json!({"find": {"driver": ["habanalabs"]}}),
        json!({"find": {"vendor": ["0x1e52"]}}),
        json!({"find": {"device": ["0x0001", "2"]}}),
        json!({"find": {"attr": {"state": "enabled"}}}),
        json!({"find": {"attr": {"dev": "1:1"}}}),
        json!({"find": {"above": {"name": "dsa{d}"}}}),
        json!({"find": {"above": {"attr": {"idVendor": "1a86"}}}}),
        json!({"find": {"class": "nothing"}}),
        json!({"find": {"class": null, "bus": "nothing"}}),
        json!({"find": {"class": null, "bus": "pci", "driver": ["nothing"]}}),
    ] {
        let mut npu = npu();
        let find = npu["find"].as_object_mut().unwrap();
        find.extend(
            class(&change)["find"]
                .as_object()
                .unwrap()
                .iter()
                .filter_map(|(key, value)| change["find"].get(key).is_some().then(|| (key.clone(), value.clone()))),
        );
        let scan = scan(&tree, &[npu]);
        assert_eq!((ids(&scan), problems(&scan), unseen(&scan)), (vec![], vec![], vec![]), "{change}");
        assert_eq!(notices(&scan), [""; 0], "{change}");
    }
}

const DSA: &str = "sys/devices/pci0000:00/0000:00:01.0/dsa0";

/// A DSA with queues: enabled for users, disabled, and the kernel's.
fn queues() -> Tree {
    let tree = Tree::new(&function("0000:00:01.0", "idxd", "8086:0b25"));
    tree.add("sys/bus/dsa/devices/dsa0 -> ../../../devices/pci0000:00/0000:00:01.0/dsa0");
    for (queue, state, kind, mode) in [
        (0, "enabled", "user", "shared"),
        (1, "disabled", "none", "dedicated"),
        (2, "enabled", "user", "dedicated"),
        (3, "enabled", "kernel", "shared"),
    ] {
        let path = format!("{DSA}/wq0.{queue}");
        tree.add(&format!(
            "{path}/state = {state}\n{path}/type = {kind}\n{path}/mode = {mode}\ndev/dsa/wq0.{queue}\n\
             sys/bus/dsa/devices/wq0.{queue} -> ../../../devices/pci0000:00/0000:00:01.0/dsa0/wq0.{queue}"
        ));
        uevent(&tree, &path, &format!("dsa/wq0.{queue}"), &format!("509:{queue}"));
        tree.add(&format!("dev/char/509:{queue} -> ../dsa/wq0.{queue}"));
    }
    tree
}

fn dsa() -> Value {
    class(&json!({
        "name": "intel-dsa",
        "find": {"class": null, "bus": "dsa", "name": "wq{d}.{q}", "attr": {"state": "enabled", "type": "user"},
                 "above": {"name": "dsa{d}"}},
        "facts": [{"name": "mode", "read": "mode"}],
        "nodes": [{"path": "{node}"}, {"path": "char/{number}"}],
        "resource": "dsa.intel.com/wq-user-{mode}", "id": "wq-user-{mode}-{name}-{share}",
    }))
}

#[test]
fn queues_of_one_function_are_devices_of_one_card() {
    let scan = scan(&queues(), &[dsa()]);
    assert_eq!((ids(&scan), problems(&scan)), (vec!["wq-user-dedicated-wq0.2-0", "wq-user-shared-wq0.0-0"], vec![]));
    let shared = &scan.devices[1];
    assert_eq!(shared.resource_name.as_deref(), Some("dsa.intel.com/wq-user-shared"));
    assert_eq!((shared.card.as_str(), paths(shared)), ("0000:00:01.0", vec!["/dev/dsa/wq0.0", "/dev/char/509:0"]));
    assert_eq!(shared.attributes["mode"].source, format!("/{DSA}/wq0.0/mode"));
    assert_eq!((shared.text("d").as_deref(), shared.text("q").as_deref()), (Some("0"), Some("0")));
}

#[test]
fn a_needed_fact_that_cannot_be_read_leaves_the_device_as_it_was() {
    let tree = queues();
    tree.remove(&format!("{DSA}/wq0.0/mode"));
    fs::create_dir(tree.path(format!("{DSA}/wq0.0/mode"))).unwrap();
    tree.write(&format!("{DSA}/wq0.2/mode"), "\n");
    let scan = scan(&tree, &[dsa()]);
    assert_eq!((ids(&scan), unseen(&scan)), (vec![], vec!["0000:00:01.0", "0000:00:01.0"]));
    assert_eq!(
        problems(&scan),
        [format!("/{DSA}/wq0.0/mode: Is a directory (os error 21)"), format!("/{DSA}/wq0.2/mode: empty")]
    );
}

/// One widget with these files.
fn widget(files: &str) -> Tree {
    let tree = Tree::new(&class_device("widget", "sys/devices/virtual", "widget0", "10:7"));
    let lines = files.lines().map(str::trim).filter(|line| !line.is_empty());
    tree.add(&lines.map(|line| format!("sys/devices/virtual/widget/widget0/{line}\n")).collect::<String>());
    tree
}

#[test]
fn a_fact_that_no_name_and_no_node_needs_is_a_problem_beside_the_device_unless_it_is_optional() {
    let tree = widget("amount = 0x1f\nflag = Y\nrelease = 2.1\nword = x\nlink -> ../elsewhere/end");
    let fact = |name: &str, change: Value| {
        let mut fact = json!({"name": name, "read": name});
        fact.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        fact
    };
    let class = class(&json!({"facts": [
        fact("amount", json!({"type": "number"})),
        fact("flag", json!({"type": "boolean"})),
        fact("release", json!({"type": "version"})),
        fact("word", json!({"map": {"x": "ten", "y": "eleven"}})),
        fact("other", json!({"read": "word", "map": {"y": "eleven"}, "otherwise": "none"})),
        fact("constant", json!({"read": null, "is": "same"})),
        fact("link", json!({"read": null, "link": "link"})),
        fact("node_name", json!({"read": null, "entry": "d*"})),
        fact("absent", json!({"optional": true})),
        fact("unmapped", json!({"read": "word", "map": {"y": "eleven"}, "optional": true})),
        fact("missing", json!({})),
        fact("no_number", json!({"read": "word", "type": "number"})),
        fact("behind", json!({"read": "{word}/x", "optional": true})),
    ]}));
    let scan = scan(&tree, &[class]);
    let device = &scan.devices[0];
    let own = "/sys/devices/virtual/widget/widget0";
    assert_eq!(
        problems(&scan),
        [
            format!("{own}/missing: No such file or directory (os error 2)"),
            format!("{own}/word: \"x\" where a number should be")
        ]
    );
    assert!(scan.problems.iter().all(|problem| problem.device.as_deref() == Some("widget0")));
    for (name, value) in [
        ("amount", "31"),
        ("flag", "true"),
        ("release", "2.1"),
        ("word", "ten"),
        ("other", "none"),
        ("constant", "same"),
        ("link", "end"),
        ("node_name", "dev"),
    ] {
        assert_eq!(device.text(name).as_deref(), Some(value), "{name}");
    }
    for name in ["absent", "unmapped", "missing", "no_number", "behind"] {
        assert_eq!(device.text(name), None, "{name}");
    }
    assert_eq!(paths(device), ["/dev/widget0"]);
}

#[test]
fn nothing_is_read_outside_of_sys_and_the_drivers_part_of_procfs() {
    let outside = Tree::new("secret = s\nsys/secret = s");
    let tree = widget("up = ..\nwell -> ../well");
    tree.add("secret = s\ndev/secret = s\nproc/secret = s\nproc/driver/well = w\nsys/devices/virtual/widget/well = w");
    let own = tree.path("sys/devices/virtual/widget/widget0");
    for (name, target) in [
        ("absolute", outside.path("secret")),
        ("of_root", "/secret".into()),
        ("of_dev", "../../../../../dev/secret".into()),
        ("of_proc", "/proc/secret".into()),
        ("too_far", "../../../../../../../../secret".into()),
        ("directory", outside.path("")),
        ("loop", "loop".into()),
        ("procfs", "/proc/driver/well".into()),
    ] {
        symlink(target, own.join(name)).unwrap();
    }
    let read = |read: &str| {
        let up = json!({"name": "up", "read": "up", "optional": true});
        let class = class(&json!({"facts": [up, {"name": "x", "read": read}]}));
        scan(&tree, &[class]).devices[0].text("x")
    };
    for path in ["absolute", "of_root", "of_dev", "of_proc", "too_far", "directory/secret", "loop", "{up}/widget0/up"] {
        assert_eq!(read(path), None, "{path}");
    }
    for path in ["well", "procfs", "/proc/driver/well", "/sys/devices/virtual/widget/well"] {
        assert_eq!(read(path).as_deref(), Some("w"), "{path}");
    }
}

#[test]
fn an_entry_that_leads_out_of_sys_is_none() {
    let outside = Tree::new("widget0/dev = 1:1");
    for target in [outside.path("widget0"), "/secret".into(), "../../../secret".into(), "widget0".into()] {
        let tree = Tree::new("secret/dev = 1:1\nsys/class/widget/");
        symlink(&target, tree.path("sys/class/widget/widget0")).unwrap();
        let scan = scan(&tree, &[class(&json!({}))]);
        assert_eq!((ids(&scan), scan.problems.len()), (vec![], 1), "{target:?}");
    }
    let tree = Tree::new("sys/class/");
    symlink(outside.path(""), tree.path("sys/class/widget")).unwrap();
    assert_eq!(ids(&scan(&tree, &[class(&json!({}))])), [""; 0]);
}

#[test]
fn a_node_is_below_dev_whatever_the_facts_and_links_say() {
    for (file, node) in [
        ("x = ../etc/shadow", "{x}"),
        ("x = a/../../etc", "{x}"),
        ("x = /", "y{x}"),
        ("x = out", "{x}"),
        ("x = far", "{x}/shadow"),
        ("uevent = DEVNAME=../etc/shadow", "{node}"),
    ] {
        let tree = widget(file);
        tree.add("etc/shadow = s\ndev/out -> ../etc/shadow\ndev/far -> /etc");
        let facts = json!([{"name": "x", "read": "x", "optional": false}]);
        let facts = if node == "{node}" { json!([]) } else { facts };
        let scan = scan(&tree, &[class(&json!({"facts": facts, "nodes": [{"path": node}]}))]);
        assert_eq!((ids(&scan), unseen(&scan), scan.problems.len()), (vec![], vec!["widget0"], 1), "{file}");
    }
}

#[test]
fn a_fifo_in_the_place_of_a_file_hangs_nothing() {
    let tree = widget("");
    for name in ["x", "uevent"] {
        let path = tree.path("sys/devices/virtual/widget/widget0").join(name);
        mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    }
    let scan = scan(&tree, &[class(&json!({"facts": [{"name": "x", "read": "x"}]}))]);
    assert_eq!((ids(&scan), unseen(&scan)), (vec![], vec!["widget0"]));
}

#[test]
fn of_two_classes_that_fit_an_entry_the_first_has_it_and_it_is_said() {
    let tree = npus();
    let other =
        class(&json!({"name": "accelerators", "find": {"class": "accel", "name": "accel{n}"}, "id": "other-{n}"}));
    let own = |scan: &Scan| scan.devices.iter().filter_map(|device| device.text("class")).collect::<Vec<_>>();
    let both = scan(&tree, &[npu(), other.clone()]);
    assert_eq!((own(&both), ids(&both)), (vec!["intel-npu".to_owned(); 2], vec!["accel0-0", "accel1-0"]));
    assert_eq!(
        notices(&both)[0],
        format!("/{ROOT}/0000:00:0b.0/accel/accel0: also fits class `accelerators`; class `intel-npu` is before it")
    );
    assert_eq!(own(&scan(&tree, &[other, npu()])), ["accelerators"; 2]);
}

#[test]
fn no_node_is_in_two_devices_unless_it_is_common() {
    let tree = widget("");
    tree.add(&class_device("gadget", "sys/devices/virtual", "gadget0", "10:8"));
    tree.add("dev/alias -> widget0\ndev/both");
    let of = |name: &str, nodes: Value| {
        class(
            &json!({"name": name, "find": {"class": name}, "nodes": nodes, "resource": format!("example.com/{name}")}),
        )
    };
    let same = json!([{"path": "both"}]);
    let one = scan(&tree, &[of("widget", same.clone()), of("gadget", same)]);
    assert_eq!(ids(&one), ["widget0"]);
    assert_eq!(notices(&one), ["/dev/both: left out of class `gadget`: widget0 of class `widget` has the same node"]);
    let alias = scan(&tree, &[of("widget", json!([])), of("gadget", json!([{"path": "alias"}]))]);
    assert_eq!(ids(&alias), ["widget0"], "under another name");
    let common = json!([{"path": "{node}"}, {"path": "both", "common": true}]);
    assert_eq!(
        ids(&scan(&tree, &[of("widget", common.clone()), of("gadget", common.clone())])),
        ["gadget0", "widget0"]
    );
    let its_own = scan(&tree, &[of("widget", common), of("gadget", json!([{"path": "both"}]))]);
    assert_eq!(ids(&its_own), ["widget0"]);
}

#[test]
fn no_id_is_given_twice_under_one_name() {
    let tree = npus();
    let mut same = npu();
    same["id"] = json!("x");
    let scan = scan(&tree, &[same]);
    assert_eq!((ids(&scan), notices(&scan).len()), (vec!["x"], 1));
    assert!(notices(&scan)[0].ends_with("accel0 of class `intel-npu` has the same id, x"), "{:?}", notices(&scan));
}

/// A camera with two nodes, on a USB port.
fn camera() -> Tree {
    let tree = Tree::new("sys/devices/pci0000:00/0000:00:14.0/numa_node = 1");
    for node in ["video0", "video1"] {
        let below = "sys/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0";
        tree.add(&class_device("video4linux", below, node, &format!("81:{}", &node[5..])));
    }
    tree.add("sys/devices/pci0000:00/0000:00:14.0/usb1/1-2/idVendor = 046d");
    tree.add("sys/devices/pci0000:00/0000:00:14.0/usb1/1-2/serial = A1");
    tree
}

fn of_cameras() -> Value {
    class(&json!({
        "find": {"class": "video4linux", "above": {"attr": {"idVendor": "046d"}}},
        "facts": [{"name": "serial", "above": "serial"}, {"name": "role", "read": "role"}], "group": "serial", "id": "{serial}",
        "nodes": [{"path": "{node}"}], "resource": "example.com/camera",
    }))
}

#[test]
fn entries_of_a_group_are_one_device_near_their_usb_controller() {
    let mut cameras = of_cameras();
    cameras["facts"].as_array_mut().unwrap().pop();
    let scan = scan(&camera(), &[cameras]);
    let device = &scan.devices[0];
    assert_eq!((ids(&scan), paths(device)), (vec!["A1"], vec!["/dev/video0", "/dev/video1"]));
    assert_eq!((device.card.as_str(), device.functions.len(), &device.numa_nodes[..]), ("video0", 0, &[1][..]));
    assert_eq!(device.text("name").as_deref(), Some("video0,video1"));
    assert_eq!(device.text("usb_port").as_deref(), Some("1-2"));
    assert_eq!(device.numa_source, "/sys/devices/pci0000:00/0000:00:14.0/numa_node");
}

#[test]
fn half_a_group_is_no_device() {
    let tree = camera();
    tree.add("sys/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/video4linux/video0/role = main");
    let mut cameras = of_cameras();
    cameras["id"] = json!("{serial}-{role}");
    let scan = scan(&tree, &[cameras]);
    assert_eq!((ids(&scan), unseen(&scan)), (vec![], vec!["video1", "video0"]));
}

#[test]
fn a_device_is_shared_under_as_many_ids_as_its_class_says() {
    let tree = Tree::new(&class_device("misc", "sys/devices/virtual", "kvm", "10:232"));
    let kvm = class(&json!({
        "find": {"class": "misc", "name": "kvm"}, "resource": "devices.kubevirt.io/kvm", "id": "kvm{share}", "shares": 3,
    }));
    let scan = scan(&tree, &[kvm]);
    assert_eq!((ids(&scan), scan.devices[0].ids()), (vec!["kvm0"], &["kvm0", "kvm1", "kvm2"].map(str::to_owned)[..]));
}

#[test]
fn a_function_for_a_virtual_machine_has_the_nodes_of_its_group_and_the_variable_that_kubevirt_reads() {
    let tree = Tree::new("");
    for (address, group) in [("0000:00:01.0", 7), ("0000:00:02.0", 8), ("0000:00:02.1", 8)] {
        tree.add(&function(address, "vfio-pci", "8086:4940"));
        tree.add(&format!("{ROOT}/{address}/iommu_group -> ../../../kernel/iommu_groups/{group}\ndev/vfio/{group}"));
    }
    tree.add(&function("0000:00:03.0", "vfio-pci", "8086:4940"));
    tree.add("dev/vfio/vfio");
    let qat = class(&json!({
        "name": "qat", "find": {"class": null, "bus": "pci", "driver": ["vfio-pci"], "vendor": ["0x8086"], "device": ["4940"]},
        "resource": "intel.com/qat", "id": "{iommu_group}", "vm": true,
    }));
    let scan = scan(&tree, &[qat.clone()]);
    assert_eq!((ids(&scan), unseen(&scan)), (vec!["7", "8"], vec!["0000:00:03.0"]));
    assert!(problems(&scan)[0].contains("no IOMMU group"), "{:?}", problems(&scan));
    assert_eq!(paths(&scan.devices[1]), ["/dev/vfio/vfio", "/dev/vfio/8"]);
    let edits = edits(&[qat], &scan.devices[1], "intel.com/qat");
    assert_eq!(edits.envs, [("PCI_RESOURCE_INTEL_COM_QAT".to_owned(), "0000:00:02.0,0000:00:02.1".to_owned())].into());
    assert!(edits.nodes.iter().all(|node| node.permissions == "mrw"));
}

#[test]
fn variables_are_made_of_facts_and_those_of_unknown_facts_are_left_out() {
    let class = class(&json!({
        "facts": [{"name": "mode", "read": "mode"}, {"name": "speed", "read": "speed", "optional": true}],
        "env": {"WIDGET": "{name}:{mode}", "WIDGET_NODE": "/dev/{node}", "WIDGET_NUMBER": "{number}", "WIDGET_SPEED": "{speed}"},
        "permissions": "rwm",
    }));
    let found = scan(&widget("mode = fast"), &[class.clone()]);
    let edits = edits(&[class], &found.devices[0], "example.com/widget");
    let variables = [("WIDGET", "widget0:fast"), ("WIDGET_NODE", "/dev/widget0"), ("WIDGET_NUMBER", "10:7")];
    assert_eq!(edits.envs, variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!(edits.nodes[0].permissions, "rwm");
}

#[test]
fn a_device_whose_class_has_gone_is_still_given_its_nodes() {
    let found = scan(&widget(""), &[class(&json!({"permissions": "r"}))]);
    assert_eq!(edits(&[], &found.devices[0], "example.com/widget").nodes[0].permissions, "rw");
}

#[test]
fn a_template_names_the_function_of_an_entry_that_is_below_none() {
    let tree = widget("bus_id = 0000:00:01.0");
    tree.add(&function("0000:00:01.0", "widget", "10ee:5070"));
    let facts = json!([{"name": "bus", "read": "bus_id"}]);
    let by_bus = class(&json!({"facts": facts, "function": "{bus}", "id": "{bus}"}));
    let found = scan(&tree, &[by_bus.clone()]);
    let device = &found.devices[0];
    assert_eq!((device.card.as_str(), device.functions.len(), &device.numa_nodes[..]), ("widget0", 1, &[1][..]));
    assert_eq!(device.text("vendor_id").as_deref(), Some("0x10ee"));
    tree.write("sys/devices/virtual/widget/widget0/bus_id", "../../../class");
    let found = scan(&tree, &[by_bus]);
    assert_eq!((found.devices[0].functions.len(), problems(&found)), (0, vec![]));
}

#[test]
fn optional_nodes_are_given_where_they_are() {
    let tree = widget("");
    tree.add("dev/widget-control");
    let nodes =
        json!([{"path": "{node}"}, {"path": "widget-control", "optional": true}, {"path": "none", "optional": true}]);
    let found = scan(&tree, &[class(&json!({"nodes": nodes}))]);
    assert_eq!(paths(&found.devices[0]), ["/dev/widget0", "/dev/widget-control"]);
}

#[test]
fn a_class_says_what_a_fault_is_and_the_finding_has_its_word() {
    let tree = widget("state = broken\nerrors = 0\nready = 1");
    let health = json!([
        {"read": "state", "equals": "broken", "reason": "widget-broken"},
        {"read": "errors", "beyond": 3, "reason": "widget-errors"},
        {"read": "ready", "absent": true, "reason": "widget-not-ready"},
    ]);
    let found = scan(&tree, &[class(&json!({"health": health}))]);
    let own = "/sys/devices/virtual/widget/widget0";
    let found = devherd_native::device::Found { devices: found.devices.clone(), ..Default::default() };
    let row = |reason: &str, file: &str| {
        ("widget0".to_owned(), "class".to_owned(), reason.to_owned(), format!("{own}/{file}"))
    };
    assert_eq!(polled(&tree, &found), [row("widget-broken", "state")]);
    tree.write(&format!("{own}/state")[1..], "well\n");
    tree.write(&format!("{own}/errors")[1..], "4\n");
    tree.remove(&format!("{own}/ready")[1..]);
    assert_eq!(polled(&tree, &found), [row("widget-errors", "errors"), row("widget-not-ready", "ready")]);
}

#[test]
fn a_class_that_makes_no_sense_is_refused_with_its_name_and_the_key() {
    let fact = |change: Value| json!({"facts": [change]});
    for (change, complaint) in [
        (json!({"find": {"bus": "pci"}}), "find: either `class` or `bus`"),
        (json!({"find": {"class": "a/b"}}), "`a/b` is not the name of a directory"),
        (json!({"find": {"class": ".."}}), "`..` is not the name of a directory"),
        (json!({"find": {"driver": ["../x"]}}), "`../x` is not the name of a driver"),
        (json!({"find": {"vendor": ["intel"]}}), "`intel` is not the id of a PCI function"),
        (json!({"find": {"attr": {"../x": "1"}}}), "`../x` is not a path below the entry"),
        (json!({"find": {"above": {}}}), "above: `name` or `attr`"),
        (json!({"id": "{serial}"}), "id: no fact is called `serial`"),
        (json!({"id": "{name"}), "a brace is open"),
        (json!({"resource": "example.com/{share}"}), "resource: no fact is called `share`"),
        (json!({"group": "camera"}), "group: no fact is called `camera`"),
        (json!({"shares": 2}), "`{share}` is missing"),
        (json!({"shares": 10_001, "id": "{share}"}), "shares: 10001 is more than 10000"),
        (json!({"permissions": "x"}), "permissions: `x`"),
        (json!({"nodes": [{"path": "../etc/shadow"}]}), "nodes: `../etc/shadow` is not a path below /dev"),
        (json!({"health": [{"read": "x", "reason": "x"}]}), "one of `equals`, `absent` and `beyond`"),
        (json!({"health": [{"read": "x", "absent": true, "reason": "X!"}]}), "reason `X!`"),
        (fact(json!({"name": "x"})), "fact `x`: one of `read`"),
        (fact(json!({"name": "x", "read": "a", "is": "b"})), "fact `x`: one of `read`"),
        (fact(json!({"name": "X", "read": "a"})), "fact `X`: a name is made of"),
        (fact(json!({"name": "x", "read": "../a"})), "`../a` is not a path below the entry"),
        (fact(json!({"name": "x", "read": "/etc/shadow"})), "`/etc/shadow` is not a path below the entry"),
        (fact(json!({"name": "x", "read": "a", "type": "float"})), "type: `float`"),
        (fact(json!({"name": "x", "above": "a"})), "`above` reads below the directory that `find.above` finds"),
        (fact(json!({"name": "name", "read": "a"})), "fact `name`: the name is taken"),
        (fact(json!({"name": "numa_node", "read": "a"})), "fact `numa_node`: the name is taken"),
        (fact(json!({"name": "minor", "read": "a"})), "fact `minor`: type is text, for all devices number"),
        (
            json!({"facts": [{"name": "x", "read": "a", "optional": true}], "id": "{x}"}),
            "fact `x` is optional, but resource, id, nodes or group need it",
        ),
        (
            json!({"facts": [{"name": "x", "read": "a", "optional": true}, {"name": "y", "read": "{x}/b"}], "id": "{y}"}),
            "fact `x` is optional, but",
        ),
    ] {
        let text = settings::json(&json!({"vendors": {"classes": [class(&change)]}}));
        let error = Settings::from_json(&text).unwrap_err();
        assert!(error.contains("class `widget`") && error.contains(complaint), "{change}: {error}");
    }
}

/// A GPU of Intel's, and a class that takes its nodes or its function.
#[test]
fn what_a_vendors_code_serves_is_left_to_it() {
    let address = "0000:00:02.0";
    let tree = Tree::new(&function(address, "xe", "8086:56c0").replace("0x120000", "0x030000"));
    for (node, number) in [("card0", "226:0"), ("renderD128", "226:128")] {
        let path = format!("{ROOT}/{address}/drm/{node}");
        tree.add(&format!(
            "{path}/dev = {number}\nsys/class/drm/{node} -> ../../devices/pci0000:00/{address}/drm/{node}\ndev/dri/{node}"
        ));
        uevent(&tree, &path, &format!("dri/{node}"), number);
    }
    let of_function = class(&json!({"name": "gpus", "find": {"class": "drm", "name": "renderD{n}"}}));
    let found = scan(&tree, &[of_function.clone()]);
    assert_eq!(found.devices.iter().map(|device| &*device.vendor).collect::<Vec<_>>(), ["intel-gpu"]);
    let why = "left out of class `gpus`: intel-gpu has it, whose code knows more of it";
    assert_eq!(notices(&found), [format!("/{ROOT}/{address}: {why}")]);
    let without = json!({"vendors": {"classes": [of_function], "intel_gpu": {"enabled": false}}});
    let without = Settings::from_json(&settings::json(&without)).unwrap();
    assert_eq!(ids(&Scanner::new(tree.host(), &without).scan(&|| {})), ["renderD128"]);
}

#[test]
fn a_node_that_generic_offers_is_left_to_it_also_under_another_name() {
    let tree = widget("");
    tree.add("dev/by-id/first -> ../widget0\ndev/both");
    for path in ["/dev/widget0", "/dev/by-id/first"] {
        let nodes = json!([{"path": "{node}"}, {"path": "both", "common": true}]);
        let generic = settings::generic("a.example/x", &[settings::member(path, &json!({}))]);
        let all = json!({"vendors": {"classes": [class(&json!({"nodes": nodes}))], "generic": [generic]}});
        let found = Scanner::new(tree.host(), &Settings::from_json(&settings::json(&all)).unwrap()).scan(&|| {});
        assert_eq!(found.devices.iter().map(|device| &*device.vendor).collect::<Vec<_>>(), ["generic"], "{path}");
        assert_eq!(notices(&found).len(), 1);
    }
    let generic = settings::generic("a.example/x", &[settings::member("/dev/both", &json!({}))]);
    let nodes = json!([{"path": "{node}"}, {"path": "both", "common": true}]);
    let all = json!({"vendors": {"classes": [class(&json!({"nodes": nodes}))], "generic": [generic]}});
    let found = Scanner::new(tree.host(), &Settings::from_json(&settings::json(&all)).unwrap()).scan(&|| {});
    assert_eq!(found.devices.len(), 2, "a common node is nobody's own");
}

fn random_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{1,2}",
        Just("..".to_owned()),
        Just("../../x".to_owned()),
        Just("/etc/shadow".to_owned()),
        Just("{n}".to_owned()),
        Just("{name}".to_owned()),
        Just("{node}".to_owned()),
        Just("{number}".to_owned()),
        Just("{a}".to_owned()),
        Just("b/{a}".to_owned()),
        Just("e{n}".to_owned()),
        Just("a".to_owned()),
        Just("link".to_owned()),
        Just("uevent".to_owned()),
    ]
}

fn random_class() -> impl Strategy<Value = Value> {
    let fact = ("[ab]", random_text(), 0..5_usize, any::<bool>()).prop_map(|(name, text, way, optional)| {
        let way = ["read", "link", "entry", "is", "above"][way];
        json!({"name": name, way: text, "optional": optional})
    });
    let node = (random_text(), any::<bool>(), any::<bool>())
        .prop_map(|(path, optional, common)| json!({"path": path, "optional": optional, "common": common}));
    (
        prop_oneof![Just(json!("k")), Just(json!("m"))],
        prop_oneof![Just("e{n}"), Just("{n}"), Just("e0")],
        proptest::collection::vec(fact, 0..3),
        proptest::collection::vec(node, 0..3),
        proptest::option::of(random_text()),
        (random_text(), random_text(), any::<bool>()),
        1..3_u32,
        any::<bool>(),
    )
        .prop_map(|(directory, name, facts, nodes, above, (id, read, has_group), shares, vm)| {
            let above = above.map(|name| json!({"name": name}));
            let id = if shares > 1 { format!("{id}{{share}}") } else { id };
            class(&json!({
                "name": directory, "find": {"class": directory, "name": name, "above": above}, "facts": facts, "nodes": nodes,
                "id": id, "shares": shares, "vm": vm, "health": [{"read": read, "absent": true, "reason": "x"}],
                "group": if has_group { json!("a") } else { Value::Null }, "function": "{a}",
            }))
        })
}

/// Entries of two classes, with files, links in and out, and nodes.
fn random_tree() -> impl Strategy<Value = Vec<(String, String)>> {
    let place = (
        prop_oneof![Just("k"), Just("m")],
        0..3_u8,
        prop_oneof![Just("a"), Just("b"), Just("dev"), Just("uevent"), Just("link"), Just("b/a"), Just("iommu_group")],
    )
        .prop_map(|(class, number, file)| format!("sys/class/{class}/e{number}/{file}"));
    let path = prop_oneof![
        4 => place,
        1 => "[a-c]{1,2}".prop_map(|name| format!("dev/{name}")),
        1 => (0..3_u8).prop_map(|number| format!("dev/e{number}")),
        1 => (0..3_u8).prop_map(|number| format!("sys/class/m/e{number}")),
    ];
    let content = prop_oneof![
        4 => prop_oneof![
            Just("a".to_owned()), Just("b\nc".to_owned()), Just("1:2".to_owned()), Just("../x".to_owned()), Just(String::new()),
            Just("DEVNAME=e0".to_owned()), Just("DEVNAME=../etc/shadow".to_owned()), Just("MAJOR=1\nMINOR=2\nDEVNAME=a".to_owned()),
        ],
        1 => prop_oneof![
            Just("-> ..".to_owned()), Just("-> /etc".to_owned()), Just("-> a".to_owned()), Just("-> ../../k/e0".to_owned()),
            Just("-> ../../../../../etc/shadow".to_owned()), Just("-> e1".to_owned()), Just("-> /dev/a".to_owned()),
        ],
    ];
    proptest::collection::vec((path, content), 0..24)
}

fn plant(files: &[(String, String)]) -> Tree {
    let tree = Tree::new("etc/shadow = secret");
    for (path, content) in files {
        let path = tree.path(path);
        let Some(parent) = path.parent().filter(|parent| fs::create_dir_all(parent).is_ok()) else { continue };
        let outside =
            parent.canonicalize().is_ok_and(|parent| !parent.starts_with(tree.path("").canonicalize().unwrap()));
        if outside || path.symlink_metadata().is_ok() {
            continue;
        }
        let _ = match content.strip_prefix("-> ") {
            Some(target) => symlink(target, path),
            None => fs::write(path, content),
        };
    }
    tree
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_class_and_no_tree_gives_a_node_outside_of_dev_or_one_node_to_two(
        classes in proptest::collection::vec(random_class(), 1..4), files in random_tree(),
    ) {
        let text = settings::json(&json!({"probe_timeout": 20, "vendors": {"classes": classes}}));
        let Ok(settings) = Settings::from_json(&text) else { return Ok(()) };
        let tree = plant(&files);
        let found = Scanner::new(tree.host(), &settings).scan(&|| {});
        let mut owners = BTreeMap::new();
        for problem in &found.problems {
            prop_assert!(!problem.error.contains("defect"), "{problem:?}");
        }
        for device in &found.devices {
            prop_assert!(device.attributes.values().all(|fact| fact.value.to_string() != "secret"), "{device:?}");
            let mut ends = BTreeSet::new();
            for path in &device.paths {
                prop_assert!(path.is_node && path.path.starts_with("/dev/") && !path.path.contains(".."), "{path:?}");
                let end = in_root(&tree.host(), Path::new(&path.path)).unwrap();
                prop_assert!(end.starts_with(tree.path("dev")), "{path:?} leads to {end:?}");
                if path.role != "common" {
                    ends.insert(end);
                }
            }
            for end in ends {
                let other = owners.insert(end, device.id.clone());
                prop_assert!(other.is_none(), "{other:?} and {device:?}");
            }
        }
    }
}

#[test]
fn whoever_writes_a_class_is_told_why_an_entry_is_no_device_of_it() {
    let tree = npus();
    tree.add(&function("0000:00:0d.0", "habanalabs", "1da3:1020"));
    tree.add(&class_device("accel", &format!("{ROOT}/0000:00:0d.0"), "accel2", "261:2"));
    let mut broken = npu();
    broken["name"] = json!("broken");
    broken["facts"] = class(&json!({"facts": [{"name": "kind", "read": "kind"}]}))["facts"].clone();
    broken["resource"] = json!("example.com/{kind}");
    let mut other = npu();
    (other["name"], other["find"]["attr"]) = (json!("other"), json!({"dev": "261:7"}));
    let mut again = npu();
    again["name"] = json!("again");
    let entries = scanner(&tree, &[npu(), broken, other, again]).class_entries();
    let told = |class: &str| {
        let of_class = entries.iter().filter(|entry| entry.class == class);
        let row =
            |entry: &ClassEntry| (entry.path.file_name().unwrap().to_str().unwrap().to_owned(), entry.why.clone());
        assert!(entries.iter().all(|entry| entry.is_taken == entry.why.is_empty()));
        of_class.map(row).collect::<Vec<_>>()
    };
    let rows = |rows: [(&str, &str); 4]| rows.map(|(name, why)| (name.to_owned(), why.to_owned())).to_vec();
    let others = ("the driver is `habanalabs`, not `intel_vpu`", "the name does not fit `accel{n}`");
    let names = ["accel_controlD0", "accel0", "accel1", "accel2"];
    let of = |why: &str| rows([(names[0], others.1), (names[1], why), (names[2], why), (names[3], others.0)]);
    let sorted = |mut rows: Vec<(String, String)>| {
        rows.sort();
        rows
    };
    assert_eq!(sorted(told("intel-npu")), sorted(of("")));
    assert_eq!(sorted(told("again")), sorted(of("class `intel-npu` has it")));
    let broken = told("broken").into_iter().find(|(name, _)| name == "accel0").unwrap();
    assert!(broken.1.ends_with("accel0/kind: No such file or directory (os error 2)"), "{broken:?}");
    let other = told("other").into_iter().find(|(name, _)| name == "accel0").unwrap();
    assert_eq!(other.1, "`dev` is `261:0`, not `261:7`");
}
