"""Sections of the configuration file as pydantic models, with their defaults; an empty file is a valid one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from devherd._native import check_kernel_log_rules
from devherd.config.api_access import ApiAccess
from devherd.config.classes import Classes
from devherd.config.errors import Location, Positions, WrongValueError, duration, echo, refuse
from devherd.config.in_use import Ledger, PreStart
from devherd.config.resolved import native_settings
from devherd.config.types import (
    AbsolutePath,
    Command,
    Count,
    Duration,
    Form,
    HostPath,
    KubeletPath,
    Listen,
    MonitorSocket,
    Patterns,
    PatternsOrAny,
    Period,
    ProbeTimeout,
    ResourceName,
    Section,
    Switch,
    meant,
    spelt,
)
from devherd.config.vendors import Enabled, GenericDevice, Preference, Vendors
from devherd.config.web import Web
from devherd.configurations import Configurations
from devherd.reasons.kernel_log_rules import SHIPPED
from devherd.reasons.registry import CAN_BE_OFF, MONITORS
from devherd.reasons.xids import OF_PLUGIN_IGNORED
from devherd.settings import COMMON_OPTIONS, DEFAULTS, LogFormat, LogLevel, RegistrationWay, Settings
from devherd.spool import Identity


class Selector(BaseModel):
    """Facts that a device must have: `vendor`, `id`, `resource_name` or any attribute, each a glob, or a list of globs
    one of which must match. Letter case counts.
    """  # noqa: D205 - what users read

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Patterns] = Field(init=False)
    file_only: ClassVar[frozenset[str]] = frozenset()
    derived: ClassVar[tuple[str, ...]] = ("facts",)

    @property
    def facts(self) -> dict[str, list[str]]:
        """The globs by fact, of which one must match; vendors have `_` however the file spells them."""
        given = self.__pydantic_extra__ or {}
        spelt = {"vendor": [vendor.replace("-", "_") for vendor in given["vendor"]]} if "vendor" in given else {}
        return given | spelt


class Match(Selector):
    """Facts that a device must have: `vendor`, `id`, `resource_name` or any attribute, each a glob, or a list of globs
    one of which must match. Letter case counts.
    """  # noqa: D205 - what users read

    exclude: list[Selector] = []
    """Devices that match but are left out."""


Action = Literal["unhealthy", "warn", "ignore"]


class Placed(Section):
    """An entry of a list that may match no device of a node."""

    derived: ClassVar[tuple[str, ...]] = ("place",)

    @property
    def place(self) -> str:
        """File, line, column and key path; set when the configuration is resolved."""
        return ""


class HealthRule(Placed):
    """What a finding means for the devices that it matches; the first rule that fits a finding decides."""

    never_empty = frozenset({"match"})

    match: Match = Match()
    """The devices to which it applies, by their facts; empty: all."""
    optional: Switch = False
    """Whether nodes without such a device are normal; otherwise they get a warning."""
    source: PatternsOrAny = []
    """The sources to which it applies; empty: all."""
    reason: PatternsOrAny = []
    """The reasons to which it applies; empty: all."""
    value: PatternsOrAny = []
    """The values to which it applies, such as the code of an Xid; empty: all."""
    action: Action | None = None
    """The effect of the finding: the device becomes Unhealthy, gets a warning, or nothing happens; default: as in
    docs/health.md.
    """
    after: Period | None = None
    """How long it must last before it counts; default: the source's."""
    hold: Period | None = None
    """The minimum time that it counts after its last observation; default: the source's."""
    derived = ("name", "place")

    @property
    def name(self) -> str:
        """Name of the key in the file that the rule comes from; empty: `health.rules`."""
        return ""

    @model_validator(mode="after")
    def _does_something(self) -> "HealthRule":
        if self.action is None and self.after is None and self.hold is None:
            raise WrongValueError("the rule changes nothing", "add `action`, `after` or `hold`")
        return self


