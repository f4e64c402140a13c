//! What no class may do, whatever it and the tree say.

use super::*;

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
fn a_path_that_facts_make_is_read_below_sys_or_not_at_all() {
    let tree = widget("etc -> ../../../../class");
    tree.add("etc/secret = s\netc/link -> /sys/devices/virtual/widget/widget0/dev\nproc/secret = s\ndev/secret = s");
    tree.add("sys/devices/virtual/widget/widget0/well = w");
    for (way, path, expected) in [
        ("read", "/etc/secret", None),
        ("read", "/proc/secret", None),
        ("read", "/dev/secret", None),
        ("read", "/etc/link", None),
        ("link", "/etc/link", None),
        ("read", "/sys/../etc/secret", None),
        ("read", "/sys", None),
        ("read", "/sys/devices/virtual/widget/widget0/well", Some("w")),
        ("link", "/sys/devices/virtual/widget/widget0/etc", Some("class")),
    ] {
        let facts = json!([{"name": "x", "is": path}, {"name": "y", way: "{x}"}]);
        let scan = scan(&tree, &[class(&json!({"facts": facts}))]);
        assert_eq!(scan.devices[0].text("y").as_deref(), expected, "{way} {path}");
        assert_eq!(scan.problems.len(), usize::from(expected.is_none()), "{way} {path}");
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
fn what_is_no_directory_in_a_directory_of_entries_is_no_device() {
    let outside = Tree::new("widget3/x");
    let tree = widget("");
    tree.add(
        "sys/class/widget/export\nsys/class/widget/widget1 -> ../../devices/virtual/widget/none\n\
         sys/class/widget/widget2 -> ../../devices/virtual/widget/widget0/dev\n\
         sys/class/widget/widget3 -> ../../devices/virtual/out/widget3",
    );
    symlink(outside.path(""), tree.path("sys/devices/virtual/out")).unwrap();
    for nodes in [json!([]), json!([{"path": "null-{name}"}])] {
        let scan = scan(&tree, &[class(&json!({"nodes": nodes}))]);
        assert_eq!(ids(&scan), ["widget0"], "{:?}", scan.devices);
        let problems = problems(&scan);
        assert!(
            problems.iter().all(|problem| problem.contains("a path below /sys")) && problems.len() == 1,
            "{problems:?}"
        );
    }
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
        (json!({"shares": 0}), "shares: 0 is less than 1"),
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

/// Paths that a class may ask for.
fn random_file() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b"), Just("link"), Just("b/a"), Just("dev"), Just("e{n}")]
}

fn random_node() -> impl Strategy<Value = Value> {
    let path = prop_oneof![
        Just("{node}"),
        Just("{a}"),
        Just("{b}"),
        Just("e{n}"),
        Just("a"),
        Just("b/{a}"),
        Just("char/{number}"),
        Just("c/{name}")
    ];
    (path, any::<bool>(), any::<bool>())
        .prop_map(|(path, optional, common)| json!({"path": path, "optional": optional, "common": common}))
}

fn random_class() -> impl Strategy<Value = Value> {
    let way = prop_oneof![3 => Just("read"), 1 => Just("link"), 1 => Just("entry"), 1 => Just("is")];
    let fact =
        |name: &'static str, file| (way.clone(), file).prop_map(move |(way, file)| json!({"name": name, way: file}));
    let file_of_facts = || prop_oneof![3 => random_file(), 1 => Just("{a}")];
    let id = prop_oneof![Just("{name}"), Just("{n}"), Just("{a}"), Just("x")];
    let above = prop_oneof![Just(json!({"name": "e{n}"})), Just(json!({"attr": {"a": "a"}}))];
    (
        prop_oneof![Just("k"), Just("m")],
        (fact("a", random_file().boxed()), fact("b", file_of_facts().boxed())),
        proptest::collection::vec(random_node(), 0..3),
        proptest::option::weighted(0.1, above),
        (id, file_of_facts(), any::<bool>()),
        1..3_u32,
        proptest::bool::weighted(0.1),
    )
        .prop_map(|(directory, (a, b), nodes, above, (id, read, has_group), shares, vm)| {
            let id = if shares > 1 { format!("{id}{{share}}") } else { id.to_owned() };
            class(&json!({
                "name": directory, "find": {"class": directory, "name": "e{n}", "above": above}, "facts": [a, b], "nodes": nodes,
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
            Just("/etc/shadow".to_owned()),
            Just("DEVNAME=e0".to_owned()), Just("DEVNAME=../etc/shadow".to_owned()), Just("MAJOR=1\nMINOR=2\nDEVNAME=a".to_owned()),
        ],
        1 => prop_oneof![
            Just("-> ..".to_owned()), Just("-> /etc".to_owned()), Just("-> a".to_owned()), Just("-> ../../k/e0".to_owned()),
            Just("-> ../../../../../etc/shadow".to_owned()), Just("-> e1".to_owned()), Just("-> /dev/a".to_owned()),
        ],
    ];
    proptest::collection::vec((path, content), 8..48)
}

/// The classes without any other vendor.
fn alone(classes: &[Value]) -> Value {
    let mut vendors = json!({"classes": classes});
    for section in ["intel_fpga", "nvidia", "amd", "intel_gpu", "xilinx_fpga", "rdma"] {
        vendors[section] = json!({"enabled": false});
    }
    json!({"probe_timeout": 20, "vendors": vendors})
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
        let text = settings::json(&alone(&classes));
        let settings = Settings::from_json(&text).unwrap();
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
                prop_assert!(path.is_node && path.path.starts_with("/dev/") && !path.path.split('/').any(|name| name == ".."), "{path:?}");
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
