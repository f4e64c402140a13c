//! Turns the facts of a card into devices in each mode, with the resource names of Intel's own plugin, and into a
//! problem for each missing fact.

use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;

use super::card::{Facts, Fme, InterfaceId, NoInterfaceId, Part, Port};
use super::locate::Driver;
use super::{IntelFpgaMode, VENDOR};
use crate::bus::pci;
use crate::device::{Device, HostPath, Problem};
use crate::health::sources::scan;
use crate::host::Host;
use crate::host::attribute::Attribute;

/// The role of a port's node.
pub(super) const PORT: &str = "port";
/// The role of a management engine's node.
pub(super) const FME: &str = "fme";
const DFL_CURE: &str = "load the kernel modules dfl_fme_region, dfl_fme_mgr and dfl_fme_br";
const OPAE_CURE: &str = "the FME offers no partial reconfiguration; check the driver intel-fpga-fme";

/// The modules that drive ports and management engines.
const DFL_MODULES: (&str, &str) = ("dfl_afu", "dfl_fme");
const OPAE_MODULES: (&str, &str) = ("intel-fpga-afu", "intel-fpga-fme");

/// Devices of a card in the given mode.
pub(super) fn devices(host: &Host, mut facts: Facts, mode: IntelFpgaMode) -> (Vec<Device>, Vec<Problem>) {
    let mut problems = std::mem::take(&mut facts.problems);
    let advertiser = Advertiser { host, facts: &facts, problems: &mut problems };
    let devices = match mode {
        IntelFpgaMode::Af => advertiser.functions(),
        IntelFpgaMode::Region | IntelFpgaMode::RegionDevel => advertiser.regions(),
    };
    (devices, problems)
}

struct Advertiser<'a> {
    host: &'a Host,
    facts: &'a Facts,
    problems: &'a mut Vec<Problem>,
}

