use std::fs::{create_dir_all, remove_file, write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use super::{GenericKind, GenericPath, GenericUsb};
use crate::device::{Fact, HostPath};
use crate::edits::{Mount, Node};
use crate::health::{Look, PollReason, Poller};
use crate::vendors::testing;

/// A simulated host.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn host(&self) -> Host {
        Host::simulated(self.0.path())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        create_dir_all(self.path(name).parent().unwrap()).unwrap();
        write(self.path(name), text).unwrap();
    }

    fn nodes(&self, names: &[&str]) {
        for name in names {
            self.file(&format!("dev/{name}"), "");
        }
    }

    fn stick(&self, name: &str, number: u32, serial: &str) {
        let directory = format!("sys/bus/usb/devices/{name}");
        for (attribute, text) in [
            ("idVendor", "1a86"),
            ("idProduct", "7523"),
            ("busnum", "1"),
            ("devnum", &number.to_string()),
            ("serial", serial),
        ] {
            self.file(&format!("{directory}/{attribute}"), &format!("{text}\n"));
        }
        self.nodes(&[&format!("bus/usb/001/{number:03}")]);
    }

    fn scan(&self, groups: Vec<GenericGroup>) -> Found {
        self.scan_resources(vec![GenericDevice { name: "example.com/x".into(), groups }])
    }

    fn scan_resources(&self, resources: Vec<GenericDevice>) -> Found {
        Generic::new(resources).scan(&self.host(), &Fence::new(Duration::from_secs(10)))
    }
}

fn path(path: &str) -> GenericPath {
    serde_json::from_value(testing::member(path, &json!({}))).unwrap()
}

fn group(count: u32, paths: Vec<GenericPath>) -> GenericGroup {
    GenericGroup { count, paths, usb: Vec::new(), separate: false }
}

fn usb_group(count: u32, serials: &[Option<&str>]) -> GenericGroup {
    let entry = |serial: Option<&str>| GenericUsb {
        vendor: "1a86".into(),
        product: "7523".into(),
        serial: serial.map(str::to_owned),
    };
    GenericGroup { count, paths: Vec::new(), usb: serials.iter().copied().map(entry).collect(), separate: false }
}

/// The path of each of these devices, and the files that a poll finds missing.
fn missing(host: Host, devices: &[Arc<Device>]) -> Vec<(String, Vec<String>)> {
    let mut poller = Poller::new(host, Arc::new(Fence::new(Duration::from_secs(10))));
    poller.watch(devices, &[]);
    let path = |id: &str| devices.iter().find(|device| device.id == id).and_then(|device| device.text("path"));
    let files = |look: Look| {
        assert!(look.findings.iter().all(|finding| finding.reason == "node-missing"), "{look:?}");
        look.findings.into_iter().map(|finding| finding.file).collect()
    };
    poller
        .poll(&PollReason::Anything, &|| {})
        .into_iter()
        .map(|look| (path(&look.id).unwrap_or_default(), files(look)))
        .collect()
}

/// The paths of each device, sorted.
fn paths_of(found: &Found) -> Vec<String> {
    let of_ids =
        found.devices.iter().flat_map(|device| vec![device.text("path").unwrap_or_default(); device.ids().len()]);
    let mut paths: Vec<String> = of_ids.collect();
    paths.sort();
    paths
}

