"""Turns NVML's readings and events into findings of source `nvml` and counts. Pure: no call of NVML."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from devherd._native import Evidence
from devherd.health.held import Now
from devherd.proto import health_pb2
from devherd.reasons.xids import XID, described

Reading = dict[str, Any]
Event = dict[str, Any]

WINDOW_SECONDS = 60.0
"""Time over which corrected memory errors are summed."""
_CORRECTED = ("corrected_errors", "lifetime_corrected_errors")
_LINKS = "nvlinks"
_CLOCK_REASONS = (
    ("power-cap", 0x4),
    ("hardware", 0x8),
    ("sync-boost", 0x10),
    ("heat", 0x20),
    ("hardware-heat", 0x40),
    ("power-brake", 0x80),
)
"""`nvmlClocksEventReason…`: reasons of lowered clocks, without idleness and settings of users."""

_COUNTS = (
    ("ecc-errors", "corrected", "lifetime_corrected_errors"),
    ("ecc-errors", "uncorrected", "lifetime_uncorrected_errors"),
    ("remapped-rows", "corrected", "remapped_corrected"),
    ("remapped-rows", "uncorrected", "remapped_uncorrected"),
    ("inactive-remapped-rows", "corrected", "inactive_remapped_corrected"),
    ("inactive-remapped-rows", "uncorrected", "inactive_remapped_uncorrected"),
    ("retired-pages", "", "retired_pages"),
    ("pcie-replays", "", "pcie_replays"),
)
"""Name, kind, and key in a reading."""

NVML = "nvml"
SETTLE_SECONDS = 1.0
"""Time after an event until the driver's recovery action is reliable."""

_XID_EVENT = 0x8
_STORM_EVENT = 0x200
_POISON_EVENT = 0x1000
_UNAVAILABLE_EVENT = 0x4000

_EVENTS = "nvmlEventSetWait_v2"
_FIELDS = "nvmlDeviceGetFieldValues"
_FABRIC = "nvmlDeviceGetGpuFabricInfoV"
_CLOCKS_CALL = "nvmlDeviceGetCurrentClocksEventReasons"
_SRAM = "nvmlDeviceGetSramEccErrorStatus"
_REPAIR = "nvmlDeviceGetRepairStatus"
_UNREPAIRABLE = "nvmlDeviceGetUnrepairableMemoryFlag_v1"

_GPU_LOST = "gpu-lost"
_NEEDS_RESET = "needs-reset"
_RECOVERY_ACTION = "recovery-action"
_ECC_STORM = "ecc-storm"
_POISON = "memory-poison"
_NVLINK_ERRORS = "nvlink-errors"
_COUNTED = frozenset({XID, _ECC_STORM, _POISON, _NVLINK_ERRORS})
"""Reasons of events, which are counted. All other reasons are states, replaced with each look."""
_SUSPECT = frozenset({_GPU_LOST, _NEEDS_RESET, _RECOVERY_ACTION})
"""Reasons of a GPU that needs a reset or is gone."""

_RESULTS = {
    8: ("insufficient-power", "NVML_ERROR_INSUFFICIENT_POWER"),
    11: ("interrupts", "NVML_ERROR_IRQ_ISSUE"),
    14: ("firmware", "NVML_ERROR_CORRUPTED_INFOROM"),
    15: (_GPU_LOST, "NVML_ERROR_GPU_IS_LOST"),
    16: (_NEEDS_RESET, "NVML_ERROR_RESET_REQUIRED"),
}
"""Results that are findings about the GPU; all others are errors of the caller."""
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
"""Per minute, as for PCI Express: single cells and particles cause fewer than one a second."""
_MOST_RETIRED_PAGES = 63
"""NVIDIA replaces a card with this number of retired pages."""
_FLAGS = (
    ("sram_threshold_exceeded", "sram-threshold", "its SRAM had more uncorrected errors than a board may have", _SRAM),
    ("repair_pending", "repair-pending", "the next reset repairs a channel or a cluster of it", _REPAIR),
    ("unrepairable_memory", "unrepairable-memory", "its memory has what nothing can repair", _UNREPAIRABLE),
)
"""Key of a reading, and the reason, detail and function of the finding if it is true."""
_FABRIC_STATES = {1: "not started", 2: "in progress"}
_FABRIC_DONE = 3
_FABRIC_SUMMARIES = {2: "unhealthy", 3: "limited capacity"}
_TOO_HOT = 0x40
_POWER_BRAKE = 0x80


