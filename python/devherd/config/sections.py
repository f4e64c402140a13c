"""The sections of the configuration in force, as plain values; times in seconds. The models say what each key is.

Generated from them by `make models`: python/generate.py.
"""

from pathlib import Path
from typing import Literal

from devherd.records import Record, field

Enabled = Literal["auto", True, False]
Preference = Literal["aligned", "packed", "distributed", "none"]
Action = Literal["unhealthy", "warn", "ignore"]
LabelMethod = Literal["none", "feature_file", "node_feature", "node"]
DeviceMetrics = Literal["all", "physical", "faults", "none"]


class ScanOptions(Record, kw_only=True):
    """`ScanOptions` of model.py."""

    period: float | None = None
    events: bool = True
    probe_timeout: float = 2.0


class KernelLogRule(Record, kw_only=True):
    """`KernelLogRule` of model.py."""

    name: str
    contains: str
    pattern: str


class KernelLogOptions(Record, kw_only=True):
    """`KernelLogOptions` of model.py."""

    enabled: Enabled = "auto"
    optional: list[str] = field(factory=list)
    rules: list[KernelLogRule] = field(factory=list)


class Selector(Record, kw_only=True):
    """`Selector` of model.py."""

    facts: dict[str, list[str]] = field(factory=dict)


class Match(Selector, kw_only=True):
    """`Match` of model.py."""

    exclude: list[Selector] = field(factory=list)


class HealthRule(Record, kw_only=True):
    """`HealthRule` of model.py."""

    match: Match = field(factory=Match)
    optional: bool = False
    source: list[str] = field(factory=list)
    reason: list[str] = field(factory=list)
    value: list[str] = field(factory=list)
    action: Action | None = None
    after: float | None = None
    hold: float | None = None
    name: str = ""
    place: str = ""


class External(Record, kw_only=True):
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


class HealthOptions(Record, kw_only=True):
    """`HealthOptions` of model.py."""

    poll: float = 1.0
    recover_after: int = 3
    forget_after: float = 300.0
    breaker: bool = True
    flapping: bool = True
    kernel_log: KernelLogOptions = field(factory=KernelLogOptions)
    rules: list[HealthRule] = field(factory=list)
    external: list[External] = field(factory=list)
    amd_kfd: bool = False
    monitors: dict[str, str] = field(
        factory=lambda: {"amd-exporter": "auto", "amd-nic-exporter": "auto", "xpumd": "auto"}
    )
    sources_off: list[str] = field(factory=list)


class Ledger(Record, kw_only=True):
    """`Ledger` of in_use.py."""

    enabled: bool = False
    ignore: list[str] = field(
        factory=lambda: [
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


class KubernetesOptions(Record, kw_only=True):
    """`KubernetesOptions` of model.py."""

    events: bool = True
    node_condition: bool = False
    nvidia_pause: bool = False


class NodeLabels(Record, kw_only=True):
    """`NodeLabels` of model.py."""

    write: LabelMethod = "none"
    omit: list[str] = field(factory=list)
    feature_file: Path = Path("/etc/kubernetes/node-feature-discovery/features.d/devherd")


class ExporterOptions(Record, kw_only=True):
    """`ExporterOptions` of model.py."""

    device_metrics: DeviceMetrics = "physical"
    sleep_after: float = 600.0


class Sharing(Record, kw_only=True):
    """`Sharing` of model.py."""

    strategy: Literal["time_slicing", "mps"] = "time_slicing"
    replicas: int = 1
    rename: str | None = None
    refuses_more_than_one: bool = False


class PreStart(Record, kw_only=True):
    """`PreStart` of in_use.py."""

    occupied: Literal["refuse", "wait"] | None = None
    unhealthy: Literal["refuse", "wait"] | None = None
    program: list[str] | None = None
    when: Literal["always", "suspect"] = "always"
    timeout: float = 10.0
    is_on: bool = False


class ResourceRule(Record, kw_only=True):
    """`ResourceRule` of model.py."""

    match: Match = field(factory=Match)
    name: str | None = None
    optional: bool = False
    advertise: bool = True
    sharing: Sharing = field(factory=Sharing)
    preferred: Preference | None = None
    pre_start: PreStart = field(factory=PreStart)
    place: str = ""


class Config(Record, kw_only=True):
    """`Config` of model.py."""

    cdi_dir: Path = Path("/var/run/cdi")
    scan: ScanOptions = field(factory=ScanOptions)
    health: HealthOptions = field(factory=HealthOptions)
    ledger: Ledger = field(factory=Ledger)
    kubernetes: KubernetesOptions = field(factory=KubernetesOptions)
    node_labels: NodeLabels = field(factory=NodeLabels)
    exporter: ExporterOptions = field(factory=ExporterOptions)
    resources: list[ResourceRule] = field(factory=list)


class VendorOptions(Record, kw_only=True):
    """`VendorOptions` of vendors.py."""

    enabled: Enabled = "auto"
    preferred: Preference | None = None
    preferred_shared: Preference | None = None
