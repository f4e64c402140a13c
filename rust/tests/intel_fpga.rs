//! Whole trees of both drivers, and their devices in each mode.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it fails")]

mod tree;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use devherd_native::edits::{Edits, Hook, Node};
use devherd_native::fence::Fence;
use devherd_native::health::{PollReason, Poller};
use devherd_native::vendors::Vendor;
use devherd_native::vendors::intel_fpga::IntelFpga;
use devherd_native::vendors::intel_fpga::IntelFpgaMode::{Af, Region, RegionDevel};
use tree::{
    A1, A2, FF, IF, IF2, Tree, ZEROS, complaints, dfl, edits, function, nodes, opae, pci, polled, summary, summed_up,
    virtual_to,
};

const IF_A1: &str = "af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs";
const IF_A2: &str = "af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg";
const IF_FF: &str = "af-695.fff.aVKNtusxV3qMNmj5-qCB9v____________________8";
const REGION: &str = "region-69528db6eb31577a8c3668f9faa081f6";

fn row(id: &str, name: &str, reasons: &str) -> (String, String, String) {
    (id.to_owned(), name.to_owned(), reasons.to_owned())
}

fn two_dfl_cards() -> Tree {
    let tree = Tree::new(&pci("0000:81:00.0", 1));
    tree.add(&pci("0000:42:00.0", 0));
    tree.add(&dfl("0000:81:00.0", 0, 0, &[(0, A1)]));
    tree.add(&dfl("0000:42:00.0", 1, 1, &[(1, A2)]));
    tree.add("sys/class/fpga_region/dir/");
    tree
}

#[test]
fn two_dfl_cards_in_each_mode() {
    let tree = two_dfl_cards();
    let af = tree.af();
    assert_eq!(summary(&af), [row("dfl-port.0", IF_A1, ""), row("dfl-port.1", IF_A2, "")]);
    assert_eq!(af.problems, []);
    let region = tree.scan(Region);
    assert_eq!(summary(&region), [row("dfl-fme.0", REGION, ""), row("dfl-fme.1", REGION, "")]);
    assert_eq!(nodes(&region.devices[1], Region), ["dfl-port.1"]);
    let devel = tree.scan(RegionDevel);
    assert_eq!(summary(&devel), summary(&region));
    assert_eq!(nodes(&devel.devices[0], RegionDevel), ["dfl-port.0", "dfl-fme.0"]);
}

#[test]
fn a_device_in_mode_af_has_all_its_facts() {
    let tree = two_dfl_cards();
    let device = &tree.af().devices[0];
    let path = "/sys/devices/pci0000:81/0000:81:01.0/0000:81:00.0";
    assert_eq!((&*device.vendor, device.card.as_str()), ("intel-fpga", "0000:81:00.0"));
    assert_eq!(device.numa_nodes, [1]);
    assert_eq!(edits(device, Af), Edits { nodes: vec![Node::same("/dev/dfl-port.0", "rw")], ..Edits::default() });
    let is = |name: &str, value: &str, source: &str| {
        let fact = &device.attributes[name];
        assert_eq!(
            (fact.value.to_string().as_str(), fact.source.strip_prefix(path).unwrap()),
            (value, source),
            "{name}"
        );
    };
    is("afu_id", A1, "/fpga_region/region0/dfl-port.0/afu_id");
    let compat_id = "/fpga_region/region0/dfl-fme.0/dfl-fme-region.0/fpga_region/region100/compat_id";
    is("interface_id", IF, compat_id);
    is("driver", "dfl", "/fpga_region/region0/dfl-port.0");
    is("pci_address", "0000:81:00.0", "");
    is("pci_driver", "fpga-driver", "/uevent");
    is("vendor_id", "0x8086", "/vendor");
    is("port_id", "0", "/fpga_region/region0/dfl-port.0/id");
    is("numa_node", "1", "/numa_node");
    assert_eq!(device.text("fme").unwrap(), "dfl-fme.0");
}

