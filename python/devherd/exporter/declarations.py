"""Name, help text, labels and type of the families that the exporter reads at each scrape."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from devherd.exporter.exposition import Labels, Lines, line_of, sample_name


@dataclass(frozen=True, slots=True)
class Observed:
    """A family of series. A counter's name is without the `_total` that Prometheus adds."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    type: Literal["counter", "gauge"] = "gauge"

    def family(self) -> CounterMetricFamily | GaugeMetricFamily:
        """The family without a sample; `add_metric` takes the values of `labels` in their order."""
        kind = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        return kind(self.name, self.help, labels=self.labels)

    def line(self) -> Callable[[Labels, float], str]:
        """A function that makes a sample's line from the values of `labels`, in their order, and the sample's value."""
        return line_of(sample_name(self.name, self.type), self.labels)

    def family_of(self, lines: Iterable[str]) -> Lines:
        """The family with these lines."""
        return Lines(self.family(), lines)


_RESOURCE = ("resource_name",)
DEVICE = ("resource_name", "device_id")
"""Labels that every series of a device has."""
_CHILD = ("child",)

BUILD_INFO = Observed(
    "devherd_build_info", "Version and source revision of devherd as labels; always 1.", ("version", "revision")
)

DEVICES = Observed(
    "devherd_devices",
    "Number of devices that the resource offers, replicas of shared devices included, by health.",
    (*_RESOURCE, "health"),
)
DEVICES_ALLOCATED = Observed(
    "devherd_devices_allocated",
    "Number of devices that containers hold, replicas of shared devices included, by health.",
    (*_RESOURCE, "health"),
)
DEVICE_HEALTHY = Observed(
    "devherd_device_healthy", "1 if the kubelet may give the device to a pod, 0 if the device is Unhealthy.", DEVICE
)
DEVICE_MISSING = Observed(
    "devherd_device_missing",
    "1 for each device that is lost, until it is back or `devherd forget` has named it.",
    (*DEVICE, "vendor", "model", "pci_address", "slot", "serial"),
)
DEVICE_UNHEALTHY_REASON = Observed(
    "devherd_device_unhealthy_reason",
    "1 for each reason that makes the device Unhealthy; no series for a Healthy device.",
    (*DEVICE, "reason"),
)
DEVICE_WARNING = Observed(
    "devherd_device_warning",
    "1 for each warning about the device; warnings do not change its health.",
    (*DEVICE, "reason"),
)
DEVICE_FINDING = Observed(
    "devherd_device_finding",
    "1 for each finding of a health source about the device; action is its effect.",
    (*DEVICE, "source", "reason", "action"),
)
DEVICE_INFO = Observed(
    "devherd_device_info",
    "Facts of the device as labels; always 1.",
    (*DEVICE, "vendor", "model", "pci_address", "numa_node"),
)
DEVICE_ALLOCATED = Observed(
    "devherd_device_allocated",
    "1 for each container that holds the device, by the kubelet's PodResources API.",
    (*DEVICE, "namespace", "pod", "container"),
)

DEVICE_HELD_ELSEWHERE = Observed(
    "devherd_device_held_elsewhere",
    "1 if the device is open in a process of another pod than the one that it is given to, or of none; 0 otherwise.",
    DEVICE,
)
DEVICE_OPEN_PROCESSES = Observed(
    "devherd_device_open_processes", "Number of processes that have the device open.", DEVICE
)

_KIND = (*DEVICE, "kind")
DEVICE_COUNTS = {
    "ecc-errors": Observed(
        "devherd_device_ecc_errors",
        "Number of memory errors in the card's lifetime, by kind: corrected, uncorrected.",
        _KIND,
        "counter",
    ),
    "remapped-rows": Observed(
        "devherd_device_remapped_rows",
        "Number of remapped rows of the card's memory, by kind of error.",
        _KIND,
    ),
    "inactive-remapped-rows": Observed(
        "devherd_device_inactive_remapped_rows",
        "Number of remappings of memory rows that are not active, by kind of error.",
        _KIND,
    ),
    "retired-pages": Observed("devherd_device_retired_pages", "Number of retired pages of the card's memory.", DEVICE),
    "pcie-replays": Observed(
        "devherd_device_pcie_replays", "Number of replays on the card's PCI Express link.", DEVICE, "counter"
    ),
    "nvlinks": Observed(
        "devherd_device_nvlinks",
        "Number of the GPU's NVLinks, by kind: up, down; a card without a bridge has links that are down.",
        _KIND,
    ),
    "nvlink-errors": Observed(
        "devherd_device_nvlink_errors",
        "Number of errors that the GPU's NVLinks have counted since its last reset, by kind.",
        _KIND,
        "counter",
    ),
    "clocks-lowered": Observed(
        "devherd_device_clocks_lowered",
        "1 for each reason for which the GPU's clocks were lowered at the last check, 0 for the others.",
        _KIND,
    ),
    "pci-errors": Observed(
        "devherd_device_pci_errors",
        "Number of PCI Express errors that the kernel has counted at either end of the device's link, by kind: "
        "correctable, nonfatal, fatal.",
        (*DEVICE, "end", "kind"),
        "counter",
    ),
    "rdma-errors": Observed(
        "devherd_device_rdma_errors",
        "Number of errors and lost packets that a port of the RDMA device has counted, by the kernel's name.",
        (*DEVICE, "port", "kind"),
        "counter",
    ),
    "ras-errors": Observed(
        "devherd_device_ras_errors",
        "Number of errors that a block of the AMD GPU has counted since its driver was loaded, by kind: corrected, "
        "deferred, uncorrected.",
        (*DEVICE, "block", "kind"),
        "counter",
    ),
}
"""Families of the counts that sources report, by the name in `Count` (proto/health.proto)."""

