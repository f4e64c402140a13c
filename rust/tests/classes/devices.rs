//! What classes make of entries: devices, with facts, nodes, edits and findings; and what is left to others.

use super::*;

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
fn a_scan_says_that_a_device_can_go_without_an_event_where_its_class_asks_for_an_attribute() {
    let tree = widget("state = well\nidVendor = 1a86");
    tree.add("sys/devices/virtual/widget/state = well");
    for (find, expected) in [
        (json!({}), false),
        (json!({"attr": {"state": "well"}}), true),
        (json!({"attr": {"state": "down"}}), false),
        (json!({"above": {"attr": {"state": "well"}}}), true),
        (json!({"attr": {"idVendor": "1a86"}}), false),
    ] {
        assert_eq!(scan(&tree, &[class(&json!({"find": find}))]).changes_in_silence, expected, "{find}");
    }
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
                .filter(|(key, _)| change["find"].get(key).is_some())
                .map(|(key, value)| (key.clone(), value.clone())),
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
        fact("many", json!({"optional": true})),
        fact("also_many", json!({"read": "many"})),
        fact("one_of_many", json!({"read": "many", "key": "b"})),
    ]}));
    tree.write("sys/devices/virtual/widget/widget0/many", "a = 1\nb = 2\n");
    let scan = scan(&tree, &[class]);
    let device = &scan.devices[0];
    let own = "/sys/devices/virtual/widget/widget0";
    assert_eq!(
        problems(&scan),
        [
            format!("{own}/word: \"x\" is not in `map` of `unmapped`"),
            format!("{own}/missing: No such file or directory (os error 2)"),
            format!("{own}/word: \"x\" where a number should be"),
            format!("{own}/many: several lines: add `key`, the word before `=` or `:` in the line that counts"),
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
        ("one_of_many", "2"),
    ] {
        assert_eq!(device.text(name).as_deref(), Some(value), "{name}");
    }
    for name in ["absent", "unmapped", "missing", "no_number", "behind", "many", "also_many"] {
        assert_eq!(device.text(name), None, "{name}");
    }
    assert_eq!(paths(device), ["/dev/widget0"]);
}

#[test]
fn a_group_whose_fact_means_nothing_holds_back_no_other_group() {
    let below = "sys/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/video4linux";
    let tree = camera();
    tree.add(&format!("{below}/video0/serial = A1\n{below}/video1/serial = strange"));
    let mut cameras = of_cameras();
    cameras["facts"] =
        class(&json!({"facts": [{"name": "serial", "read": "serial", "map": {"A1": "first"}}]}))["facts"].clone();
    let scan = scan(&tree, &[cameras]);
    assert_eq!((ids(&scan), unseen(&scan)), (vec!["first"], vec!["video1"]));
    assert_eq!(problems(&scan), [format!("/{below}/video1/serial: \"strange\" is not in `map` of `serial`")]);
}

