"""Turns NVML's readings and events into findings of source `nvml` and evidence. Pure: no call of NVML."""

import errno
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from devherd._native import Evidence
from devherd.health.held import Now
from devherd.proto import health_pb2
from devherd.reasons.xids import CATALOGUE, XID, described
from devherd.sources.nvml.counts import GpuCounters, Reading
from devherd.waits import USUAL_WAITS, Waits

Event = dict[str, Any]

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
_NOT_EXAMINED = "not-examined"
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
"""Results that are findings about the GPU. Others are errors of the caller, unless they refuse one GPU of several."""
_OF_THE_CALLER = frozenset({3, 4})
"""NVML_ERROR_NOT_SUPPORTED and NVML_ERROR_NO_PERMISSION: a GPU that is refused with one of them may be well."""
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
IN_MIG_MODE = "in MIG mode"
"""The value of `fabric` for a GPU in MIG mode."""
_MOST_RETIRED_PAGES = 63
"""NVIDIA replaces a card with this number of retired pages."""
_FLAGS = (
    ("sram_threshold_exceeded", "sram-threshold", "its SRAM had more uncorrected errors than a board may have", _SRAM),
    ("repair_pending", "repair-pending", "the next reset repairs a channel or a cluster of it", _REPAIR),
    ("unrepairable_memory", "unrepairable-memory", "its memory has what nothing can repair", _UNREPAIRABLE),
)
"""Key of a reading, and the reason, detail and function of the finding if it is true."""
_GOOD_LOOKS = 3
"""Looks in a row at a GPU that NVML opens, which show that the driver starts it."""
_FABRIC_STATES = {1: "not started", 2: "in progress"}
_FABRIC_DONE = 3
_FABRIC_SUMMARIES = {2: "unhealthy", 3: "limited capacity"}
_TOO_HOT = 0x40
_POWER_BRAKE = 0x80


@dataclass(frozen=True, slots=True)
class Refused:
    """Since when NVML refuses a GPU while it opens others: CLOCK_MONOTONIC seconds of the first and the last look."""

    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Unlisted:
    """Of a GPU that NVML refuses with all others, while it lists fewer than the driver has."""

    listed: int
    """The number of GPUs that NVML lists."""
    driver_lists: int
    """The number of GPUs that the driver lists and does not exclude."""
    node: str
    """The GPU's node in this process; empty if it is not known."""
    error: int | None
    """The error of opening the node; 0 if it opens, None if that did not come back."""

    def __str__(self) -> str:
        return f"NVML lists {self.listed} of {self.driver_lists} GPUs"


