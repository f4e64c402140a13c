//! vGPUs for virtual machines, as NVIDIA's kubevirt-gpu-device-plugin offers them: each mediated device below a GPU of
//! NVIDIA's is a device, named after its type. <https://docs.kernel.org/driver-api/vfio-mediated-device.html>

use std::path::{Path, PathBuf};

use super::advertise::NAMESPACE;
use super::passthrough::{file_name, nodes, vfio_node};
use super::{VENDOR, driver};
use crate::bus::pci::{self, Function};
use crate::device::{Device, Found, Problem};
use crate::fence::Fence;
use crate::host::Host;
use crate::host::attribute::Attribute;
use crate::host::directory::{self, Directory};
use crate::vendors::gpus::{IOMMU_GROUP, MDEV_UUID};
use crate::vendors::per_card::per_card;

/// Below /sys, links to the mediated devices by UUID.
const BUS: &str = "bus/mdev/devices";
const TYPE: &str = "mdev_type/name";
const CURE: &str = "no IOMMU group: no VFIO driver has taken this vGPU; see the kernel log, and create it again";

/// The attribute of a GPU that has vGPUs: their number.
pub(super) const VGPUS: &str = "vgpus";

/// A mediated device.
#[derive(Debug)]
struct Vgpu {
    path: PathBuf,
    /// `NVIDIA A40-48Q`.
    kind: String,
    /// Number of its IOMMU group, which it has by its VFIO driver.
    group: String,
    /// `vfio0`, its node below /dev/vfio/devices.
    node: Option<String>,
    gpu: Function,
    /// The GPU's virtual function that the vGPU is on.
    on: Option<Function>,
}

/// Adds the vGPUs, and their numbers to their GPUs.
pub(super) fn add(host: &Host, fence: &Fence, found: &mut Found) {
    let listed = Directory::open(host.sys(BUS)).and_then(|bus| Ok((bus.names()?, bus)));
    let (names, bus) = match listed {
        Ok(listed) => listed,
        Err(error) if error.is_absent() => return,
        Err(error) => {
            found.problems.push(Problem::new(VENDOR, host.own_path(host.sys(BUS)), error.cause.to_string()));
            return;
        }
    };
    let links = names.into_iter().filter_map(|uuid| {
        let path = host.behind_link(bus.path(), &bus.link(&uuid).ok()?);
        Some(((uuid, host.own_path(&path)), path))
    });
    let behind_fence = host.clone();
    let read = per_card(VENDOR, found, fence, links.collect(), move |path| Vgpu::read(&behind_fence, path));
    let by_file = directory::exists(&host.dev("iommu"));
    for one in read.into_iter().flatten() {
        match one {
            Ok(vgpu) => {
                vgpu.count(host, found);
                found.devices.push(vgpu.device(host, by_file).into());
            }
            Err(problem) => found.problems.push(problem),
        }
    }
}

/// Whether the bus, which can be read, does not have a vGPU.
pub(super) fn is_gone(host: &Host, device: &Device) -> bool {
    let Some(uuid) = device.text(MDEV_UUID) else { return false };
    Directory::open(host.sys(BUS)).is_ok_and(|bus| bus.link(&uuid).is_err_and(|error| error.is_absent()))
}

/// Why a GPU is not offered to containers.
pub(super) fn left_out(device: &Device) -> Option<&'static str> {
    device.attributes.contains_key(VGPUS).then_some("its vGPUs are offered to virtual machines instead")
}

impl Vgpu {
    /// `None` if it is on another maker's device.
    fn read(host: &Host, path: PathBuf) -> Option<Result<Self, Problem>> {
        let parent = Function::read(pci::function_of(&path)?);
        let ((maker, _), _) = parent.id.as_ref()?;
        if u64::from(*maker) != driver::NVIDIA {
            return None;
        }
        let problem = |name: &str, cause: String| {
            Problem::new(VENDOR, host.own_path(path.join(name)), cause).of(file_name(&path))
        };
        let kind = match Attribute::read(path.join(TYPE)) {
            Ok(kind) => kind.text().trim().to_owned(),
            Err(error) => return Some(Err(problem(TYPE, error.cause.to_string()))),
        };
        let group = match directory::link(&path.join(IOMMU_GROUP)) {
            Ok(group) => file_name(&group),
            Err(error) if error.is_absent() => return Some(Err(problem(IOMMU_GROUP, CURE.to_owned()))),
            Err(error) => return Some(Err(problem(IOMMU_GROUP, error.cause.to_string()))),
        };
        let node = vfio_node(&path);
        let (gpu, on) = match pci::physical_function(host, &parent.path) {
            Some(physical) => (Function::read(&physical), Some(parent)),
            None => (parent, None),
        };
        Some(Ok(Self { path, kind, group, node, gpu, on }))
    }

    /// The GPU and what it is made of, for containers, say how many vGPUs it has.
    fn count(&self, host: &Host, found: &mut Found) {
        let gpu = host.own_path(&self.gpu.path);
        let is_on_gpu = |device: &Device| {
            !device.attributes.contains_key(IOMMU_GROUP) && device.functions.iter().any(|one| one.path == gpu)
        };
        for device in found.devices.iter_mut().filter(|device| is_on_gpu(device)) {
            let device = std::sync::Arc::make_mut(device);
            let before: u32 = device.text(VGPUS).and_then(|count| count.parse().ok()).unwrap_or_default();
            device.note(VGPUS, before + 1, Path::new("/sys").join(BUS));
        }
    }

    /// The device. `by_file`: the kernel also gives devices by /dev/iommu.
    fn device(&self, host: &Host, by_file: bool) -> Device {
        let uuid = file_name(&self.path);
        let mut device = Device {
            vendor: VENDOR.into(),
            card: uuid.clone(),
            id: uuid.clone(),
            resource_name: Some(format!("{NAMESPACE}/{}", in_resource_name(&self.kind))),
            numa_nodes: self.gpu.numa_node.iter().map(|(node, _)| *node).collect(),
            ..Device::default()
        };
        self.gpu.describe(host, &mut device);
        if let Some(function) = &self.on {
            function.attach(host, &mut device);
        }
        device.note(IOMMU_GROUP, self.group.clone(), host.own_path(self.path.join(IOMMU_GROUP)));
        device.note(MDEV_UUID, uuid, host.own_path(&self.path));
        device.note("vgpu_type", self.kind.clone(), host.own_path(self.path.join(TYPE)));
        device.paths.extend(nodes(&self.group, self.node.iter(), by_file));
        device
    }
}

/// `NVIDIA_A40-48Q` of `NVIDIA A40-48Q`; letters keep their case.
fn in_resource_name(kind: &str) -> String {
    kind.split_whitespace().collect::<Vec<_>>().join("_")
}
