"""The configuration in force: plain values, validated and complete, with nothing left to look up or to default.

The loader alone imports pydantic and YAML; every other process reads this form, from `<run-dir>/config.json`
(`resolved_file.py`). Options that only the scan core reads stay inside `native_json`.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from devherd.config.host import native_settings
from devherd.config.web import Web
from devherd.health.sources import AMD_EXPORTER, AMD_KFD, AMD_NIC_EXPORTER, XPUMD
from devherd.settings import Settings

Enabled = Literal["auto", True, False]
Preference = Literal["aligned", "packed", "distributed", "none"]
DeviceMetrics = Literal["all", "physical", "faults", "none"]
"""Which devices have series of their own, model.py says what that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """How often the host is scanned, and how long a probe may take; times in seconds."""

    period: float = 5.0
    events: bool = True
    probe_timeout: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLogRule:
    """A rule of the user's own: health/kernel_log_rules.toml says what its parts are."""

    name: str
    contains: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLogOptions:
    """Whether the kernel log is read, and what is looked for beside the rules that are always in force."""

    enabled: Enabled = "auto"
    optional: list[str] = field(default_factory=list)
    rules: list[KernelLogRule] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Device facts to match, each with globs; one of them must fit."""

    facts: dict[str, list[str]] = field(default_factory=dict)

    def patterns(self) -> dict[str, list[str]]:
        """Globs by fact name; vendors are spelt as in the configuration file, with underscores."""
        return self.facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Match(Selector):
    """A selector with exceptions."""

    exclude: list[Selector] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRule:
    """What a finding means for the devices that it matches; the first rule that fits a finding decides."""

    match: Match = field(default_factory=Match)
    source: list[str] = field(default_factory=list)
    """Globs; none: every one. The same for reason and value."""
    reason: list[str] = field(default_factory=list)
    value: list[str] = field(default_factory=list)
    action: Literal["unhealthy", "warn", "ignore"] | None = None
    """None: as the source has it. The same for after and hold, in seconds."""
    after: float | None = None
    hold: float | None = None
    name: str = ""
    """Where the file says so; empty: in `health.rules`."""
    optional: bool = False
    """Whether it may be about no device of a node."""
    place: str = ""
    """File, line, column and key path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """A program or a file of the operator's that says how devices are; times in seconds."""

    name: str
    match: Match
    """The devices that it may speak of."""
    command: list[str] | None = None
    file: Path | None = None
    interval: float | None = None
    """Between two runs; None for a program that goes on running."""
    timeout: float = 10.0
    """Of a run."""
    max_age: float = 90.0
    """After how much silence it counts as silent."""
    on_silence: Literal["keep", "drop"] = "keep"
    """Whether a silent one's last word stays."""
    optional: bool = False
    """Whether it may be about no device of a node."""
    place: str = ""
    """File, line, column and key path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthOptions:
    """How health is polled and judged, and how long a device that vanished is remembered; times in seconds."""

    poll: float = 1.0
    recover_after: int = 3
    forget_after: float = 300.0
    breaker: bool = True
    """Whether a source that condemns most devices of the node at once is doubted for a minute."""
    flapping: bool = True
    """Whether what comes and goes is held for longer."""
    rules: list[HealthRule] = field(default_factory=list)
    kernel_log: KernelLogOptions = field(default_factory=KernelLogOptions)
    external: list[External] = field(default_factory=list)
    monitors: dict[str, str] = field(
        default_factory=lambda: dict.fromkeys((AMD_EXPORTER, AMD_NIC_EXPORTER, XPUMD), "auto") | {AMD_KFD: ""}
    )
    """The vendors' monitors, by source: where each listens on the host, `auto` = if it is at its usual place, or not
    to be asked: empty.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """One device under several ids, `<id>::<n>`."""

    strategy: Literal["time_slicing", "mps"] = "time_slicing"
    replicas: int = 1
    rename: str | None = None
    refuses_more_than_one: bool = False
    """Whether a container may have one replica only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRule:
    """What is done with the devices it matches; the first rule that matches a device decides."""

    match: Match = field(default_factory=Match)
    name: str | None = None
    advertise: bool = True
    sharing: Sharing = field(default_factory=Sharing)
    preferred: Preference | None = None
    """Which devices to prefer for a container; None = as the vendor's own plugin prefers."""
    optional: bool = False
    """Whether it may be about no device of a node."""
    place: str = ""
    """File, line, column and key path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorOptions:
    """What is decided outside the scan core for every vendor."""

    enabled: Enabled = "auto"
    preferred: Preference | None = None
    """Which devices to prefer for a container, if an option sets it; None = the default of the vendor's row."""
    preferred_shared: Preference | None = None
    """The same for shared devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """What is reported to the API server, where this pod may talk to it."""

    events: bool = True
    node_condition: bool = False


LabelsWay = Literal["none", "feature_file", "node_feature", "node"]
"""How labels reach the node, model.py says what that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLabels:
    """Which labels the node gets, and how."""

    write: LabelsWay = "none"
    omit: list[str] = field(default_factory=list)
    feature_file: Path = Path("/etc/kubernetes/node-feature-discovery/features.d/devherd")
    """As the host names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterOptions:
    """What the exporter shows."""

    device_metrics: DeviceMetrics = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration. Paths in `common` are absolute."""

    common: Settings
    cdi_dir: Path = Path("/var/run/cdi")
    """Where CDI specs are written, as the host names it."""
    scan: ScanOptions = field(default_factory=ScanOptions)
    health: HealthOptions = field(default_factory=HealthOptions)
    kubernetes: KubernetesOptions = field(default_factory=KubernetesOptions)
    node_labels: NodeLabels = field(default_factory=NodeLabels)
    exporter: ExporterOptions = field(default_factory=ExporterOptions)
    web: Web = field(default_factory=Web)
    """Who may read the exporter's pages; paths are absolute."""
    vendors: dict[str, VendorOptions] = field(default_factory=dict)
    """By section of the configuration file; a vendor without a section has no such options."""
    mps_root: str | None = None
    """Where the MPS control daemon is."""
    device_info_dir: Path | None = None
    """Where device-info files for Multus are written, as the host names it; None where no device has one."""
    resources: list[ResourceRule] = field(default_factory=list)
    native: str = "{}"
    warnings: list[str] = field(default_factory=list)
    """Settings that are valid and have no effect on any node: place, what has none, what to do."""

    def settings(self) -> Settings:
        """The common options."""
        return self.common

    def native_json(self, nvml_answer: Path | None = None) -> str:
        """The settings of `_native.Scanner`: rust/src/settings.rs names the keys.

        `nvml_answer` is the file in which NVML's facts are found. A simulated node has one of its own.
        """
        labels = self.node_labels.write != "none"
        host = native_settings(self.host_root, nvml_answer, self.resources, labels=labels)
        return json.dumps(json.loads(self.native) | host)

    @property
    def host_root(self) -> Path:
        """Where the host's sys/, proc/ and dev/ are."""
        return self.common.host_root

    @property
    def cdi_directory(self) -> Path:
        """Where CDI specs go, as this process reaches it: below the host root."""
        return self._on_host(self.cdi_dir)

    @property
    def device_info_directory(self) -> Path | None:
        """Where device-info files go, likewise."""
        return None if self.device_info_dir is None else self._on_host(self.device_info_dir)

    @property
    def feature_file(self) -> Path:
        """Where Node Feature Discovery reads labels, likewise."""
        return self._on_host(self.node_labels.feature_file)

    @property
    def directories_for_others(self) -> list[Path]:
        """Where the scanner writes what runtimes and CNI plugins read."""
        return [self.cdi_directory, *filter(None, (self.device_info_directory,))]

    def _on_host(self, path: Path) -> Path:
        return self.host_root.absolute() / path.relative_to("/")

    @property
    def source(self) -> Path | None:
        """The file that it was read from."""
        return self.common.config_path
