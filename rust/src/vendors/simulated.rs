//! Devices that exist only as names: for tests, dry runs and load of any size.

use crate::device::{Device, Found};
use crate::fence::Fence;
use crate::host::Host;
use crate::order::natural;
use crate::vendors::Vendor;
use serde::Deserialize;

/// The value of `vendor` in JSON, metrics and problems.
pub(super) const VENDOR: &str = "simulated";

/// Devices that exist only as names, of one resource.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedDevice {
    /// Full resource name.
    pub name: String,
    /// Number of devices; their ids are `<last part of the name>-0`, `-1` and so on.
    pub count: u32,
    /// Number of NUMA nodes that they are spread over; 0 = unknown.
    pub numa_nodes: u32,
}

/// The devices that the section `simulated` of the config requests.
pub struct Simulated {
    resources: Vec<SimulatedDevice>,
}

impl Simulated {
    /// The devices of these resources.
    #[must_use]
    pub fn new(resources: Vec<SimulatedDevice>) -> Self {
        Self { resources }
    }
}

impl Vendor for Simulated {
    fn name(&self) -> &'static str {
        VENDOR
    }

    fn scan(&self, _host: &Host, _fence: &Fence) -> Found {
        let mut found = Found::default();
        for resource in &self.resources {
            found.devices.extend((0..resource.count).map(|number| device(resource, number).into()));
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
    Device { vendor: VENDOR.into(), card, id, resource_name, numa_nodes, ..Device::default() }
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
            vendor: VENDOR.into(),
            card: "example.com/gpu".into(),
            id: "gpu-0".into(),
            resource_name: Some("example.com/gpu".into()),
            ..Device::default()
        };
        assert_eq!(scan(vec![resource("example.com/gpu", 1, 0)]).devices, [expected.into()]);
    }

    #[test]
    fn devices_are_spread_over_numa_nodes_in_turn() {
        let found = scan(vec![resource("example.com/gpu", 5, 2)]);
        let nodes: Vec<_> = found.devices.iter().map(|device| device.numa_nodes.clone()).collect();
        assert_eq!(nodes, [[0], [1], [0], [1], [0]]);
    }

    #[test]
    fn ids_are_those_of_their_resource_and_two_resources_may_have_the_same() {
        let found = scan(vec![resource("a.example/gpu", 1, 0), resource("b.example/gpu", 1, 0)]);
        assert_eq!(ids(&found), ["gpu-0", "gpu-0"]);
    }

    #[test]
    fn none_is_fine() {
        assert_eq!(scan(vec![resource("example.com/gpu", 0, 4)]), Found::default());
        assert_eq!(scan(Vec::new()), Found::default());
    }
}
