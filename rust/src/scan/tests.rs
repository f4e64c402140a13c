use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use serde_json::json;

use super::*;
use crate::health::sources::scan;
use crate::host::read_log::counting::counted;
use crate::settings::made;
use crate::vendors::testing;

const TIMEOUT: Duration = Duration::from_secs(1);

/// What the vendor of these tests does at its first scan: cards that hang until the gate opens, or worse.
enum Does {
    CardsHang(usize),
    ListingHangs,
    Panics,
    Works,
}

struct Rigged {
    name: &'static str,
    does: Does,
    gate: Arc<Mutex<Receiver<()>>>,
}

fn wait(gate: &Mutex<Receiver<()>>) {
    let _ = gate.lock().unwrap_or_else(PoisonError::into_inner).recv();
}

impl Vendor for Rigged {
    fn name(&self) -> &'static str {
        self.name
    }

    fn scan(&self, _host: &Host, fence: &Fence) -> Found {
        let mut found = Found::default();
        match self.does {
            Does::CardsHang(cards) => {
                let (gate, name) = (Arc::clone(&self.gate), self.name);
                let cards: Vec<_> = (0..cards).map(|card| format!("{name}.{card}")).collect();
                for (card, outcome) in cards.iter().zip(fence.each(cards.clone(), String::clone, move |_| wait(&gate)))
                {
                    assert_eq!(outcome, Outcome::Overdue);
                    let finding = Some(scan::probe_timeout(TIMEOUT, card));
                    found.unseen.push(NotExamined { vendor: name, class: None, card: Some(card.clone()), finding });
                }
            }
            Does::ListingHangs => wait(&self.gate),
            Does::Panics => panic!("nobody expects this"),
            Does::Works => {}
        }
        found.devices.push(Device { vendor: self.name.into(), id: self.name.to_owned(), ..Device::default() }.into());
        found
    }
}

fn scanner(rigged: Vec<(&'static str, Does)>) -> (Scanner, Sender<()>) {
    let (sender, receiver) = channel();
    let gate = Arc::new(Mutex::new(receiver));
    let settings = Settings { probe_timeout: TIMEOUT, ..made(&json!({})) };
    let mut scanner = Scanner::new(Host::new("/nonexistent"), &settings);
    let vendor = |(name, does)| -> Arc<dyn Vendor> { Arc::new(Rigged { name, does, gate: Arc::clone(&gate) }) };
    scanner.vendors = rigged.into_iter().map(vendor).collect();
    (scanner, sender)
}

#[test]
fn hung_cards_of_several_vendors_are_waited_for_together_and_the_heart_beats_meanwhile() {
    let names = ["one", "two", "three", "four", "five", "six"];
    let mut rigged: Vec<_> = names.iter().map(|&name| (name, Does::CardsHang(2))).collect();
    rigged.push(("well", Does::Works));
    let (mut scanner, gate) = scanner(rigged);
    let beats = Cell::new(0);
    let scan = scanner.scan(&|| beats.set(beats.get() + 1));
    assert!(scan.duration < TIMEOUT * 4, "one after another they take {:?}: {:?}", TIMEOUT * 6, scan.duration);
    assert!(beats.get() >= 1);
    assert_eq!(scan.unseen.len(), 12);
    assert_eq!(scan.devices.iter().map(|device| device.id.as_str()).collect::<Vec<_>>(), scan.vendors);
    let again = scanner.scan(&|| {});
    assert!(again.duration < TIMEOUT, "waited again for what is known to hang: {:?}", again.duration);
    assert!(!again.changed);
    drop(gate);
}

#[test]
fn a_vendor_that_breaks_or_hangs_as_a_whole_costs_no_other_anything() {
    let (mut scanner, gate) =
        scanner(vec![("hangs", Does::ListingHangs), ("breaks", Does::Panics), ("well", Does::Works)]);
    let scan = scanner.scan(&|| {});
    assert_eq!(scan.devices.iter().map(|device| device.id.as_str()).collect::<Vec<_>>(), ["well"]);
    let unseen = |vendor| NotExamined::new(vendor, None);
    assert_eq!(scan.unseen, [unseen("hangs"), unseen("breaks")]);
    assert_eq!(scan.problems[0].error, OVERDUE);
    assert!(scan.problems[1].error.contains("nobody expects this"));
    drop(gate);
}

/// A scanner of the files d* in a directory of the root, as generic devices.
fn generic(root: &Path, pattern: &str) -> Scanner {
    Scanner::new(Host::simulated(root), &generic_settings(pattern))
}

fn generic_settings(pattern: &str) -> Settings {
    let resource = testing::generic("example.com/x", &[testing::member(pattern, &json!({}))]);
    made(&json!({"simulated_host": true, "vendors": {"generic": [resource]}}))
}

/// A root with /many/d0 and d1.
fn filled_root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("many")).unwrap();
    for name in ["d0", "d1"] {
        std::fs::write(root.path().join("many").join(name), "").unwrap();
    }
    root
}

