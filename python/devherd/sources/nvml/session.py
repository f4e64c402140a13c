"""Keeps NVML open, waits for events, defines the answer file."""

import json
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from devherd import spool
from devherd._native import NvmlWatch, awake, nvml_facts
from devherd.backoff import Backoff
from devherd.health.held import Now
from devherd.log import Once
from devherd.process import is_in_container
from devherd.proto import health_pb2
from devherd.sources.nvml.apart import Apart
from devherd.sources.nvml.counts import Reading
from devherd.sources.nvml.findings import (
    NVML,
    SETTLE_SECONDS,
    Event,
    Health,
    Unlisted,
    cannot_start,
    is_blind,
    is_refused,
    troubles,
)
from devherd.waits import USUAL_WAITS, Waits

log = logging.getLogger(__name__)

T = TypeVar("T")
Request = dict[str, Any]
Facts = dict[str, Any]

SLOW = "NVML has not answered yet — it is slow, or hangs — check that nvidia-smi works, and start nvidia-persistenced"
STUCK = "NVML hangs in the kernel and cannot be ended — a GPU does not respond — see `dmesg`; it may take a reboot"
_HANGS = "NVML did not answer within {seconds:g} s — it hangs — check `dmesg` for messages about the GPUs"
_OUTDATED = (
    "driver/library version mismatch — the driver {driver} is newer than the library {library} that this container"
    " got when it started — restart this pod"
)
_CRASHED = "NVML crashed — the process that asked it ended: {how} — reinstall the NVIDIA driver libraries"
_DEFECT = "NVML probe failed — {error} — please report this bug"

SLICE_SECONDS = 0.5
"""Longest wait for events: no other call of NVML is made meanwhile."""
ATTEMPT = 10
"""An attempt may take this multiple of its patience: GPUs without persistence mode need a second or more each."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The content of the answer file. Failures keep the facts."""

    facts: Facts | None = None
    facts_of: Request | None = None
    """The request that `facts` answer."""
    failures: int = 0
    """Failed attempts since then."""
    failed: Request | None = None
    """The request of the last failed attempt."""
    problem: str | None = None
    asking: Request | None = None
    """The request of the current attempt."""
    newer_driver: list[str] | None = None
    """The versions of driver and library if only a restart of this container would bring the driver's own library."""

    def begun(self, request: Request) -> "Answer":
        """The answer when an attempt begins."""
        return replace(self, asking=request, problem=self.problem if self.failures else None)

    def slow(self) -> "Answer":
        """The answer when the attempt takes longer than its patience."""
        return self if self.failures else replace(self, problem=SLOW)

    def succeeded(self, facts: Facts) -> "Answer":
        """The answer of a successful attempt.

        NVML reports where a link leads only while it is up, and this is needed when it is down: known facts are kept.
        """
        is_of_this_boot = self.facts_of is not None and self.facts_of.get("boot_id") == (self.asking or {}).get(
            "boot_id"
        )
        earlier = (self.facts or {}).get("gpus", ()) if is_of_this_boot else ()
        known = {(gpu["pci_address"], gpu["uuid"]): gpu.get("switch_ports", {}) for gpu in earlier}
        for gpu in facts["gpus"]:
            gpu["switch_ports"] = known.get((gpu["pci_address"], gpu["uuid"]), {}) | gpu["switch_ports"]
        return Answer(facts=facts, facts_of=self.asking)

    def failing(self, problem: str | None) -> "Answer":
        """The answer of a failed attempt; without a problem if there is no NVML."""
        return replace(
            self,
            failures=self.failures + 1,
            failed=self.asking,
            problem=problem,
            asking=None,
            newer_driver=None,
        )

    def outdated(self, driver: str, library: str) -> "Answer":
        """The answer of an attempt with a library that is older than the driver, in a container."""
        problem = _OUTDATED.format(driver=driver, library=library)
        return replace(self.failing(problem), newer_driver=[driver, library])

    def hanging(self) -> "Answer":
        """The answer when the attempt has taken too long."""
        return self.failing(_HANGS.format(seconds=deadline_seconds(self.asking or {})))

    def crashed(self, how: str) -> "Answer":
        """The answer when the process of the attempt ended during it."""
        return self.failing(_CRASHED.format(how=how))

    def json(self) -> bytes:
        """The file's content."""
        return json.dumps(asdict(self)).encode()


