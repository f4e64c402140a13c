//! The kubelet's list of a resource's devices, from the resource as its child reads it: both encoded.

use std::collections::BTreeSet;

use prost::{DecodeError, Message};

use super::messages::offers::{ListedDevice, Resource};
use super::messages::v1beta1::{Device, ListAndWatchResponse, NumaNode, TopologyInfo};
use crate::order::natural;

/// The kubelet's list for a `devherd.spool.Resource`, in natural order of ids, and the Unhealthy ids. If other devices
/// have known NUMA nodes, a device without known nodes gets each node that it may be on: the topology manager never
/// allocates devices with and without nodes together.
///
/// # Errors
/// If `resource` is not an encoded `devherd.spool.Resource`.
pub fn device_list(resource: &[u8]) -> Result<(Vec<u8>, Vec<String>), DecodeError> {
    let resource = Resource::decode(resource)?;
    let mut possible: BTreeSet<i64> = resource.devices.iter().flat_map(|device| device.numa_nodes.clone()).collect();
    if !possible.is_empty() {
        possible.extend(resource.processor_nodes);
    }
    let mut ids: Vec<(String, &ListedDevice)> =
        resource.devices.iter().flat_map(|device| ids(device).map(move |id| (id, device))).collect();
    if resource.devices.iter().any(|device| !device.shares.is_empty()) {
        ids.sort_by(|(left, _), (right, _)| natural(left, right));
    }
    let unhealthy = ids.iter().filter(|(_, device)| is_unhealthy(device)).map(|(id, _)| id.clone()).collect();
    let devices = ids.into_iter().map(|(id, device)| Device {
        id,
        health: if is_unhealthy(device) { "Unhealthy" } else { "Healthy" }.to_owned(),
        topology: if device.numa_nodes.is_empty() { topology(&possible) } else { topology(&device.numa_nodes) },
    });
    Ok((ListAndWatchResponse { devices: devices.collect() }.encode_to_vec(), unhealthy))
}

/// The ids of a device, as in Python's `spool.ids_of`.
fn ids(device: &ListedDevice) -> impl Iterator<Item = String> {
    let own = if device.shares.is_empty() { std::slice::from_ref(&device.id) } else { &device.shares };
    own.iter().flat_map(|id| {
        let single = (device.replicas == 0).then(|| id.clone());
        single.into_iter().chain((0..device.replicas).map(move |number| format!("{id}::{number}")))
    })
}

fn is_unhealthy(device: &ListedDevice) -> bool {
    !device.reasons.is_empty()
}

fn topology<'n>(nodes: impl IntoIterator<Item = &'n i64>) -> Option<TopologyInfo> {
    let nodes: Vec<NumaNode> = nodes.into_iter().map(|&id| NumaNode { id }).collect();
    (!nodes.is_empty()).then_some(TopologyInfo { nodes })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_that_are_no_message_are_refused_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = device_list(&bytes);
        }
    }

    #[test]
    fn a_message_that_is_cut_off_is_refused() {
        let resource = [0x12, 0x06, 0x0a, 0x01, b'x', 0x1a, 0x01, b'y'];
        let list = [&[10, 14, 10, 1, b'x', 18, 9][..], b"Unhealthy"].concat();
        assert_eq!(device_list(&resource), Ok((list, vec!["x".to_owned()])));
        for length in 1..resource.len() {
            assert!(device_list(&resource[..length]).is_err(), "{length}");
        }
    }
}