fn paths(scan: &Scan) -> Vec<String> {
    let mut paths: Vec<_> = scan.devices.iter().filter_map(|device| device.text("path")).collect();
    paths.sort_unstable();
    paths
}

#[test]
fn devices_that_are_as_they_were_are_the_same_objects() {
    let root = filled_root();
    let mut scanner = generic(root.path(), "/many/d*");
    let first = scanner.scan(&|| {});
    assert_eq!(paths(&first), ["/many/d0", "/many/d1"]);
    let again = scanner.scan(&|| {});
    assert!(!again.changed && first.devices.iter().zip(&again.devices).all(|(one, other)| Arc::ptr_eq(one, other)));
    std::fs::write(root.path().join("many/d2"), "").unwrap();
    std::fs::remove_file(root.path().join("many/d0")).unwrap();
    let third = scanner.scan(&|| {});
    assert!(third.changed);
    assert_eq!(paths(&third), ["/many/d1", "/many/d2"]);
    let is_known = |device: &Arc<Device>| first.devices.iter().any(|known| Arc::ptr_eq(known, device));
    assert_eq!(third.devices.iter().filter(|device| is_known(device)).count(), 1);
}

#[test]
fn a_node_made_in_the_place_of_another_is_looked_at() {
    let root = filled_root();
    let mut scanner = generic(root.path(), "/many/d0");
    assert_eq!(scanner.scan(&|| {}).problems, []);
    std::fs::remove_file(root.path().join("many/d0")).unwrap();
    let path = root.path().join("many/d0");
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    assert!(scanner.scan(&|| {}).problems[0].error.contains("is not a device node"));
}

#[test]
fn what_other_options_ask_for_is_looked_at_though_the_host_looks_the_same() {
    let root = filled_root();
    let unmatched = |scan: &Scan| scan.problems.iter().map(|problem| problem.path.clone()).collect::<Vec<_>>();
    let mut scanner = generic(root.path(), "/many/x*");
    assert_eq!(unmatched(&scanner.scan(&|| {})), [Path::new("/many/x*")]);
    scanner.reconfigure(&generic_settings("/many/y*"));
    assert_eq!(unmatched(&scanner.scan(&|| {})), [Path::new("/many/y*")]);
}

const BRIDGE: &str = "sys/devices/pci0000:80/0000:80:01.0";
const CARD: &str = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0";
const REGION: &str = "fpga_region/region0";