_RuleName = Annotated[
    str,
    spelt(
        "(?=.{1,63}$)[a-z0-9]+(-[a-z0-9]+)*",
        "a name of at most 63 lower-case letters, digits and single `-`",
        "write it like `nvme-lost`",
    ),
    Form("name"),
]


def _compiled(pattern: str) -> str:
    try:
        check_kernel_log_rules([("rule", "text", pattern)])
    except ValueError as error:
        why = str(error).rpartition("its pattern: ")[2]
        raise WrongValueError(f"{echo(pattern)} is not a pattern: {why}", "give a regular expression") from None
    return pattern


class KernelLogRule(Section):
    """A rule of your own for the kernel log: a record that it matches raises `kernel-log`."""

    name: _RuleName
    """The rule's name, which must be unique."""
    contains: Annotated[str, spelt(".{4,}", "at least 4 characters long", "give more of the text of the record")]
    """Text that a record must contain before the pattern is tried."""
    pattern: Annotated[str, AfterValidator(_compiled)]
    """A regular expression. Its group `bdf` or `uuid` names the device where the driver's record does not."""


class KernelLogOptions(Section):
    """Whether the kernel log is read, and rules in addition to the shipped ones."""

    enabled: Enabled = "auto"
    """Whether it is read. `auto`: if permitted; otherwise `devherd status` has a note, or a problem if you have rules
    of your own. `true`: missing permission is a problem.
    """
    optional: list[str] = []
    """Names of shipped rules to switch on; docs/health.md lists those that are off by default."""
    rules: list[KernelLogRule] = []
    """Rules of your own."""

    @model_validator(mode="after")
    def _names(self) -> "KernelLogOptions":
        refuse(self._wrong_names())
        return self

    def _wrong_names(self) -> Iterator[WrongValueError]:
        optional = sorted(rule.name for rule in SHIPPED if rule.optional)
        for place, name in enumerate(self.optional):
            if name not in optional:
                what = f"{echo(name)} is not a rule that can be switched on"
                yield WrongValueError(what, meant(name, optional), at=("optional", place))
        taken = {rule.name for rule in SHIPPED}
        for place, rule in enumerate(self.rules):
            if rule.name in taken:
                what = f"another rule is called {echo(rule.name)}"
                yield WrongValueError(what, "rename it", at=("rules", place, "name"))
            taken.add(rule.name)


SHORTEST_INTERVAL_SECONDS = 10.0
_SILENCE_SECONDS = 90.0
_SILENT_INTERVALS = 3
_RUN_SECONDS = 10.0
_OF_SHORT_INTERVAL = 0.9


def _names_devices(match: Match) -> Match:
    if not match.facts:
        raise WrongValueError("it names no device", "give a fact like `{vendor: nvidia}`, or `{id: '*'}`")
    return match


_SourceName = Annotated[
    str,
    spelt(
        "[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?",
        "a name of 1 to 40 lower-case letters, digits and `-`",
        "write it like `disk-check`",
    ),
    Form("name"),
]