#[test]
fn a_device_is_described_whole() {
    let tree = Tree::new();
    tree.nodes(&["video0"]);
    tree.file("run/x.sock", "");
    let camera = GenericPath { mount_path: "/dev/cameras/".into(), permissions: "rw".into(), ..path("/dev/video*") };
    let socket = GenericPath { kind: GenericKind::Mount, read_only: true, ..path("/run/x.sock") };
    let expected = Device {
        vendor: "generic".into(),
        card: "example.com/x group 0".into(),
        id: id_of(0, &["/dev/video0", "/run/x.sock"]),
        resource_name: Some("example.com/x".into()),
        paths: vec![
            HostPath::node("/dev/video0", None).in_role("/dev/video*"),
            HostPath::file("/run/x.sock").in_role("/run/x.sock").required(true),
        ],
        attributes: [
            ("path".into(), Fact { value: "/dev/video0,/run/x.sock".into(), source: "/dev/video*,/run/x.sock".into() }),
            ("group".into(), Fact { value: 0_u32.into(), source: String::new() }),
        ]
        .into(),
        ..Device::default()
    };
    let groups = vec![group(1, vec![camera, socket])];
    let edits = container_edits(&expected, &groups[0]);
    assert_eq!(tree.scan(groups), Found { devices: vec![expected.into()], ..Found::default() });
    let node = Node { container_path: "/dev/cameras/video0".into(), ..Node::same("/dev/video0", "rw") };
    assert_eq!(edits, Edits { nodes: vec![node], mounts: vec![Mount::same("/run/x.sock")], ..Edits::default() });
}

#[test]
fn members_with_one_pattern_are_given_each_in_its_own_way() {
    let tree = Tree::new();
    tree.nodes(&["a"]);
    let device = GenericPath { permissions: "r".into(), ..path("/dev/a") };
    let mount = GenericPath { kind: GenericKind::Mount, mount_path: "/b".into(), ..path("/dev/a") };
    let group = group(1, vec![device, mount]);
    let found = tree.scan(vec![group.clone()]);
    let edits = container_edits(&found.devices[0], &group);
    assert_eq!(edits.nodes, [Node::same("/dev/a", "r")]);
    assert_eq!((edits.mounts.len(), edits.mounts[0].container_path.as_str()), (1, "/b"));
}

#[test]
fn every_match_is_a_device_with_as_many_ids_as_the_count() {
    let tree = Tree::new();
    tree.nodes(&["ttyUSB0", "ttyUSB1", "ttyACM0"]);
    let found = tree.scan(vec![group(2, vec![path("/dev/ttyUSB*")]), group(1, vec![path("/dev/ttyACM*")])]);
    assert_eq!(paths_of(&found), ["/dev/ttyACM0", "/dev/ttyUSB0", "/dev/ttyUSB0", "/dev/ttyUSB1", "/dev/ttyUSB1"]);
    assert!(found.devices.iter().any(|device| device.ids().contains(&id_of(1, &["/dev/ttyUSB1"]))));
}

#[test]
fn members_are_combined_one_by_one_and_again_up_to_their_limit() {
    let tree = Tree::new();
    tree.nodes(&["a0", "a1", "a2", "b0", "b1"]);
    let twice = GenericPath { limit: 2, ..path("/dev/b*") };
    let found = tree.scan(vec![group(1, vec![path("/dev/a*"), twice])]);
    assert_eq!(paths_of(&found), ["/dev/a0,/dev/b0", "/dev/a1,/dev/b1", "/dev/a2,/dev/b0"]);
}

#[test]
fn a_missing_member_is_left_out_when_optional_and_costs_the_group_when_not() {
    let tree = Tree::new();
    tree.nodes(&["fuse"]);
    let optional = || GenericPath { optional: true, ..path("/dev/missing") };
    assert_eq!(paths_of(&tree.scan(vec![group(1, vec![path("/dev/fuse"), optional()])])), ["/dev/fuse"]);
    assert_eq!(tree.scan(vec![group(1, vec![path("/dev/fuse"), path("/dev/missing")])]).devices, []);
    assert_eq!(tree.scan(vec![group(1, vec![optional()])]), Found::default());
}

