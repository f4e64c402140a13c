//! What a card's facts make in each mode: devices, and problems where a fact is missing.

use super::VENDOR;
use super::card::{Facts, Fme, InterfaceId, NoInterfaceId, Part, Port};
use super::driver::Driver;
use super::name;
use crate::attribute::Attribute;
use crate::check::Check;
use crate::device::{Device, Node, Problem, Reason};
use crate::host::Host;
use crate::settings::IntelFpgaMode;

const MODE_ANNOTATION: (&str, &str) = ("com.intel.fpga.mode", "fpga.intel.com/region");
const CDI_KIND: &str = "intel.cdi.k8s.io/fpga";
/// The vendor's OCI hook, which loads the bitstream that the container asks for.
const CDI_EDITS: &str = r#"{"hooks":[{"hookName":"createRuntime","path":"/opt/intel/fpga-sw/intel-fpga-crihook"}]}"#;
const DFL_CURE: &str = "load the kernel modules dfl_fme_region, dfl_fme_mgr and dfl_fme_br";
const OPAE_CURE: &str = "the FME offers no partial reconfiguration; check the driver intel-fpga-fme";

/// Devices of a card in the given mode.
pub(super) fn devices(host: &Host, mut facts: Facts, mode: IntelFpgaMode) -> (Vec<Device>, Vec<Problem>) {
    let mut problems = std::mem::take(&mut facts.problems);
    let advertiser = Advertiser { host, facts: &facts, problems: &mut problems };
    let devices = match mode {
        IntelFpgaMode::Af => advertiser.functions(),
        IntelFpgaMode::Region => advertiser.regions(false),
        IntelFpgaMode::RegionDevel => advertiser.regions(true),
    };
    (devices, problems)
}

struct Advertiser<'a> {
    host: &'a Host,
    facts: &'a Facts,
    problems: &'a mut Vec<Problem>,
}

