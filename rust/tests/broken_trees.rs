//! No tree, however broken, crashes a scan, hangs it, or costs a healthy card.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it fails")]

mod settings;
mod tree;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use devherd_native::device::Device;
use devherd_native::health::{Look, PollReason};
use devherd_native::host::Host;
use devherd_native::scan::{Scan, Scanner};
use devherd_native::settings::Settings;
use devherd_native::vendors::intel_fpga::IntelFpgaMode::{Af, Region, RegionDevel};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tree::{A1, A2, Tree, dfl, opae, pci, virtual_to};

/// Far longer than any scan of these trees takes, far shorter than a hang.
const HANG: Duration = Duration::from_secs(15);

const HEALTHY: [&str; 2] = ["dfl-port.7", "dfl-fme.7"];

/// Python's defaults with these generic devices.
fn generic(members: &[Value]) -> Settings {
    changed(&json!({"vendors": {"generic": [settings::generic("a.example/x", members)]}}))
}

fn changed(change: &Value) -> Settings {
    Settings::from_json(&settings::json(change)).unwrap()
}

/// A change of a file, a directory or a link.
#[derive(Debug, Clone)]
enum Damage {
    Missing,
    Empty,
    Content(Vec<u8>),
    Huge,
    Directory,
    Loop,
    Dangling,
    Fifo,
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        Just(Damage::Missing),
        Just(Damage::Empty),
        proptest::collection::vec(any::<u8>(), 0..200).prop_map(Damage::Content),
        "[0-9a-fx:. \n-]{0,40}".prop_map(|text| Damage::Content(text.into_bytes())),
        Just(Damage::Huge),
        Just(Damage::Directory),
        Just(Damage::Loop),
        Just(Damage::Dangling),
        Just(Damage::Fifo),
    ]
}

fn inflict(path: &Path, damage: &Damage) {
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    let removed = if metadata.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.unwrap();
    match damage {
        Damage::Missing => {}
        Damage::Empty => fs::write(path, "").unwrap(),
        Damage::Content(bytes) => fs::write(path, bytes).unwrap(),
        Damage::Huge => fs::write(path, vec![b'0'; 1 << 20]).unwrap(),
        Damage::Directory => fs::create_dir(path).unwrap(),
        Damage::Loop => symlink(path.file_name().unwrap(), path).unwrap(),
        Damage::Dangling => symlink("/does/not/exist", path).unwrap(),
        Damage::Fifo => mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap(),
    }
}

/// Cards of both drivers with virtual functions, errors and sensors, for damage; and one card that stays untouched.
fn tree() -> Tree {
    let tree = Tree::new(&(pci("0000:81:00.0", 1) + &dfl("0000:81:00.0", 0, 0, &[(0, A1), (1, A2)])));
    tree.add(&(pci("0000:42:00.0", 0) + &opae("0000:42:00.0", 1, Some(1), &[(1, A2)])));
    tree.add(&(pci("0000:42:00.1", 0) + &opae("0000:42:00.1", 2, None, &[(2, A1)])));
    tree.add(&virtual_to("0000:42:00.1", "0000:42:00.0"));
    let card = format!("{}/fpga_region/region0", tree::function("0000:81:00.0"));
    tree.add(&format!("{card}/dfl-port.0/errors/errors = 0x0\n{card}/dfl-fme.0/errors/fme_errors = 0x0"));
    tree.add(&format!(
        "{card}/dfl-fme.0/hwmon/hwmon0/temp1_crit = 90000\n{card}/dfl-fme.0/hwmon/hwmon0/temp1_input = 4"
    ));
    tree.add(&(pci("0000:17:00.0", 0) + &dfl("0000:17:00.0", 7, 7, &[(7, A1)])));
    tree
}

