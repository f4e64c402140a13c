"""What NVML says of the health of GPUs, as findings of source `nvml`. Pure: nothing here asks NVML.

Codes, fields and events are those of https://docs.nvidia.com/deploy/nvml-api/; rust/src/nvml/reading.rs has the forms.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from devherd.health.clears import Evidence
from devherd.health.seen import Now
from devherd.health.sources.nvml.counts import Counters
from devherd.health.xids import XID, told
from devherd.proto import health_pb2

Reading = dict[str, Any]
Event = dict[str, Any]

NVML = "nvml"
SETTLE_SECONDS = 1.0
"""How long the driver may take after an event to say what it wants done."""

_XID_EVENT = 0x8
_STORM_EVENT = 0x200
_POISON_EVENT = 0x1000
_UNAVAILABLE_EVENT = 0x4000

_EVENTS = "nvmlEventSetWait_v2"
_FIELDS = "nvmlDeviceGetFieldValues"
_FABRIC = "nvmlDeviceGetGpuFabricInfoV"
_CLOCKS = "nvmlDeviceGetCurrentClocksEventReasons"
_SRAM = "nvmlDeviceGetSramEccErrorStatus"
_REPAIR = "nvmlDeviceGetRepairStatus"
_UNREPAIRABLE = "nvmlDeviceGetUnrepairableMemoryFlag_v1"

_GPU_LOST = "gpu-lost"
_NEEDS_RESET = "needs-reset"
_RECOVERY_ACTION = "recovery-action"
_ECC_STORM = "ecc-storm"
_POISON = "memory-poison"
_NVLINK_ERRORS = "nvlink-errors"
_HAPPENS = frozenset({XID, _ECC_STORM, _POISON, _NVLINK_ERRORS})
"""Reasons of events: they are counted, all others stand."""
_SUSPECT = frozenset({_GPU_LOST, _NEEDS_RESET, _RECOVERY_ACTION})
"""Reasons of a GPU that has to be reset, or is gone."""

_RESULTS = {
    8: ("insufficient-power", "NVML_ERROR_INSUFFICIENT_POWER"),
    11: ("interrupts", "NVML_ERROR_IRQ_ISSUE"),
    14: ("firmware", "NVML_ERROR_CORRUPTED_INFOROM"),
    15: (_GPU_LOST, "NVML_ERROR_GPU_IS_LOST"),
    16: (_NEEDS_RESET, "NVML_ERROR_RESET_REQUIRED"),
}
"""Results that say something of the GPU; every other is the trouble of whoever asks."""
_ACTIONS = {
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain traffic between GPUs",
    4: "drain the GPU and reset it",
    5: "reset the IMEX domain",
    6: "reset the bus",
    7: "reboot the system",
}
MOST_CORRECTED_ERRORS = 60
"""Within a minute, as of PCI Express: one a second is more than scattered cells and particles come to."""
_MOST_RETIRED_PAGES = 63
"""At so many NVIDIA takes a card back."""
_FLAGS = (
    ("sram_threshold_exceeded", "sram-threshold", "its SRAM had more uncorrected errors than a board may have", _SRAM),
    ("repair_pending", "repair-pending", "the next reset repairs a channel or a cluster of it", _REPAIR),
    ("unrepairable_memory", "unrepairable-memory", "its memory has what nothing can repair", _UNREPAIRABLE),
)
"""What is the matter where a part of a reading is true."""
_FABRIC_STATES = {1: "not started", 2: "in progress"}
_FABRIC_DONE = 3
_FABRIC_SUMMARIES = {2: "unhealthy", 3: "limited capacity"}
_TOO_HOT = 0x40
_POWER_BRAKE = 0x80


class Health:
    """What is known of all GPUs: what stands since the last look, what has happened so far, what ends that."""

    def __init__(self, earlier: health_pb2.Findings | None = None) -> None:
        """`earlier`: what the process before this one said, in this boot; it is gone on with."""
        self._standing: dict[str, list[health_pb2.Finding]] = {}
        self._happened: dict[bytes, health_pb2.Finding] = {}
        self._evidence: dict[tuple[str, str], health_pb2.Evidence] = {}
        self._counters = Counters(earlier.memories if earlier else ())
        for finding in earlier.findings if earlier else ():
            if finding.reason in _HAPPENS:
                self._happened[_key_of_event(finding)] = finding
            else:
                self._standing.setdefault(finding.at.pci_address, []).append(finding)
        for evidence in earlier.evidence if earlier else ():
            self._evidence[evidence.at.pci_address, evidence.evidence] = evidence

    @property
    def suspects(self) -> frozenset[str]:
        """The GPUs, by PCI address, of which only a fresh handle tells whether they are well again."""
        return frozenset(gpu for gpu, findings in self._standing.items() if _is_suspect(findings))

    def heard(self, events: Iterable[Event], monotonic: float) -> None:
        """Take in events of that moment."""
        for event in events:
            gpu = event["pci_address"]
            if gpu and event["kind"] == _XID_EVENT:
                self._count(_xid(event), monotonic)
            elif gpu and event["kind"] == _STORM_EVENT:
                self._count(_finding(gpu, _ECC_STORM, "NVML tells of a storm of them", _EVENTS, "storm"), monotonic)
            elif gpu and event["kind"] == _POISON_EVENT:
                detail = "NVML tells of a poison error that is not fatal"
                self._count(_finding(gpu, _POISON, detail, _EVENTS, ""), monotonic)
            elif gpu and event["kind"] == _UNAVAILABLE_EVENT:
                lost = _finding(gpu, _GPU_LOST, "NVML says that the GPU is unavailable", _EVENTS, "unavailable")
                others = [finding for finding in self._standing.get(gpu, []) if finding.reason != _GPU_LOST]
                self._standing[gpu] = [*others, lost]

    def _count(self, event: health_pb2.Finding, monotonic: float) -> None:
        counted = self._happened.setdefault(_key_of_event(event), event)
        counted.count += 1
        counted.last_monotonic_seconds = monotonic

    def looked(self, readings: Iterable[Reading], monotonic: float) -> None:
        """Take in a look of that moment at some GPUs; of those that could not be looked at the last one stays."""
        for reading in readings:
            if is_blind(reading):
                continue
            gpu = reading["pci_address"]
            was_suspect = _is_suspect(self._standing.get(gpu, ()))
            remap_failed = [one for one in self._standing.get(gpu, ()) if one.reason == "row-remap-failed"]
            standing = [*standing_of(reading), *self._links(reading)]
            self._rises(reading, monotonic)
            if reading["remap_failed"] is None:  # refused while there are MIG devices, and it is for good
                standing += remap_failed
            self._standing[gpu] = standing
            settled = monotonic - SETTLE_SECONDS
            if _is_suspect(standing):
                continue
            if reading["recovery_action"] == 0:
                self._state(gpu, Evidence.RECOVERY_UNASKED, settled)
            if was_suspect:
                self._state(gpu, Evidence.RECOVERY_NONE, settled)

    def _links(self, reading: Reading) -> Iterator[health_pb2.Finding]:
        down = self._counters.links_lost(reading)
        if down:
            numbers = ", ".join(map(str, down))
            detail = f"NVLinks that were up in this boot and are down: {numbers}"
            yield _finding(reading["pci_address"], "nvlink-down", detail, _FIELDS, numbers)

    def _rises(self, reading: Reading, monotonic: float) -> None:
        gpu = reading["pci_address"]
        corrected, failed = self._counters.rises(reading, monotonic)
        if corrected > MOST_CORRECTED_ERRORS:
            detail = f"{corrected} corrected memory errors within a minute"
            self._count(_finding(gpu, _ECC_STORM, detail, _FIELDS, "rate"), monotonic)
        if failed:
            detail = f"NVLinks that could not be recovered: {failed} times more"
            self._count(_finding(gpu, _NVLINK_ERRORS, detail, _FIELDS, "recovery-failed"), monotonic)

    def _state(self, gpu: str, evidence: Evidence, monotonic: float) -> None:
        at = health_pb2.Target(vendor="nvidia", pci_address=gpu)
        self._evidence[gpu, evidence] = health_pb2.Evidence(at=at, evidence=evidence, monotonic_seconds=monotonic)

    def forget_all_but(self, gpus: Collection[str]) -> None:
        """Drop what stands of GPUs that the driver has no more: nobody looks at them."""
        self._standing = {gpu: findings for gpu, findings in self._standing.items() if gpu in gpus}
        self._counters.forget_all_but(gpus)

    def told(self, now: Now, failed: str = "") -> health_pb2.Findings:
        """The findings file's content; `failed`: why NVML cannot be asked."""
        standing = [finding for gpu in sorted(self._standing) for finding in self._standing[gpu]]
        return health_pb2.Findings(
            source=NVML,
            boot_id=now.boot_id,
            timestamp_seconds=now.wall,
            failed=failed,
            findings=[*standing, *(self._happened[key] for key in sorted(self._happened))],
            evidence=[self._evidence[key] for key in sorted(self._evidence)],
            counts=self._counters.told(),
            memories=self._counters.memories(),
        )