#[test]
fn region_mode_answers_for_the_hook_and_the_others_do_not() {
    let tree = two_dfl_cards();
    let region = &tree.scan(Region).devices[0];
    let given = edits(region, Region);
    assert_eq!(given.annotations, [("com.intel.fpga.mode".to_owned(), "fpga.intel.com/region".to_owned())].into());
    assert_eq!(given.cdi_devices, ["intel.cdi.k8s.io/fpga=dfl-fme.0"]);
    let path = "/opt/intel/fpga-sw/intel-fpga-crihook".to_owned();
    let hook = Hook { hook_name: "createRuntime", path, args: Vec::new() };
    assert_eq!(*given.specs[&given.cdi_devices[0]], Edits { hooks: vec![hook], ..Edits::default() });
    let devel = &tree.scan(RegionDevel).devices[0];
    let nodes = ["/dev/dfl-port.0", "/dev/dfl-fme.0"].map(|node| Node::same(node, "rw")).to_vec();
    assert_eq!(edits(devel, RegionDevel), Edits { nodes, ..Edits::default() });
}

#[test]
fn two_opae_cards_in_each_mode() {
    let tree = Tree::new(&(pci("0000:06:00.0", -1) + &pci("0000:42:00.0", -1)));
    tree.add(&opae("0000:06:00.0", 0, Some(0), &[(0, A1)]));
    tree.add(&opae("0000:42:00.0", 1, Some(1), &[(1, A2)]));
    let af = tree.af();
    assert_eq!(summary(&af), [row("intel-fpga-port.0", IF_A1, ""), row("intel-fpga-port.1", IF_A2, "")]);
    assert!(af.devices.iter().all(|device| device.numa_nodes.is_empty()));
    assert_eq!(af.problems, []);
    let region = tree.scan(Region);
    assert_eq!(summary(&region), [row("intel-fpga-fme.0", REGION, ""), row("intel-fpga-fme.1", REGION, "")]);
    assert_eq!(nodes(&tree.scan(RegionDevel).devices[1], RegionDevel), ["intel-fpga-port.1", "intel-fpga-fme.1"]);
}

#[test]
fn both_drivers_on_one_host_are_served() {
    let tree = Tree::new(&(pci("0000:06:00.0", 0) + &opae("0000:06:00.0", 0, Some(0), &[(0, A1)])));
    tree.add(&(pci("0000:81:00.0", 1) + &dfl("0000:81:00.0", 0, 0, &[(0, A1)])));
    assert_eq!(summary(&tree.af()), [row("dfl-port.0", IF_A1, ""), row("intel-fpga-port.0", IF_A1, "")]);
}

#[test]
fn the_fme_of_a_virtual_function_is_on_its_physical_one() {
    let tree = Tree::new(&(pci("0000:06:00.0", 0) + &opae("0000:06:00.0", 0, Some(0), &[(0, A1)])));
    tree.add(&(pci("0000:42:00.0", 1) + &opae("0000:42:00.0", 1, Some(1), &[])));
    tree.add(&(pci("0000:42:00.1", 1) + &opae("0000:42:00.1", 2, None, &[(2, A2)])));
    tree.add(&virtual_to("0000:42:00.1", "0000:42:00.0"));
    let af = tree.af();
    assert_eq!(summary(&af), [row("intel-fpga-port.0", IF_A1, ""), row("intel-fpga-port.2", IF_A2, "")]);
    assert_eq!(af.devices[1].card, "0000:42:00.0");
    assert_eq!(af.devices[1].text("pci_address").unwrap(), "0000:42:00.1");
    let region = tree.scan(Region);
    assert_eq!(summary(&region), [row("intel-fpga-fme.0", REGION, ""), row("intel-fpga-fme.1", REGION, "")]);
    assert_eq!(nodes(&region.devices[1], Region), ["intel-fpga-port.2"]);
    assert_eq!(region.problems, []);
}

