//! Host trees as text: `path = content`, `path -> target`, `path/`. Plain files stand for device nodes.

#![allow(clippy::format_push_string, reason = "trees are small")]
#![allow(dead_code, unreachable_pub, reason = "a part of each test binary, which uses some of it")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use devherd_native::device::{Device, Found, Platform, Problem};
use devherd_native::edits::{Edits, Way};
use devherd_native::fence::Fence;
use devherd_native::finding::Finding;
use devherd_native::health::{Look, PollReason, Poller};
use devherd_native::host::Host;
use devherd_native::vendors::Vendor;
use devherd_native::vendors::intel_fpga::IntelFpga;
use devherd_native::vendors::intel_fpga::IntelFpgaMode;

pub const IF: &str = "69528db6eb31577a8c3668f9faa081f6";
pub const IF2: &str = "ce48969398f05f33946d560708be108a";
pub const A1: &str = "d8424dc4a4a3c413f89e433683f9040b";
pub const A2: &str = "f7df405cbd7acf7222f144b0b93acd18";
pub const FF: &str = "ffffffffffffffffffffffffffffffff";
pub const ZEROS: &str = "00000000000000000000000000000000";

/// A host tree in a temporary directory.
pub struct Tree {
    root: tempfile::TempDir,
}

impl Tree {
    pub fn new(text: &str) -> Self {
        let tree = Self { root: tempfile::tempdir().unwrap() };
        tree.add(text);
        tree
    }

    pub fn add(&self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some((path, content)) = line.split_once(" = ") {
                self.write(path, &format!("{content}\n"));
            } else if let Some((path, target)) = line.split_once(" -> ") {
                let path = self.path(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                symlink(target, path).unwrap();
            } else if let Some(path) = line.strip_suffix('/') {
                fs::create_dir_all(self.path(path)).unwrap();
            } else {
                self.write(line, "");
            }
        }
    }

    pub fn write(&self, path: &str, content: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    pub fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(below)
    }

    pub fn host(&self) -> Host {
        Host::simulated(self.root.path())
    }

    pub fn scan(&self, mode: IntelFpgaMode) -> Found {
        IntelFpga::new(mode).scan(&self.host(), &Fence::new(Duration::from_secs(20)))
    }

    pub fn af(&self) -> Found {
        self.scan(IntelFpgaMode::Af)
    }
}

/// `pci0000:80/0000:80:01.0/0000:81:00.0` for `0000:81:00.0`.
pub fn function(address: &str) -> String {
    let bus = &address[5..7];
    format!("sys/devices/pci0000:{bus}/0000:{bus}:01.0/{address}")
}

/// A PCI function of an accelerator.
pub fn pci(address: &str, numa_node: i32) -> String {
    let path = function(address);
    format!(
        "{path}/uevent = DRIVER=fpga-driver\n{path}/class = 0x120000\n{path}/vendor = 0x8086\n{path}/device = 0x0b30\n\
         {path}/numa_node = {numa_node}\n"
    )
}

/// A card of the DFL driver: `region<n>` with `dfl-fme.<fme>` and ports, and a region for each port.
pub fn dfl(address: &str, region: u32, fme: u32, ports: &[(u32, &str)]) -> String {
    let card = format!("{}/fpga_region/region{region}", function(address));
    let mut text = link("fpga_region", address, &format!("fpga_region/region{region}"));
    let own = format!("{card}/dfl-fme.{fme}");
    text += &format!("{own}/driver -> dfl-fme\n{own}/dev = 245:{fme}\ndev/dfl-fme.{fme}\n{card}/compat_id/\n");
    for (number, afu_id) in ports {
        let fme_region = format!("dfl-fme.{fme}/dfl-fme-region.{number}/fpga_region/region{}", 100 + number);
        text += &format!("{card}/{fme_region}/compat_id = {IF}\n");
        text += &link("fpga_region", address, &format!("fpga_region/region{region}/{fme_region}"));
        text += &port(&card, &format!("dfl-port.{number}"), *number, afu_id);
    }
    text
}

