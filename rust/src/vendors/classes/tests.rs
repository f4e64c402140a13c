use std::fs::{create_dir_all, write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::host::read_log::counting::counted;
use crate::vendors::testing;

fn classes(changes: &[Value]) -> Classes {
    Classes::new(changes.iter().map(|change| DeviceClass::deserialize(testing::class(change)).unwrap()).collect())
}

fn scan(root: &Path, classes: &Classes) -> Found {
    classes.scan(&Host::simulated(root).for_a_scan(), &Fence::new(Duration::from_secs(20)))
}

/// Widgets, each of its own PCI function.
fn widgets(number: usize) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for widget in 0..number {
        let address = format!("0000:{widget:02x}:00.0");
        let function = root.path().join("sys/devices/pci0000:00").join(&address);
        let entry = function.join(format!("widget/widget{widget}"));
        create_dir_all(&entry).unwrap();
        for (path, text) in [
            (
                function.join("uevent"),
                format!("DRIVER=widget\nPCI_CLASS=120000\nPCI_ID=1234:5678\nPCI_SLOT_NAME={address}"),
            ),
            (function.join("numa_node"), "0\n".to_owned()),
            (function.join("vendor"), "0x1234\n".to_owned()),
            (function.join("device"), "0x5678\n".to_owned()),
            (entry.join("uevent"), format!("MAJOR=10\nMINOR={widget}\nDEVNAME=widget{widget}\n")),
            (entry.join("state"), "enabled\n".to_owned()),
            (entry.join("mode"), "fast\n".to_owned()),
            (entry.join("info"), "Name = x\nSerial = 7\n".to_owned()),
        ] {
            write(path, text).unwrap();
        }
        for (link, target) in [
            (format!("sys/bus/pci/devices/{address}"), format!("../../../devices/pci0000:00/{address}")),
            (
                format!("sys/class/widget/widget{widget}"),
                format!("../../devices/pci0000:00/{address}/widget/widget{widget}"),
            ),
            (format!("sys/devices/pci0000:00/{address}/driver"), "../../../bus/pci/drivers/widget".to_owned()),
        ] {
            let link = root.path().join(link);
            create_dir_all(link.parent().unwrap()).unwrap();
            symlink(target, link).unwrap();
        }
    }
    root
}

/// A class of those that reads files of its entries several times, as one that does not fit does.
fn classes_of_widgets() -> Classes {
    let find = json!({"driver": ["widget"], "vendor": ["0x1234"], "device": ["0x5678"], "attr": {"state": "enabled", "mode": "slow"}});
    let slow = json!({"name": "slow", "find": find});
    let mut find = find;
    find["attr"]["mode"] = json!("fast");
    let fast = json!({
        "name": "fast", "find": find, "id": "{name}-{mode}-{serial}", "nodes": [{"path": "{node}"}, {"path": "char/{number}"}],
        "facts": [
            {"name": "mode", "read": "mode"}, {"name": "serial", "read": "info", "key": "serial"},
            {"name": "product_name", "read": "info", "key": "name"}, {"name": "absent", "read": "absent", "optional": true},
        ],
        "health": [{"read": "state", "equals": "broken", "reason": "broken"}],
    });
    classes(&[slow, fast, json!({"name": "other", "find": {"name": "gadget{n}"}})])
}

#[test]
fn no_file_of_an_entry_is_read_twice_however_many_classes_and_facts_ask() {
    let root = widgets(4);
    let path = root.path().canonicalize().unwrap();
    let all = classes_of_widgets();
    let mut found = Found::default();
    let counts = counted(&path, || found = scan(&path, &all));
    assert_eq!((found.devices.len(), &found.problems[..]), (4, &[][..]));
    assert_eq!(found.devices[1].id, "widget1-fast-7");
    let twice: Vec<_> = counts.iter().filter(|(path, reads)| **reads > 1 && !path.ends_with("physfn")).collect();
    assert_eq!(twice, []);
    let of_one =
        counts.keys().filter(|file| file.starts_with(path.join("sys/devices/pci0000:00/0000:01:00.0"))).count();
    assert!(of_one <= 12, "{counts:?}");
}