#[test]
fn all_virtual_functions_of_a_card_are_kept() {
    let tree = Tree::new(&(pci("0000:42:00.0", 1) + &dfl("0000:42:00.0", 0, 0, &[])));
    tree.add(&format!(
        "{}/fpga_region/region0/dfl-fme.0/dfl-fme-region.0/fpga_region/region9/compat_id = {IF}",
        function("0000:42:00.0")
    ));
    for number in [1, 10, 2] {
        let address = format!("0000:42:0{}.{}", number / 8, number % 8);
        let port = dfl(&address, number, 99, &[(number, A1)]);
        // A virtual function has a region with a port and no FME.
        let port: Vec<&str> = port.lines().filter(|line| !line.contains("fme")).collect();
        tree.add(&(pci(&address, 1) + &port.join("\n") + "\n" + &virtual_to(&address, "0000:42:00.0")));
    }
    assert_eq!(summary(&tree.af()), ["1", "2", "10"].map(|number| row(&format!("dfl-port.{number}"), IF_A1, "")));
    let devel = tree.scan(RegionDevel);
    assert_eq!(summary(&devel), [row("dfl-fme.0", REGION, "")]);
    assert_eq!(nodes(&devel.devices[0], RegionDevel), ["dfl-port.1", "dfl-port.2", "dfl-port.10", "dfl-fme.0"]);
}

#[test]
fn every_port_of_an_fme_is_served() {
    let tree = Tree::new(&(pci("0000:81:00.0", 1) + &dfl("0000:81:00.0", 0, 0, &[(0, A1), (1, A2), (2, A1)])));
    let af = tree.af();
    let rows = [row("dfl-port.0", IF_A1, ""), row("dfl-port.1", IF_A2, ""), row("dfl-port.2", IF_A1, "")];
    assert_eq!(summary(&af), rows);
    assert_eq!(af.problems, []);
    assert_eq!(nodes(&tree.scan(Region).devices[0], Region), ["dfl-port.0", "dfl-port.1", "dfl-port.2"]);
}

#[test]
fn regions_that_differ_are_a_problem_and_never_a_guess() {
    let tree = Tree::new(&(pci("0000:81:00.0", 1) + &dfl("0000:81:00.0", 0, 0, &[(0, A1), (1, A2)])));
    let second = "fpga_region/region0/dfl-fme.0/dfl-fme-region.1/fpga_region/region101/compat_id";
    tree.add(&format!("{}/{second} = {IF2}", function("0000:81:00.0")));
    for mode in [Af, Region, RegionDevel] {
        let found = tree.scan(mode);
        assert!(summary(&found).iter().all(|(_, name, reasons)| name.is_empty() && reasons == "fme-error"));
        let complaint = &complaints(&found)[0];
        assert!(complaint.contains("region100/compat_id") && complaint.contains("region101/compat_id"), "{complaint}");
    }
}

#[test]
fn a_missing_interface_id_is_a_problem_that_names_the_cure() {
    for damage in ["dfl-fme-region.0", "dfl-fme-region.0/fpga_region/region100/compat_id"] {
        let tree = two_dfl_cards();
        tree.remove(&format!("{}/fpga_region/region0/dfl-fme.0/{damage}", function("0000:81:00.0")));
        let found = tree.af();
        assert_eq!(summary(&found), [row("dfl-port.0", "", "fme-error"), row("dfl-port.1", IF_A2, "")], "{damage}");
        assert_eq!(found.problems[0].device.as_deref(), Some("dfl-port.0"));
        assert!(found.problems[0].error.contains("dfl_fme_region, dfl_fme_mgr and dfl_fme_br"), "{damage}");
        assert_eq!(summary(&tree.scan(Region)), [row("dfl-fme.0", "", "fme-error"), row("dfl-fme.1", REGION, "")]);
    }
    let tree = Tree::new(&(pci("0000:06:00.0", 0) + &opae("0000:06:00.0", 0, Some(0), &[(0, A1)])));
    tree.write(&format!("{}/fpga/intel-fpga-dev.0/intel-fpga-fme.0/pr/interface_id", function("0000:06:00.0")), "\n");
    assert_eq!(complaints(&tree.af()).len(), 1);
    assert_eq!(summary(&tree.af()), [row("intel-fpga-port.0", "", "fme-error")]);
}

