"""Everything that devherd's processes count: name, help text, labels and buckets of each counter and histogram.

Facts of the moment (devices, health, registration) are not counted: the exporter reads them from the run directory.
"""

from devherd.counters import Counter, Histogram, Metric

FOR_A_RESOURCE = ("resource_name",)
FOR_A_DEVICE = ("resource_name", "device_id")
_CALL_SECONDS = (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)

REGISTRATIONS = Counter("devherd_registrations", "Registrations with the kubelet.", FOR_A_RESOURCE)
REGISTRATION_FAILURES = Counter("devherd_registration_failures", "Registrations that failed.", FOR_A_RESOURCE)
KUBELET_RESTARTS = Counter("devherd_kubelet_restarts", "Restarts of the kubelet.", seen_by_all=True)
LISTS_SENT = Counter("devherd_list_and_watch_sends", "Device lists sent to the kubelet.", FOR_A_RESOURCE)
ALLOCATIONS = Counter("devherd_allocations", "Containers given devices.", FOR_A_RESOURCE)
ALLOCATION_FAILURES = Counter("devherd_allocation_failures", "Allocate requests refused.", FOR_A_RESOURCE)
ALLOCATION_DURATION = Histogram(
    "devherd_allocation_duration_seconds", "Time of an Allocate.", FOR_A_RESOURCE, _CALL_SECONDS
)
PREFERRED_ALLOCATION_DURATION = Histogram(
    "devherd_preferred_allocation_duration_seconds", "Time of a GetPreferredAllocation.", FOR_A_RESOURCE, _CALL_SECONDS
)

SCANS = Counter("devherd_scans", "Scans of the host.", ("vendor",))
SCAN_FAILURES = Counter(
    "devherd_scan_failures", "Scans in which a vendor's devices could not be looked at.", ("vendor",)
)
SCAN_DURATION = Histogram(
    "devherd_scan_duration_seconds", "Time of a scan.", buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
)
POLL_DURATION = Histogram(
    "devherd_health_poll_duration_seconds",
    "Time of a health poll.",
    buckets=(0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
)
XIDS = Counter(
    "devherd_device_xids", "Xids that the NVIDIA driver printed of a device, by their code.", (*FOR_A_DEVICE, "xid")
)
KERNEL_LOG_LOST = Counter(
    "devherd_kernel_log_lost_records", "Records of the kernel log that were overwritten before they were read."
)
HEALTH_CHANGES = Counter("devherd_device_health_changes", "Changes of a device's health.", FOR_A_DEVICE)
FINDINGS = Counter("devherd_health_findings", "Findings that were raised against a device.", ("source", "reason"))

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
