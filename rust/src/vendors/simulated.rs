//! Devices that exist only as names: for tests, dry runs and load of any size.

use std::collections::BTreeSet;

use crate::device::{Device, Found, Problem};
use crate::host::Host;
use crate::order::natural;
use crate::probe::Fence;
use crate::settings::SimulatedDevice;
use crate::vendors::Vendor;

const NAME: &str = "simulated";

/// The devices that the config's `simulated` asks for.
pub struct Simulated {
    resources: Vec<SimulatedDevice>,
}

impl Simulated {
    /// Devices of these resources.
    #[must_use]
    pub fn new(resources: Vec<SimulatedDevice>) -> Self {
        Self { resources }
    }
}

impl Vendor for Simulated {
    fn name(&self) -> &'static str {
        NAME
    }

    fn scan(&self, _host: &Host, _fence: &Fence) -> Found {
        let mut found = Found::default();
        let mut taken = BTreeSet::new();
        for resource in &self.resources {
            if taken.insert(&resource.name) {
                found.devices.extend((0..resource.count).map(|number| device(resource, number)));
            } else {
                found.problems.push(Problem::new(NAME, &resource.name, "given twice; the second is left out"));
            }
        }
        found.devices.sort_by(|left, right| natural(&left.id, &right.id));
        found
    }
}

/// The last part of a resource name: `gpu` of `example.com/gpu`.
fn stem(resource_name: &str) -> &str {
    resource_name.rsplit('/').next().unwrap_or(resource_name)
}

fn device(resource: &SimulatedDevice, number: u32) -> Device {
    let (card, id) = (resource.name.clone(), format!("{}-{number}", stem(&resource.name)));
    let numa_nodes = number.checked_rem(resource.numa_nodes).into_iter().collect();
    let resource_name = Some(resource.name.clone());
    Device { vendor: NAME.into(), card, id, resource_name, numa_nodes, ..Device::default() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn resource(name: &str, count: u32, numa_nodes: u32) -> SimulatedDevice {
        SimulatedDevice { name: name.into(), count, numa_nodes }
    }

    fn scan(resources: Vec<SimulatedDevice>) -> Found {
        Simulated::new(resources).scan(&Host::new("/nowhere"), &Fence::new(Duration::from_secs(1)))
    }

    fn ids(found: &Found) -> Vec<&str> {
        found.devices.iter().map(|device| device.id.as_str()).collect()
    }

    #[test]
    fn devices_are_numbered_from_zero_in_natural_order() {
        let found = scan(vec![resource("example.com/gpu", 11, 0), resource("example.com/fpga", 1, 0)]);
        assert_eq!(ids(&found)[..4], ["fpga-0", "gpu-0", "gpu-1", "gpu-2"]);
        assert_eq!(ids(&found)[11], "gpu-10");
        assert_eq!(found.problems, []);
    }

    #[test]
    fn a_device_has_its_resource_and_nothing_else() {
        let expected = Device {
            vendor: NAME.into(),
            card: "example.com/gpu".into(),
            id: "gpu-0".into(),
            resource_name: Some("example.com/gpu".into()),
            ..Device::default()
        };
        assert_eq!(scan(vec![resource("example.com/gpu", 1, 0)]).devices, [expected]);
    }

    #[test]
    fn devices_are_spread_over_numa_nodes_in_turn() {
        let found = scan(vec![resource("example.com/gpu", 5, 2)]);
        let nodes: Vec<_> = found.devices.iter().map(|device| device.numa_nodes.clone()).collect();
        assert_eq!(nodes, [[0], [1], [0], [1], [0]]);
    }

    #[test]
    fn a_name_given_twice_is_a_problem_of_the_later_one() {
        let found = scan(vec![
            resource("a.example/gpu", 1, 0),
            resource("b.example/gpu", 1, 0),
            resource("a.example/gpu", 9, 0),
        ]);
        assert_eq!(ids(&found), ["gpu-0", "gpu-0"], "ids are of their resource, and two may have the same");
        assert_eq!(found.problems, [Problem::new(NAME, "a.example/gpu", "given twice; the second is left out")]);
    }

    #[test]
    fn none_is_fine() {
        assert_eq!(scan(vec![resource("example.com/gpu", 0, 4)]), Found::default());
        assert_eq!(scan(Vec::new()), Found::default());
    }
}