class External(Placed):
    """A program or a file of yours that reports the health of devices. A program with `interval` is run at each
    interval; one without keeps running and prints lines.
    """  # noqa: D205 - what users read

    name: _SourceName
    """The source is called `external-<name>`."""
    match: Annotated[Match, AfterValidator(_names_devices)]
    """The devices that it may report on; a report without a device applies to all of them."""
    optional: Switch = False
    """Whether nodes without such a device are normal; otherwise they get a warning."""
    command: Command | None = None
    """The program with its arguments."""
    file: HostPath | None = None
    """The file, instead of a program."""
    interval: Annotated[Duration, Field(ge=SHORTEST_INTERVAL_SECONDS)] | None = None
    """Time between two runs of the program, at least 10 s; default: the program keeps running."""
    timeout: Duration | None = None
    """Time limit of a run, shorter than `interval`; default: 10 s, or nine tenths of an `interval` of 10 or 11 s."""
    max_age: Duration | None = None
    """Time without a report after which it counts as silent; default: three intervals, or 90 s without `interval`."""
    on_silence: Literal["keep", "drop"] = "keep"
    """Whether the findings of a silent program or file stay in force."""
    file_only = frozenset({"max_age", "timeout"})
    derived = ("silence_seconds", "timeout_seconds", "place")

    @model_validator(mode="after")
    def _one_way(self) -> "External":
        if self.command is not None and self.file is not None:
            raise WrongValueError("it has both `command` and `file`", "remove one of them", at=("file",))
        if self.command is None and self.file is None:
            raise WrongValueError("it has neither `command` nor `file`", "add one of them")
        if self.interval is not None and self.command is None:
            raise WrongValueError("`interval` is for `command`: a file is read when it changes", "remove it", _INTERVAL)
        if self.interval is not None and self.timeout is not None and self.timeout >= self.interval:
            raise WrongValueError(
                f"`{duration(self.timeout)}` is not shorter than `interval`, `{duration(self.interval)}`",
                "give a shorter `timeout`",
                at=("timeout",),
            )
        return self

    @property
    def silence_seconds(self) -> float:
        """Seconds without a report after which it counts as silent: `max_age` or its default."""
        return self.max_age or (self.interval * _SILENT_INTERVALS if self.interval else _SILENCE_SECONDS)

    @property
    def timeout_seconds(self) -> float:
        """The time limit of a run in seconds: `timeout` or its default."""
        return self.timeout or min(_RUN_SECONDS, _OF_SHORT_INTERVAL * self.interval if self.interval else _RUN_SECONDS)


_INTERVAL: Location = ("interval",)


class XidPolicy(Section):
    """The effect of NVIDIA's Xids: a policy for all codes, and exceptions by code: `{policy: plugin, 94: ignore}`.

    An action is `unhealthy`, `warn` or `ignore`.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Action] = Field(init=False)

    policy: Literal["devherd", "plugin"] = "devherd"
    """`devherd`: NVIDIA's catalogue decides; `plugin`: as in NVIDIA's plugin, all but six make a device Unhealthy."""

    @model_validator(mode="before")
    @classmethod
    def _of_words(cls, content: Any) -> Any:
        """YAML reads a code as a number; keys must be text."""
        return {str(key): value for key, value in content.items()} if isinstance(content, dict) else content

    @model_validator(mode="after")
    def _are_codes(self) -> "XidPolicy":
        refuse(
            WrongValueError(
                f"{echo(key)} is neither `policy` nor the code of an Xid", "codes are numbers like `79`", at=(key,)
            )
            for key in self.__pydantic_extra__ or {}
            if not (key.isascii() and key.isdigit())
        )
        return self

    def decisions(self) -> Iterator[tuple[list[str], Action]]:
        """Codes and their action, of which the first match decides; no codes: all."""
        for code, action in (self.__pydantic_extra__ or {}).items():
            yield [str(int(code))], action
        if self.policy == "plugin":
            yield [str(code) for code in sorted(OF_PLUGIN_IGNORED)], "ignore"
            yield [], "unhealthy"


class HealthOptions(Section):
    """How health is polled and judged, and how long a vanished device stays listed."""

    poll: Duration = 1.0
    """Time between two polls of the health of devices; devherd waits up to 5 s if no source is due before."""
    recover_after: Annotated[Count, Field(ge=1)] = 3
    """Number of consecutive good polls after which a device is Healthy again."""
    forget_after: Duration = 300.0
    """How long a device that has disappeared stays listed as Unhealthy with `gone`. One that a pod holds stays as
    long as the pod: otherwise the pod's status would show it as Healthy. After that it counts as lost until it is back
    or `devherd forget` names it.
    """
    sources: dict[str, Switch] = {}
    """Sources to switch off, by their names in docs/health.md: `{rdma-errors: false}`. Their findings are dropped.
    Without `nvml`, facts that only NVML has are missing, too.
    """
    breaker: Switch = True
    """Whether reports of an exporter, of a program of yours or about firmware count only after a minute if they concern
    most cards of the node at once."""
    flapping: Switch = True
    """Whether findings that come and go last longer each time."""
    taint: Literal["NoSchedule", "NoExecute"] = "NoSchedule"
    """With `front_end: dra`, the effect of the taint of an Unhealthy device: pods with it run on, or are evicted."""
    kernel_log: KernelLogOptions = KernelLogOptions()
    rules: list[HealthRule] = []
    """Rules for findings; the first that matches a finding decides its effect."""
    xid: XidPolicy = XidPolicy()
    external: list[External] = []
    """Programs and files of your own that report the health of devices."""
    amd_exporter: MonitorSocket = "auto"
    """The socket of AMD's metrics exporter; `auto`: the usual one, if it exists; `false`: not used."""
    amd_nic_exporter: MonitorSocket = "auto"
    """The socket of AMD's metrics exporter for network cards; `auto`: the usual one, if it exists; `false`: not used.
    """
    xpumd: MonitorSocket = "auto"
    """The socket of Intel's xpumd; `auto`: the usual one, if it exists; `false`: not used."""
    amd_kfd: Switch = False
    """Whether resets are read from AMD's driver by `/dev/kfd`. The kernel refuses to change GPU partitions while that
    device is open: set it to `false` first."""
    file_only = frozenset({"sources", "xid", *(source.replace("-", "_") for source in MONITORS)})
    derived = ("monitors", "sources_off")

    @model_validator(mode="after")
    def _are_sources(self) -> "HealthOptions":
        for name in self.sources:
            if name not in CAN_BE_OFF:
                raise WrongValueError(
                    f"{echo(name)} is not a source that can be switched off",
                    meant(name, CAN_BE_OFF),
                    at=("sources", name),
                )
        return self

    @property
    def sources_off(self) -> list[str]:
        """The names of the sources that are switched off, sorted."""
        return sorted(name for name, is_on in self.sources.items() if not is_on)

    @property
    def monitors(self) -> dict[str, str]:
        """The socket of each vendor's monitor, by source: a path, `auto`, or empty if it is not used."""
        keys = {source: getattr(self, source.replace("-", "_")) for source in MONITORS}
        return {source: "" if source in self.sources_off else str(value or "") for source, value in keys.items()}