def is_suspect(reading: Reading) -> bool:
    """Whether a GPU has to be reset, or is gone, so that only a fresh handle tells whether it is well again."""
    return _is_suspect(standing_of(reading))


def is_blind(reading: Reading) -> bool:
    """Whether a look came to nothing because of trouble that is not the GPU's."""
    said = (value for name, value in reading.items() if name not in {"pci_address", "failures"})
    says_nothing = all(value is None or value == {} for value in said)
    return says_nothing and bool(reading["failures"]) and not any(_results(reading))


def troubles(reading: Reading) -> str:
    """What could not be read, for people; without what says something of the GPU."""
    words = [
        f"{failure['function']}: {failure['meaning']}"
        for failure in reading["failures"]
        if failure["code"] not in _RESULTS
    ]
    return ", ".join(words)


def standing_of(reading: Reading) -> Iterator[health_pb2.Finding]:
    """What one look at a GPU finds."""
    yield from _results(reading)
    yield from _recovery(reading)
    yield from _memory(reading)
    yield from _fabric(reading)
    yield from _clocks(reading)


def _results(reading: Reading) -> Iterator[health_pb2.Finding]:
    results = {failure["code"]: failure for failure in reversed(reading["failures"]) if failure["code"] in _RESULTS}
    for code in sorted(results):
        (reason, name), failure = _RESULTS[code], results[code]
        detail = f"NVML's answer about the GPU: {failure['meaning']}"
        yield _finding(reading["pci_address"], reason, detail, failure["function"], name)