#[test]
fn a_resource_of_which_nothing_matches_is_a_problem_that_names_it_and_its_patterns() {
    let tree = Tree::new();
    tree.nodes(&["fuse"]);
    tree.stick("1-1", 1, "A");
    let optional = GenericPath { optional: true, ..path("/dev/optional") };
    let resource = |name: &str, groups| GenericDevice { name: name.into(), groups };
    let found = tree.scan_resources(vec![
        resource("a.example/none", vec![group(1, vec![path("/dev/x*"), path("/dev/fuse"), optional])]),
        resource("a.example/none", vec![group(1, vec![path("/dev/y")]), group(2, vec![path("/dev/x*")])]),
        resource("b.example/sticks", vec![usb_group(1, &[Some("B"), Some("C")])]),
        resource("c.example/some", vec![group(1, vec![path("/dev/x*")]), group(1, vec![path("/dev/fuse")])]),
        resource("d.example/stick", vec![usb_group(1, &[Some("A"), Some("B")])]),
    ]);
    let reported: Vec<_> =
        found.problems.iter().map(|problem| (problem.path.to_str().unwrap(), problem.error.as_str())).collect();
    assert_eq!(
        reported,
        [
            ("/dev/x*,/dev/y", "no device matches; a.example/none is not advertised"),
            ("USB 1a86:7523 serial B,USB 1a86:7523 serial C", "no device matches; b.example/sticks is not advertised"),
        ]
    );
}

#[test]
fn a_path_that_is_not_a_node_is_unhealthy_and_costs_no_other() {
    let tree = Tree::new();
    tree.nodes(&["tty0", "tty1"]);
    symlink("nowhere", tree.path("dev/tty2")).unwrap();
    symlink("/dev/tty0", tree.path("dev/tty3")).unwrap();
    create_dir_all(tree.path("dev/tty4")).unwrap();
    let groups = vec![group(1, vec![path("/dev/tty*")])];
    let generic = Generic::new(vec![GenericDevice { name: "example.com/x".into(), groups }]);
    let found = generic.scan(&Host::new(tree.0.path()), &Fence::new(Duration::from_secs(10)));
    let mut missing: Vec<_> = missing(Host::new(tree.0.path()), &found.devices).into_iter().collect();
    missing.sort_unstable();
    let each = |name: &str| (format!("/dev/{name}"), vec![format!("/dev/{name}")]);
    assert_eq!(missing, ["tty0", "tty1", "tty2", "tty3"].map(each), "tty4 is a directory of nodes");
    assert_eq!(found.devices.len(), 5);
    let blamed: Vec<_> = found.problems.iter().map(|problem| problem.path.as_path()).collect();
    assert_eq!(blamed, ["/dev/tty0", "/dev/tty1", "/dev/tty3"].map(Path::new));
}

#[test]
fn real_nodes_are_devices_on_the_real_host() {
    let resources =
        vec![GenericDevice { name: "example.com/null".into(), groups: vec![group(3, vec![path("/dev/null")])] }];
    let found = Generic::new(resources).scan(&Host::new("/"), &Fence::new(Duration::from_secs(10)));
    assert_eq!(paths_of(&found), ["/dev/null"; 3]);
    assert!(found.devices.iter().all(|device| device.findings.is_empty() && device.numa_nodes.is_empty()));
    assert_eq!(missing(Host::new("/"), &found.devices), []);
}

#[test]
fn the_same_paths_twice_in_a_resource_are_a_problem_of_the_later_group() {
    let tree = Tree::new();
    tree.nodes(&["kvm", "fuse"]);
    let resource = |name: &str, paths: &[&str]| GenericDevice {
        name: name.into(),
        groups: paths.iter().map(|name| group(3, vec![path(name)])).collect(),
    };
    let found = tree.scan_resources(vec![
        resource("a.example/x", &["/dev/kvm", "/dev/fuse", "/dev/k*"]),
        resource("a.example/x", &["/dev/fuse"]),
    ]);
    assert_eq!(paths_of(&found), ["/dev/fuse", "/dev/fuse", "/dev/fuse", "/dev/kvm", "/dev/kvm", "/dev/kvm"]);
    let reported: Vec<_> =
        found.problems.iter().map(|problem| (problem.path.to_str().unwrap(), problem.error.as_str())).collect();
    assert_eq!(
        reported,
        [
            (
                "/dev/kvm",
                "left out of a.example/x group 2: the same paths, and so the same id, are in a.example/x group 0"
            ),
            (
                "/dev/fuse",
                "left out of a.example/x group 3: the same paths, and so the same id, are in a.example/x group 1"
            ),
        ]
    );
}