impl Advertiser<'_> {
    /// Mode `af`: each port is a device, named after the function loaded in it.
    fn functions(mut self) -> Vec<Device> {
        let facts = self.facts;
        // Where virtual functions are on, the ports may be theirs, and they may be a virtual machine's.
        if facts.ports.is_empty() && !has_virtual_functions(facts) {
            for fme in &facts.fmes {
                self.without_port(fme);
            }
        }
        facts.ports.iter().map(|port| self.function(port)).collect()
    }

    fn without_port(&mut self, fme: &Fme) {
        let error = "no port belongs to this FME, so it has nothing to allocate: its ports were released, as for virtual \
            functions; assign one to it again (DFL_FPGA_FME_PORT_ASSIGN)";
        self.problem(&fme.part, error.to_owned());
    }

    fn function(&mut self, port: &Port) -> Device {
        let mut device = self.device(&port.part);
        self.expect_node(&mut device, &port.part, PORT);
        self.describe_port(&mut device, port);
        let interface_id = match self.facts.fme_of(port) {
            Ok(fme) => {
                self.describe_fme(&mut device, fme);
                device.readings.extend(fme.readings.iter().cloned());
                self.interface_id(&mut device, fme)
            }
            Err(error) => {
                let path = self.host.own_path(&port.part.path);
                device.findings.insert(scan::finding(scan::FME_ERROR, path, &error));
                self.problem(&port.part, error);
                None
            }
        };
        let afu_id = self.afu_id(&mut device, port);
        if let (Some(interface_id), Some(afu_id)) = (interface_id, afu_id) {
            let is_certain = !is_failed(&interface_id.id) && !is_failed(afu_id);
            entitle(&mut device, name_of_function(&interface_id.id, afu_id), is_certain);
        }
        device
    }

    /// Modes `region` and `regiondevel`: each management engine is a device, with all its ports.
    fn regions(mut self) -> Vec<Device> {
        let facts = self.facts;
        for port in &facts.ports {
            if let Err(error) = facts.fme_of(port) {
                self.problem(&port.part, error);
            }
        }
        facts.fmes.iter().filter_map(|fme| self.region(fme)).collect()
    }

    fn region(&mut self, fme: &Fme) -> Option<Device> {
        let facts = self.facts;
        let ports = facts.ports_of(fme);
        if ports.is_empty() {
            self.without_port(fme);
            return None;
        }
        let mut device = self.device(&fme.part);
        for port in &ports {
            self.expect_node(&mut device, &port.part, PORT);
            device.readings.extend(port.readings.iter().cloned());
            port.part.function.iter().for_each(|function| function.attach(self.host, &mut device));
            if port.lacks_driver {
                self.blame_driver(&mut device, port);
            }
        }
        // In mode `region` the container does not get the node; the hook on the host programs through it.
        self.expect_node(&mut device, &fme.part, FME);
        let names: Vec<&str> = ports.iter().map(|port| port.part.name.as_str()).collect();
        device.note("ports", names.join(","), self.host.own_path(&fme.part.path));
        self.describe_fme(&mut device, fme);
        device.readings.extend(fme.readings.iter().cloned());
        if let Some(interface_id) = self.interface_id(&mut device, fme) {
            entitle(&mut device, name_of_region(&interface_id.id), !is_failed(&interface_id.id));
        }
        Some(device)
    }

    /// A device with the name of this part and the facts of its PCI function.
    fn device(&self, part: &Part) -> Device {
        let mut device =
            Device { vendor: VENDOR.into(), card: self.facts.key.clone(), id: part.name.clone(), ..Device::default() };
        device.note("driver", part.driver.word(), self.host.own_path(&part.path));
        if let Some(function) = &part.function {
            function.describe(self.host, &mut device);
            device.numa_nodes = function.numa_node.iter().map(|(node, _)| *node).collect();
        }
        // A failure of the physical function also affects its virtual functions.
        self.facts.function.iter().for_each(|function| function.attach(self.host, &mut device));
        device
    }

    fn expect_node(&mut self, device: &mut Device, part: &Part, role: &'static str) {
        let number = self.number(part);
        device.paths.push(HostPath::node(format!("/dev/{}", part.name), number).in_role(role));
    }

    /// `dev`: the number of the part's node. `None` if unreadable: then any device node with the right name is
    /// accepted.
    fn number(&mut self, part: &Part) -> Option<(u32, u32)> {
        let dev = Attribute::read(part.path.join("dev")).and_then(|dev| dev.device_number());
        if let Err(error) = &dev {
            if !error.is_absent() {
                let problem = Problem::new(VENDOR, self.host.own_path(&error.path), &error.cause);
                self.problems.push(problem.of(&part.name));
            }
        }
        dev.ok()
    }

    fn describe_port(&self, device: &mut Device, port: &Port) {
        device.note("port", &port.part.name, self.host.own_path(&port.part.path));
        if let Some((index, number)) = port.index.as_ref().and_then(|index| Some((index, index.decimal().ok()?))) {
            device.note("port_id", number, self.host.own_path(index.path()));
        }
        device.readings.extend(port.readings.iter().cloned());
    }

    fn describe_fme(&self, device: &mut Device, fme: &Fme) {
        device.note("fme", &fme.part.name, self.host.own_path(&fme.part.path));
        if let Some(bitstream_id) = &fme.bitstream_id {
            device.note("bitstream_id", bitstream_id.text(), self.host.own_path(bitstream_id.path()));
        }
    }

    /// Adds a finding and a problem for a port without its driver.
    fn blame_driver(&mut self, device: &mut Device, port: &Port) {
        let (module, _) = modules(port.part.driver);
        let detail = format!("the port has no driver: load the kernel module {module}");
        let path = self.host.own_path(port.part.path.join("driver"));
        device.findings.insert(scan::finding(scan::DRIVER_UNBOUND, path, &detail).reading("absent"));
        self.problem(&port.part, detail);
    }

    /// The id of the function loaded in a port; `None`, with a finding and a problem, if unknown.
    fn afu_id<'p>(&mut self, device: &mut Device, port: &'p Port) -> Option<&'p str> {
        if port.lacks_driver {
            self.blame_driver(device, port);
            return None;
        }
        let source = port.part.path.join("afu_id");
        let path = self.host.own_path(&source);
        let finding = |reason, detail: &str| scan::finding(reason, &path, detail);
        let finding = match &port.afu_id {
            Ok(id) => {
                device.note("afu_id", id, &path);
                if is_failed(id) {
                    device.findings.insert(finding(scan::PORT_ERROR, "all ones: the port does not answer").reading(id));
                }
                if !is_blank(id) {
                    return Some(id);
                }
                finding(scan::UNPROGRAMMED, "all zeros: no accelerator function is loaded").reading(id)
            }
            Err(error) if error.is_busy() => {
                let detail = format!("{}: the port is disabled, as during programming", error.cause);
                finding(scan::UNPROGRAMMED, &detail)
            }
            Err(error) if error.is_absent() => {
                finding(scan::UNPROGRAMMED, &format!("{}: the port has no accelerator function", error.cause))
            }
            Err(error) => finding(scan::PORT_ERROR, &error.cause.to_string()).reading(error.cause.found()),
        };
        self.problems.push(Problem::new(VENDOR, &path, &finding.detail).of(&port.part.name));
        device.findings.insert(finding);
        None
    }

    /// The interface id; `None`, with a finding and a problem, if unknown.
    fn interface_id<'f>(&mut self, device: &mut Device, fme: &'f Fme) -> Option<&'f InterfaceId> {
        let (path, error, value) = match &fme.interface_id {
            Ok(interface_id) => {
                let (id, path) = (&interface_id.id, self.host.own_path(&interface_id.source));
                device.note("interface_id", id, &path);
                if is_failed(id) {
                    let detail = "all ones: the management engine does not answer";
                    device.findings.insert(scan::finding(scan::FME_ERROR, path, detail).reading(id));
                }
                return Some(interface_id);
            }
            Err(NoInterfaceId::Missing(path)) if fme.lacks_driver => {
                let (_, module) = modules(fme.part.driver);
                (path, format!("no interface id: the FME has no driver: load the kernel module {module}"), "")
            }
            Err(NoInterfaceId::Missing(path)) => {
                let cure = if fme.part.driver == Driver::Dfl { DFL_CURE } else { OPAE_CURE };
                (path, format!("no interface id: {cure}"), "")
            }
            Err(NoInterfaceId::Different(ids)) => {
                let error = format!("the FME's regions have different interface ids: {}", self.list(ids));
                (&ids[0].source, error, ids[0].id.as_str())
            }
            Err(NoInterfaceId::Unreadable(error)) => (&error.path, error.cause.to_string(), error.cause.found()),
        };
        let path = self.host.own_path(path);
        device.findings.insert(scan::finding(scan::FME_ERROR, &path, &error).reading(value));
        self.problems.push(Problem::new(VENDOR, path, error).of(&device.id));
        None
    }

    fn list(&self, ids: &[InterfaceId]) -> String {
        let each = ids.iter().map(|id| format!("{} in {}", id.id, self.host.own_path(&id.source).display()));
        each.collect::<Vec<_>>().join(", ")
    }

    fn problem(&mut self, part: &Part, error: String) {
        self.problems.push(Problem::new(VENDOR, self.host.own_path(&part.path), error).of(&part.name));
    }
}

