"""Section `vendors`: each vendor's options, named as its own plugin names them; and section `generic`."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from devherd.config.classes import shipped
from devherd.config.errors import WrongValueError
from devherd.config.types import (
    Count,
    Form,
    HexadecimalId,
    HostPath,
    HostPathText,
    MountedPath,
    OptionalPath,
    Permissions,
    ResourceName,
    Section,
    Switch,
    Times,
    spelt,
)

Enabled = Literal["auto", True, False]
Preference = Literal["aligned", "packed", "distributed", "none"]
"""Which devices are preferred for a container."""


class VendorOptions(Section):
    """Options of every vendor."""

    enabled: Enabled = "auto"
    """Whether its devices are searched for; `true`: finding none is a problem."""
    derived = ("preferred", "preferred_shared")

    def native(self) -> dict[str, Any]:
        """What the scan core needs of them."""
        return self.model_dump(mode="json") | {"enabled": self.enabled is not False}

    @property
    def preferred(self) -> Preference | None:
        """Which devices to prefer for a container, if an option sets it; None = the default of the vendor's row."""
        return None

    @property
    def preferred_shared(self) -> Preference | None:
        """The same for shared devices."""
        return None


class RdmaSelectors(Section):
    """What a device of a pool must match: one entry of each given list."""

    vendors: list[HexadecimalId] = []
    """PCI vendors, like `15b3`."""
    device_ids: list[HexadecimalId] = []
    """PCI devices, like `1017`."""
    drivers: list[str] = []
    """Drivers, like `mlx5_core`."""
    if_names: list[str] = []
    """Network interfaces, like `ib0`."""
    link_types: list[Literal["ether", "infiniband"]] = []
    """Kinds of network interfaces."""

    @model_validator(mode="after")
    def _one_at_least(self) -> "RdmaSelectors":
        if not any(self.model_dump().values()):
            raise WrongValueError(
                "no selector is given, so no device is meant",
                "add `vendors`, `device_ids`, `drivers`, `if_names` or `link_types`",
            )
        return self


class RdmaPool(Section):
    """A pool of devices that containers share: an entry of `configList` of k8s-rdma-shared-dev-plugin."""

    name: ResourceName
    """The resource name: `resourcePrefix/resourceName`."""
    rdma_hca_max: Annotated[Count, Field(ge=1, le=10_000)]
    """How many containers may have the pool."""
    selectors: RdmaSelectors


class RdmaOptions(VendorOptions):
    """RDMA devices."""

    mode: Literal["device", "shared", "sriov"] = "device"
    """What is advertised: RDMA devices, pools as by k8s-rdma-shared-dev-plugin, or PCI functions as by
    sriov-network-device-plugin.
    """
    shared_devices: Annotated[Count, Field(ge=0, le=10_000)] = 0
    """How many containers share a device, in `mode: device`; 0: one at a time."""
    pools: list[RdmaPool] = []
    """The pools of `mode: shared`."""
    device_info_dir: HostPath = Path("/var/run/k8s.cni.cncf.io/devinfo/dp")
    """The directory on the host from which Multus reads the details of a function, in `mode: sriov`."""

    def native(self) -> dict[str, Any]:
        """The options that the scan core needs."""
        return {name: value for name, value in super().native().items() if name != "device_info_dir"}

    @model_validator(mode="after")
    def _of_its_mode(self) -> "RdmaOptions":
        if self.pools and self.mode != "shared":
            raise WrongValueError(
                f"`pools` are of `mode: shared`, but the mode is `{self.mode}`",
                "write `mode: shared`, or remove them",
                at=("pools",),
            )
        if self.mode == "shared" and not self.pools:
            raise WrongValueError("`mode: shared` shares `pools`, and none is given", "add `pools`", at=("mode",))
        if self.shared_devices and self.mode != "device":
            raise WrongValueError(
                f"`shared_devices` is of `mode: device`, but the mode is `{self.mode}`",
                "remove it; a pool has `rdma_hca_max`",
                at=("shared_devices",),
            )
        names = [pool.name for pool in self.pools]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise WrongValueError(
                    f"another pool is called `{name}`", "rename one of them", at=("pools", place, "name")
                )
        return self


