"""The sections of the configuration file, with their defaults; an empty file is a valid one."""

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from devherd.config.generic import GenericDevice
from devherd.config.health import HealthOptions
from devherd.config.host import native_settings
from devherd.config.positions import Positions
from devherd.config.section import Section
from devherd.config.selectors import Match
from devherd.config.values import (
    AbsolutePath,
    Count,
    Duration,
    HostPath,
    Listen,
    PatternsOrAny,
    Period,
    ProbeTimeout,
    ResourceName,
    Switch,
)
from devherd.config.vendors import Vendors
from devherd.config.web import Web
from devherd.configurations import Configurations
from devherd.settings import DEFAULT_RUN_DIR, RegistrationWay, Settings
from devherd.spool.identity import Identity


class ScanOptions(Section):
    """How often the host is scanned, and how long a probe may take."""

    period: Duration = 5.0
    """Time between two scans of the host when nothing happens."""
    events: Switch = True
    """Whether events of the kernel and changes in /dev start a scan at once; without them, each `period` does."""
    probe_timeout: ProbeTimeout = 2.0
    """How long the reads of one card may take; a card that takes longer is Unhealthy with `probe-timeout`."""


class KubernetesOptions(Section):
    """What the API server gets, where devherd may talk to it: in a pod with a token, by its service account."""

    events: Switch = True
    """Whether changes of health are Events on the node, and on the pods that hold the device."""
    node_condition: Switch = False
    """Whether the node has the condition `DevicesUnhealthy`."""


class NodeLabels(Section):
    """Labels of the node that say which devices it has.

    The names are those of the vendors' own labellers, and `devherd.io/…` for each resource: `devherd labels` prints
    them.
    """

    write: Literal["none", "feature_file", "node_feature", "node"] = "none"
    """How they reach the node. `feature_file`: a file that Node Feature Discovery's worker on the node reads;
    `node_feature`: a NodeFeature object, which its master reads; `node`: devherd patches the node itself. With `none`,
    and after a change, those that devherd has written before are removed.
    """
    omit: PatternsOrAny = []
    """Labels to leave out, as globs: `beta.amd.com/*`."""
    feature_file: HostPath = Path("/etc/kubernetes/node-feature-discovery/features.d/devherd")
    """The file of `write: feature_file`; its directory is Node Feature Discovery's."""


class ExporterOptions(Section):
    """What the exporter shows at `/metrics`."""

    device_metrics: Literal["all", "physical", "faults", "none"] = "all"
    """Which devices have series of their own. `all`: every id that the kubelet knows, replicas of shared devices
    included; `physical`: each device once, however often it is shared; `faults`: each device once, and only where
    something is held against it (alerts work); `none`: no device (no alert about a single device works).
    """


class Sharing(Section):
    """One device for several containers, under the ids `<id>::<n>`."""

    strategy: Literal["time_slicing", "mps"] = "time_slicing"
    """How containers share a device: in turns, or through NVIDIA's Multi-Process Service."""
    replicas: Annotated[Count, Field(ge=1, le=10_000)] = 1
    """How many containers share a device; 1: it is not shared."""
    rename: ResourceName | None = None
    """The resource name of shared devices; without it, that of the rule or of the vendor."""
    fail_requests_greater_than_one: Switch | None = None
    """Whether a container may have one replica only; without replicas one device only, which may be a share of its
    vendor's plugin (`card0-0`). Without a value: only where MPS shares, as NVIDIA's plugin has it.
    """

    @property
    def refuses_more_than_one(self) -> bool:
        """What `fail_requests_greater_than_one` comes to."""
        given = self.fail_requests_greater_than_one
        return self.strategy == "mps" if given is None else given


class ResourceRule(Section):
    """What happens to the devices that it matches; the first rule that matches a device decides."""

    match: Match = Match()
    """Which devices it is about, by their facts; empty: all."""
    name: ResourceName | None = None
    """The resource name under which they are advertised; without it, the name that their vendor's plugin gives them."""
    optional: Switch = False
    """Whether there need be no such device on a node: one configuration may be for nodes of several kinds. Without it,
    a rule that matches no device of a node is a warning there.
    """
    advertise: Switch = True
    """Whether they are advertised at all."""
    sharing: Sharing = Sharing()
    preferred: Literal["aligned", "packed", "distributed", "none"] | None = None
    """Which of them the kubelet is advised to give to a container together: near each other, on as few cards as
    possible, on as many as possible, or no advice; without a value as the vendor's own plugin prefers.
    """


