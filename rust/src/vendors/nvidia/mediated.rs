//! vGPUs for virtual machines, as in NVIDIA's kubevirt-gpu-device-plugin: each mediated device below an NVIDIA GPU is a
//! device, named after its type. <https://docs.kernel.org/driver-api/vfio-mediated-device.html>
//!
//! Without mediated devices (Linux 6.8 and newer) a vGPU is a virtual function of the GPU whose
//! `nvidia/current_vgpu_type` is not 0: <https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/>, "Creating an NVIDIA
//! vGPU on Linux with KVM hypervisor that uses a vendor-specific VFIO framework". Such functions are counted only.

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

/// The directory below /sys with links to the mediated devices, by UUID.
const BUS: &str = "bus/mdev/devices";
const TYPE: &str = "mdev_type/name";
const CURE: &str = "no IOMMU group: no VFIO driver has taken this vGPU; see the kernel log, and create it again";

/// The attribute of a GPU with vGPUs: the number of vGPUs.
pub(super) const VGPUS: &str = "vgpus";

/// The attribute of a GPU with virtual functions for vGPUs: their number.
pub(super) const VGPU_FUNCTIONS: &str = "vgpu_functions";

/// The virtual functions of a GPU that can be vGPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct VgpuFunctions {
    /// Their number.
    pub(super) all: u32,
    /// The number of those that have a type: virtual machines use them, or are about to.
    pub(super) typed: u32,
}

impl VgpuFunctions {
    /// Reads the virtual functions of the GPU with this directory.
    pub(super) fn of(gpu: &Path) -> Self {
        let number = |path: PathBuf| Attribute::read(path).ok()?.text().trim().parse::<u32>().ok();
        let enabled = number(gpu.join("sriov_numvfs")).unwrap_or_default();
        let types =
            (0..enabled).filter_map(|index| number(gpu.join(format!("virtfn{index}/nvidia/current_vgpu_type"))));
        types.fold(Self::default(), |sum, kind| Self { all: sum.all + 1, typed: sum.typed + u32::from(kind != 0) })
    }

    /// What users should know of a GPU with this address; `None` if there is nothing. `is_left_out`: whether the
    /// options keep a GPU that has vGPUs out of the offers.
    pub(super) fn note(self, address: &str, is_left_out: bool) -> Option<String> {
        let Self { all, typed } = self;
        match typed {
            _ if all == 0 => None,
            0 => Some(format!(
                "{all} virtual functions for vGPUs, of which none has a type: containers are offered the whole GPU; if no \
                 virtual machine is to have them, remove them (`sriov-manage -d {address}`)"
            )),
            _ if is_left_out => None,
            _ => Some(format!(
                "{typed} of {all} virtual functions are vGPUs of virtual machines, and containers are offered the whole GPU: \
                 `vendors.nvidia.passthrough` keeps it from them"
            )),
        }
    }
}

/// A mediated device.
#[derive(Debug)]
struct Vgpu {
    path: PathBuf,
    /// `NVIDIA A40-48Q`.
    kind: String,
    /// Number of its IOMMU group; the VFIO driver provides the group.
    group: String,
    /// `vfio0`: name of its node below /dev/vfio/devices.
    node: Option<String>,
    gpu: Function,
    /// The virtual function of the GPU that has this vGPU, if any.
    on: Option<Function>,
}

/// Adds the vGPUs, and notes on each GPU how many vGPUs it has.
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

/// Whether the vGPU has left the bus; false if the bus cannot be read.
pub(super) fn is_gone(host: &Host, device: &Device) -> bool {
    let Some(uuid) = device.text(MDEV_UUID) else { return false };
    Directory::open(host.sys(BUS)).is_ok_and(|bus| bus.link(&uuid).is_err_and(|error| error.is_absent()))
}

/// The reason why a GPU is not offered to containers, where vGPUs are given to virtual machines.
pub(super) fn left_out(device: &Device) -> Option<&'static str> {
    let why = if device.attributes.contains_key(VGPU_FUNCTIONS) {
        "its virtual functions are vGPUs of virtual machines"
    } else {
        "its vGPUs are offered to virtual machines instead"
    };
    device.attributes.contains_key(VGPUS).then_some(why)
}

impl Vgpu {
    /// Reads a mediated device; `None` if it is on a device of another maker.
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

    /// Adds one to the number of vGPUs, on the devices for containers that are this GPU or parts of it.
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

    /// The device. `by_file`: the kernel also offers devices through /dev/iommu.
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

/// The type as part of a resource name: `NVIDIA_A40-48Q` for `NVIDIA A40-48Q`; letters keep their case.
fn in_resource_name(kind: &str) -> String {
    kind.split_whitespace().collect::<Vec<_>>().join("_")
}