def read_answer(file: Path) -> Answer:
    """The answer in a file; empty if it cannot be read."""
    try:
        return Answer(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):
        return Answer()


def deadline_seconds(request: Request) -> float:
    """Seconds that an attempt may take."""
    return float(ATTEMPT * request.get("patience_seconds", 0.0))


def ask(begun: Answer) -> Answer:
    """Ask NVML in this process, which may hang or crash."""
    request = begun.asking or {}
    try:
        return begun.succeeded(json.loads(nvml_facts(request.get("driver_root"), request.get("library"))))
    except FileNotFoundError:
        return begun.failing(None)
    except OSError as error:
        driver, library = request.get("driver_version") or "", getattr(error, "library_version", "")
        if library and _numbers(driver) > _numbers(library) and is_in_container():
            return begun.outdated(driver, library)
        return begun.failing(str(error))
    except Exception as error:  # noqa: BLE001 - after any error the devices are served without NVML
        return begun.failing(_DEFECT.format(error=error))


def _numbers(version: str) -> list[int]:
    """The parts of a driver's version, `590.48.01`, for comparisons."""
    return [int(part) for part in version.split(".") if part.isdecimal()]


class Session:
    """The GPUs of one request.

    A sleeping GPU is not opened, because that would wake it. A GPU that is `apart` is opened by a process that ends,
    for a look only: nothing can reset it or unbind its driver while it is open, and only a new handle shows its
    recovery. The others stay open meanwhile. With `keep_open` false in the request, every GPU is opened for looks only.
    """

    def __init__(self, request: Request, host_root: Path, apart: Apart) -> None:
        self._request = request
        self._apart = apart
        self._driver_root: str | None = request.get("driver_root")
        self._library: str | None = request.get("library")
        self._gpus: dict[str, dict[str, Any] | None] = dict(request.get("gpus", {}))
        self._host_root = str(host_root)
        self.keeps_open: bool = request.get("keep_open", True)
        """Whether GPUs stay open between two looks, so that events are received."""
        self._watch: NvmlWatch | None = None
        self._open: frozenset[str] = frozenset()
        """The GPUs that the library was opened for."""
        self._refused: frozenset[str] = frozenset()
        """The GPUs among `_open` that NVML did not open."""
        self._recovered: frozenset[str] = frozenset()
        """The GPUs that answered apart in the last look."""
        self.unanswered: dict[str, str] = {}
        """Why GPUs did not answer apart in the last look."""

    def open(self, apart: Collection[str]) -> None:
        """Open the GPUs that are not `apart` with new handles. Raises FileNotFoundError, OSError as `nvml_facts`."""
        self._reopen(self._awake() - frozenset(apart))

    def wait(self, milliseconds: int) -> tuple[list[Event], str]:
        """The events within `milliseconds`, and the reason if the wait failed, else empty."""
        if self._watch is None:
            return [], "NVML is not open"
        waited: dict[str, Any] = json.loads(self._watch.wait(milliseconds))
        failure = waited["failure"]
        return waited["events"], f"{failure['function']}: {failure['meaning']}" if failure else ""

    def look(self, apart: Collection[str], *, anew: bool = False) -> list[Reading]:
        """Read the GPUs that are awake; with new handles for `anew`, and those that are `apart`. Raises as `open`."""
        awake = self._awake()
        watched = awake - frozenset(apart)
        seconds = deadline_seconds(self._request) / 2
        readings, self.unanswered = self._apart.look(self._request, awake - watched, seconds)
        recovered = frozenset(one["pci_address"] for one in readings if one["refusal"] is None)
        if anew or self._watch is None or self._refused & watched or not watched <= self._open:
            self._reopen(watched)
        self._recovered = recovered
        assert self._watch is not None
        seen: list[Reading] = json.loads(self._watch.look(sorted(watched)))
        listed = self._watch.count()
        self._refused = frozenset(one["pci_address"] for one in seen if one["refusal"] is not None)
        if not self.keeps_open:
            self.close()
        readings = sorted([*readings, *seen], key=lambda reading: str(reading["pci_address"]))
        readings = [reading | {"has_node": self._has_node(reading["pci_address"])} for reading in readings]
        if listed is None or listed >= len(self._gpus) or not all(map(is_refused, readings)):
            return readings
        return self._with_unlisted(readings, listed, seconds)

    def _with_unlisted(self, readings: list[Reading], listed: int, seconds: float) -> list[Reading]:
        """The readings of GPUs that NVML all refuses, of which it lists too few: with the answer of their nodes.

        This is an answer and no failure of NVML. Whether the driver can start a GPU is shown by opening its node.
        """
        nodes = {one["pci_address"]: node for one in readings if (node := self._node(one["pci_address"]))}
        errors = self._apart.open_nodes(nodes, seconds)

        def unlisted(gpu: str) -> Unlisted:
            return Unlisted(listed, len(self._gpus), nodes.get(gpu, ""), errors.get(gpu))

        return [one | {"unlisted": unlisted(one["pci_address"])} for one in readings]

    def fits(self, apart: Collection[str]) -> bool:
        """Whether all `apart` GPUs are closed, and all other GPUs that have recovered are open."""
        held = self._open - self._refused
        return self._watch is None or not (held & frozenset(apart) or self._recovered - frozenset(apart) - held)

    def close(self) -> None:
        """Close all GPUs and the library."""
        watch, self._watch = self._watch, None
        self._open = self._refused = self._recovered = frozenset()
        if watch is not None:
            watch.close()

    def _reopen(self, gpus: frozenset[str]) -> None:
        self.close()
        self._watch = NvmlWatch(self._driver_root, self._library, sorted(gpus))
        self._open = gpus

    def _awake(self) -> frozenset[str]:
        return frozenset(awake(self._host_root, list(self._gpus)))

    def _has_node(self, gpu: str) -> bool:
        """False if NVML cannot know the GPU: its node is not in this container."""
        node = self._node(gpu)
        return node is None or Path(node).exists()

    def _node(self, gpu: str) -> str | None:
        """The path of the GPU's node in this process; None if it is not known."""
        node: str | None = (self._gpus.get(gpu) or {}).get("node")
        return node


