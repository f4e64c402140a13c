//! What people who write a class are told of entries that are no devices of it.

use super::devices::camera;
use super::*;

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

#[test]
fn whoever_asks_for_the_pci_ids_of_a_usb_device_is_told_what_to_ask_for() {
    let find = json!({"class": "video4linux", "vendor": ["0x046d"]});
    let entries = scanner(&camera(), &[class(&json!({"find": find}))]).class_entries();
    assert!(entries[0].why.starts_with("it is on USB, and `driver`, `vendor` and `device`"), "{entries:?}");
}

#[test]
fn whoever_asks_for_a_directory_above_is_told_what_the_nearest_one_shows() {
    let tree = camera();
    let told = |above: Value| {
        let find = json!({"class": "video4linux", "name": "video{n}", "above": above});
        let entries = scanner(&tree, &[class(&json!({"find": find}))]).class_entries();
        entries[0].why.strip_prefix("no directory above it fits `above`: ").map(str::to_owned)
    };
    for (above, why) in [
        (json!({"attr": {"idVendor": "046d"}}), None),
        (json!({"attr": {"idVendor": "1a86"}}), Some("1-2: `idVendor` is `046d`, not `1a86`")),
        (
            json!({"attr": {"idProduct": "1", "idVendor": "046d"}}),
            Some("1-2: `idProduct`: No such file or directory (os error 2)"),
        ),
        (json!({"attr": {"bus_id": "1"}}), Some("none has `bus_id`")),
        (
            json!({"name": "usb{b}", "attr": {"idVendor": "046d"}}),
            Some("usb1: `idVendor`: No such file or directory (os error 2)"),
        ),
        (
            json!({"name": "card{b}"}),
            Some("none of video4linux, 1-2:1.0, 1-2, usb1, 0000:00:14.0, pci0000:00 is named `card{b}`"),
        ),
    ] {
        assert_eq!(told(above.clone()).as_deref(), why, "{above}");
    }
}
