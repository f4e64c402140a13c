"""Options of vendors, named as its own plugin names them; rust/src/vendors/*/options.rs has what the scan needs."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from devherd.config.resolved import Preference
from devherd.config.section import Section
from devherd.config.values import Count, HexadecimalId, HostPath, HostPathText, ResourceName

Enabled = Literal["auto", True, False]
DeviceListStrategy = Literal["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]
PciDeviceId = Annotated[str, Field(pattern=r"^0x[0-9a-f]{4}$", examples=["0x56c0"])]


class VendorOptions(Section):
    """Options of every vendor."""

    enabled: Enabled = "auto"

    def native(self) -> dict[str, Any]:
        """What the scan core needs of them."""
        return self.model_dump(mode="json") | {"enabled": self.enabled is not False}

    def preferred(self, *, shared: bool) -> Preference | None:
        """Which devices to prefer for a container, if an option sets it; None = the default of the vendor's row."""
        del shared
        return None


class IntelFpgaOptions(VendorOptions):
    """Options of Intel's FPGA plugin."""

    mode: Literal["af", "region", "regiondevel"] = "af"


class Imex(Section):
    """IMEX channels that every container gets; the vendor's plugin knows channel 0 only."""

    channel_ids: list[Annotated[Count, Field(ge=0, le=2047)]] = []
    required: bool = False


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class NvidiaOptions(VendorOptions):
    """Options of NVIDIA's plugin."""

    mig_strategy: Literal["none", "single", "mixed"] = "none"
    device_list_strategy: Annotated[
        list[DeviceListStrategy],
        BeforeValidator(_as_list, json_schema_input_type=DeviceListStrategy | list[DeviceListStrategy]),
        Field(min_length=1),
    ] = ["envvar"]
    device_id_strategy: Literal["uuid", "index"] = "uuid"
    pass_device_specs: bool = False
    driver_root: HostPathText = "/"
    dev_root: HostPathText | None = None
    """The driver root when not given."""
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    cdi_hook_path: HostPathText = "/usr/bin/nvidia-ctk"
    gdrcopy_enabled: bool = False
    gds_enabled: bool = False
    mofed_enabled: bool = False
    mps_root: HostPathText | None = None
    """Needed where a resource is shared by MPS."""
    shared_devices_allocation_policy: Literal["distributed", "packed"] = "distributed"
    device_discovery_strategy: Literal["auto", "nvml", "procfs", "tegra"] = "auto"
    """`procfs`: NVML is never asked; MIG devices are then given by their nodes, under `mig_strategy: single` only."""
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
    """Options of AMD's plugin."""

    naming: Literal["single", "mixed"] = "single"
    driver_type: Literal["auto", "container", "vf_passthrough", "pf_passthrough"] = "auto"

    def native(self) -> dict[str, Any]:
        """What the scan core needs: a missing driver is a problem if `enabled` is true, not if it is `auto`."""
        return super().native() | {"required": self.enabled is True}


class IntelGpuOptions(VendorOptions):
    """Options of Intel's GPU plugin."""

    shared_devices: Annotated[Count, Field(ge=1, le=10_000)] = 1
    allocation_policy: Literal["none", "balanced", "packed"] = "none"
    monitoring: Literal[True, False, "single", "split"] = False
    allow_ids: list[PciDeviceId] = []
    deny_ids: list[PciDeviceId] = []
    bypath: Literal["single", "none", "all"] = "single"

    @model_validator(mode="after")
    def _one_list(self) -> "IntelGpuOptions":
        if self.allow_ids and self.deny_ids:
            raise ValueError("give `allow_ids` or `deny_ids`, not both")
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
    """Options of Xilinx's FPGA plugin, which has them as environment variables."""

    u30_name_convention: Literal["common_name", "exact_name"] = "common_name"
    u30_alloc_unit: Literal["card", "device"] = "card"


class RdmaSelectors(Section):
    """What a device of a pool must be: one of each list that is given."""

    vendors: list[HexadecimalId] = []
    device_ids: list[HexadecimalId] = []
    drivers: list[str] = []
    if_names: list[str] = []
    link_types: list[Literal["ether", "infiniband"]] = []

    @model_validator(mode="after")
    def _one_at_least(self) -> "RdmaSelectors":
        if not any(self.model_dump().values()):
            raise ValueError("give one selector at least")
        return self


class RdmaPool(Section):
    """An entry of `configList` of k8s-rdma-shared-dev-plugin."""

    name: ResourceName
    """`resourcePrefix/resourceName`."""
    rdma_hca_max: Annotated[Count, Field(ge=1, le=10_000)]
    selectors: RdmaSelectors


class RdmaOptions(VendorOptions):
    """Options of RDMA devices."""

    mode: Literal["device", "shared", "sriov"] = "device"
    """RDMA devices, pools as of k8s-rdma-shared-dev-plugin, or PCI functions as of sriov-network-device-plugin."""
    shared_devices: Annotated[Count, Field(ge=0, le=10_000)] = 0
    """Ids a device, for sharing; 0 = each device goes to one container at a time."""
    pools: list[RdmaPool] = []
    device_info_dir: HostPath = Path("/var/run/k8s.cni.cncf.io/devinfo/dp")
    """Where Multus looks for what is known of a function, in `mode: sriov`."""

    def native(self) -> dict[str, Any]:
        """The options that the scan core needs."""
        return {name: value for name, value in super().native().items() if name != "device_info_dir"}

    @model_validator(mode="after")
    def _of_its_mode(self) -> "RdmaOptions":
        if bool(self.pools) != (self.mode == "shared"):
            raise ValueError("`mode: shared` and `pools` go together: give both or neither")
        if self.shared_devices and self.mode != "device":
            raise ValueError("`shared_devices` is an option of `mode: device`; a pool has `rdma_hca_max`")
        names = [pool.name for pool in self.pools]
        if len(set(names)) < len(names):
            raise ValueError("the names of `pools` must differ")
        return self


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