DeviceListStrategy = Literal["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]
PciDeviceId = Annotated[
    str,
    spelt("0x[0-9a-f]{4}", "the id of a PCI device", "write it in lower case, in quotes, like `'0x56c0'`"),
    Field(examples=["0x56c0"]),
    Form("PCI device id"),
]


class IntelFpgaOptions(VendorOptions):
    """Intel FPGAs: options of Intel's FPGA plugin."""

    mode: Literal["af", "region", "regiondevel"] = "af"
    """What is advertised: accelerator functions, programmable regions, or regions with their management node."""


class Imex(Section):
    """IMEX channels that every container gets; the vendor's plugin supports only channel 0."""

    channel_ids: list[Annotated[Count, Field(ge=0, le=2047)]] = []
    """Their numbers."""
    required: Switch = False
    """Whether GPUs are advertised only if all channels exist."""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class NvidiaOptions(VendorOptions):
    """NVIDIA GPUs: options of NVIDIA's plugin."""

    mig_strategy: Literal["none", "single", "mixed"] = "none"
    """How GPUs in MIG mode are advertised: as whole GPUs, MIG devices as `nvidia.com/gpu`, or by profile as
    `nvidia.com/mig-1g.10gb`.
    """
    device_list_strategy: Annotated[
        list[DeviceListStrategy],
        BeforeValidator(_as_list, json_schema_input_type=DeviceListStrategy | list[DeviceListStrategy]),
        Field(min_length=1),
        Form("list of `envvar`, `volume-mounts`, `cdi-annotations`, `cdi-cri`"),
    ] = ["envvar"]
    """How the container runtime learns which devices a container gets: `NVIDIA_VISIBLE_DEVICES`, mounts, or CDI names
    in annotations or in the kubelet's own field.
    """
    device_id_strategy: Literal["uuid", "index"] = "uuid"
    """How the runtime identifies the devices."""
    pass_device_specs: Switch = False
    """Whether the kubelet also gets the device nodes, for its CPU manager."""
    driver_root: HostPathText = "/"
    """Where the driver's libraries are on the host: the directory above their `lib`, `lib64` or `usr`."""
    dev_root: HostPathText | None = None
    """Where the device nodes are on the host (default: the driver root)."""
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    """The prefix of the annotation of `cdi-annotations`."""
    cdi_hook_path: HostPathText = "/usr/bin/nvidia-ctk"
    """The program on the host that CDI hooks run."""
    gdrcopy_enabled: Switch = False
    """Whether containers get GDRCopy."""
    gds_enabled: Switch = False
    """Whether containers get GPUDirect Storage."""
    mofed_enabled: Switch = False
    """Whether containers get the InfiniBand nodes."""
    mps_root: HostPathText | None = None
    """The directory of the MPS control daemon on the host; needed where a rule shares by MPS."""
    shared_devices_allocation_policy: Literal["distributed", "packed"] = "distributed"
    """Whether replicas for a container come from as many GPUs as possible, or from as few."""
    device_discovery_strategy: Literal["auto", "nvml", "procfs", "tegra"] = "auto"
    """How GPUs are found. `procfs`: NVML is never called; MIG devices are then given by their nodes, and only
    with `mig_strategy: single`.
    """
    passthrough: Switch = False
    """Whether GPUs under vfio-pci are offered to virtual machines, as `nvidia.com/GH100_H100_SXM5_80GB`, and vGPUs
    (mediated devices), as `nvidia.com/NVIDIA_A40-48Q`, the way NVIDIA's kubevirt-gpu-device-plugin does. A GPU that
    has vGPUs, also on its virtual functions (`nvidia/current_vgpu_type`), is then not offered to containers.
    """
    keep_open: Switch = True
    """Whether GPUs stay open while they are watched, so that NVML's events count at once. `false`: they are opened
    briefly every 30 s, so that devherd does not prevent a reset, sleep or another driver.
    """
    imex: Imex = Imex()

    @property
    def preferred_shared(self) -> Preference | None:
        """Only shared devices have a policy."""
        return self.shared_devices_allocation_policy

    def native(self) -> dict[str, Any]:
        """The options that the scan core needs: sharing does not concern the scan."""
        options = super().native()
        imex = options.pop("imex")
        for arranged_later in ("mps_root", "shared_devices_allocation_policy"):
            del options[arranged_later]
        return options | {"imex_channel_ids": imex["channel_ids"], "imex_required": imex["required"]}


class AmdOptions(VendorOptions):
    """AMD GPUs: options of AMD's plugin."""

    naming: Literal["single", "mixed"] = "single"
    """Whether every GPU and partition is `amd.com/gpu`, or partitions are named by kind, `amd.com/cpx_nps4`."""
    driver_type: Literal["auto", "container", "vf_passthrough", "pf_passthrough"] = "auto"
    """What the GPUs are for: containers (amdgpu), or virtual machines, as virtual functions (gim) or whole (vfio-pci);
    `auto`: by the loaded driver.
    """

    def native(self) -> dict[str, Any]:
        """What the scan core needs: a missing driver is a problem if `enabled` is true, not if it is `auto`."""
        return super().native() | {"required": self.enabled is True}


class IntelGpuOptions(VendorOptions):
    """Intel GPUs: options of Intel's GPU plugin."""

    shared_devices: Annotated[Count, Field(ge=1, le=10_000)] = 1
    """How many containers share a card."""
    allocation_policy: Literal["none", "balanced", "packed"] = "none"
    """Whether a container's shares come from as many cards as possible, or from as few."""
    monitoring: Literal[True, False, "single", "split"] = False
    """Whether a resource with the nodes of all cards is advertised: `gpu.intel.com/monitoring` with `true` or
    `single`, one for each driver with `split`.
    """
    allow_ids: list[PciDeviceId] = []
    """PCI device ids of the cards that are advertised; empty: all."""
    deny_ids: list[PciDeviceId] = []
    """PCI device ids of cards that are not advertised."""
    bypath: Literal["single", "none", "all"] = "single"
    """Which links of /dev/dri/by-path a container gets: those of its cards, none, or the directory."""

    @model_validator(mode="after")
    def _one_list(self) -> "IntelGpuOptions":
        if self.allow_ids and self.deny_ids:
            raise WrongValueError("`allow_ids` and `deny_ids` are both given", "remove one of them", at=("deny_ids",))
        return self

    @property
    def preferred(self) -> Preference | None:
        """`packed` is the one policy that differs from the default."""
        return "packed" if self.allocation_policy == "packed" else None

    @property
    def preferred_shared(self) -> Preference | None:
        """Shares as cards."""
        return self.preferred

    def native(self) -> dict[str, Any]:
        """What the scan core needs: preferences do not concern the scan."""
        options = super().native()
        del options["allocation_policy"]
        return options | {
            "monitoring": {True: "single", False: "off"}.get(options["monitoring"], options["monitoring"])
        }


_MEDIA_CARDS = "amd-ma35d"


class XilinxFpgaOptions(VendorOptions):
    """Xilinx FPGAs: options of its plugin, which has them as environment variables."""

    u30_name_convention: Literal["common_name", "exact_name"] = "common_name"
    """Whether U30 cards are `amd.com/ama_u30`, or named by their shell as all other cards are."""
    u30_alloc_unit: Literal["card", "device"] = "card"
    """Whether a container gets both devices of a U30 card, or one."""

    def native(self) -> dict[str, Any]:
        """The options that the scan core needs, and the class of the cards that have a driver of their own."""
        return super().native() | {"classes": [shipped(_MEDIA_CARDS).native(_MEDIA_CARDS)]}


class Vendors(Section):
    """Options of each vendor."""

    intel_fpga: IntelFpgaOptions = IntelFpgaOptions()
    nvidia: NvidiaOptions = NvidiaOptions()
    amd: AmdOptions = AmdOptions()
    intel_gpu: IntelGpuOptions = IntelGpuOptions()
    xilinx_fpga: XilinxFpgaOptions = XilinxFpgaOptions()
    rdma: RdmaOptions = RdmaOptions()

    def native(self) -> dict[str, Any]:
        """What the scan core needs, by section."""
        return {name: getattr(self, name).native() for name in type(self).model_fields}


class GenericPath(Section):
    """A file of the host that goes into the container."""

    path: MountedPath
    """Its path on the host; a glob makes one device of each match."""
    mount_path: Annotated[OptionalPath, Field(alias="mountPath")] = ""
    """Its path in the container (default: the path on the host)."""
    type: Literal["Device", "Mount"] = "Device"
    """Whether it is a device node, or a file or directory to be mounted."""
    permissions: Permissions = "mrw"
    """What the container may do with a device node: read, write, make."""
    read_only: Annotated[Switch, Field(alias="readOnly")] = False
    """Whether a mount is read-only."""
    limit: Times = 1
    """How many devices each match becomes."""
    optional: Switch = False
    """Whether the group is still created when this path is missing."""


class GenericUsb(Section):
    """A USB device that goes into the container."""

    vendor: HexadecimalId
    """Id of its vendor."""
    product: HexadecimalId
    """Id of its product."""
    serial: str | None = None
    """Its serial number (default: any)."""


class GenericGroup(Section):
    """Paths, or USB devices, that go into a container together."""

    count: Annotated[Times, Field(le=100_000)] = 1
    """How many containers may share them."""
    paths: list[GenericPath] = []
    """Files of the host."""
    usb: list[GenericUsb] = []
    """USB devices."""
    separate: Switch = False
    """Whether each USB device is a separate device; generic-device-plugin always makes one device of all."""

    @model_validator(mode="after")
    def _one_kind(self) -> "GenericGroup":
        if bool(self.paths) == bool(self.usb):
            both = bool(self.paths)
            raise WrongValueError(
                "a group has either `paths` or `usb`" + (", and not both" if both else ""),
                "make two groups of it" if both else "add one of them",
            )
        if self.separate and not self.usb:
            raise WrongValueError(
                "`separate` is for `usb`: every match of a path is a device of its own already",
                "remove it",
                at=("separate",),
            )
        return self


class GenericDevice(Section):
    """A resource made of paths or USB devices."""

    name: ResourceName
    """Its resource name."""
    groups: Annotated[list[GenericGroup], Field(min_length=1)]
    """The paths or USB devices that make its devices."""