/// A root with an FPGA card of the driver dfl-pci, below a bridge.
fn root_with_a_card() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: String, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for (function, class, id) in [(BRIDGE, "060400", "352A"), (CARD, "120000", "0B30")] {
        write(format!("{function}/class"), &format!("0x{class}\n"));
        write(format!("{function}/vendor"), "0x8086\n");
        write(format!("{function}/device"), &format!("0x{}\n", id.to_lowercase()));
        write(format!("{function}/numa_node"), "0\n");
        write(format!("{function}/uevent"), &format!("DRIVER=dfl-pci\nPCI_CLASS={class}\nPCI_ID=8086:{id}\n"));
    }
    let engine = format!("{CARD}/{REGION}/dfl-fme.0");
    let of_port = format!("{engine}/dfl-fme-region.1/fpga_region/region1");
    for (path, text) in [
        (format!("{of_port}/compat_id"), "69528db6eb31577a8c3668f9faa081f6\n"),
        (format!("{engine}/bitstream_id"), "0x23000110010309\n"),
        (format!("{engine}/errors/fme_errors"), "0x0\n"),
        (format!("{engine}/dfl-fme-mgr.0/fpga_manager/fpga0/state"), "operating\n"),
        (format!("{CARD}/{REGION}/dfl-port.0/afu_id"), "d8424dc4a4a3c413f89e433683f9040b\n"),
        (format!("{CARD}/{REGION}/dfl-port.0/id"), "0\n"),
        (format!("{CARD}/{REGION}/dfl-port.0/dev"), "244:0\n"),
        ("sys/bus/pci/drivers/dfl-pci/bind".to_owned(), ""),
    ] {
        write(path, text);
    }
    for (link, target) in [
        ("sys/bus/pci/devices/0000:80:01.0", BRIDGE.replace("sys/", "../../../")),
        ("sys/bus/pci/devices/0000:81:00.0", CARD.replace("sys/", "../../../")),
        (&format!("{CARD}/driver"), "../../../../bus/pci/drivers/dfl-pci".to_owned()),
        ("sys/class/fpga_region/region0", format!("{CARD}/{REGION}").replace("sys/", "../../")),
        ("sys/class/fpga_region/region1", of_port.replace("sys/", "../../")),
    ] {
        let link = root.path().join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, link).unwrap();
    }
    root
}

#[test]
fn a_first_scan_reads_no_file_of_a_card_twice_and_of_a_bridge_its_class_alone() {
    let root = root_with_a_card();
    let root = root.path().canonicalize().unwrap();
    let mut scanner = Scanner::new(Host::simulated(&root), &made(&json!({})));
    scanner.vendors.retain(|vendor| vendor.name() == "intel-fpga");
    let mut found = None;
    let mut counts = counted(&root, || found = Some(scanner.scan(&|| {})));
    counts.retain(|path, _| path.starts_with(root.join(BRIDGE)));
    let found = found.unwrap();
    let device = found.devices.first().unwrap();
    assert_eq!(
        (&*device.id, found.problems.len(), found.driverless.len()),
        ("dfl-port.0", 0, 0),
        "{:?}",
        found.problems
    );
    let own = |path: &str| root.join(CARD).join(path);
    let readings: Vec<_> =
        device.readings.iter().map(|reading| root.join(reading.attribute.strip_prefix("/").unwrap())).collect();
    let state = own(REGION).join("dfl-fme.0/dfl-fme-mgr.0/fpga_manager/fpga0/state");
    assert!(readings.contains(&state), "{readings:?}");
    let (of_card, of_bridge): (Vec<_>, Vec<_>) = counts.iter().partition(|(path, _)| path.starts_with(own("")));
    assert!(of_card.len() > 10, "{of_card:?}");
    let twice: Vec<_> = of_card.iter().filter(|(_, reads)| **reads > 1).map(|(path, _)| path.as_path()).collect();
    assert_eq!(twice, [own("physfn")], "once to know which card it belongs to");
    assert_eq!(of_bridge, [(&root.join(BRIDGE).join("class"), &1)]);
    for attribute in ["vendor", "device", "class"] {
        assert!(!counts.contains_key(&own(attribute)), "{attribute}");
    }
}

#[test]
fn a_scan_says_that_a_port_can_be_programmed_without_an_event() {
    let root = root_with_a_card();
    let root = root.path().canonicalize().unwrap();
    let mut scanner = Scanner::new(Host::simulated(&root), &made(&json!({})));
    assert!(scanner.scan(&|| {}).changes_in_silence);
    std::fs::write(root.join(CARD).join(REGION).join("dfl-port.0/afu_id"), format!("{:032x}\n", 7)).unwrap();
    assert!(scanner.scan(&|| {}).changed);
    std::fs::remove_dir_all(root.join("sys")).unwrap();
    assert!(!scanner.scan(&|| {}).changes_in_silence);
}