/// The modules of ports and of management engines.
fn modules(driver: Driver) -> (&'static str, &'static str) {
    match driver {
        Driver::Dfl => DFL_MODULES,
        Driver::Opae => OPAE_MODULES,
    }
}

/// Whether the card has given ports to virtual functions.
fn has_virtual_functions(facts: &Facts) -> bool {
    let number = |function: &Arc<pci::Function>| {
        Attribute::read(function.path.join("sriov_numvfs")).and_then(|number| number.decimal()).ok()
    };
    facts.function.as_ref().and_then(number).is_some_and(|number| number > 0)
}

/// Sets the resource name if both ids are reliable; otherwise sets the name for a device that was never seen before.
fn entitle(device: &mut Device, name: String, is_certain: bool) {
    if is_certain {
        device.resource_name = Some(name);
    } else {
        device.first_sight_resource_name = Some(name);
    }
}

/// All ones: the result of a read from a card that does not answer.
fn is_failed(id: &str) -> bool {
    id.bytes().all(|digit| digit == b'f')
}

/// All zeros: nothing is loaded.
fn is_blank(id: &str) -> bool {
    id.bytes().all(|digit| digit == b'0')
}

const NAMESPACE: &str = "fpga.intel.com";

/// The resource name of a function, `fpga.intel.com/af-<3 of interface>.<3 of function>.<base64url of both ids>`: 54
/// characters after the namespace.
///
/// Both ids are 32 hexadecimal digits. The last character carries four bits of the ids and two zero bits, so it is
/// always a letter or a digit, and the name is legal.
fn name_of_function(interface_id: &str, afu_id: &str) -> String {
    let bytes = bytes_of(interface_id).chain(bytes_of(afu_id));
    let encoded = BASE64URL_NOPAD.encode(&bytes.collect::<Vec<u8>>());
    format!("{NAMESPACE}/af-{}.{}.{encoded}", start_of(interface_id), start_of(afu_id))
}