#[test]
fn what_is_loaded_in_a_port_decides_its_name_and_its_reasons() {
    let afu_id = format!("{}/fpga_region/region0/dfl-port.0/afu_id", function("0000:81:00.0"));
    let first_sight = format!("({IF_FF})");
    for (content, name, reasons, problems) in [
        (A1.to_uppercase(), IF_A1, "", 0),
        ("d8424dc4-a4a3-c413-f89e-433683f9040b\n".to_owned(), IF_A1, "", 0),
        (FF.to_owned(), &first_sight, "port-error", 0),
        (ZEROS.to_owned(), "", "unprogrammed", 1),
        ("garbage".to_owned(), "", "port-error", 1),
        (String::new(), "", "port-error", 1),
        ("a".repeat(5000), "", "port-error", 1),
    ] {
        let tree = two_dfl_cards();
        tree.write(&afu_id, &content);
        let found = tree.af();
        assert_eq!(summary(&found)[0], row("dfl-port.0", name, reasons), "{content}");
        assert_eq!(summary(&found)[1], row("dfl-port.1", IF_A2, ""));
        assert_eq!(found.problems.len(), problems, "{content}");
        assert_eq!(summary(&tree.scan(Region)), [row("dfl-fme.0", REGION, ""), row("dfl-fme.1", REGION, "")]);
    }
}

#[test]
fn an_afu_id_that_is_not_there_or_no_file() {
    let afu_id = format!("{}/fpga_region/region0/dfl-port.0/afu_id", function("0000:81:00.0"));
    let tree = two_dfl_cards();
    tree.remove(&afu_id);
    assert_eq!(summary(&tree.af())[0], row("dfl-port.0", "", "unprogrammed"));
    assert!(complaints(&tree.af())[0].starts_with(&format!("/{afu_id}: ")));
    tree.add(&format!("{afu_id}/"));
    assert_eq!(summary(&tree.af())[0], row("dfl-port.0", "", "port-error"));
}

#[test]
fn an_interface_id_of_all_ones_is_a_failed_fme() {
    let tree = Tree::new(&(pci("0000:06:00.0", 0) + &opae("0000:06:00.0", 0, Some(0), &[(0, A1), (1, FF)])));
    let fme = format!("{}/fpga/intel-fpga-dev.0/intel-fpga-fme.0", function("0000:06:00.0"));
    tree.add(&format!("{fme}/pr/interface_id = {FF}"));
    let failed = format!("(region-{FF})");
    assert_eq!(summary(&tree.scan(Region)), [row("intel-fpga-fme.0", &failed, "fme-error")]);
    assert_eq!(summary(&tree.af())[1].1, "(af-fff.fff.__________________________________________8)");
    assert_eq!(summary(&tree.af())[1].2, "fme-error port-error");
}

#[test]
fn a_missing_node_is_found_of_that_device_alone() {
    let missing = |id: &str, node: &str| (id.into(), "node".into(), "node-missing".into(), format!("/dev/{node}"));
    let tree = two_dfl_cards();
    assert_eq!(polled(&tree, &tree.af()), []);
    tree.remove("dev/dfl-port.0");
    assert_eq!(polled(&tree, &tree.af()), [missing("dfl-port.0", "dfl-port.0")]);
    tree.remove("dev/dfl-fme.1");
    let expected = [missing("dfl-fme.0", "dfl-port.0"), missing("dfl-fme.1", "dfl-fme.1")];
    assert_eq!(polled(&tree, &tree.scan(Region)), expected);
}

#[test]
fn another_pci_class_is_a_problem_and_others_are_served() {
    let tree = two_dfl_cards();
    tree.add(&format!("{}/class = 0x030000", function("0000:81:00.0")));
    for mode in [Af, Region] {
        let found = tree.scan(mode);
        assert_eq!(found.devices.len(), 1);
        let path = "/sys/devices/pci0000:81/0000:81:01.0/0000:81:00.0/class";
        assert_eq!(complaints(&found), [format!("{path}: PCI class 0x030000, not 0x120000: no accelerator")]);
    }
}

#[test]
fn a_port_without_an_fme_is_a_problem() {
    let tree = Tree::new(&(pci("0000:42:00.1", 0) + &opae("0000:42:00.1", 0, None, &[(0, A1)])));
    assert_eq!(summary(&tree.af()), [row("intel-fpga-port.0", "", "fme-error")]);
    assert!(complaints(&tree.af())[0].contains("no FME belongs to this port"));
    assert_eq!(summary(&tree.scan(Region)), []);
    assert_eq!(complaints(&tree.scan(Region)).len(), 1);
}