#[test]
fn two_resources_may_have_the_same_paths() {
    let tree = Tree::new();
    tree.nodes(&["fuse"]);
    let resource = |name: &str| GenericDevice { name: name.into(), groups: vec![group(1, vec![path("/dev/fuse")])] };
    let found = tree.scan_resources(vec![resource("squat.ai/fuse"), resource("devic.es/fuse")]);
    let reported: Vec<_> = found.devices.iter().map(|device| (device.id.as_str(), device.card.as_str())).collect();
    assert_eq!(reported.len(), 2);
    assert_eq!(reported[0].0, reported[1].0);
    assert_ne!(reported[0].1, reported[1].1);
    assert_eq!(found.problems, []);
}

#[test]
fn a_pattern_without_sense_is_a_problem_and_costs_no_other_group() {
    let tree = Tree::new();
    tree.nodes(&["kvm"]);
    let found = tree.scan(vec![group(1, vec![path("/dev/[")]), group(1, vec![path("/dev/kvm")])]);
    assert_eq!(paths_of(&found), ["/dev/kvm"]);
    assert_eq!(found.problems.len(), 1);
}

#[test]
fn all_sticks_of_a_group_are_one_device_ordered_by_bus_and_number() {
    let tree = Tree::new();
    tree.stick("1-2", 9, "A");
    tree.stick("1-1", 10, "B");
    let found = tree.scan(vec![usb_group(2, &[None]), usb_group(1, &[Some("B")]), usb_group(1, &[Some("C")])]);
    let (first, both) = ("/dev/bus/usb/001/009,/dev/bus/usb/001/010", ["/dev/bus/usb/001/009", "/dev/bus/usb/001/010"]);
    assert_eq!(paths_of(&found), [first, first, both[1]]);
    let device = found.devices.iter().find(|device| device.ids().contains(&id_of(1, &both))).unwrap();
    assert_eq!(device.text("usb_id").unwrap(), "1a86:7523,1a86:7523");
    assert_eq!(device.text("serial").unwrap(), "A,B");
    assert_eq!(device.attributes["usb_id"].source, "/sys/bus/usb/devices/1-2,/sys/bus/usb/devices/1-1");
    let edits = container_edits(device, &usb_group(2, &[None]));
    assert_eq!(edits.nodes, both.map(|node| Node::same(node, "rw")));
    assert_eq!((device.paths.len(), device.findings.len()), (2, 0));
    assert_eq!(missing(tree.host(), &found.devices), []);
}

#[test]
fn a_stick_without_its_node_is_unhealthy() {
    let tree = Tree::new();
    tree.stick("1-2", 9, "A");
    remove_file(tree.path("dev/bus/usb/001/009")).unwrap();
    let found = tree.scan(vec![usb_group(1, &[None])]);
    let node = "/dev/bus/usb/001/009".to_owned();
    assert_eq!(missing(tree.host(), &found.devices), [(node.clone(), vec![node])]);
}

#[test]
fn an_unreadable_stick_is_a_problem_and_costs_no_other() {
    let tree = Tree::new();
    tree.stick("1-1", 1, "A");
    tree.stick("1-2", 2, "B");
    tree.file("sys/bus/usb/devices/1-1/devnum", "x");
    let found = tree.scan(vec![usb_group(1, &[None]), usb_group(1, &[Some("B")])]);
    assert_eq!(paths_of(&found), ["/dev/bus/usb/001/002"]);
    let blamed: Vec<_> = found.problems.iter().map(|problem| problem.path.to_str().unwrap()).collect();
    assert_eq!(blamed, ["/sys/bus/usb/devices/1-1/devnum", "/dev/bus/usb/001/002"]);
}

