"""Section `vendors`: each vendor's options, named as its own plugin names them.

rust/src/vendors/*/options.rs has what the scan needs of them.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from devherd.config.form import Form
from devherd.config.problem import WrongValueError
from devherd.config.rdma import RdmaOptions
from devherd.config.resolved import Preference
from devherd.config.section import Section
from devherd.config.values import Count, HostPathText, Switch, spelt
from devherd.config.vendor_options import VendorOptions

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
    """What is advertised: accelerator functions, regions to be programmed, or regions with their management node."""


class Imex(Section):
    """IMEX channels that every container gets; the vendor's plugin knows channel 0 only."""

    channel_ids: list[Annotated[Count, Field(ge=0, le=2047)]] = []
    """Their numbers."""
    required: Switch = False
    """Whether a GPU cannot be advertised where a channel is missing."""


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
    """By what the runtime is given the devices."""
    pass_device_specs: Switch = False
    """Whether the kubelet is given the device nodes as well, for its CPU manager."""
    driver_root: HostPathText = "/"
    """Where the driver's libraries are on the host."""
    dev_root: HostPathText | None = None
    """Where the device nodes are on the host; without a value in the driver root."""
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    """What the annotation of `cdi-annotations` begins with."""
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
    """By what GPUs are found. `procfs`: NVML is never asked; MIG devices are then given by their nodes, under
    `mig_strategy: single` only.
    """
    keep_open: Switch = True
    """Whether GPUs stay open while they are watched, so that what NVML tells counts at once. `false`: they are opened
    for a look each 30 s, and nothing of devherd's keeps them from a reset, from sleep or from another driver.
    """
    imex: Imex = Imex()

    def preferred(self, *, shared: bool) -> Preference | None:
        """Only shared devices have a policy."""
        return self.shared_devices_allocation_policy if shared else None

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
    """Who uses the GPUs: containers (amdgpu), or virtual machines by virtual functions (gim) or whole GPUs (vfio-pci);
    `auto`: as the driver that is loaded has it.
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
    """Whether there is a resource with the nodes of all cards: `gpu.intel.com/monitoring` with `true` or `single`, one
    for each driver with `split`.
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

    def preferred(self, *, shared: bool) -> Preference | None:
        """`packed` is the one policy that differs from the default."""
        del shared
        return "packed" if self.allocation_policy == "packed" else None

    def native(self) -> dict[str, Any]:
        """What the scan core needs: preferences do not concern the scan."""
        options = super().native()
        del options["allocation_policy"]
        return options | {
            "monitoring": {True: "single", False: "off"}.get(options["monitoring"], options["monitoring"])
        }


class XilinxFpgaOptions(VendorOptions):
    """Xilinx FPGAs: options of its plugin, which has them as environment variables."""

    u30_name_convention: Literal["common_name", "exact_name"] = "common_name"
    """Whether U30 cards are `amd.com/ama_u30`, or named by their shell as all other cards are."""
    u30_alloc_unit: Literal["card", "device"] = "card"
    """Whether a container gets both devices of a U30 card, or one."""


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