#[test]
fn two_fmes_in_one_card_are_a_problem_and_no_guess() {
    let tree = Tree::new(&(pci("0000:06:00.0", 0) + &opae("0000:06:00.0", 0, Some(0), &[(0, A1)])));
    let second = format!("{}/fpga/intel-fpga-dev.0/intel-fpga-fme.1", function("0000:06:00.0"));
    tree.add(&format!("{second}/pr/interface_id = {IF2}\ndev/intel-fpga-fme.1"));
    assert_eq!(summary(&tree.af()), [row("intel-fpga-port.0", "", "fme-error")]);
    assert!(complaints(&tree.af())[0].contains("intel-fpga-fme.0, intel-fpga-fme.1"));
}

#[test]
fn an_fme_without_ports_is_a_problem_in_each_mode() {
    let tree = Tree::new(&(pci("0000:06:00.0", 0) + &opae("0000:06:00.0", 0, Some(0), &[])));
    for mode in [Af, Region, RegionDevel] {
        assert!(complaints(&tree.scan(mode))[0].contains("no port belongs to this FME"));
    }
}

#[test]
fn an_opae_card_with_nothing_in_it_is_a_problem_and_a_foreign_region_is_not() {
    let tree = Tree::new(&(pci("0000:06:00.0", 0) + &opae("0000:06:00.0", 0, None, &[])));
    tree.add("sys/devices/pci0000:06/0000:06:01.0/0000:06:00.0/fpga/intel-fpga-dev.0/");
    assert!(complaints(&tree.af())[0].ends_with("the card has neither an FME nor a port"));
    let tree = Tree::new(
        "sys/devices/platform/base/fpga_region/region0/uevent = x\nsys/class/fpga_region/region0 -> ../../devices/platform/base/fpga_region/region0",
    );
    assert_eq!((tree.af().devices, tree.af().problems), (vec![], vec![]));
}

#[test]
fn a_host_without_cards_is_fine() {
    for text in [
        "",
        "sys/class/",
        "sys/class/fpga/",
        "sys/class/fpga_region/dir/\nsys/class/fpga/",
        "sys/class/fpga_region/dfl-port.0/",
    ] {
        for mode in [Af, Region, RegionDevel] {
            let found = Tree::new(text).scan(mode);
            assert!(found.devices.is_empty() && found.problems.is_empty() && found.unseen.is_empty(), "{text}");
        }
    }
}

#[test]
fn a_class_directory_that_cannot_be_listed_leaves_what_was_seen() {
    let tree = Tree::new("sys/class/fpga = a file");
    let found = tree.af();
    assert_eq!(found.unseen.len(), 1);
    assert_eq!((found.unseen[0].card.as_deref(), found.unseen[0].finding.as_ref()), (None, None));
    assert!(complaints(&found)[0].starts_with("/sys/class/fpga: "));
}

#[test]
fn a_tree_without_links_works_too() {
    let text = pci("0000:81:00.0", 1) + &dfl("0000:81:00.0", 0, 0, &[(0, A1), (1, A2)]);
    let without_link = |line: &str| line.split_once(" -> ").map_or(line.to_owned(), |(link, _)| format!("{link}/"));
    let plain = text.lines().map(without_link).collect::<Vec<_>>().join("\n");
    let tree = Tree::new(&plain);
    assert_eq!(summary(&tree.af()), [row("dfl-port.0", IF_A1, ""), row("dfl-port.1", IF_A2, "")]);
    assert_eq!(tree.af().devices[0].card, "0000:81:00.0");
    // Only class directories: no PCI function is known or needed.
    let class = "sys/class/fpga/intel-fpga-dev.0";
    let tree = Tree::new(&format!(
        "{class}/intel-fpga-port.0/afu_id = {A1}\n{class}/intel-fpga-fme.0/pr/interface_id = {IF}\ndev/intel-fpga-port.0"
    ));
    assert_eq!(summary(&tree.af()), [row("intel-fpga-port.0", IF_A1, "")]);
    assert_eq!(tree.af().devices[0].card, "intel-fpga-dev.0");
}