impl Advertiser<'_> {
    /// Mode `af`: every port, under the function loaded in it.
    fn functions(mut self) -> Vec<Device> {
        let facts = self.facts;
        facts.ports.iter().map(|port| self.function(port)).collect()
    }

    fn function(&mut self, port: &Port) -> Device {
        let mut device = self.device(&port.part);
        self.give(&mut device, &port.part);
        self.describe_port(&mut device, port);
        let interface_id = match self.facts.fme_of(port) {
            Ok(fme) => {
                self.describe_fme(&mut device, fme);
                device.checks.extend(fme.checks.iter().cloned());
                self.interface_id(&mut device, fme)
            }
            Err(error) => {
                device.reasons.insert(Reason::FmeError);
                self.problem(&port.part, error);
                None
            }
        };
        let afu_id = self.afu_id(&mut device, port);
        device.checks.extend(self.facts.checks.iter().cloned());
        if let (Some(interface_id), Some(afu_id)) = (interface_id, afu_id) {
            let can_be_told = !is_failed(&interface_id.id) && !is_failed(afu_id);
            entitle(&mut device, name::of_function(&interface_id.id, afu_id), can_be_told);
        }
        device
    }

    /// Modes `region` and `regiondevel`: every management engine, with all its ports.
    fn regions(mut self, with_fme_node: bool) -> Vec<Device> {
        let facts = self.facts;
        for port in &facts.ports {
            if let Err(error) = facts.fme_of(port) {
                self.problem(&port.part, error);
            }
        }
        facts.fmes.iter().filter_map(|fme| self.region(fme, with_fme_node)).collect()
    }

    fn region(&mut self, fme: &Fme, with_fme_node: bool) -> Option<Device> {
        let facts = self.facts;
        let ports = facts.ports_of(fme);
        if ports.is_empty() {
            self.problem(
                &fme.part,
                "no port belongs to this FME, so there is nothing to give to a container".to_owned(),
            );
            return None;
        }
        let mut device = self.device(&fme.part);
        for port in &ports {
            self.give(&mut device, &port.part);
            device.checks.extend(errors_check(port));
        }
        if with_fme_node {
            self.give(&mut device, &fme.part);
        } else {
            // The hook programs through it, on the host.
            self.expect_node(&mut device, &fme.part);
            let (key, value) = MODE_ANNOTATION;
            device.annotations.insert(key.to_owned(), value.to_owned());
            let name = format!("{CDI_KIND}={}", fme.part.name);
            device.cdi_devices = vec![name.clone()];
            device.cdi_edits.insert(name, CDI_EDITS.to_owned());
        }
        let names: Vec<&str> = ports.iter().map(|port| port.part.name.as_str()).collect();
        device.note("ports", names.join(","), self.host.own_path(&fme.part.path));
        self.describe_fme(&mut device, fme);
        device.checks.extend(fme.checks.iter().chain(&self.facts.checks).cloned());
        if let Some(interface_id) = self.interface_id(&mut device, fme) {
            entitle(&mut device, name::of_region(&interface_id.id), !is_failed(&interface_id.id));
        }
        Some(device)
    }

    /// A device named for this part, with the facts of its PCI function.
    fn device(&self, part: &Part) -> Device {
        let mut device =
            Device { vendor: VENDOR.into(), card: self.facts.key.clone(), id: part.name.clone(), ..Device::default() };
        device.note("driver", part.driver.word(), self.host.own_path(&part.path));
        if let Some(function) = &part.function {
            function.describe(self.host, &mut device);
            device.numa_nodes = function.numa_node.iter().map(|(node, _)| *node).collect();
        }
        device
    }

    /// Gives the part's node to the container.
    fn give(&mut self, device: &mut Device, part: &Part) {
        let path = format!("/dev/{}", part.name);
        device.nodes.push(Node { host_path: path.clone(), container_path: path, permissions: "rw".to_owned() });
        self.expect_node(device, part);
    }

    fn expect_node(&mut self, device: &mut Device, part: &Part) {
        let (path, number) = (self.host.dev(&part.name), self.number(part));
        if self.host.lacks_node(&path, number) {
            device.reasons.insert(Reason::NodeMissing);
        }
        device.checks.push(Check::NodePresent { path, number });
    }

    /// `dev`: the number of the part's node. Where it cannot be read, any device node of the name will do.
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
        if let Some(index) = &port.index {
            device.note("port_id", index.text(), self.host.own_path(index.path()));
        }
        device.checks.extend(errors_check(port));
    }

    fn describe_fme(&self, device: &mut Device, fme: &Fme) {
        device.note("fme", &fme.part.name, self.host.own_path(&fme.part.path));
        if let Some(bitstream_id) = &fme.bitstream_id {
            device.note("bitstream_id", bitstream_id.text(), self.host.own_path(bitstream_id.path()));
        }
    }

    /// The id of what is loaded in a port; `None`, with a reason and a problem, while that cannot be told.
    fn afu_id<'p>(&mut self, device: &mut Device, port: &'p Port) -> Option<&'p str> {
        let source = port.part.path.join("afu_id");
        let (reason, error) = match &port.afu_id {
            Ok(id) => {
                device.note("afu_id", id, self.host.own_path(&source));
                if !is_blank(id) {
                    device.reasons.extend(is_failed(id).then_some(Reason::PortError));
                    return Some(id);
                }
                (Reason::Unprogrammed, "all zeros: no accelerator function is loaded".to_owned())
            }
            Err(error) if error.is_busy() => {
                (Reason::Unprogrammed, format!("{}: the port is disabled, as while it is programmed", error.cause))
            }
            Err(error) if error.is_absent() => {
                (Reason::Unprogrammed, format!("{}: the port has no accelerator function", error.cause))
            }
            Err(error) => (Reason::PortError, error.cause.to_string()),
        };
        device.reasons.insert(reason);
        self.problems.push(Problem::new(VENDOR, self.host.own_path(source), error).of(&port.part.name));
        None
    }

    /// The interface id; `None`, with a reason and a problem, while that cannot be told.
    fn interface_id<'f>(&mut self, device: &mut Device, fme: &'f Fme) -> Option<&'f InterfaceId> {
        let (path, error) = match &fme.interface_id {
            Ok(interface_id) => {
                device.note("interface_id", &interface_id.id, self.host.own_path(&interface_id.source));
                device.reasons.extend(is_failed(&interface_id.id).then_some(Reason::FmeError));
                return Some(interface_id);
            }
            Err(NoInterfaceId::Missing(path)) => {
                let cure = if fme.part.driver == Driver::Dfl { DFL_CURE } else { OPAE_CURE };
                (path, format!("no interface id: {cure}"))
            }
            Err(NoInterfaceId::Different(ids)) => {
                (&ids[0].source, format!("the FME's regions have different interface ids: {}", self.list(ids)))
            }
            Err(NoInterfaceId::Unreadable(error)) => (&error.path, error.cause.to_string()),
        };
        device.reasons.insert(Reason::FmeError);
        self.problems.push(Problem::new(VENDOR, self.host.own_path(path), error).of(&device.id));
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

