//! What a container gets of a card.

use crate::device::Device;
use crate::edits::{Edits, Mount, Way, cdi_name};

const CDI_KIND: &str = "intel.cdi.k8s.io/gpu";

/// The card's nodes and links. Intel's plugin answers by both ways at once, and so does this; who monitors all cards gets
/// nodes alone.
pub(super) fn edits(device: &Device, way: Way) -> Edits {
    let nodes = Edits::of_nodes(&device.paths, "rw");
    let Some(card) = device.text("card") else { return nodes.given(way, || cdi_name(device)) };
    let links = device.paths.iter().filter(|path| !path.is_node).map(|path| Mount::same(&path.path));
    let edits = Edits { mounts: links.collect(), ..nodes };
    let by_cdi = edits.clone().by_cdi(format!("{CDI_KIND}={card}"));
    match way {
        Way::DevicePlugin => edits.and(by_cdi),
        Way::Cdi => by_cdi,
    }
}