class Health:
    """The findings about all GPUs: states since the last look, counted events, and evidence that ends them."""

    def __init__(self, earlier: health_pb2.Findings | None = None) -> None:
        """`earlier`: findings of the last process of this boot, which are continued."""
        self._states: dict[str, list[health_pb2.Finding]] = {}
        self._events: dict[bytes, health_pb2.Finding] = {}
        self._evidence: dict[tuple[str, str], health_pb2.Evidence] = {}
        self._counters = Counters(earlier.memories if earlier else ())
        for finding in earlier.findings if earlier else ():
            if finding.reason in _COUNTED:
                self._events[_key_of_event(finding)] = finding
            else:
                self._states.setdefault(finding.at.pci_address, []).append(finding)
        for evidence in earlier.evidence if earlier else ():
            self._evidence[evidence.at.pci_address, evidence.evidence] = evidence

    @property
    def suspects(self) -> frozenset[str]:
        """The PCI addresses of GPUs whose recovery only a new handle shows."""
        return frozenset(gpu for gpu, findings in self._states.items() if _is_suspect(findings))

    def take_events(self, events: Iterable[Event], monotonic: float) -> None:
        """Apply events of monotonic second `monotonic`."""
        for event in events:
            gpu = event["pci_address"]
            if gpu and event["kind"] == _XID_EVENT:
                self._count(_xid(event), monotonic)
            elif gpu and event["kind"] == _STORM_EVENT:
                self._count(_finding(gpu, _ECC_STORM, "NVML reports a storm of them", _EVENTS, "storm"), monotonic)
            elif gpu and event["kind"] == _POISON_EVENT:
                detail = "NVML reports a poison error that is not fatal"
                self._count(_finding(gpu, _POISON, detail, _EVENTS, ""), monotonic)
            elif gpu and event["kind"] == _UNAVAILABLE_EVENT:
                lost = _finding(gpu, _GPU_LOST, "NVML reports that the GPU is unavailable", _EVENTS, "unavailable")
                others = [finding for finding in self._states.get(gpu, []) if finding.reason != _GPU_LOST]
                self._states[gpu] = [*others, lost]

    def _count(self, event: health_pb2.Finding, monotonic: float) -> None:
        counted = self._events.setdefault(_key_of_event(event), event)
        counted.count += 1
        counted.last_monotonic_seconds = monotonic

    def take_readings(self, readings: Iterable[Reading], monotonic: float) -> None:
        """Apply readings of monotonic second `monotonic`; a GPU that could not be read keeps its last state."""
        for reading in readings:
            if is_blind(reading):
                continue
            gpu = reading["pci_address"]
            was_suspect = _is_suspect(self._states.get(gpu, ()))
            remap_failed = [one for one in self._states.get(gpu, ()) if one.reason == "row-remap-failed"]
            states = [*states_of(reading), *self._links(reading)]
            self._rises(reading, monotonic)
            if reading["remap_failed"] is None:  # refused while there are MIG devices; a failure is permanent
                states += remap_failed
            self._states[gpu] = states
            settled = monotonic - SETTLE_SECONDS
            if _is_suspect(states):
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

    def _state(self, gpu: str, evidence: str, monotonic: float) -> None:
        at = health_pb2.Target(vendor="nvidia", pci_address=gpu)
        self._evidence[gpu, evidence] = health_pb2.Evidence(at=at, evidence=evidence, monotonic_seconds=monotonic)

    def forget_all_but(self, gpus: Collection[str]) -> None:
        """Drop the states of GPUs that the driver no longer has: they are not looked at."""
        self._states = {gpu: findings for gpu, findings in self._states.items() if gpu in gpus}
        self._counters.forget_all_but(gpus)

    def message(self, now: Now, failed: str = "") -> health_pb2.Findings:
        """The content of the findings file; `failed`: why NVML cannot be asked."""
        states = [finding for gpu in sorted(self._states) for finding in self._states[gpu]]
        return health_pb2.Findings(
            source=NVML,
            boot_id=now.boot_id,
            timestamp_seconds=now.wall,
            failed=failed,
            findings=[*states, *(self._events[key] for key in sorted(self._events))],
            evidence=[self._evidence[key] for key in sorted(self._evidence)],
            counts=self._counters.counts(),
            memories=self._counters.memories(),
        )


