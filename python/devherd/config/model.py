"""The sections of the configuration file, with their defaults; an empty file is a valid one."""

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from devherd.config.external import External
from devherd.config.health_rule import HealthRule
from devherd.config.host import native_settings
from devherd.config.kernel_log import KernelLogOptions
from devherd.config.section import Section
from devherd.config.selectors import Match
from devherd.config.values import (
    Count,
    Duration,
    HexadecimalId,
    HostPath,
    Listen,
    Period,
    Permissions,
    ProbeTimeout,
    ResourceName,
    Times,
    UsablePath,
)
from devherd.config.vendors import Vendors
from devherd.config.web import Web
from devherd.config.xid_policy import XidPolicy
from devherd.settings import DEFAULT_RUN_DIR, RegistrationWay, Settings
from devherd.spool.identity import Identity


class ScanOptions(Section):
    """How often the host is scanned, and how long a probe may take."""

    period: Duration = 5.0
    events: bool = True
    probe_timeout: ProbeTimeout = 2.0


class HealthOptions(Section):
    """How health is polled and judged, and how long a device that vanished is remembered."""

    poll: Duration = 1.0
    recover_after: Annotated[Count, Field(ge=1)] = 3
    forget_after: Duration = 300.0
    breaker: bool = True
    """Whether a source that condemns most cards of the node at once is doubted for a minute."""
    flapping: bool = True
    """Whether what comes and goes is held for longer."""
    kernel_log: KernelLogOptions = KernelLogOptions()
    rules: list[HealthRule] = []
    xid: XidPolicy = XidPolicy()
    external: list[External] = []
    amd_exporter: Literal["auto", False] | HostPath = "auto"
    """The socket of AMD's metrics exporter: auto = at its usual place, if it is there; false = never."""
    xpumd: Literal["auto", False] | HostPath = "auto"
    """The socket of Intel's xpumd, likewise."""


class KubernetesOptions(Section):
    """What the API server is told, where devherd has access to it: in a pod with a token, by its service account."""

    events: bool = True
    """Events on the node, and on pods that hold the device."""
    node_condition: bool = False
    """The condition `DevicesUnhealthy` of the node."""


class ExporterOptions(Section):
    """What the exporter shows at `/metrics`."""

    device_metrics: Literal["all", "physical", "faults", "none"] = "all"
    """Which devices have series of their own: `all` = every id that the kubelet knows, replicas of shared devices
    included; `physical` = each device once, however often it is shared; `faults` = each device once, and only where
    something is held against it (every alert works); `none` = no device (no alert about a single device works).
    """


class Sharing(Section):
    """One device under several ids, `<id>::<n>`."""

    strategy: Literal["time_slicing", "mps"] = "time_slicing"
    replicas: Annotated[Count, Field(ge=1, le=10_000)] = 1
    rename: ResourceName | None = None
    fail_requests_greater_than_one: bool | None = None
    """Whether a container may have one replica only; without replicas one device only, which may be a share of its
    vendor's plugin (`card0-0`). None = where MPS shares, as NVIDIA's plugin has it.
    """

    @property
    def refuses_more_than_one(self) -> bool:
        """What `fail_requests_greater_than_one` comes to."""
        given = self.fail_requests_greater_than_one
        return self.strategy == "mps" if given is None else given


class ResourceRule(Section):
    """What happens to the devices that it matches; the first rule that matches a device decides."""

    match: Match = Match()
    name: ResourceName | None = None
    advertise: bool = True
    sharing: Sharing = Sharing()
    preferred: Literal["aligned", "packed", "distributed", "none"] | None = None
    """Which devices to prefer for a container; None = as the vendor's own plugin prefers."""


class GenericPath(Section):
    """A member of a group by path; the keys are generic-device-plugin's, and what it takes for unset is its default."""

    path: Annotated[str, StringConstraints(strip_whitespace=True, pattern="^/")]
    mount_path: Annotated[
        str, StringConstraints(strip_whitespace=True, pattern="^(/.*)?$"), Field(alias="mountPath")
    ] = ""
    type: Literal["Device", "Mount"] = "Device"
    permissions: Permissions = "mrw"
    read_only: Annotated[bool, Field(alias="readOnly")] = False
    limit: Times = 1
    optional: bool = False