class ScanOptions(Section):
    """How often the host is scanned, and the time limit of a probe."""

    period: Duration | None = None
    """Time between two scans of the host without events. Default: 30 s if kernel events arrive and all devices are
    Healthy, else 5 s. Never more than 5 s with a port of an Intel FPGA or a class with `attr`: no event reports it.
    """
    events: Switch = True
    """Whether events of the kernel and changes in /dev start a scan at once; otherwise scans are periodic only."""
    probe_timeout: ProbeTimeout = 2.0
    """Time limit for the reads of one card; a card that takes longer is Unhealthy with `probe-timeout`."""


class KubernetesOptions(Section):
    """Use of the API server, in a pod whose service account has a token."""

    events: Switch = True
    """Whether changes of health become Events of the node and of the pods that hold the device."""
    node_condition: Switch = False
    """Whether the node has the condition `DevicesUnhealthy`."""
    nvidia_pause: Switch = False
    """Whether devherd closes NVML while NVIDIA's driver manager or MIG manager pauses the node's GPU clients, as the
    node's labels `nvidia.com/gpu.deploy.client` and `nvidia.com/gpu.deploy.device-plugin` show.
    """


LabelMethod = Literal["none", "feature_file", "node_feature", "node"]


class NodeLabels(Section):
    """Labels of the node for its devices.

    The names are those of the vendors' own labellers, and `devherd.io/…` for each resource: `devherd labels` prints
    them.
    """

    write: LabelMethod = "none"
    """How they reach the node. `feature_file`: a file that Node Feature Discovery's worker on the node reads;
    `node_feature`: a NodeFeature object, which its master reads; `node`: devherd patches the node itself. With `none`,
    and after a change, devherd removes its earlier labels.
    """
    omit: PatternsOrAny = []
    """Labels to leave out, as globs: `beta.amd.com/*`."""
    feature_file: HostPath = Path("/etc/kubernetes/node-feature-discovery/features.d/devherd")
    """The file of `write: feature_file`; its directory is Node Feature Discovery's."""