/// Every path of the tree that is neither part of the healthy card nor on the way to it.
fn victims(tree: &Tree) -> Vec<PathBuf> {
    let mut above = vec![tree.path("sys"), tree.path("dev")];
    let mut victims = Vec::new();
    while let Some(directory) = above.pop() {
        let mut entries: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let on_the_way =
                ["devices", "class", "fpga_region"].iter().any(|name| path.ends_with(Path::new("sys").join(name)));
            let on_the_way = on_the_way || path.ends_with("sys/class/fpga_region");
            let healthy = ["0000:17", "region7", "region107", "dfl-port.7", "dfl-fme.7"];
            let healthy = healthy.iter().any(|name| path.to_string_lossy().contains(name));
            if path.is_dir() && !path.is_symlink() {
                above.push(path.clone());
            }
            if !on_the_way && !healthy {
                victims.push(path);
            }
        }
    }
    victims
}

/// The untouched card's devices, in every mode.
fn healthy_devices(tree: &Tree) -> Vec<Arc<Device>> {
    let scans = [Af, Region, RegionDevel].map(|mode| tree.scan(mode).devices);
    scans.into_iter().flatten().filter(|device| HEALTHY.contains(&device.id.as_str())).collect()
}

fn scan(scanner: &mut Scanner) -> Arc<Scan> {
    scanner.scan(&|| {})
}

fn poll(scanner: &Scanner, scan: &Scan) -> Vec<Look> {
    let mut poller = scanner.poller();
    poller.watch(&scan.devices, &[]);
    poller.poll(&PollReason::Anything, &|| {})
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn damage_anywhere_costs_no_healthy_card(
        wounds in proptest::collection::vec((any::<prop::sample::Index>(), damage()), 1..6)
    ) {
        let tree = tree();
        let before = healthy_devices(&tree);
        prop_assert_eq!(before.len(), 3);
        let victims = victims(&tree);
        for (index, damage) in &wounds {
            inflict(&victims[index.index(victims.len())], damage);
        }
        let start = Instant::now();
        prop_assert_eq!(healthy_devices(&tree), before);
        let mut scanner = Scanner::new(tree.host(), &changed(&json!({})));
        let first = scan(&mut scanner);
        prop_assert!(first.changed);
        poll(&scanner, &first);
        prop_assert!(!scan(&mut scanner).changed, "an unchanged tree must not look changed");
        prop_assert!(start.elapsed() < HANG);
    }
}

#[test]
fn files_that_come_and_go_during_the_scan_cost_no_healthy_card() {
    let tree = tree();
    let before = healthy_devices(&tree);
    let (card, away) = (tree.path(tree::function("0000:81:00.0")), tree.path("away"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::rename(&card, &away).unwrap();
                fs::rename(&away, &card).unwrap();
            }
        });
        for _ in 0..100 {
            let after = healthy_devices(&tree);
            done.store(after != before, Ordering::Relaxed);
            if after != before {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(healthy_devices(&tree), before);
}

#[test]
fn a_host_root_that_is_not_there_or_no_directory_is_an_empty_host() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), "").unwrap();
    for path in ["missing", "file"] {
        let mut scanner = Scanner::new(Host::new(root.path().join(path)), &changed(&json!({})));
        let found = scan(&mut scanner);
        assert_eq!(found.devices, []);
        assert_eq!(scanner.watched_directories(), Vec::<PathBuf>::new());
        assert_eq!(poll(&scanner, &found), []);
    }
}

#[test]
fn the_directory_above_tells_of_one_that_is_made_later() {
    let root = tempfile::tempdir().unwrap();
    let path = settings::member("/run/late/*.sock", &json!({}));
    let scanner = Scanner::new(Host::new(root.path()), &generic(&[path]));
    let watched = |name: &str| scanner.watched_directories().contains(&root.path().join(name));
    assert!(watched(""));
    fs::create_dir_all(root.path().join("run")).unwrap();
    assert!(watched("run") && !watched("run/late"));
    fs::create_dir_all(root.path().join("run/late")).unwrap();
    assert!(watched("run/late") && !watched("run"));
}

#[test]
fn nothing_in_sysfs_or_procfs_is_watched() {
    let root = tempfile::tempdir().unwrap();
    for directory in ["dev", "sys/class/tty", "proc/bus"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    let paths = ["/sys/class/tty/*", "/proc/bus/*"].map(|path| settings::member(path, &json!({})));
    let scanner = Scanner::new(Host::new(root.path()), &generic(&paths));
    assert_eq!(scanner.watched_directories(), [root.path().join("dev")]);
}