#[test]
fn what_a_card_shows_of_its_health_is_looked_at_in_every_mode() {
    let tree = two_dfl_cards();
    let function = function("0000:81:00.0");
    let card = format!("{function}/fpga_region/region0");
    let fme = format!("{card}/dfl-fme.0");
    tree.add(&format!(
        "{card}/dfl-port.0/errors/errors = 0x0
         {card}/dfl-port.0/errors/first_error = 0x0
         {fme}/errors/fme_errors = 0x0
         {fme}/errors/catfatal_errors = 0x0
         {fme}/errors/inject_errors = 0x0
         {fme}/hwmon/hwmon3/name = dfl_fme_thermal
         {fme}/hwmon/hwmon3/temp1_input = 45000
         {fme}/hwmon/hwmon3/temp1_emergency = 100000
         {fme}/hwmon/hwmon3/temp1_crit = 95000
         {fme}/hwmon/hwmon3/temp1_crit_alarm = 0
         {fme}/hwmon/hwmon4/name = dfl_fme_power
         {fme}/hwmon/hwmon4/power1_input = 45000
         {function}/current_link_width = 8
         {function}/current_link_speed = 8.0 GT/s PCIe
         {function}/max_link_width = 8
         {function}/../max_link_width = 16
         {function}/aer_dev_fatal = TOTAL_ERR_FATAL 0
         {function}/aer_dev_nonfatal = TOTAL_ERR_NONFATAL 0"
    ));
    let of_card = [
        (format!("{fme}/errors/catfatal_errors"), "0", "1", "fpga-errors", "fme-error"),
        (format!("{fme}/errors/fme_errors"), "0x0", "0x8", "fpga-errors", "fme-error"),
        (format!("{fme}/hwmon/hwmon3/temp1_input"), "45000", "100000", "temperature", "temperature"),
        (format!("{fme}/hwmon/hwmon3/temp1_crit_alarm"), "0", "1", "temperature", "temperature"),
        (format!("{function}/aer_dev_fatal"), "TOTAL_ERR_FATAL 0", "TOTAL_ERR_FATAL 1", "pci-aer-fatal", "pci-aer"),
        (format!("{function}/aer_dev_nonfatal"), "X 0", "X 1", "pci-aer-nonfatal", "pci-aer"),
        (format!("{function}/current_link_width"), "8", "4", "pci-link", "link-degraded"),
        (format!("{card}/dfl-port.0/errors/errors"), "0x0", "0x2", "fpga-errors", "port-error"),
    ];
    for mode in [Af, Region, RegionDevel] {
        let found = tree.scan(mode);
        assert_eq!(found.problems, []);
        let mut poller = Poller::new(tree.host(), Arc::new(Fence::new(Duration::from_secs(20))));
        poller.watch(&found.devices, &[]);
        assert_eq!(poller.poll(&PollReason::Anything, &|| {}), []);
        let id = &found.devices[0].id;
        for (file, good, bad, source, reason) in &of_card {
            tree.write(file, bad);
            let seen = (id.clone(), (*source).to_owned(), (*reason).to_owned(), format!("/{file}"));
            assert!(summed_up(poller.poll(&PollReason::Anything, &|| {})).contains(&seen), "{mode:?} {seen:?}");
            tree.write(file, good);
        }
        let events = |(_, _, reason, _): &(_, _, String, _)| reason == "pci-aer";
        let left = summed_up(poller.poll(&PollReason::Anything, &|| {}));
        assert!(left.len() == 2 && left.iter().all(events), "the rest has gone with its cause: {left:?}");
    }
}

#[test]
fn a_root_that_is_reached_by_another_way_is_taken_off_paths() {
    let tree = two_dfl_cards();
    std::os::unix::fs::symlink(tree.path(""), tree.path("again")).unwrap();
    let host = devherd_native::host::Host::new(tree.path("dev/../again"));
    let fence = Fence::new(Duration::from_secs(20));
    let found = IntelFpga::new(Af).scan(&host, &fence);
    assert_eq!(found.problems, []);
    assert!(
        found.devices[0].attributes.values().all(|fact| Path::new(&fact.source).starts_with("/sys/devices/pci0000:81"))
    );
}