#[test]
fn a_bus_that_cannot_be_listed_leaves_its_groups_as_they_were() {
    let tree = Tree::new();
    create_dir_all(tree.path("sys/bus/usb")).unwrap();
    symlink("devices", tree.path("sys/bus/usb/devices")).unwrap();
    tree.nodes(&["kvm"]);
    let found = tree.scan(vec![usb_group(1, &[None]), group(1, vec![path("/dev/kvm")])]);
    assert_eq!(paths_of(&found), ["/dev/kvm"]);
    assert_eq!(found.unseen, [NotExamined::new("generic", Some("example.com/x group 0".into()))]);
    assert_eq!(found.problems.len(), 1);
}

#[test]
fn the_numa_node_is_that_of_the_hardware_behind() {
    let tree = Tree::new();
    tree.stick("1-2", 9, "A");
    tree.file("sys/devices/pci0000:00/0000:00:14.0/numa_node", "1\n");
    let device = tree.path("sys/devices/pci0000:00/0000:00:14.0/usb1/1-2");
    create_dir_all(device.parent().unwrap()).unwrap();
    std::fs::rename(tree.path("sys/bus/usb/devices/1-2"), &device).unwrap();
    symlink("../../../devices/pci0000:00/0000:00:14.0/usb1/1-2", tree.path("sys/bus/usb/devices/1-2")).unwrap();
    let found = tree.scan(vec![usb_group(1, &[None])]);
    assert_eq!(found.devices[0].numa_nodes, [1]);
    assert_eq!(found.devices[0].numa_source, "/sys/devices/pci0000:00/0000:00:14.0/numa_node");
}

#[test]
fn the_directories_of_all_paths_are_watched() {
    let resource = GenericDevice {
        name: "example.com/x".into(),
        groups: vec![group(1, vec![path("/dev/serial/by-id/*"), path("/run/x.sock")]), usb_group(1, &[None])],
    };
    let tree = Tree::new();
    tree.stick("1-1", 1, "A");
    let watched = Generic::new(vec![resource]).watched_directories(&tree.host());
    let expected = ["dev/serial/by-id", "run", "dev/bus/usb/001"];
    assert_eq!(watched, expected.map(|name| tree.path(name)));
}

/// An object at a path.
#[derive(Debug, Clone)]
enum Thing {
    File(Vec<u8>),
    Directory,
    Fifo,
    Link(String),
}

fn thing() -> impl Strategy<Value = Thing> {
    prop_oneof![
        prop_oneof![Just(b"1a86\n".to_vec()), Just(b"1".to_vec()), any::<Vec<u8>>(), Just(vec![b'1'; 5000])]
            .prop_map(Thing::File),
        Just(Thing::Directory),
        Just(Thing::Fifo),
        prop_oneof![Just("."), Just(".."), Just("/"), Just("/dev"), Just("idVendor"), Just("nowhere"), Just("../1-1")]
            .prop_map(|target| Thing::Link(target.to_owned())),
    ]
}

