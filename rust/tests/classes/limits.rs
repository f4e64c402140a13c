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
fn what_is_wrong_with_one_class_on_a_host_says_nothing_of_another() {
    let tree = widget("mode = strange");
    tree.add("sys/class/looped -> looped");
    symlink("entry", tree.path("sys/class/widget/entry")).unwrap();
    let of = |name: &str, changes: &Value| {
        let mut changes = changes.clone();
        (changes["name"], changes["resource"]) = (json!(name), json!(format!("example.com/{name}")));
        class(&changes)
    };
    let mode = json!([{"name": "mode", "read": "mode", "map": {"known": "known"}}]);
    let wrong = [
        of("no-directory", &json!({"find": {"class": "looped"}})),
        of("no-bus", &json!({"find": {"class": null, "bus": "nothing"}, "nodes": [{"path": "x"}]})),
        of("strange", &json!({"find": {"name": "widget{n}"}, "facts": mode, "id": "{mode}"})),
    ];
    let right = of("right", &json!({"find": {"name": "widget0"}}));
    for (place, one) in wrong.iter().enumerate() {
        let found = scan(&tree, &[right.clone(), one.clone()]);
        assert_eq!(ids(&found), ["widget0"], "{place}");
        assert!(found.unseen.iter().all(|part| part.class.as_deref() == one["name"].as_str()), "{:?}", found.unseen);
    }
    let all = scan(&tree, &[wrong[0].clone(), wrong[1].clone(), right]);
    assert_eq!(ids(&all), ["widget0"]);
    assert_eq!(all.unseen.iter().map(|part| part.class.as_deref()).collect::<Vec<_>>(), [Some("no-directory")]);
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
fn a_file_that_is_wrong_for_all_entries_is_one_problem() {
    let tree = npus();
    tree.write("sys/module/accel/version", "");
    let facts = json!([{"name": "version", "read": "/sys/module/accel/version"}]);
    let mut needed = npu();
    needed["facts"] = class(&json!({"facts": facts}))["facts"].clone();
    needed["id"] = json!("{name}-{version}");
    let scan = scan(&tree, &[needed]);
    assert_eq!((ids(&scan), unseen(&scan)), (vec![], vec!["0000:00:0b.0", "0000:00:0c.0"]));
    assert_eq!(problems(&scan), ["/sys/module/accel/version: empty"]);
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