/// A card of the OPAE driver: `intel-fpga-dev.<card>` with, if any, its FME, and ports.
pub fn opae(address: &str, card: u32, fme: Option<u32>, ports: &[(u32, &str)]) -> String {
    let path = format!("{}/fpga/intel-fpga-dev.{card}", function(address));
    let mut text = link("fpga", address, &format!("fpga/intel-fpga-dev.{card}"));
    if let Some(fme) = fme {
        let own = format!("{path}/intel-fpga-fme.{fme}");
        text += &format!("{own}/driver -> intel-fpga-fme\n{own}/pr/interface_id = {IF}\n");
        text += &format!("{own}/dev = 245:{fme}\ndev/intel-fpga-fme.{fme}\n");
    }
    for (number, afu_id) in ports {
        text += &port(&path, &format!("intel-fpga-port.{number}"), *number, afu_id);
    }
    text
}

fn port(card: &str, name: &str, number: u32, afu_id: &str) -> String {
    let own = format!("{card}/{name}");
    format!(
        "{own}/driver -> port\n{own}/afu_id = {afu_id}\n{own}/dev = 244:{number}\n{own}/id = {number}\ndev/{name}\n"
    )
}

fn link(class: &str, address: &str, below: &str) -> String {
    let name = below.rsplit('/').next().unwrap();
    format!("sys/class/{class}/{name} -> ../../{}/{below}\n", function(address).strip_prefix("sys/").unwrap())
}

/// Makes one function virtual to another.
pub fn virtual_to(address: &str, physical: &str) -> String {
    format!("{}/physfn -> ../{physical}\n", function(address))
}

/// `(id, resource name, reasons)` of every device.
pub fn summary(found: &Found) -> Vec<(String, String, String)> {
    found.devices.iter().map(|device| (device.id.clone(), name(device), reasons(device))).collect()
}

fn name(device: &Device) -> String {
    let known = device.resource_name.clone();
    let first_sight = device.first_sight_resource_name.as_ref().map(|name| format!("({name})"));
    known.or(first_sight).unwrap_or_default().replace("fpga.intel.com/", "")
}

fn reasons(device: &Device) -> String {
    device.findings.iter().map(|finding| finding.reason.as_ref()).collect::<Vec<_>>().join(" ")
}

/// `(id, source, reason, file)` of every finding of a poll.
pub fn polled(tree: &Tree, found: &Found) -> Vec<(String, String, String, String)> {
    let mut poller = Poller::new(tree.host(), Arc::new(Fence::new(Duration::from_secs(20))));
    poller.watch(&found.devices, &[]);
    summed_up(poller.poll(&PollReason::Anything, &|| {}))
}

/// `(id, source, reason, file)` of every finding.
pub fn summed_up(looks: Vec<Look>) -> Vec<(String, String, String, String)> {
    let of_look = |look: Look| {
        let row = move |finding: Finding| {
            (look.id.clone(), finding.source.into_owned(), finding.reason.into_owned(), finding.file)
        };
        look.findings.into_iter().map(row)
    };
    looks.into_iter().flat_map(of_look).collect()
}

/// The container edits of a device, in the mode of the scan that found it.
pub fn edits(device: &Device, mode: IntelFpgaMode) -> Edits {
    IntelFpga::new(mode).edits(device, &Platform::default(), Way::DevicePlugin, "example.com/fpga")
}

/// Names of the nodes that a container gets.
pub fn nodes(device: &Device, mode: IntelFpgaMode) -> Vec<String> {
    edits(device, mode).nodes.iter().map(|node| node.host_path.strip_prefix("/dev/").unwrap().to_owned()).collect()
}

pub fn complaints(found: &Found) -> Vec<String> {
    found.problems.iter().map(|Problem { path, error, .. }| format!("{}: {error}", path.display())).collect()
}