/// The resource name of a region: `fpga.intel.com/region-<interface id>`.
fn name_of_region(interface_id: &str) -> String {
    format!("{NAMESPACE}/region-{interface_id}")
}

fn start_of(id: &str) -> &str {
    id.get(..3).unwrap_or(id)
}

fn bytes_of(id: &str) -> impl Iterator<Item = u8> + '_ {
    (0..id.len() / 2).filter_map(|index| u8::from_str_radix(id.get(2 * index..2 * index + 2)?, 16).ok())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;
    use rustix::io::Errno;

    use super::*;
    use crate::edits::Way;
    use crate::host::attribute::{AttributeError, Cause};
    use crate::vendors::intel_fpga::container_edits;

    const IF2: &str = "ce48969398f05f33946d560708be108a";
    const A1: &str = "d8424dc4a4a3c413f89e433683f9040b";
    const FF: &str = "ffffffffffffffffffffffffffffffff";

    fn part(name: String, entry: usize) -> Part {
        Part { driver: Driver::Dfl, path: PathBuf::from("/sys/card").join(&name), name, entry, function: None }
    }

    /// A card with these entries: interface id, and (number, function) of each port.
    fn facts(entries: &[(&str, &[(u32, &str)])]) -> Facts {
        let mut facts = Facts::default();
        for (index, &(interface_id, ports)) in entries.iter().enumerate() {
            let source = PathBuf::from("/sys/card/compat_id");
            facts.fmes.push(Fme {
                part: part(format!("dfl-fme.{}", index + 1), index),
                interface_id: Ok(InterfaceId { id: interface_id.to_owned(), source }),
                bitstream_id: None,
                readings: Vec::new(),
                lacks_driver: false,
            });
            facts.ports.extend(ports.iter().map(|&(number, afu_id)| Port {
                part: part(format!("dfl-port.{number}"), index),
                afu_id: Ok(afu_id.to_owned()),
                index: None,
                readings: Vec::new(),
                lacks_driver: false,
            }));
        }
        facts
    }

    fn three_regions() -> Facts {
        facts(&[(IF2, &[(0, A1)]), (IF2, &[(1, A1), (2, A1)]), (FF, &[(3, FF), (4, FF)])])
    }

    fn advertised(facts: Facts, mode: IntelFpgaMode) -> (Vec<Device>, Vec<Problem>) {
        devices(&Host::new("/nonexistent"), facts, mode)
    }

    fn has(device: &Device, reason: &str) -> bool {
        device.findings.iter().any(|finding| finding.reason == reason)
    }

    /// Resource name and first sight name, without the namespace.
    fn names(device: &Device) -> (Option<&str>, Option<&str>) {
        let names = [device.resource_name.as_deref(), device.first_sight_resource_name.as_deref()];
        let [known, first_sight] = names.map(|name| name.map(|name| name.trim_start_matches("fpga.intel.com/")));
        (known, first_sight)
    }

    fn nodes(device: &Device, mode: IntelFpgaMode) -> Vec<String> {
        container_edits(device, mode, Way::DevicePlugin).nodes.into_iter().map(|node| node.host_path).collect()
    }

    #[test]
    fn the_vendors_builder_cases_in_mode_regiondevel() {
        let (devices, problems) = advertised(three_regions(), IntelFpgaMode::RegionDevel);
        assert_eq!(problems, []);
        let good = (Some("region-ce48969398f05f33946d560708be108a"), None);
        let failed = (None, Some("region-ffffffffffffffffffffffffffffffff"));
        assert_eq!(devices.iter().map(names).collect::<Vec<_>>(), [good, good, failed]);
        assert_eq!(
            nodes(&devices[1], IntelFpgaMode::RegionDevel),
            ["/dev/dfl-port.1", "/dev/dfl-port.2", "/dev/dfl-fme.2"]
        );
        assert!(has(&devices[2], scan::FME_ERROR));
    }

    #[test]
    fn the_vendors_builder_cases_in_mode_af() {
        let (devices, _) = advertised(three_regions(), IntelFpgaMode::Af);
        let good = (Some("af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"), None);
        let failed = (None, Some("af-fff.fff.__________________________________________8"));
        assert_eq!(devices.iter().map(names).collect::<Vec<_>>(), [good, good, good, failed, failed]);
    }

    #[test]
    fn the_vendors_builder_cases_in_mode_region() {
        let (devices, _) = advertised(three_regions(), IntelFpgaMode::Region);
        assert_eq!(nodes(&devices[1], IntelFpgaMode::Region), ["/dev/dfl-port.1", "/dev/dfl-port.2"]);
        for device in &devices {
            let edits = container_edits(device, IntelFpgaMode::Region, Way::DevicePlugin);
            assert_eq!((edits.annotations.len(), edits.cdi_devices.len()), (1, 1));
        }
    }

    #[test]
    fn a_port_that_is_being_programmed_keeps_its_place_and_says_so() {
        for (errno, reason) in
            [(Errno::BUSY, scan::UNPROGRAMMED), (Errno::NOENT, scan::UNPROGRAMMED), (Errno::IO, scan::PORT_ERROR)]
        {
            let mut facts = facts(&[(IF2, &[(0, A1), (1, A1)])]);
            let path = PathBuf::from("/sys/card/dfl-port.0/afu_id");
            facts.ports[0].afu_id = Err(AttributeError { path: path.clone(), cause: Cause::System(errno) });
            let (devices, problems) = advertised(facts, IntelFpgaMode::Af);
            assert_eq!(names(&devices[0]), (None, None));
            assert!(has(&devices[0], reason), "{errno}");
            assert!(devices[1].resource_name.is_some() && !has(&devices[1], reason));
            assert_eq!(problems.len(), 1);
            assert_eq!((&problems[0].path, problems[0].device.as_deref()), (&path, Some("dfl-port.0")));
        }
    }

    const IF: &str = "69528db6eb31577a8c3668f9faa081f6";
    const A2: &str = "f7df405cbd7acf7222f144b0b93acd18";

    #[test]
    fn names_are_those_of_the_vendors_plugin() {
        let (failed, blank) = ("f".repeat(32), "0".repeat(32));
        for (interface_id, afu_id, name) in [
            (IF2, A1, "af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"),
            ("bfac4d851ee856fe8c95865ce1bbaa2d", A2, "af-bfa.f7d.v6xNhR7oVv6MlYZc4buqLfffQFy9es9yIvFEsLk6zRg"),
            (IF, A1, "af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"),
            (IF, A2, "af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg"),
            (IF, &failed, "af-695.fff.aVKNtusxV3qMNmj5-qCB9v____________________8"),
            (&failed, &failed, "af-fff.fff.__________________________________________8"),
            (&blank, &blank, "af-000.000.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
        ] {
            assert_eq!(name_of_function(interface_id, afu_id), format!("fpga.intel.com/{name}"));
        }
        assert_eq!(name_of_region(IF), "fpga.intel.com/region-69528db6eb31577a8c3668f9faa081f6");
    }

    proptest! {
        #[test]
        fn every_name_is_a_legal_label(interface_id in "[0-9a-f]{32}", afu_id in "[0-9a-f]{32}") {
            let name = name_of_function(&interface_id, &afu_id);
            let label = name.strip_prefix("fpga.intel.com/").unwrap();
            prop_assert_eq!(label.len(), 54);
            prop_assert!(label.ends_with(|c: char| c.is_ascii_alphanumeric()));
            prop_assert!(label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)));
        }

        #[test]
        fn different_ids_have_different_names(a in "[0-9a-f]{32}", b in "[0-9a-f]{32}", c in "[0-9a-f]{32}") {
            prop_assert_eq!(name_of_function(&a, &b) == name_of_function(&a, &c), b == c);
            prop_assert_eq!(name_of_function(&b, &a) == name_of_function(&c, &a), b == c);
        }
    }
}