class Counters:
    """The counters of each GPU, by PCI address."""

    def __init__(self, memories: Iterable[health_pb2.Memory] = ()) -> None:
        """`memories`: from the last process of this boot."""
        self._corrected: dict[str, dict[str, list[tuple[float, int]]]] = {}
        self._failed: dict[str, int] = {}
        self._counts: dict[str, list[health_pb2.Count]] = {}
        self._were_up = {one.card: set(map(int, one.text.split())) for one in memories if one.variant == _LINKS}

    def links_lost(self, reading: Reading) -> list[int]:
        """The numbers of the NVLinks that were up in this boot and are down, sorted.

        A card without a bridge has links that were never up: that is no fault.
        """
        links = {int(number): is_up for number, is_up in reading["links"].items()}
        were_up = self._were_up.setdefault(reading["pci_address"], set())
        were_up.update(number for number, is_up in links.items() if is_up)
        return sorted(number for number, is_up in links.items() if not is_up and number in were_up)

    def rises(self, reading: Reading, monotonic: float) -> tuple[int, int]:
        """The rise of corrected memory errors in a minute, and of failed NVLink recoveries since the last look.

        A counter that has fallen, as after a reset, starts again.
        """
        gpu = reading["pci_address"]
        self._counts[gpu] = list(_counts_of(reading))
        failed = reading["link_errors"].get("recovery-failed")
        before = self._failed.get(gpu, failed)
        if failed is None or before is None:
            return self._corrected_lately(reading, monotonic), 0
        self._failed[gpu] = failed
        return self._corrected_lately(reading, monotonic), max(0, failed - before)

    def _corrected_lately(self, reading: Reading, monotonic: float) -> int:
        """The larger rise of the driver's and the board's counter: some GPUs have only one, and the driver's resets."""
        gpu = reading["pci_address"]
        return max(self._rise(gpu, counter, reading[counter], monotonic) for counter in _CORRECTED)

    def _rise(self, gpu: str, counter: str, number: int | None, monotonic: float) -> int:
        """The rise since the first successful read within the last minute."""
        if number is None:
            return 0
        known = self._corrected.setdefault(gpu, {}).setdefault(counter, [])
        if known and number < known[-1][1]:
            known.clear()
        known.append((monotonic, number))
        while monotonic - known[0][0] > WINDOW_SECONDS:
            known.pop(0)
        return number - known[0][1]

    def forget_all_but(self, gpus: Collection[str]) -> None:
        """Drop the counters of GPUs that the driver no longer has; their links are remembered until the next boot."""
        for gpu in self._counts.keys() - gpus:
            for known in (self._corrected, self._failed, self._counts):
                known.pop(gpu, None)

    def counts(self) -> list[health_pb2.Count]:
        """The counts of the last look at each GPU."""
        return [count for gpu in sorted(self._counts) for count in self._counts[gpu]]

    def memories(self) -> list[health_pb2.Memory]:
        """For the next process: the NVLinks that were up."""
        return [
            health_pb2.Memory(card=gpu, variant=_LINKS, text=" ".join(map(str, sorted(links))))
            for gpu, links in sorted(self._were_up.items())
            if links
        ]


def _counts_of(reading: Reading) -> Iterator[health_pb2.Count]:
    gpu = reading["pci_address"]
    for name, kind, part in _COUNTS:
        if reading[part] is not None:
            yield health_pb2.Count(pci_address=gpu, name=name, kind=kind, number=reading[part])
    reasons = reading["clock_reasons"]
    for kind, bit in _CLOCK_REASONS if reasons is not None else ():
        yield health_pb2.Count(pci_address=gpu, name="clocks-lowered", kind=kind, number=int(reasons & bit > 0))
    up = sum(reading["links"].values())
    for kind, number in (("up", up), ("down", len(reading["links"]) - up)):
        if reading["links"]:
            yield health_pb2.Count(pci_address=gpu, name="nvlinks", kind=kind, number=number)
    for kind, number in sorted(reading["link_errors"].items()):
        yield health_pb2.Count(pci_address=gpu, name="nvlink-errors", kind=kind, number=number)


def is_suspect(reading: Reading) -> bool:
    """Whether a GPU needs a reset or is gone, so that only a new handle shows its recovery."""
    return _is_suspect(states_of(reading))


def is_blind(reading: Reading) -> bool:
    """Whether nothing could be read, and no failure is a finding about the GPU."""
    values = (value for name, value in reading.items() if name not in {"pci_address", "failures"})
    is_empty = all(value is None or value == {} for value in values)
    return is_empty and bool(reading["failures"]) and not any(_results(reading))


def troubles(reading: Reading) -> str:
    """Read errors as text, except those that are findings about the GPU."""
    words = [
        f"{failure['function']}: {failure['meaning']}"
        for failure in reading["failures"]
        if failure["code"] not in _RESULTS
    ]
    return ", ".join(words)


def states_of(reading: Reading) -> Iterator[health_pb2.Finding]:
    """The findings of one look at a GPU."""
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
            yield _finding(reading["pci_address"], reason, detail, _CLOCKS_CALL, f"{bit:#x}")


def _xid(event: Event) -> health_pb2.Finding:
    xid = _finding(event["pci_address"], XID, described(event["data"]), _EVENTS, str(event["data"]))
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
