//! `/dev/infiniband/rdma_cm`: one node for all RDMA devices, by which connections are made.

use super::VENDOR;
use super::locate::Companion;
use crate::device::Problem;
use crate::host::Host;
use crate::host::attribute::Attribute;

const NAME: &str = "rdma_cm";

/// The node; a problem that names its module while the node is missing.
pub(super) fn read(host: &Host) -> Result<Companion, Problem> {
    let dev = Attribute::read(host.sys("class/misc").join(NAME).join("dev"));
    let number = dev.as_ref().ok().and_then(|dev| dev.device_number().ok());
    let companion = Companion { name: NAME.to_owned(), number };
    if dev.is_err() && host.lacks_node(&host.dev("infiniband").join(NAME), None) {
        let error = "does not exist: RDMA devices cannot make connections and are not advertised; load the kernel module rdma_ucm";
        return Err(Problem::new(VENDOR, "/dev/infiniband/rdma_cm", error));
    }
    Ok(companion)
}