SCAN_PROBLEMS = Observed(
    "devherd_scan_problems", "Number of problems in the last scan of the vendor's devices.", ("vendor",)
)
SCAN_PROBLEM_INFO = Observed(
    "devherd_scan_problem_info",
    "Place of a problem of the last scan, as labels; always 1. The first 50 problems are listed.",
    ("vendor", "device", "path"),
)
LAST_SCAN = Observed(
    "devherd_last_scan_timestamp_seconds", "Unix time at which the last scan of the host ended, in seconds."
)
SCAN_PERIOD = Observed(
    "devherd_scan_period_seconds",
    "Time in force between two scans of the host without events, in seconds: longer where the kernel reports changes.",
)

SOURCE_UP = Observed(
    "devherd_health_source_up",
    "1 if the source of health findings works, 0 if it fails; devices keep its earlier findings.",
    ("source",),
)
SOURCE_LAST_REPORT = Observed(
    "devherd_health_source_last_report_timestamp_seconds",
    "Unix time of the last report of the source of health findings, in seconds.",
    ("source",),
)

REGISTERED = Observed(
    "devherd_registered",
    "1 if the kubelet has accepted the resource's registration and watches its devices, else 0.",
    _RESOURCE,
)
REGISTRATION_STATE = Observed(
    "devherd_registration_state",
    "1 for the current state of the resource's registration with the kubelet, 0 for the others.",
    (*_RESOURCE, "state"),
)
STREAMS = Observed(
    "devherd_list_and_watch_streams", "Number of ListAndWatch streams that the kubelet has open.", _RESOURCE
)

CHILD_UP = Observed("devherd_child_up", "1 if the child process is in the state RUNNING, else 0.", _CHILD)
CHILD_LAST_HEARTBEAT = Observed(
    "devherd_child_last_heartbeat_timestamp_seconds",
    "Unix time of the child process's last heartbeat, in seconds.",
    _CHILD,
)
CHILD_RESTARTS = Observed(
    "devherd_child_restarts", "Number of restarts of the child process by cause.", (*_CHILD, "cause"), "counter"
)
CHILD_RESIDENT_MEMORY = Observed(
    "devherd_child_resident_memory_bytes",
    "Resident memory of the process in bytes (RSS), pages that it shares with the supervisor included.",
    _CHILD,
)
CHILD_CPU = Observed(
    "devherd_child_cpu_seconds",
    "CPU time, user and system, that the process has spent since it was last started, in seconds.",
    _CHILD,
    "counter",
)
CHILD_OPEN_FILES = Observed(
    "devherd_child_open_fds", "Number of open file descriptors of the process; needs Linux 6.2 or newer.", _CHILD
)
CHILD_START_TIME = Observed(
    "devherd_child_start_time_seconds", "Unix time at which the process was started, in seconds.", _CHILD
)

RELOADS = Observed("devherd_config_reloads", "Number of requests to reload the configuration.", type="counter")
RELOAD_FAILURES = Observed(
    "devherd_config_reload_failures",
    "Number of reloads that were refused because the configuration was not valid.",
    type="counter",
)
LAST_RELOAD_SUCCESSFUL = Observed(
    "devherd_config_last_reload_successful",
    "1 if the last reload of the configuration succeeded, 0 if it was refused and the previous one stays in force.",
)
LAST_RELOAD_SUCCESS = Observed(
    "devherd_config_last_reload_success_timestamp_seconds",
    "Unix time at which the configuration in force was loaded, in seconds.",
)
CONFIG_WARNINGS = Observed(
    "devherd_config_warnings", "Number of settings in the configuration in force that have no effect."
)

PROCESS_CPU = Observed(
    "process_cpu_seconds", "CPU time, user and system, that the exporter has spent, in seconds.", type="counter"
)
PROCESS_RESIDENT_MEMORY = Observed("process_resident_memory_bytes", "Resident memory of the exporter in bytes.")
PROCESS_VIRTUAL_MEMORY = Observed("process_virtual_memory_bytes", "Virtual memory of the exporter in bytes.")
PROCESS_OPEN_FILES = Observed("process_open_fds", "Number of open file descriptors of the exporter.")
PROCESS_MAX_FILES = Observed("process_max_fds", "Largest number of open file descriptors that the exporter may have.")
PROCESS_START_TIME = Observed("process_start_time_seconds", "Unix time at which the exporter was started, in seconds.")

ALL = (*(each for each in globals().values() if isinstance(each, Observed)), *DEVICE_COUNTS.values())