#[test]
fn a_limit_on_a_file_without_a_number_is_said_where_a_fact_is_of_that_file() {
    let tree = widget("word = hot");
    let health = json!([{"read": "word", "beyond": 3, "reason": "widget-hot"}]);
    let of_fact = class(&json!({"health": health, "facts": [{"name": "word", "read": "word"}]}));
    let found = scan(&tree, &[of_fact]);
    let own = "/sys/devices/virtual/widget/widget0";
    assert_eq!(problems(&found), [format!("{own}/word: \"hot\" where `beyond` needs a number")]);
    assert_eq!(ids(&found), ["widget0"]);
    tree.write(&format!("{own}/word")[1..], "0x2\n");
    let number = class(&json!({"health": health, "facts": [{"name": "word", "read": "word"}]}));
    assert_eq!(problems(&scan(&tree, &[number])), [""; 0]);
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

#[test]
fn of_two_classes_that_give_one_id_on_one_function_the_first_has_it_and_it_is_said() {
    let tree = npus();
    let below = format!("{ROOT}/0000:00:0b.0");
    tree.add(&class_device("misc", &below, "npu-control", "10:9"));
    let first = class(&json!({"name": "first", "find": {"class": "accel", "name": "accel0"}, "id": "x"}));
    let second =
        class(&json!({"name": "second", "find": {"class": "misc"}, "id": "x", "resource": "example.com/other"}));
    let scan = scan(&tree, &[first, second]);
    assert_eq!((ids(&scan), paths(&scan.devices[0])), (vec!["x"], vec!["/dev/accel/accel0"]));
    let why = "left out of class `second`: accel0 of class `first` has the same id, x";
    assert_eq!(notices(&scan), [format!("/{below}/misc/npu-control: {why}")]);
}

/// A camera with two nodes, on a USB port.
pub(crate) fn camera() -> Tree {
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
fn entries_of_one_function_that_are_one_device_name_it_once_and_have_each_problem_once() {
    let tree = npus();
    let below = format!("{ROOT}/0000:00:0b.0");
    tree.add(&format!("{below}/release = v1\n{below}/accel/accel0/device -> ../../../0000:00:0b.0"));
    tree.add(&class_device("accel", &below, "accel5", "261:5"));
    tree.add(&format!("{below}/accel/accel5/device -> ../../../0000:00:0b.0\ndev/accel5"));
    let mut both = npu();
    both["find"]["device"] = json!(["0x7d1d"]);
    both["group"] = json!("pci_address");
    let release =
        json!({"facts": [{"name": "release", "read": "device/release", "type": "version", "optional": true}]});
    both["facts"] = class(&release)["facts"].clone();
    let scan = scan(&tree, &[both]);
    assert_eq!(ids(&scan), ["accel0-0", "accel1-0"]);
    let device = &scan.devices[0];
    assert_eq!(device.text("pci_address").as_deref(), Some("0000:00:0b.0"));
    assert_eq!(device.text("name").as_deref(), Some("accel0,accel5"));
    assert_eq!((device.functions.len(), paths(device).len()), (1, 2));
    let own: Vec<_> = scan.problems.iter().map(|one| (one.device.as_deref(), one.error.as_str())).collect();
    assert_eq!(own, [(Some("accel0-0"), "\"v1\" where a version (1.2.3) should be")]);
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
fn an_entry_whose_group_is_not_known_holds_back_every_group_that_it_may_be_of() {
    let port = "sys/devices/pci0000:00/0000:00:14.0/usb1/1-2";
    let below = format!("{port}/1-2:1.0/video4linux");
    let mut cameras = of_cameras();
    cameras["facts"] = class(&json!({"facts": [{"name": "serial", "read": "serial"}]}))["facts"].clone();
    cameras["find"]["attr"] = json!({"state": "on"});
    let tree = || {
        let tree = camera();
        for node in ["video0", "video1"] {
            tree.add(&format!("{below}/{node}/serial = A1\n{below}/{node}/state = on"));
        }
        tree
    };
    let whole = scan(&tree(), from_ref(&cameras));
    assert_eq!((ids(&whole), unseen(&whole)), (vec!["A1"], vec![]));
    for file in ["serial", "state"] {
        let tree = tree();
        tree.remove(&format!("{below}/video1/{file}"));
        fs::create_dir(tree.path(format!("{below}/video1/{file}"))).unwrap();
        let half = scan(&tree, from_ref(&cameras));
        assert_eq!((ids(&half), unseen(&half)), (vec![], vec!["video1", "video0"]), "{file}");
    }
    let looped = tree();
    looped.remove("sys/class/video4linux/video1");
    symlink("video1", looped.path("sys/class/video4linux/video1")).unwrap();
    let half = scan(&looped, from_ref(&cameras));
    assert_eq!((ids(&half), unseen(&half)), (vec![], vec!["video1", "video0"]));
    let without = tree();
    without.remove(&format!("{below}/video1/serial"));
    let one = scan(&without, &[cameras]);
    assert_eq!((ids(&one), unseen(&one)), (vec!["A1"], vec!["video1"]), "what has no serial is of no camera");
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
    let scan = scan(&tree, from_ref(&qat));
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
    let found = scan(&widget("mode = fast"), from_ref(&class));
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
    let found = scan(&tree, from_ref(&by_bus));
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

/// A GPU of Intel's with a clock, which is no part of what its vendor's code serves.
fn gpu_with_clock(address: &str) -> Tree {
    let tree = Tree::new(&function(address, "xe", "8086:56c0").replace("0x120000", "0x030000"));
    for (node, number) in [("card0", "226:0"), ("renderD128", "226:128")] {
        let path = format!("{ROOT}/{address}/drm/{node}");
        tree.add(&format!(
            "{path}/dev = {number}\nsys/class/drm/{node} -> ../../devices/pci0000:00/{address}/drm/{node}\ndev/dri/{node}"
        ));
        uevent(&tree, &path, &format!("dri/{node}"), number);
    }
    tree.add(&class_device("ptp", &format!("{ROOT}/{address}"), "ptp0", "248:0"));
    tree.add(&format!("{ROOT}/{address}/iommu_group -> ../../../kernel/iommu_groups/7\ndev/vfio/vfio\ndev/vfio/7"));
    tree
}

#[test]
fn what_a_vendors_code_serves_is_left_to_it() {
    let tree = gpu_with_clock("0000:00:02.0");
    let of_function = class(&json!({"name": "gpus", "find": {"class": "drm", "name": "renderD{n}"}}));
    let found = scan(&tree, from_ref(&of_function));
    assert_eq!(found.devices.iter().map(|device| &*device.vendor).collect::<Vec<_>>(), ["intel-gpu"]);
    let why = "left out of class `gpus`: intel-gpu has it, whose code knows more of it";
    assert_eq!(notices(&found), [format!("/dev/dri/renderD128: {why}")]);
    let without = json!({"vendors": {"classes": [of_function], "intel_gpu": {"enabled": false}}});
    let without = Settings::from_json(&settings::json(&without)).unwrap();
    assert_eq!(ids(&Scanner::new(tree.host(), &without).scan(&|| {})), ["renderD128"]);
}

#[test]
fn a_class_may_have_a_node_of_a_function_that_a_vendors_code_serves_but_not_the_whole_function() {
    let tree = gpu_with_clock("0000:00:02.0");
    let vendors = |scan: &Scan| scan.devices.iter().map(|device| device.vendor.to_string()).collect::<BTreeSet<_>>();
    let clock = scan(&tree, &[class(&json!({"find": {"class": "ptp"}, "resource": "example.com/clock"}))]);
    assert_eq!(vendors(&clock), ["classes", "intel-gpu"].map(str::to_owned).into(), "{:?}", notices(&clock));
    let whole = class(&json!({
        "name": "whole", "find": {"class": null, "bus": "pci", "driver": ["xe"]}, "id": "{iommu_group}", "vm": true,
    }));
    let whole = scan(&tree, &[whole]);
    assert_eq!(vendors(&whole), ["intel-gpu".to_owned()].into());
    let why = "left out of class `whole`: intel-gpu has it, whose code knows more of it";
    assert_eq!(notices(&whole), [format!("/{ROOT}/0000:00:02.0: {why}")]);
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
        assert_eq!(notices(&found), ["/dev/widget0: left out of class `widget`: generic offers its node"], "{path}");
    }
    let generic = settings::generic("a.example/x", &[settings::member("/dev/both", &json!({}))]);
    let nodes = json!([{"path": "{node}"}, {"path": "both", "common": true}]);
    let all = json!({"vendors": {"classes": [class(&json!({"nodes": nodes}))], "generic": [generic]}});
    let found = Scanner::new(tree.host(), &Settings::from_json(&settings::json(&all)).unwrap()).scan(&|| {});
    assert_eq!(found.devices.len(), 2, "a common node is nobody's own");
}

#[test]
fn a_node_that_generic_offers_is_left_to_it_also_where_the_class_names_a_link_to_it() {
    let tree = widget("");
    tree.add("dev/char/10:7 -> ../widget0");
    let generic = settings::generic("a.example/x", &[settings::member("/dev/widget0", &json!({}))]);
    let of_link = class(&json!({"nodes": [{"path": "char/{number}"}]}));
    let all = json!({"vendors": {"classes": [of_link], "generic": [generic]}});
    let found = Scanner::new(tree.host(), &Settings::from_json(&settings::json(&all)).unwrap()).scan(&|| {});
    assert_eq!(found.devices.iter().map(|device| &*device.vendor).collect::<Vec<_>>(), ["generic"]);
    assert!(notices(&found)[0].starts_with("/dev/widget0: left out of class `widget`"), "{:?}", notices(&found));
}