class Asking(Protocol):
    """Runs a call of NVML."""

    def __call__(self, ask: Callable[[], T]) -> T:
        """What `ask` returns or raises; raises Hangs if it hangs, ProcessEnded once asked to end."""


class Watcher:
    """Watches the health of the GPUs of the current request."""

    def __init__(
        self, earlier: health_pb2.Findings, of_operator: Path = Path("/dev/null"), waits: Waits = USUAL_WAITS
    ) -> None:
        """`earlier`: the findings that the last process wrote; `of_operator`: the file of what operators clear."""
        self._earlier = earlier
        self._of_operator = of_operator
        self._waits = waits
        self._again = Backoff(SETTLE_SECONDS, waits.nvml_look)
        self._health: Health | None = None
        self._boot_id = ""
        self._look_at = 0.0
        self._failures = 0
        self._needs_reopening = False
        self.apart: frozenset[str] = frozenset()
        """The GPUs that must not stay open, as of the last look: until the next one, their events are received."""
        self._complaints: dict[str, Once] = {}
        self.session: Session | None = None
        """The open session; None until NVML has answered the request."""
        self.failed = ""
        """Why no GPU can be read; empty if one can."""

    def begin(self, request: Request, session: Session | None, readings: list[Reading], at: float) -> None:
        """Watch the GPUs of a request, after a first look at CLOCK_MONOTONIC second `at`."""
        self.session = session
        self._boot_id = request.get("boot_id") or ""
        if self._health is None:
            self._health = Health(self._earlier if self._earlier.boot_id == self._boot_id else None, self._waits)
        self._health.forget_all_but(request.get("gpus", ()))
        self._needs_reopening, self._failures, self.failed = False, 0, ""
        if session is not None:
            self._take_in(self._health, readings, at)

    def is_resting(self) -> bool:
        """Whether no call of NVML is due now."""
        gets_events = self.session is not None and self.session.keeps_open and not self._needs_reopening
        return self.session is None or (not gets_events and time.monotonic() < self._look_at)

    def turn(self, asking: Asking) -> bool:
        """Make one call: a look at the GPUs if due, else a wait for events; True if the findings may have changed."""
        if self.session is None or self._health is None:
            return False
        now = time.monotonic()
        if not self._needs_reopening and not self.session.fits(self.apart):
            session = self.session
            return not self._has_opened(lambda: session.open(self.apart), asking, now)
        if now >= self._look_at:
            self._look(self.session, self._health, asking, now)
            return True
        return self._wait(self.session, self._health, asking, min(SLICE_SECONDS, self._look_at - now))

    def message(self, failed: str = "") -> health_pb2.Findings:
        """The content of the findings file; `failed`: why NVML cannot be asked."""
        if self._health is None:
            findings = health_pb2.Findings()
            findings.CopyFrom(self._earlier)
            findings.source, findings.failed = NVML, failed
            return findings
        return self._health.message(Now(time.time(), time.monotonic(), self._boot_id), failed or self.failed)

    def _wait(self, session: Session, health: Health, asking: Asking, seconds: float) -> bool:
        events, failure = asking(lambda: session.wait(max(1, int(1000 * seconds))))
        now = time.monotonic()
        health.take_events(events, now)
        if events:
            self._look_at = min(self._look_at, now + SETTLE_SECONDS)
        if failure:
            log.warning("NVML's events cannot be received: %s; NVML is opened again", failure)
            self._fail(now)
        return bool(events)  # the scanner scans whenever findings are written: a MIG device may have gone or come

    def _look(self, session: Session, health: Health, asking: Asking, now: float) -> None:
        health.take_clears(spool.read_or_empty(self._of_operator, health_pb2.Findings))
        anew, self._needs_reopening = self._needs_reopening, False
        readings: list[Reading] = []
        if self._has_opened(lambda: readings.extend(session.look(health.apart, anew=anew)), asking, now):
            if not anew:  # whatever failed before has worked since the last look
                self._failures = 0
            self._take_in(health, readings, now)

    def _has_opened(self, ask: Callable[[], None], asking: Asking, now: float) -> bool:
        try:
            asking(ask)
        except OSError as error:
            self.failed = str(error)
            self._fail(now)
            return False
        return True

    def _fail(self, now: float) -> None:
        self._needs_reopening = True
        self._look_at = now + self._again.after(self._failures)
        self._failures += 1

    def _take_in(self, health: Health, readings: list[Reading], at: float) -> None:
        health.take_readings(readings, at)
        self.apart = health.apart
        self._look_at = at + (self._waits.nvml_second_look if health.is_unsure else self._waits.nvml_look)
        unanswered = self.session.unanswered if self.session else {}
        for gpu, trouble in [*((one["pci_address"], troubles(one)) for one in readings), *unanswered.items()]:
            self._log(gpu, trouble)
        why = [*(troubles(reading) for reading in readings if is_blind(reading)), *unanswered.values()]
        is_all_blind = bool(why) and all(is_blind(one) and not cannot_start(one) for one in readings)
        self.failed = f"no GPU can be looked at: {why[0]}" if is_all_blind else ""

    def _log(self, gpu: str, trouble: str) -> None:
        complaint = self._complaints.setdefault(gpu, Once(log.warning))
        if trouble:
            complaint.complain("GPU %s: not all of its health can be read: %s", gpu, trouble)
        else:
            complaint.over()
