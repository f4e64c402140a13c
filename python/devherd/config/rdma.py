"""Section `vendors.rdma`: devices, and pools and functions as two plugins have them."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from devherd.config.problem import WrongValueError
from devherd.config.section import Section
from devherd.config.values import Count, HexadecimalId, HostPath, ResourceName
from devherd.config.vendor_options import VendorOptions


class RdmaSelectors(Section):
    """What a device of a pool must be: one of each list that is given."""

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
    """What is advertised: RDMA devices, pools as k8s-rdma-shared-dev-plugin has them, or PCI functions as
    sriov-network-device-plugin has them.
    """
    shared_devices: Annotated[Count, Field(ge=0, le=10_000)] = 0
    """How many containers share a device, in `mode: device`; 0: it goes to one at a time."""
    pools: list[RdmaPool] = []
    """The pools of `mode: shared`."""
    device_info_dir: HostPath = Path("/var/run/k8s.cni.cncf.io/devinfo/dp")
    """The directory on the host in which Multus looks for what is known of a function, in `mode: sriov`."""

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
