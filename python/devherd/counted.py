"""Everything that devherd's processes count: name, help text, labels and buckets of each counter and histogram.

Facts of the moment (devices, health, registration) are not counted: the exporter reads them from the run directory.
"""

from devherd.counters import Counter, Histogram, Metric

FOR_A_RESOURCE = ("resource_name",)
FOR_A_DEVICE = ("resource_name", "device_id")
_CALL_SECONDS = (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)

REGISTRATIONS = Counter(
    "devherd_registrations", "Number of registrations that the kubelet has accepted.", FOR_A_RESOURCE
)
REGISTRATION_FAILURES = Counter(
    "devherd_registration_failures",
    "Number of attempts to register that the kubelet refused or did not complete.",
    FOR_A_RESOURCE,
)
KUBELET_RESTARTS = Counter(
    "devherd_kubelet_restarts", "Number of restarts of the kubelet that devherd has seen.", seen_by_all=True
)
LISTS_SENT = Counter("devherd_list_and_watch_sends", "Number of device lists sent to the kubelet.", FOR_A_RESOURCE)
ALLOCATIONS = Counter(
    "devherd_allocations", "Number of containers that were given devices of the resource.", FOR_A_RESOURCE
)
ALLOCATION_FAILURES = Counter(
    "devherd_allocation_failures", "Number of Allocate requests that were refused: each fails a pod.", FOR_A_RESOURCE
)
ALLOCATION_DURATION = Histogram(
    "devherd_allocation_duration_seconds", "Duration of an Allocate call in seconds.", FOR_A_RESOURCE, _CALL_SECONDS
)
PREFERRED_ALLOCATION_DURATION = Histogram(
    "devherd_preferred_allocation_duration_seconds",
    "Duration of a GetPreferredAllocation call in seconds.",
    FOR_A_RESOURCE,
    _CALL_SECONDS,
)

SCANS = Counter("devherd_scans", "Number of scans of the vendor's devices.", ("vendor",))
SCAN_FAILURES = Counter(
    "devherd_scan_failures", "Number of scans in which the vendor's devices could not be looked at.", ("vendor",)
)
SCAN_DURATION = Histogram(
    "devherd_scan_duration_seconds",
    "Duration of a scan of the host in seconds.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
)
POLL_DURATION = Histogram(
    "devherd_health_poll_duration_seconds",
    "Duration of a health poll of all devices in seconds.",
    buckets=(0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
)
XIDS = Counter(
    "devherd_device_xids",
    "Number of Xids that the NVIDIA driver has reported for the device, by code.",
    (*FOR_A_DEVICE, "xid"),
)
KERNEL_LOG_LOST = Counter(
    "devherd_kernel_log_lost_records",
    "Number of records of the kernel log that were overwritten before devherd read them.",
)
HEALTH_CHANGES = Counter(
    "devherd_device_health_changes", "Number of times that the device turned Unhealthy or Healthy.", FOR_A_DEVICE
)
FINDINGS = Counter(
    "devherd_health_findings",
    "Number of findings that the source has raised against devices, by reason.",
    ("source", "reason"),
)

OF_DEVICES = (HEALTH_CHANGES, XIDS)
"""Those of which each device has its own series."""

BY_RESOURCE_CHILDREN: tuple[Metric, ...] = (
    REGISTRATIONS,
    REGISTRATION_FAILURES,
    KUBELET_RESTARTS,
    LISTS_SENT,
    ALLOCATIONS,
    ALLOCATION_FAILURES,
    ALLOCATION_DURATION,
    PREFERRED_ALLOCATION_DURATION,
)
BY_THE_SCANNER: tuple[Metric, ...] = (
    SCANS,
    SCAN_FAILURES,
    SCAN_DURATION,
    POLL_DURATION,
    HEALTH_CHANGES,
    FINDINGS,
    XIDS,
    KERNEL_LOG_LOST,
)
