"""The sections of the configuration in force, as plain values; times in seconds. The models say what each key is.

Generated from them by `make models`: python/generate.py.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Enabled = Literal["auto", True, False]
Preference = Literal["aligned", "packed", "distributed", "none"]
Action = Literal["unhealthy", "warn", "ignore"]
LabelMethod = Literal["none", "feature_file", "node_feature", "node"]
FrontEnd = Literal["device_plugin", "dra"]
DeviceMetrics = Literal["all", "physical", "faults", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """`ScanOptions` of model.py."""

    period: float | None = None
    events: bool = True
    probe_timeout: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLogRule:
    """`KernelLogRule` of model.py."""

    name: str
    contains: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLogOptions:
    """`KernelLogOptions` of model.py."""

    enabled: Enabled = "auto"
    optional: list[str] = field(default_factory=list)
    rules: list[KernelLogRule] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """`Selector` of model.py."""

    facts: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Match(Selector):
    """`Match` of model.py."""

    exclude: list[Selector] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRule:
    """`HealthRule` of model.py."""

    match: Match = field(default_factory=Match)
    optional: bool = False
    source: list[str] = field(default_factory=list)
    reason: list[str] = field(default_factory=list)
    value: list[str] = field(default_factory=list)
    action: Action | None = None
    after: float | None = None
    hold: float | None = None
    name: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """`External` of model.py."""

    name: str
    match: Match
    optional: bool = False
    command: list[str] | None = None
    file: Path | None = None
    interval: float | None = None
    on_silence: Literal["keep", "drop"] = "keep"
    silence_seconds: float = 90.0
    timeout_seconds: float = 10.0
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthOptions:
    """`HealthOptions` of model.py."""

    poll: float = 1.0
    recover_after: int = 3
    forget_after: float = 300.0
    breaker: bool = True
    flapping: bool = True
    taint: Literal["NoSchedule", "NoExecute"] = "NoSchedule"
    kernel_log: KernelLogOptions = field(default_factory=KernelLogOptions)
    rules: list[HealthRule] = field(default_factory=list)
    external: list[External] = field(default_factory=list)
    amd_kfd: bool = False
    monitors: dict[str, str] = field(
        default_factory=lambda: {"amd-exporter": "auto", "amd-nic-exporter": "auto", "xpumd": "auto"}
    )
    sources_off: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """`Ledger` of in_use.py."""

    enabled: bool = False
    ignore: list[str] = field(
        default_factory=lambda: [
            "nvidia-persiste*",
            "nv-hostengine",
            "dcgm*",
            "nv-fabricmanage*",
            "nvidia-smi",
            "nvidia-cuda-mps*",
            "amd-smi",
            "rocm-smi",
            "gpuagent",
            "xpumd",
            "xpu-smi",
            "opensm",
            "ibacm",
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """`KubernetesOptions` of model.py."""

    events: bool = True
    node_condition: bool = False
    nvidia_pause: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLabels:
    """`NodeLabels` of model.py."""

    write: LabelMethod = "none"
    omit: list[str] = field(default_factory=list)
    feature_file: Path = Path("/etc/kubernetes/node-feature-discovery/features.d/devherd")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterOptions:
    """`ExporterOptions` of model.py."""

    device_metrics: DeviceMetrics = "physical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """`Sharing` of model.py."""

    strategy: Literal["time_slicing", "mps"] = "time_slicing"
    replicas: int = 1
    rename: str | None = None
    refuses_more_than_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreStart:
    """`PreStart` of in_use.py."""

    occupied: Literal["refuse", "wait"] | None = None
    unhealthy: Literal["refuse", "wait"] | None = None
    program: list[str] | None = None
    when: Literal["always", "suspect"] = "always"
    timeout: float = 10.0
    is_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRule:
    """`ResourceRule` of model.py."""

    match: Match = field(default_factory=Match)
    name: str | None = None
    optional: bool = False
    advertise: bool = True
    sharing: Sharing = field(default_factory=Sharing)
    preferred: Preference | None = None
    pre_start: PreStart = field(default_factory=PreStart)
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """`Config` of model.py."""

    front_end: FrontEnd = "device_plugin"
    cdi_dir: Path = Path("/var/run/cdi")
    scan: ScanOptions = field(default_factory=ScanOptions)
    health: HealthOptions = field(default_factory=HealthOptions)
    ledger: Ledger = field(default_factory=Ledger)
    kubernetes: KubernetesOptions = field(default_factory=KubernetesOptions)
    node_labels: NodeLabels = field(default_factory=NodeLabels)
    exporter: ExporterOptions = field(default_factory=ExporterOptions)
    resources: list[ResourceRule] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorOptions:
    """`VendorOptions` of vendors.py."""

    enabled: Enabled = "auto"
    preferred: Preference | None = None
    preferred_shared: Preference | None = None