#[test]
fn a_class_link_that_dangles_is_named_itself_with_what_it_points_to() {
    for (class, card) in [("fpga", "fpga/intel-fpga-dev.3"), ("fpga_region", "fpga_region/region3")] {
        let tree = two_dfl_cards();
        let name = card.rsplit('/').next().unwrap();
        tree.add(&format!("sys/class/{class}/{name} -> ../../devices/pci0000:99/0000:99:01.0/0000:9a:00.0/{card}"));
        let found = tree.af();
        let target = format!("/sys/devices/pci0000:99/0000:99:01.0/0000:9a:00.0/{card}");
        let expected = (format!("/sys/class/{class}/{name}"), format!("points to {target}, which is not there"));
        let problems: Vec<_> =
            found.problems.iter().map(|it| (it.path.display().to_string(), it.error.clone())).collect();
        assert_eq!(problems, [expected]);
        assert_eq!(found.devices.len(), 2);
    }
}

/// A change of a file or directory of a host.
#[derive(Debug, Clone, Copy)]
enum Happens {
    Written(&'static str),
    Replaced(&'static str),
    Removed,
    MadeAnew,
    /// A link or a file of this name, in a directory.
    Joined(&'static str),
}

fn happens() -> impl Strategy<Value = Happens> {
    let text =
        || prop_oneof![Just("0"), Just("1"), Just(A1), Just(A2), Just(ZEROS), Just("garbage"), Just("DRIVER=other")];
    prop_oneof![
        text().prop_map(Happens::Written),
        text().prop_map(Happens::Replaced),
        Just(Happens::Removed),
        Just(Happens::MadeAnew),
        prop_oneof![Just("physfn"), Just("region9"), Just("temp1_crit")].prop_map(Happens::Joined),
    ]
}

/// Every file, link and directory below a directory, as the tree names them.
fn everything_below(tree: &Tree, below: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(tree.path(below)).unwrap().flatten() {
        let path = format!("{below}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            found.extend(everything_below(tree, &path));
        }
        found.push(path);
    }
    found.sort();
    found
}

fn make_happen(tree: &Tree, path: &str, what: Happens) {
    let whole = tree.path(path);
    match what {
        Happens::Written(text) if whole.is_file() => std::fs::write(whole, text).unwrap(),
        Happens::Replaced(text) if !whole.is_dir() => {
            tree.write("new", text);
            std::fs::rename(tree.path("new"), whole).unwrap();
        }
        Happens::MadeAnew if whole.is_dir() && !whole.is_symlink() => {
            std::fs::rename(&whole, tree.path("old")).unwrap();
            std::fs::create_dir(&whole).unwrap();
            for entry in std::fs::read_dir(tree.path("old")).unwrap().flatten() {
                std::fs::rename(entry.path(), whole.join(entry.file_name())).unwrap();
            }
            tree.remove("old");
        }
        Happens::Joined(name) if whole.is_dir() && !whole.join(name).is_symlink() => match name {
            "temp1_crit" => tree.write(&format!("{path}/{name}"), "90000"),
            _ => symlink(tree.path(function("0000:43:00.0")), whole.join(name)).unwrap(),
        },
        _ => tree.remove(path),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The reference is a scan by a new scanner.
    #[test]
    fn a_scan_that_remembers_cards_finds_what_one_without_memory_finds_whatever_happens(
        is_region_mode: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), happens(), any::<bool>()), 1..8),
    ) {
        let tree = two_dfl_cards();
        tree.add(&pci("0000:43:00.0", 0));
        tree.add(&opae("0000:43:00.0", 0, Some(7), &[(5, A1), (6, A2)]));
        let errors = format!("{}/fpga_region/region0/dfl-fme.0", function("0000:81:00.0"));
        tree.add(&format!("{errors}/errors/fme_errors = 0x0\n{errors}/hwmon/hwmon0/temp1_emergency = 100000"));
        let mode = if is_region_mode { Region } else { Af };
        let (host, fence) = (tree.host(), Fence::new(Duration::from_secs(20)));
        let remembering = IntelFpga::new(mode);
        for (which, what, comes_soon) in changes {
            for _ in 0..2 {
                if !comes_soon {
                    // Long enough for the reads to be cached.
                    std::thread::sleep(Duration::from_millis(25));
                }
                prop_assert_eq!(remembering.scan(&host, &fence), tree.scan(mode));
            }
            let all = everything_below(&tree, "sys");
            if all.is_empty() {
                break;
            }
            let path = which.get(&all);
            make_happen(&tree, path, what);
            prop_assert_eq!(remembering.scan(&host, &fence), tree.scan(mode), "{:?} {}", what, path);
        }
    }
}