FrontEnd = Literal["device_plugin", "dra"]
DeviceMetrics = Literal["all", "physical", "faults", "none"]


class ExporterOptions(Section):
    """The process that serves HTTP, and the extent of the metrics at `/metrics`."""

    device_metrics: DeviceMetrics = "physical"
    """Which devices have series of their own. `physical`: each device once, however often it is shared; `all`: every id
    that the kubelet knows, replicas of shared devices included; `faults`: each device once, and only while it has
    findings, without the cards' counters (alerts work); `none`: no device (of the alerts about single devices only
    `DeviceLost` works). Counters have one series a device.
    """


class Sharing(Section):
    """One device for several containers, under the ids `<id>::<n>`."""

    strategy: Literal["time_slicing", "mps"] = "time_slicing"
    """How containers share a device: by time slices, or through NVIDIA's Multi-Process Service."""
    replicas: Annotated[Count, Field(ge=1, le=10_000)] = 1
    """Number of containers that share a device; 1: it is not shared."""
    rename: ResourceName | None = None
    """The resource name of shared devices; default: that of the rule or of the vendor."""
    fail_requests_greater_than_one: Switch | None = None
    """Whether a container may request only one replica or, without replicas, one device or share (`card0-0`). Default:
    only with MPS, as in NVIDIA's plugin.
    """
    file_only = frozenset({"fail_requests_greater_than_one"})
    derived = ("refuses_more_than_one",)

    @property
    def refuses_more_than_one(self) -> bool:
        """Whether a container may have only one replica: `fail_requests_greater_than_one` or its default."""
        given = self.fail_requests_greater_than_one
        return self.strategy == "mps" if given is None else given


class ResourceRule(Placed):
    """How the devices that it matches are offered; the first rule that matches a device decides."""

    never_empty = frozenset({"match"})

    match: Match = Match()
    """The devices to which it applies, by their facts; empty: all."""
    name: ResourceName | None = None
    """The resource name under which they are advertised; default: the name that their vendor's plugin gives them."""
    optional: Switch = False
    """Whether nodes without such a device are normal, as where one configuration serves several kinds of nodes;
    otherwise they get a warning.
    """
    advertise: Switch = True
    """Whether they are advertised."""
    sharing: Sharing = Sharing()
    preferred: Preference | None = None
    """Which devices the kubelet should prefer for one container: near each other, on as few cards as possible, on as
    many as possible, or no preference; default: as the vendor's plugin.
    """
    pre_start: PreStart = PreStart()


class SimulatedDevice(Section):
    """Devices that exist only as names, for tests and dry runs."""

    name: ResourceName
    """Their resource name."""
    count: Annotated[Count, Field(ge=0, le=100_000)]
    """Their number."""
    numa_nodes: Annotated[Count, Field(ge=0, le=64)] = 0
    """Number of NUMA nodes over which they are spread in turn; 0: no NUMA node."""