class SimulatedDevice(Section):
    """Devices that exist only as names, for tests and dry runs."""

    name: ResourceName
    """Their resource name."""
    count: Annotated[Count, Field(ge=0, le=100_000)]
    """How many there are."""
    numa_nodes: Annotated[Count, Field(ge=0, le=64)] = 0
    """On how many NUMA nodes they are, in turns; 0: on none."""


class Config(Section):
    """devherd's configuration. Every key has a default: an empty file serves every device that is found."""

    host_root: AbsolutePath = Path("/")
    """Where the host's `sys/`, `proc/` and `dev/` are: `/host` in a container that has them there."""
    kubelet_dir: AbsolutePath = Path("/var/lib/kubelet")
    """The kubelet's directory, with `device-plugins/` and `pod-resources/` in it."""
    registration: RegistrationWay = "kubelet_socket"
    """Whether devherd registers at the kubelet's socket, or the kubelet finds it in `plugins_registry/`."""
    run_dir: AbsolutePath = DEFAULT_RUN_DIR
    """Where the instance has its control socket and its state."""
    state_dir: AbsolutePath | None = None
    """What outlives a boot: cordons. Not given, it is /var/lib/devherd, and nowhere where `run_dir` is given."""
    listen: Listen = "127.0.0.1:9478"
    """Where metrics, status page and probes are served: `ADDRESS:PORT` or `unix:/PATH`, several separated by commas;
    empty: nowhere.
    """
    web_config: AbsolutePath | None = None
    """TLS, passwords and client certificates for what is served: a file in the format of Prometheus exporters."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important messages that are logged."""
    log_format: Literal["text", "json"] = "text"
    """How the log on stderr is written."""
    cdi_dir: HostPath = Path("/var/run/cdi")
    """The directory on the host in which CDI specs are written."""
    kubelet_check: Period = 30.0
    """How often the kubelet is asked whether it still has all devices; 0: never."""
    scan: ScanOptions = ScanOptions()
    health: HealthOptions = HealthOptions()
    kubernetes: KubernetesOptions = KubernetesOptions()
    node_labels: NodeLabels = NodeLabels()
    exporter: ExporterOptions = ExporterOptions()
    vendors: Vendors = Vendors()
    resources: list[ResourceRule] = []
    """Rules that name, share or leave out devices; the first that matches a device decides. A device that none
    matches keeps the resource name that its vendor's plugin gives it.
    """
    generic: list[GenericDevice] = []
    """Devices by path or USB id, as generic-device-plugin has them: the same keys, the same device ids."""
    simulated: list[SimulatedDevice] = []
    """Devices that exist only as names, for tests and dry runs."""
    _web: Web = Web()
    _source: Path | None = None
    _seen: Identity | None = None
    _configurations: Configurations | None = None
    _label_value: str = ""
    _positions: Positions | None = None
    _given_options: tuple[tuple[str, str], ...] = ()

    @property
    def source(self) -> Path | None:
        """The file it was read from."""
        return self._source

    @property
    def positions(self) -> Positions | None:
        """Where in that file each key stands."""
        return self._positions

    @property
    def web(self) -> Web:
        """What the file `web_config` says."""
        return self._web

    def settings(self) -> Settings:
        """The common options."""
        return Settings(
            config_path=self._source,
            config_seen=self._seen,
            configurations=self._configurations,
            config_label_value=self._label_value,
            host_root=self.host_root,
            kubelet_dir=self.kubelet_dir,
            registration=self.registration,
            run_dir=self.run_dir,
            state_dir=self.state_dir,
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
            native_settings(self.host_root, nvml_answer, self.resources, labels=self.node_labels.write != "none")
            | {"probe_timeout": self.scan.probe_timeout, "vendors": self.vendors.native() | named_here}
        )