class Health:
    """The findings about all GPUs: states since the last look, counted events, and evidence that ends them."""

    def __init__(self, earlier: health_pb2.Findings | None = None, waits: Waits = USUAL_WAITS) -> None:
        """`earlier`: findings of the last process of this boot, which are continued."""
        self._second_look_seconds = waits.nvml_second_look
        self._states: dict[str, list[health_pb2.Finding]] = {}
        self._events: dict[bytes, health_pb2.Finding] = {}
        self._evidence: dict[tuple[str, str], health_pb2.Evidence] = {}
        self._refused: dict[str, Refused] = {}
        self._opened: dict[str, list[float]] = {}
        """By GPU: when NVML opened it, at most the last _GOOD_LOOKS looks in a row."""
        self._cleared: dict[str, float] = {}
        """By GPU: when an operator last cleared its Xids."""
        self.mode_pending: set[str] = set()
        """The GPUs with a pending change of the MIG mode, which waits until nobody has them open."""
        self._counters = GpuCounters(earlier.memories if earlier else ())
        for finding in earlier.findings if earlier else ():
            if finding.reason in _COUNTED:
                self._events[_key_of_event(finding)] = finding
            else:
                self._states.setdefault(finding.at.pci_address, []).append(finding)
        for evidence in earlier.evidence if earlier else ():
            self._evidence[evidence.at.pci_address, evidence.evidence] = evidence

    @property
    def apart(self) -> frozenset[str]:
        """The PCI addresses of GPUs that must not stay open: only a new handle shows their recovery.

        Nothing can reset a GPU that is open. So a GPU with an Xid that only a reset ends, or with a pending change of
        the MIG mode, must not stay open, either.
        """
        suspects = {gpu for gpu, findings in self._states.items() if _is_suspect(findings)}
        return frozenset(suspects | self._refused.keys() | self._awaiting_reset() | self.mode_pending)

    @property
    def is_unsure(self) -> bool:
        """Whether NVML has refused a GPU once: another look decides, Waits.nvml_second_look later."""
        return any(refused.last - refused.first < self._second_look_seconds for refused in self._refused.values())

    def _awaiting_reset(self) -> set[str]:
        events = (event for event in self._events.values() if event.reason == XID and _needs_reset(event.value))
        return {
            event.at.pci_address
            for event in events
            if event.last_monotonic_seconds > self._ended_at(event.at.pci_address)
        }

    def _ended_at(self, gpu: str) -> float:
        ends = (self._evidence.get((gpu, word)) for word in (Evidence.RECOVERY_NONE, Evidence.RESTARTED))
        return max([self._cleared.get(gpu, 0.0), *(end.monotonic_seconds for end in ends if end is not None)])

    def take_clears(self, of_operator: health_pb2.Findings) -> None:
        """Record the findings that operators have cleared: such a GPU is watched again."""
        for end in of_operator.evidence:
            if end.at.vendor == "nvidia" and end.reason in {"", XID}:
                self._cleared[end.at.card] = max(end.monotonic_seconds, self._cleared.get(end.at.card, 0.0))

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

    def take_readings(self, readings: Collection[Reading], monotonic: float) -> None:
        """Apply readings of monotonic second `monotonic`; a GPU that could not be read keeps its last state."""
        is_one_answered = not all(map(is_blind, readings))
        for reading in readings:
            if not is_refused(reading):
                if not is_blind(reading):
                    self._take_reading(reading, monotonic)
                continue
            self._opened.pop(reading["pci_address"], None)
            if is_one_answered or cannot_start(reading):
                self._take_refusal(reading, monotonic)

    def _take_refusal(self, reading: Reading, monotonic: float) -> None:
        """NVML does not open this GPU, but others, or none of which the driver can start this one.

        After two looks this is a finding, unless the refusal is about us.
        """
        gpu, refusal = reading["pci_address"], reading["refusal"]
        others = [one for one in self._states.get(gpu, []) if one.reason not in {_GPU_LOST, _NOT_EXAMINED}]
        if not cannot_start(reading) and (refusal["code"] in _OF_THE_CALLER or not reading["has_node"]):
            why = refusal["meaning"] if reading["has_node"] else "its device node is not there"
            detail = f"NVML does not open the GPU: {why}"
            self._refused[gpu] = Refused(monotonic - self._second_look_seconds, monotonic)
            self._states[gpu] = [*others, _finding(gpu, _NOT_EXAMINED, detail, refusal["function"], "")]
            return
        first = self._refused[gpu].first if gpu in self._refused else monotonic
        self._refused[gpu] = Refused(first, monotonic)
        if monotonic - first < self._second_look_seconds:
            return
        if cannot_start(reading):
            unlisted = reading["unlisted"]
            detail = f"{unlisted}, and the driver cannot start this one; look for NVRM in the kernel log"
            node, value = f"/dev/{unlisted.node.rpartition('/')[2]}", os.strerror(errno.EIO)
            lost = _finding(gpu, _GPU_LOST, detail, node, value)
        else:
            detail = f"NVML does not open the GPU, and opens others: {refusal['meaning']}"
            lost = _finding(gpu, _GPU_LOST, detail, refusal["function"], f"error {refusal['code']}")
        self._states[gpu] = [*others, lost]

    def _take_reading(self, reading: Reading, monotonic: float) -> None:
        gpu = reading["pci_address"]
        (self.mode_pending.add if reading["mig_mode_pending"] else self.mode_pending.discard)(gpu)
        before = self._states.get(gpu, ())
        states = [*states_of(reading), *self._links(reading)]
        self._rises(reading, monotonic)
        if reading["remap_failed"] is None:  # refused while there are MIG devices; a failure is permanent
            states += [one for one in before if one.reason == "row-remap-failed"]
        self._states[gpu] = states
        self._note_opened(gpu, monotonic, is_lost=any(one.reason == _GPU_LOST for one in states))
        began_again = self._counters.began_again(reading, monotonic)
        refused = self._refused.pop(gpu, None)
        if _is_suspect(states):
            return
        settled = monotonic - SETTLE_SECONDS
        if reading["recovery_action"] == 0:
            self._state(gpu, Evidence.RECOVERY_UNASKED, settled)
        if _is_suspect(before):
            self._state(gpu, Evidence.RECOVERY_NONE, settled)
        if refused is not None and not any(one.reason == _NOT_EXAMINED for one in before):
            self._state(gpu, Evidence.RESTARTED, refused.last)
        elif began_again is not None:
            self._state(gpu, Evidence.RESTARTED, began_again)

    def _note_opened(self, gpu: str, monotonic: float, *, is_lost: bool) -> None:
        """NVML has opened the GPU: the driver had started it at the first of _GOOD_LOOKS such looks in a row."""
        looks = [] if is_lost else [*self._opened.get(gpu, ()), monotonic][-_GOOD_LOOKS:]
        self._opened[gpu] = looks
        if len(looks) == _GOOD_LOOKS:
            self._state(gpu, Evidence.STARTED, looks[0])

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
        self.mode_pending.intersection_update(gpus)
        self._refused = {gpu: refused for gpu, refused in self._refused.items() if gpu in gpus}
        self._opened = {gpu: looks for gpu, looks in self._opened.items() if gpu in gpus}
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