class GenericUsb(Section):
    """A member of a group by USB id."""

    vendor: HexadecimalId
    product: HexadecimalId
    serial: str | None = None


class GenericGroup(Section):
    """Paths, or USB devices, that go into a container together."""

    count: Annotated[Times, Field(le=100_000)] = 1
    paths: list[GenericPath] = []
    usb: list[GenericUsb] = []
    separate: bool = False
    """Whether each USB device is a device of its own; generic-device-plugin always makes one of all."""

    @model_validator(mode="after")
    def _one_kind(self) -> "GenericGroup":
        if bool(self.paths) == bool(self.usb):
            raise ValueError("a group needs either `paths` or `usb`, and not both")
        if self.separate and not self.usb:
            raise ValueError("`separate` is for `usb`: every match of a path is a device of its own already")
        return self


class GenericDevice(Section):
    """Groups of one resource name, all advertised."""

    name: ResourceName
    groups: Annotated[list[GenericGroup], Field(min_length=1)]


class SimulatedDevice(Section):
    """Devices that exist only as names."""

    name: ResourceName
    count: Annotated[Count, Field(ge=0, le=100_000)]
    numa_nodes: Annotated[Count, Field(ge=0, le=64)] = 0


class Config(Section):
    """The whole configuration; an empty file is a valid one."""

    host_root: UsablePath = Path("/")
    kubelet_dir: UsablePath = Path("/var/lib/kubelet")
    registration: RegistrationWay = "kubelet_socket"
    """Whether devherd registers at the kubelet's socket, or the kubelet discovers it in its `plugins_registry`."""
    run_dir: UsablePath = DEFAULT_RUN_DIR
    state_dir: UsablePath | None = None
    """What outlives a boot: cordons. The default is /var/lib/devherd, and nothing where `run_dir` is given."""
    listen: Listen = "127.0.0.1:9478"
    """Where the exporter serves: `ADDRESS:PORT` or `unix:/PATH`, several separated by commas; empty = nowhere."""
    web_config: UsablePath | None = None
    """TLS, passwords and client certificates of the exporter: a file in the format of Prometheus exporters."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    cdi_dir: HostPath = Path("/var/run/cdi")
    """Where CDI specs are written, as the host names it."""
    kubelet_check: Period = 30.0
    """How often the kubelet is asked whether it still has all devices; 0 = never."""
    scan: ScanOptions = ScanOptions()
    health: HealthOptions = HealthOptions()
    kubernetes: KubernetesOptions = KubernetesOptions()
    exporter: ExporterOptions = ExporterOptions()
    vendors: Vendors = Vendors()
    resources: list[ResourceRule] = []
    generic: list[GenericDevice] = []
    simulated: list[SimulatedDevice] = []
    _web: Web = Web()
    _source: Path | None = None
    _seen: Identity | None = None
    _given_options: tuple[tuple[str, str], ...] = ()

    @property
    def source(self) -> Path | None:
        """The file it was read from."""
        return self._source

    @property
    def web(self) -> Web:
        """What the file `web_config` says."""
        return self._web

    def settings(self) -> Settings:
        """The common options, with absolute paths."""
        return Settings(
            config_path=self._source,
            config_seen=self._seen,
            host_root=self.host_root.absolute(),
            kubelet_dir=self.kubelet_dir.absolute(),
            registration=self.registration,
            run_dir=self.run_dir.absolute(),
            state_dir=self.state_dir and self.state_dir.absolute(),
            listen=self.listen,
            log_level=self.log_level,
            log_format=self.log_format,
            kubelet_check=self.kubelet_check,
            given_options=self._given_options,
        )

    def native_json(self, nvml_answer: Path | None = None) -> str:
        """The settings of `_native.Scanner`: rust/src/settings.rs and rust/src/vendors/table.rs name the keys.

        `nvml_answer` is the file in which NVML's facts are found. A simulated node has one of its own.
        """
        named_here = {
            "generic": [device.model_dump(by_alias=True) for device in self.generic],
            "simulated": [device.model_dump() for device in self.simulated],
        }
        return json.dumps(
            native_settings(self.host_root, nvml_answer, self.resources)
            | {"probe_timeout": self.scan.probe_timeout, "vendors": self.vendors.native() | named_here}
        )