class Config(Section):
    """devherd's configuration. Every key has a default: an empty file serves every device that is found."""

    host_root: AbsolutePath = DEFAULTS.host_root
    """The directory of the host's `sys/`, `proc/` and `dev/`: for example `/host` in a container."""
    kubelet_dir: KubeletPath = DEFAULTS.kubelet_dir
    """The kubelet's directory, with `device-plugins/` in it: the same whatever the kubelet's `--root-dir`."""
    kubelet_root_dir: KubeletPath | None = DEFAULTS.kubelet_root_dir
    """The kubelet's `--root-dir`, with `pod-resources/`, `plugins/`, `plugins_registry/` and `pods/` in it. Default:
    `kubelet_dir`."""
    registration: RegistrationWay = DEFAULTS.registration
    """Whether devherd registers at the kubelet's socket, or the kubelet finds it in `plugins_registry/`."""
    run_dir: AbsolutePath = DEFAULTS.run_dir
    """The directory of the instance's control socket and state."""
    state_dir: AbsolutePath | None = DEFAULTS.state_dir
    """The directory of files that outlive a reboot: cordons, lost devices. Default: /var/lib/devherd, or none if
    `run_dir` is given.
    """
    listen: Listen = DEFAULTS.listen
    """Addresses of metrics, status page and probes: `ADDRESS:PORT` or `unix:/PATH`, separated by commas; empty: not
    served.
    """
    web_config: AbsolutePath | None = DEFAULTS.web_config
    """File with TLS, passwords and client certificates of `listen`, in the format of Prometheus exporters."""
    kubeconfig: AbsolutePath | None = DEFAULTS.kubeconfig
    """The kubeconfig file by which the API server is reached outside a pod, such as the kubelet's own,
    /etc/kubernetes/kubelet.conf. Default: the service account of the pod.
    """
    log_level: LogLevel = DEFAULTS.log_level
    """The lowest level that is logged."""
    log_format: LogFormat = DEFAULTS.log_format
    """Format of the log on stderr."""
    front_end: FrontEnd = "device_plugin"
    """Whether pods get devices in `limits` or by claims (DRA, where they are published at the API server)."""
    cdi_dir: HostPath = Path("/var/run/cdi")
    """The directory on the host in which CDI specs are written."""
    kubelet_check: Period = DEFAULTS.kubelet_check
    """Interval at which the kubelet is asked whether it still has the devices; 0: never. While nothing changes in its
    directories, ten times that.
    """
    scan: ScanOptions = ScanOptions()
    health: HealthOptions = HealthOptions()
    ledger: Ledger = Ledger()
    kubernetes: KubernetesOptions = KubernetesOptions()
    node_labels: NodeLabels = NodeLabels()
    exporter: ExporterOptions = ExporterOptions()
    vendors: Vendors = Vendors()
    classes: Classes = Classes()
    resources: list[ResourceRule] = []
    """Rules that name, share or leave out devices; the first that matches a device decides. A device that none
    matches keeps the resource name that its vendor's plugin gives it.
    """
    generic: list[GenericDevice] = []
    """Devices by path or USB id, with the keys and the device ids of generic-device-plugin."""
    simulated: list[SimulatedDevice] = []
    """Devices that exist only as names, for tests and dry runs."""
    file_only = frozenset({*COMMON_OPTIONS, "kubelet_check", "vendors", "classes", "generic", "simulated"})
    _web: Web = Web()
    _api: ApiAccess | None = None
    _source: Path | None = None
    _seen: Identity | None = None
    _configurations: Configurations | None = None
    _label_value: str = ""
    _positions: Positions | None = None
    _given_options: tuple[tuple[str, str], ...] = ()

    @property
    def source(self) -> Path | None:
        """The file that it was read from."""
        return self._source

    @property
    def positions(self) -> Positions | None:
        """The position of each key in that file."""
        return self._positions

    @property
    def web(self) -> Web:
        """The content of the file `web_config`."""
        return self._web

    @property
    def api(self) -> ApiAccess | None:
        """The content of the file `kubeconfig`; None without one, and as long as it is not there."""
        return self._api

    def settings(self) -> Settings:
        """The common options."""
        return Settings(
            config_path=self._source,
            config_seen=self._seen,
            configurations=self._configurations,
            config_label_value=self._label_value,
            kubelet_check=self.kubelet_check,
            given_options=self._given_options,
            **{name: getattr(self, name) for name in COMMON_OPTIONS},
        )

    def native_json(self, nvml_answer: Path | None = None) -> str:
        """The settings of `_native.Scanner`: rust/src/settings.rs and rust/src/vendors/table.rs name the keys.

        `nvml_answer`: the file with NVML's facts. A simulated node has its own.
        """
        named_here = {
            "classes": self.classes.native(),
            "generic": [device.model_dump(by_alias=True) for device in self.generic],
            "simulated": [device.model_dump() for device in self.simulated],
        }
        return json.dumps(
            native_settings(self.host_root, nvml_answer, self.resources, labels=self.node_labels.write != "none")
            | {"probe_timeout": self.scan.probe_timeout}
            | {"vendors": self.vendors.native() | named_here}
        )
