//! Random classes over random trees: no crash, nothing outside of /dev and /sys, no node twice, no file a problem twice.

use super::*;

/// Paths that a class may ask for.
fn file() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        6 => prop_oneof![Just("a"), Just("b"), Just("link"), Just("b/a"), Just("dev"), Just("e{n}")],
        1 => prop_oneof![Just("/sys/class/k/e0/a"), Just("/sys/link/a"), Just("/proc/driver/a"), Just("{a}")],
    ]
}

fn node() -> impl Strategy<Value = Value> {
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

/// A fact of this name, by any way, of any kind.
fn fact(name: &'static str) -> impl Strategy<Value = Value> {
    let way = prop_oneof![3 => Just("read"), 1 => Just("link"), 1 => Just("entry"), 1 => Just("is")];
    let change = prop_oneof![
        6 => Just(json!({})),
        1 => Just(json!({"type": "number"})),
        1 => Just(json!({"key": "MAJOR"})),
        1 => Just(json!({"map": {"a": "/etc/shadow", "b": "../../etc/shadow"}, "otherwise": "a"})),
        1 => Just(json!({"map": {"a": "b"}})),
    ];
    (way, file(), change).prop_map(move |(way, file, mut fact)| {
        fact["name"] = json!(name);
        // Only the second fact is made of another; only `read` and `link` have places, and paths from the root.
        let is_simple = !file.starts_with('/') && !file.contains('{');
        fact[way] = json!(match way {
            "read" | "link" if name == "b" || file != "{a}" => file,
            "entry" if !is_simple => "a",
            "read" | "link" => "b",
            _ => file,
        });
        fact
    })
}

fn condition() -> impl Strategy<Value = Value> {
    let fault = prop_oneof![Just(json!({"absent": true})), Just(json!({"equals": "a"})), Just(json!({"beyond": 1}))];
    (file(), fault).prop_map(|(file, mut condition)| {
        condition["read"] = json!(file);
        condition["reason"] = json!("x");
        condition
    })
}

fn find() -> impl Strategy<Value = Value> {
    let within = prop_oneof![
        4 => Just(json!({"class": "k", "name": "e{n}"})),
        3 => Just(json!({"class": "m", "name": "e{n}"})),
        1 => Just(json!({"class": "m"})),
        1 => Just(json!({"class": null, "bus": "u", "name": "e{n}"})),
        1 => Just(json!({"class": null, "bus": "pci"})),
        1 => Just(json!({"class": null, "bus": "pci", "driver": ["v"], "vendor": ["0x1"]})),
        1 => Just(json!({"class": "k", "name": "e{n}", "driver": ["v"]})),
    ];
    let above = prop_oneof![Just(json!({"name": "e{n}"})), Just(json!({"attr": {"a": "a"}}))];
    let attr = prop_oneof![4 => Just(json!({})), 1 => Just(json!({"a": "a"})), 1 => Just(json!({"link/a": "a"}))];
    (within, proptest::option::weighted(0.1, above), attr).prop_map(|(mut find, above, attr)| {
        find["above"] = json!(above.filter(|_| find.get("name").is_some()));
        find["attr"] = attr;
        find
    })
}

fn class() -> impl Strategy<Value = Value> {
    let id = prop_oneof![4 => Just("{name}"), 1 => Just("{class}"), 1 => Just("{a}"), 1 => Just("x")];
    let resource = prop_oneof![4 => Just("example.com/x"), 1 => Just("example.com/{a}")];
    (
        prop_oneof![Just("k"), Just("m")],
        find(),
        (fact("a"), fact("b")),
        proptest::collection::vec(node(), 0..3),
        (id, resource, proptest::collection::vec(condition(), 0..3), any::<bool>()),
        1..3_u32,
        proptest::bool::weighted(0.1),
    )
        .prop_map(|(name, find, (a, b), nodes, (id, resource, health, has_group), shares, vm)| {
            let id = if shares > 1 { format!("{id}{{share}}") } else { id.to_owned() };
            let is_named = find.get("name").is_some();
            let class = super::class(&json!({
                "name": name, "find": find, "facts": [a, b], "nodes": nodes, "id": id, "shares": shares, "vm": vm,
                "health": health, "group": if has_group { json!("a") } else { Value::Null }, "function": "{a}",
                "resource": resource,
            }));
            // Without a pattern of names no part of one is known.
            let number = if is_named { "{n}" } else { "{name}" };
            serde_json::from_str(&class.to_string().replace("{n}", number)).unwrap()
        })
}

/// Entries of two classes, of a bus and of PCI, with files, links in and out, and nodes.
fn tree() -> impl Strategy<Value = Vec<(String, String)>> {
    let directory = prop_oneof![
        5 => (prop_oneof![Just("k"), Just("m")], 0..3_u8).prop_map(|(class, number)| format!("class/{class}/e{number}")),
        1 => (0..2_u8).prop_map(|number| format!("bus/u/devices/e{number}")),
        1 => (0..2_u8).prop_map(|number| format!("bus/pci/devices/0000:00:0{number}.0")),
        1 => (0..2_u8).prop_map(|number| format!("devices/pci0000:00/0000:00:0{number}.0/k/e{number}")),
        1 => (0..2_u8).prop_map(|number| format!("devices/pci0000:00/0000:00:0{number}.0")),
    ];
    let file = prop_oneof![
        Just("a"),
        Just("b"),
        Just("dev"),
        Just("uevent"),
        Just("link"),
        Just("b/a"),
        Just("iommu_group"),
        Just("vendor")
    ];
    let path = prop_oneof![
        8 => (directory, file).prop_map(|(directory, file)| format!("sys/{directory}/{file}")),
        2 => "[a-c]{1,2}".prop_map(|name| format!("dev/{name}")),
        2 => (0..3_u8).prop_map(|number| format!("dev/e{number}")),
        2 => (0..3_u8).prop_map(|number| format!("sys/class/m/e{number}")),
        1 => (0..2_u8).prop_map(|number| format!("sys/bus/pci/devices/0000:00:0{number}.0")),
        1 => (0..2_u8).prop_map(|number| format!("sys/bus/pci/drivers/v/0000:00:0{number}.0")),
        1 => prop_oneof![Just("sys/link".to_owned()), Just("proc/driver/a".to_owned()), Just("sys/class/k/file".to_owned())],
    ];
    let content = prop_oneof![
        4 => prop_oneof![
            Just("a".to_owned()), Just("b\nc".to_owned()), Just("1:2".to_owned()), Just("../x".to_owned()), Just(String::new()),
            Just("/etc/shadow".to_owned()), Just("0x1".to_owned()), Just("DRIVER=v".to_owned()), Just("0000:00:01.0".to_owned()),
            Just("DEVNAME=e0".to_owned()), Just("DEVNAME=../etc/shadow".to_owned()), Just("MAJOR=1\nMINOR=2\nDEVNAME=a".to_owned()),
        ],
        1 => prop_oneof![
            Just("-> ..".to_owned()), Just("-> /etc".to_owned()), Just("-> a".to_owned()), Just("-> ../../k/e0".to_owned()),
            Just("-> ../../../../../etc/shadow".to_owned()), Just("-> e1".to_owned()), Just("-> /dev/a".to_owned()),
            Just("-> ../../../devices/pci0000:00/0000:00:00.0".to_owned()), Just("-> /sys/devices/pci0000:00/0000:00:01.0/k/e1".to_owned()),
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
    let tree = Tree::new("etc/shadow = secret\netc/a = secret\nproc/a = secret");
    for (path, content) in files {
        let is_node = path.starts_with("dev/");
        let path = tree.path(path);
        let Some(parent) = path.parent().filter(|parent| fs::create_dir_all(parent).is_ok()) else { continue };
        let outside =
            parent.canonicalize().is_ok_and(|parent| !parent.starts_with(tree.path("").canonicalize().unwrap()));
        if outside || path.symlink_metadata().is_ok() {
            continue;
        }
        let _ = match content.strip_prefix("-> ") {
            Some(target) => symlink(target, path),
            None => fs::write(path, if is_node { "secret" } else { content }),
        };
    }
    tree
}

fn is_readable(path: impl AsRef<Path>) -> bool {
    path.as_ref().starts_with("/sys") || path.as_ref().starts_with("/proc/driver")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_class_and_no_tree_gives_a_node_outside_of_dev_or_one_node_to_two(
        classes in proptest::collection::vec(class(), 1..4), files in tree(),
    ) {
        let text = settings::json(&alone(&classes));
        let settings = Settings::from_json(&text).unwrap();
        let tree = plant(&files);
        let found = Scanner::new(tree.host(), &settings).scan(&|| {});
        let mut problems = BTreeSet::new();
        for problem in &found.problems {
            prop_assert!(!problem.error.contains("defect"), "{problem:?}");
            let whole = (&problem.path, &problem.error, &problem.device);
            prop_assert!(problems.insert(whole), "{:?}", found.problems);
        }
        let (mut owners, mut ids) = (BTreeMap::new(), BTreeSet::new());
        for device in &found.devices {
            for fact in device.attributes.values() {
                prop_assert!(!fact.value.to_string().contains("secret") && is_readable(&fact.source), "{fact:?}");
            }
            for reading in &device.readings {
                prop_assert!(is_readable(&reading.attribute), "{reading:?}");
            }
            for id in device.ids() {
                prop_assert!(!id.is_empty() && ids.insert((&device.resource_name, id.clone())), "{id} {:?}", found.devices);
            }
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