def _recovery(reading: Reading) -> Iterator[health_pb2.Finding]:
    action = reading["recovery_action"]
    if action:
        wanted = _ACTIONS.get(action, f"recovery action {action}, which devherd does not know")
        detail = f"the driver wants this done: {wanted}"
        yield _finding(reading["pci_address"], _RECOVERY_ACTION, detail, _FIELDS, str(action))


def _memory(reading: Reading) -> Iterator[health_pb2.Finding]:
    gpu = reading["pci_address"]
    if reading["remap_failed"]:
        failed = _finding(gpu, "row-remap-failed", "a row of its memory could not be remapped", _FIELDS, "1")
        failed.count = 1
        yield failed
    if reading["remap_pending"]:
        yield _finding(gpu, "row-remap-pending", "the next reset remaps rows of its memory", _FIELDS, "1")
    if reading["retirement_pending"]:
        yield _finding(gpu, "retirement-pending", "the next reset retires pages of its memory", _FIELDS, "1")
    pages = reading["retired_pages"] or 0
    if pages >= _MOST_RETIRED_PAGES:
        yield _finding(gpu, "retired-pages", f"{pages} pages of its memory are retired", _FIELDS, str(pages))
    errors = reading["uncorrected_errors"]
    if errors:
        reason = "ecc" if reading["recovery_action"] is None else "ecc-contained"
        yield _finding(gpu, reason, f"uncorrected memory errors: {errors}", _FIELDS, str(errors))
    for name, reason, detail, function in _FLAGS:
        if reading[name]:
            yield _finding(gpu, reason, detail, function, "1")


def _fabric(reading: Reading) -> Iterator[health_pb2.Finding]:
    fabric = reading["fabric"]
    if fabric is None:
        return
    value = _FABRIC_STATES.get(fabric["state"])
    if fabric["state"] == _FABRIC_DONE:
        value = "failed" if fabric["status"] else _FABRIC_SUMMARIES.get(fabric["summary"])
    if value:
        yield _finding(reading["pci_address"], "fabric", f"its place in the NVLink fabric: {value}", _FABRIC, value)


def _clocks(reading: Reading) -> Iterator[health_pb2.Finding]:
    reasons = reading["clock_reasons"] or 0
    for bit, reason, cause in ((_TOO_HOT, "temperature", "heat"), (_POWER_BRAKE, "power-brake", "the power brake")):
        if reasons & bit:
            detail = f"the hardware lowers its clocks because of {cause}"
            yield _finding(reading["pci_address"], reason, detail, _CLOCKS, f"{bit:#x}")


def _xid(event: Event) -> health_pb2.Finding:
    xid = _finding(event["pci_address"], XID, told(event["data"]), _EVENTS, str(event["data"]))
    if event["gpu_instance"] is not None:
        xid.at.gpu_instance = str(event["gpu_instance"])
        xid.file += f", GPU instance {event['gpu_instance']}"
        if event["compute_instance"] is not None:
            xid.at.compute_instance = str(event["compute_instance"])
            xid.file += f", compute instance {event['compute_instance']}"
    return xid


def _key_of_event(event: health_pb2.Finding) -> bytes:
    return b" ".join((event.at.SerializeToString(deterministic=True), event.reason.encode(), event.value.encode()))


def _is_suspect(findings: Iterable[health_pb2.Finding]) -> bool:
    return any(finding.reason in _SUSPECT for finding in findings)


def _finding(gpu: str, reason: str, detail: str, file: str, value: str) -> health_pb2.Finding:
    at = health_pb2.Target(vendor="nvidia", pci_address=gpu)
    return health_pb2.Finding(at=at, reason=reason, detail=detail, file=file, value=value)