fn make(path: &Path, thing: &Thing) {
    // Writing to an earlier FIFO would block.
    let _ = remove_file(path);
    let made = create_dir_all(path.parent().unwrap()).and_then(|()| match thing {
        Thing::File(content) => write(path, content),
        Thing::Directory => create_dir_all(path),
        Thing::Fifo => {
            Ok(rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)?)
        }
        Thing::Link(target) => symlink(target, path),
    });
    // An object that cannot be made, because another is in its way, makes a different broken tree.
    drop(made);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_broken_tree_costs_no_healthy_sibling(
        things in prop::collection::vec(("(dev|dev/a|sys/bus/usb/devices/1-1|sys/bus/usb/devices/1-2|sys/dev/char)/(idVendor|idProduct|busnum|devnum|serial|tty0|tty1|x)", thing()), 0..24),
        pattern in "/(dev|\\*|sys|\\[a-z\\]+)(/[a-z?*\\[\\]\\\\^-]{0,6}){0,3}",
    ) {
        let tree = Tree::new();
        tree.stick("9-9", 99, "healthy");
        tree.nodes(&["healthy"]);
        for (path, thing) in &things {
            make(&tree.path(path), thing);
        }
        let found = tree.scan(vec![
            group(1, vec![path("/dev/healthy")]),
            group(1, vec![path("/dev/*")]),
            group(2, vec![path(&pattern), GenericPath { optional: true, limit: 3, ..path("/dev/a/*") }]),
            usb_group(1, &[Some("healthy")]),
            usb_group(1, &[None]),
        ]);
        for healthy in ["/dev/healthy", "/dev/bus/usb/001/099"] {
            let device = found.devices.iter().find(|device| device.text("path").as_deref() == Some(healthy));
            prop_assert!(device.is_some_and(|device| device.findings.is_empty()), "{healthy} in {found:?}");
        }
        for (path, files) in missing(tree.host(), &found.devices) {
            // A device of several members may have a healthy member beside the missing one.
            prop_assert!(!files.iter().any(|file| file.ends_with("healthy") || file.ends_with("/099")), "{files:?}");
            prop_assert!(!files.is_empty() && files.iter().all(|file| path.split(',').any(|own| own == file)), "{path}");
        }
    }

    #[test]
    fn counts_follow_the_formula(
        count in 1_u32..4,
        members in prop::collection::vec((0_usize..4, 1_u32..4, any::<bool>()), 1..4),
    ) {
        let tree = Tree::new();
        let mut paths = Vec::new();
        for (member, &(matches, limit, optional)) in members.iter().enumerate() {
            (0..matches).for_each(|number| tree.nodes(&[&format!("m{member}-{number}")]));
            paths.push(GenericPath { limit, optional, ..path(&format!("/dev/m{member}-*")) });
        }
        let counted: Vec<_> = members.iter().filter(|&&(matches, _, optional)| matches > 0 || !optional).collect();
        let most = counted.iter().map(|&&(matches, _, _)| matches).max().unwrap_or(0);
        let fewest = counted.iter().map(|&&(matches, limit, _)| matches * limit as usize).min().unwrap_or(0);
        let found = tree.scan(vec![group(count, paths)]);
        let ids: usize = found.devices.iter().map(|device| device.ids().len()).sum();
        prop_assert_eq!(ids, count as usize * most.min(fewest));
        let is_without = counted.iter().any(|&&(matches, _, _)| matches == 0);
        prop_assert_eq!(found.problems.len(), usize::from(is_without));
    }
}

#[test]
fn a_container_path_ending_in_a_slash_is_a_directory() {
    for (mount_path, host_path, expected) in [
        ("", "/dev/ttyUSB0", "/dev/ttyUSB0"),
        ("/dev/tty0", "/dev/ttyUSB0", "/dev/tty0"),
        ("/dev/serial/", "/dev/ttyUSB0", "/dev/serial/ttyUSB0"),
        ("/", "/dev/snd/", "/snd"),
    ] {
        assert_eq!(container_path(mount_path, host_path), expected);
    }
}

#[test]
fn ids_are_those_of_generic_device_plugin() {
    assert_eq!(id_of(0, &["/dev/video0"]), "f88ae3a1aba46ffcde26322d41d7d2c9a79fa77c");
}

#[test]
fn an_id_says_the_instance_and_every_path_in_order() {
    let ids = [id_of(0, &["/a", "/b"]), id_of(1, &["/a", "/b"]), id_of(0, &["/b", "/a"]), id_of(0, &["/a"])];
    assert!((1..ids.len()).all(|place| !ids[..place].contains(&ids[place])), "{ids:?}");
    assert_eq!(ids[0], id_of(0, &["/a/b"]));
}