def is_refused(reading: Reading) -> bool:
    """Whether NVML does not open the GPU, for a reason that says nothing about it by itself."""
    return reading["refusal"] is not None and reading["refusal"]["code"] not in _RESULTS


def cannot_start(reading: Reading) -> bool:
    """Whether the driver cannot start the GPU: NVML lists fewer than the driver, and opening the node returns EIO.

    Source: nv_start_device in kernel-open/nvidia/nv.c of NVIDIA/open-gpu-kernel-modules (commit 01db2841) returns EIO
    after rm_init_adapter has failed.
    """
    unlisted: Unlisted | None = reading.get("unlisted")
    return unlisted is not None and unlisted.error == errno.EIO


def is_blind(reading: Reading) -> bool:
    """Whether nothing could be read, and no failure is a finding about the GPU."""
    values = (value for name, value in reading.items() if name not in _ABOUT_THE_LOOK)
    is_empty = all(value is None or value == {} for value in values)
    has_failed = is_refused(reading) or bool(reading["failures"])
    return is_empty and has_failed and not any(_results(reading))


_ABOUT_THE_LOOK = frozenset({"pci_address", "failures", "refusal", "has_node", "unlisted"})
"""The parts of a reading that say nothing about the GPU."""


def troubles(reading: Reading) -> str:
    """Read errors as text, except those that are findings about the GPU."""
    failures = reading["failures"] or [reading["refusal"]] * is_refused(reading)
    words = [f"{one['function']}: {one['meaning']}" for one in failures if one["code"] not in _RESULTS]
    unlisted: Unlisted | None = reading.get("unlisted")
    if unlisted is None:
        return ", ".join(words)
    opening = [f"{unlisted.node}: {os.strerror(unlisted.error)}"] if unlisted.error else []
    return f"{unlisted}: {', '.join([*words, *opening])}"


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
        detail = f"its place in the NVLink fabric: {value}"
        if reading["mig_mode"]:  # which suspends the registration
            value = IN_MIG_MODE
        yield _finding(reading["pci_address"], "fabric", detail, _FABRIC, value)


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


def _needs_reset(code: str) -> bool:
    xid = CATALOGUE.get(int(code)) if code.isdecimal() else None
    return xid is not None and xid.advice == "reset"


def _is_suspect(findings: Iterable[health_pb2.Finding]) -> bool:
    return any(finding.reason in _SUSPECT for finding in findings)


def _finding(gpu: str, reason: str, detail: str, file: str, value: str) -> health_pb2.Finding:
    at = health_pb2.Target(vendor="nvidia", pci_address=gpu)
    return health_pb2.Finding(at=at, reason=reason, detail=detail, file=file, value=value)