/// The name counts where both ids can be believed; else it is what a device never seen before is called.
fn entitle(device: &mut Device, name: String, can_be_told: bool) {
    if can_be_told {
        device.resource_name = Some(name);
    } else {
        device.first_sight_resource_name = Some(name);
    }
}

fn errors_check(port: &Port) -> Option<Check> {
    port.errors.clone().map(|attribute| Check::Zero { attribute, reason: Reason::PortError })
}

/// All ones: what a read gives when nothing answers.
fn is_failed(id: &str) -> bool {
    id.bytes().all(|digit| digit == b'f')
}

/// All zeros: nothing is loaded.
fn is_blank(id: &str) -> bool {
    id.bytes().all(|digit| digit == b'0')
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rustix::io::Errno;

    use super::*;
    use crate::attribute::{AttributeError, Cause};

    const IF2: &str = "ce48969398f05f33946d560708be108a";
    const A1: &str = "d8424dc4a4a3c413f89e433683f9040b";
    const FF: &str = "ffffffffffffffffffffffffffffffff";

    fn part(name: String, entry: usize) -> Part {
        Part { driver: Driver::Dfl, path: PathBuf::from("/sys/card").join(&name), name, entry, function: None }
    }

    /// A card whose entries are given as interface id and ports of (number, function).
    fn facts(entries: &[(&str, &[(u32, &str)])]) -> Facts {
        let mut facts = Facts::default();
        for (index, &(interface_id, ports)) in entries.iter().enumerate() {
            let source = PathBuf::from("/sys/card/compat_id");
            facts.fmes.push(Fme {
                part: part(format!("dfl-fme.{}", index + 1), index),
                interface_id: Ok(InterfaceId { id: interface_id.to_owned(), source }),
                bitstream_id: None,
                checks: Vec::new(),
            });
            facts.ports.extend(ports.iter().map(|&(number, afu_id)| Port {
                part: part(format!("dfl-port.{number}"), index),
                afu_id: Ok(afu_id.to_owned()),
                index: None,
                errors: None,
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

    /// Resource name and first sight name, without the namespace.
    fn names(device: &Device) -> (Option<&str>, Option<&str>) {
        let names = [device.resource_name.as_deref(), device.first_sight_resource_name.as_deref()];
        let [known, first_sight] = names.map(|name| name.map(|name| name.trim_start_matches("fpga.intel.com/")));
        (known, first_sight)
    }

    fn nodes(device: &Device) -> Vec<&str> {
        device.nodes.iter().map(|node| node.host_path.as_str()).collect()
    }

    #[test]
    fn the_vendors_builder_cases_in_mode_regiondevel() {
        let (devices, problems) = advertised(three_regions(), IntelFpgaMode::RegionDevel);
        assert_eq!(problems, []);
        let good = (Some("region-ce48969398f05f33946d560708be108a"), None);
        let failed = (None, Some("region-ffffffffffffffffffffffffffffffff"));
        assert_eq!(devices.iter().map(names).collect::<Vec<_>>(), [good, good, failed]);
        assert_eq!(nodes(&devices[1]), ["/dev/dfl-port.1", "/dev/dfl-port.2", "/dev/dfl-fme.2"]);
        assert!(devices[2].reasons.contains(&Reason::FmeError));
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
        assert_eq!(nodes(&devices[1]), ["/dev/dfl-port.1", "/dev/dfl-port.2"]);
        assert!(devices.iter().all(|device| device.annotations.len() == 1 && device.cdi_devices.len() == 1));
    }

    #[test]
    fn a_port_that_is_being_programmed_keeps_its_place_and_says_so() {
        for (errno, reason) in
            [(Errno::BUSY, Reason::Unprogrammed), (Errno::NOENT, Reason::Unprogrammed), (Errno::IO, Reason::PortError)]
        {
            let mut facts = facts(&[(IF2, &[(0, A1), (1, A1)])]);
            let path = PathBuf::from("/sys/card/dfl-port.0/afu_id");
            facts.ports[0].afu_id = Err(AttributeError { path: path.clone(), cause: Cause::System(errno) });
            let (devices, problems) = advertised(facts, IntelFpgaMode::Af);
            assert_eq!(names(&devices[0]), (None, None));
            assert!(devices[0].reasons.contains(&reason), "{errno}");
            assert!(devices[1].resource_name.is_some() && !devices[1].reasons.contains(&reason));
            assert_eq!(problems.len(), 1);
            assert_eq!((&problems[0].path, problems[0].device.as_deref()), (&path, Some("dfl-port.0")));
        }
    }
}