#[test]
fn what_became_of_entries_is_told_without_another_look_at_the_devices() {
    let root = widgets(4);
    let path = root.path().canonicalize().unwrap();
    let [_, fast, _] = &*classes_of_widgets().classes else { unreachable!() };
    let all = Classes::new(vec![fast.clone()]);
    let counts = counted(&path, || {
        let found = scan(&path, &all).devices;
        let host = Host::simulated(&path).for_a_scan();
        let entries = all.explained(&host, &Fence::new(Duration::from_secs(20)), &found);
        assert_eq!((found.len(), entries.iter().filter(|entry| entry.is_taken).count()), (4, 4));
    });
    let devices = path.join("sys/devices");
    let twice: Vec<_> = counts
        .iter()
        .filter(|(file, reads)| **reads > 1 && file.starts_with(&devices) && !file.ends_with("physfn"))
        .collect();
    assert_eq!(twice, []);
}

#[test]
fn classes_that_find_nothing_list_each_directory_once_and_read_no_file() {
    let root = widgets(4);
    let path = root.path().canonicalize().unwrap();
    let named = |number: u32| json!({"name": format!("c{number}"), "find": {"name": format!("gadget{number}")}});
    let absent = |number: u32| json!({"name": format!("c{number}"), "find": {"class": format!("gadget{number}")}});
    let all = classes(&(0..8).map(named).chain((8..16).map(absent)).collect::<Vec<_>>());
    let counts = counted(&path, || assert_eq!(scan(&path, &all), Found::default()));
    assert_eq!((counts.len(), counts.values().sum::<usize>()), (9, 9), "{counts:?}");
}

/// What is found while a read of what the fence knows by this key hangs.
fn scan_while(key: &'static str, root: &Path, all: &Classes) -> Found {
    let fence = Fence::new(Duration::from_secs(20));
    let (started, release) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (starts, held) = (Arc::clone(&started), Arc::clone(&release));
    let hang = move |_| {
        starts.wait();
        held.wait();
    };
    let end_wait = || {
        started.wait();
        false
    };
    fence.each_while(Duration::from_secs(20), vec![key], |key| *key, hang, (Duration::from_millis(1), &end_wait));
    let found = all.scan(&Host::simulated(root).for_a_scan(), &fence);
    release.wait();
    found
}

#[test]
fn an_entry_that_hangs_holds_back_the_groups_that_it_may_be_of() {
    let root = widgets(2);
    let facts = json!([{"name": "product_name", "read": "info", "key": "name"}]);
    let all = classes(&[json!({"facts": facts, "group": "product_name", "id": "{product_name}"})]);
    assert_eq!(scan(root.path(), &all).devices.len(), 1);
    let found = scan_while("class widget 0000:01:00.0", root.path(), &all);
    let unseen: Vec<_> = found.unseen.iter().filter_map(|part| part.card.as_deref()).collect();
    assert_eq!((found.devices, unseen), (vec![], vec!["0000:01:00.0", "0000:00:00.0"]));
}

#[test]
fn a_class_whose_read_hangs_costs_no_other_class_on_the_same_card() {
    let root = widgets(2);
    let gadget = root.path().join("sys/devices/pci0000:00/0000:01:00.0/gadget/gadget0");
    create_dir_all(&gadget).unwrap();
    create_dir_all(root.path().join("sys/class/gadget")).unwrap();
    symlink("../../devices/pci0000:00/0000:01:00.0/gadget/gadget0", root.path().join("sys/class/gadget/gadget0"))
        .unwrap();
    let all = classes(&[json!({}), json!({"name": "gadget", "find": {"class": "gadget"}})]);
    assert_eq!(scan(root.path(), &all).devices.len(), 3);
    let found = scan_while("class widget 0000:01:00.0", root.path(), &all);
    let ids: Vec<_> = found.devices.iter().map(|device| device.id.as_str()).collect();
    let unseen: Vec<_> = found.unseen.iter().map(|part| (part.class.as_deref(), part.card.as_deref())).collect();
    assert_eq!((ids, unseen), (vec!["gadget0", "widget0"], vec![(Some("widget"), Some("0000:01:00.0"))]));
}
