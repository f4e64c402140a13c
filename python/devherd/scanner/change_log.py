"""Writes a log line and a history event for each new verdict, problem and reload of the scanner."""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from devherd.health.held import Held
from devherd.health.kernel_log import PrintedXid
from devherd.health.lost import News
from devherd.health.policy import FINE, Verdict
from devherd.health.verdicts import ends
from devherd.history import History
from devherd.inventory import DeviceKey, key_of
from devherd.offers.made import MadeOffer
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import (
    AMD_KFD,
    CORDON,
    EXTERNAL,
    EXTERNAL_PREFIX,
    GONE,
    MONITORS,
    NVML,
    RESOURCE,
    to_do,
)
from devherd.reasons.xids import OF_APPLICATIONS, described
from devherd.spool import HEALTHY, UNHEALTHY, size_of
from devherd.text import amount, sharing_of

if TYPE_CHECKING:
    from devherd._native import Finding

log = logging.getLogger(__name__)

Name = tuple[str, str]
"""Resource name and device id. A device with replicas counts once: one line is enough."""

SETTLED_SECONDS = 5.0
"""The recovery of a source is logged after this time: a source that soon fails again is not logged each time."""


APPLICATION_SECONDS = 60.0
"""An application that fails in a loop is logged once in this time."""
_PROCESS = re.compile(r"\): \d+, pid=(?P<pid>\d+), name=(?P<name>.*?), (?P<what>.*)")
"""The process in an Xid record: kernel_rc.c of open-gpu-kernel-modules 595.45.04. An unknown process has no pid."""


_FOLLOWS = "caused by previous Xid"
"""Marks the record of a channel that failed because of another one: the other Xid has the cause."""


@dataclass(frozen=True, slots=True)
class FailedApplication:
    """A process that has caused an Xid, and the driver's description of the error."""

    pid: str
    """Process id on the host."""
    name: str
    what: str


def application_of(xid: PrintedXid) -> FailedApplication | None:
    """The process that has caused an Xid of applications; None for other Xids, and for an unknown process."""
    found = _PROCESS.search(xid.text)
    if int(xid.code) not in OF_APPLICATIONS or found is None or _FOLLOWS in xid.text:
        return None
    return FailedApplication(found["pid"], found["name"], found["what"])


class ChangeLog:
    """Remembers what it has logged, so that each change is logged once."""

    def __init__(
        self,
        history: History,
        published: Iterable[spool_pb2.Offer],
        problems: Iterable[spool_pb2.Problem],
        sources: Iterable[health_pb2.SourceState] = (),
    ) -> None:
        """`published`, `problems`, `sources`: the state at the start, which an earlier scanner has logged already."""
        self._history = history
        published = list(published)
        self._verdicts = {
            (offer.name, device.id): (key_of(device), Verdict(tuple(device.reasons), tuple(device.warnings)))
            for offer in published
            for device in offer.devices
            if device.reasons or device.warnings
        }
        """The logged verdicts that have reasons or warnings, with the keys of their devices."""
        self._sizes = {offer.name: size_of(offer) for offer in published}
        self._problems = list(problems)
        self._troubles = _troubles_of(sources)
        self._over_since: dict[Trouble, float] = {}
        """CLOCK_MONOTONIC second since which a logged trouble is over."""
        self._reloaded = ""
        self._printed_at: dict[tuple[DeviceKey, str, str], float] = {}
        """By device, Xid and process: when it was logged."""

    def write(self) -> None:
        """Write the events to the history."""
        self._history.keep()

    def published(
        self,
        offers: Iterable[MadeOffer],
        held_against: Callable[[DeviceKey], Iterable[Held]],
        *,
        is_complete: bool,
        recover_after: int = 1,
    ) -> None:
        """Log what these offers change. Without `is_complete`, some devices still wait for their move.

        `held_against` returns the evidence for a device's verdict; `recover_after`: as in `Policy`.
        """
        offers = list(offers)
        before, self._verdicts = self._verdicts, {}
        known: dict[str, list[tuple[Name, DeviceKey]]] = {}
        for name, (key, _) in before.items():
            known.setdefault(name[0], []).append((name, key))
        for made in offers:
            sick = list(_named(made))
            self._verdicts |= {name: (key, made.verdicts[key]) for name, key in sick}
            well = [(name, key) for name, key in known.get(made.name, ()) if name not in self._verdicts]
            concerned = {key: name for name, key in sick + well if key in made.devices}
            for key in [key for key in made.devices if key in concerned] if concerned else ():
                name = concerned[key]
                verdict, earlier = made.verdicts.get(key, FINE), before[name][1] if name in before else FINE
                if verdict != earlier:
                    evidence = _evidence(verdict, earlier, held_against(key))
                    self._log_verdict(name, made.device(key), verdict, evidence, recover_after)
        if is_complete:
            before_that, self._sizes = self._sizes, _sizes_of(offers)
            if self._reloaded:
                self._log_reload(_changes(before_that, self._sizes))

    def reloaded(self, source: str) -> None:
        """Note that another configuration is in force; its changes are logged with the next complete publication."""
        self._reloaded = source

    def printed(self, xids: Iterable[PrintedXid], names: Mapping[DeviceKey, Iterable[tuple[str, str]]]) -> None:
        """Log the Xids that applications have caused, at most once a minute per process; `names`: of each device."""
        now = time.monotonic()
        self._printed_at = {one: at for one, at in self._printed_at.items() if now - at < APPLICATION_SECONDS}
        for xid in xids:
            process = application_of(xid)
            if now - xid.monotonic > APPLICATION_SECONDS:
                continue  # before this start
            if process is None or (xid.key, xid.code, process.pid) in self._printed_at:
                continue
            self._printed_at[xid.key, xid.code, process.pid] = now
            for resource_name, device_id in names.get(xid.key, ()):
                self._log_application(resource_name, device_id, xid, process)

    def _log_application(
        self, resource_name: str, device_id: str, xid: PrintedXid, process: "FailedApplication"
    ) -> None:
        text = f"{described(int(xid.code))} of process {process.pid}, {process.name}: {process.what}"
        details = {"xid": xid.code, "pid": process.pid, "name": process.name}
        fields = {"resource_name": resource_name, "device_id": device_id} | details
        log.info("%s %s: %s", resource_name, device_id, text, extra={"fields": fields})
        self._history.note("application", text, resource_name=resource_name, device_id=device_id, details=details)

    def lost(self, news: Iterable[News]) -> None:
        """Log the changes of lost devices: not listed any more, back, or no longer lost."""
        for one in news:
            device, text, is_over = one.device, one.text, one.is_over
            name = f"{device.resource_name} {device.device}"
            details = {"pci_address": device.pci_address, "slot": device.slot, "serial": device.serial}
            fields = {"resource_name": device.resource_name, "device_id": device.device} | details
            cure = "" if is_over else f"; `devherd forget {device.device}` when it is not to come back"
            log.log(logging.INFO if is_over else logging.WARNING, "%s %s%s", name, text, cure, extra={"fields": fields})
            self._history.note(
                "lost",
                text,
                resource_name=device.resource_name,
                device_id=device.device,
                reasons=() if is_over else (GONE,),
                details=details,
            )

    def found_problems(self, problems: Iterable[spool_pb2.Problem]) -> None:
        """Log new problems and solved problems."""
        before, self._problems = self._problems, list(problems)
        for problem in self._problems:
            if problem not in before:
                self._log_problem(logging.WARNING, problem, problem.error)
        for problem in before:
            if problem not in self._problems:
                self._log_problem(logging.INFO, problem, f"solved: {problem.error}")

    def found_notices(self, notices: Iterable[spool_pb2.Problem]) -> None:
        """Log each notice once."""
        for notice in notices:
            self._log_problem(logging.INFO, notice, notice.error)

    def found_sources(self, sources: Iterable[health_pb2.SourceState], monotonic: float) -> None:
        """Log health sources that now fail or report wrongly, and sources that have recovered."""
        sources = list(sources)
        troubles, asked = _troubles_of(sources), {source.source for source in sources}
        for trouble in troubles:
            self._over_since.pop(trouble, None)
            if trouble not in self._troubles:
                self._log_source(logging.WARNING, trouble, troubles[trouble])
        for trouble in self._troubles.keys() - troubles.keys():
            if monotonic - self._over_since.setdefault(trouble, monotonic) >= SETTLED_SECONDS:
                is_asked = trouble[0] in asked or not _is_process(trouble[0])
                self._log_source(logging.INFO, trouble, _SOLVED[trouble[1]] if is_asked else "it is not asked any more")
                del self._troubles[trouble], self._over_since[trouble]
        self._troubles |= troubles

    def _log_source(self, level: int, trouble: "Trouble", what: str) -> None:
        text = f"source {trouble[0]}: {what}"
        log.log(level, "%s", text, extra={"fields": {"source": trouble[0]}})
        self._history.note("problem", text, details={"source": trouble[0]})

    def _log_verdict(
        self,
        name: tuple[str, str],
        device: spool_pb2.Device,
        verdict: Verdict,
        evidence: Held | None,
        recover_after: int,
    ) -> None:
        resource_name, device_id = name
        health = UNHEALTHY if verdict.reasons else HEALTHY
        text = f"{health}: {', '.join(verdict.reasons)}" if verdict.reasons else health
        if verdict.warnings:
            text += f" (warning: {', '.join(verdict.warnings)})"
        sharing = sharing_of(device)
        shared = f" ({sharing})" if sharing else ""
        details = {"health": health, "warning": ", ".join(verdict.warnings), "card": device.card}
        if evidence is not None:
            finding = evidence.finding
            text += f": {_words_of(finding)}" if finding.file else ""
            details |= {"source": finding.source, "file": finding.file, "value": finding.value}
            details |= {"detail": finding.detail} | {fact: device.attributes.get(fact, "") for fact in _PLACE}
            if verdict.reasons:
                facts = {**device.attributes, RESOURCE: resource_name}
                details["do"] = to_do(finding, evidence.meaning, device_id, facts)
                details["ends"] = ends(evidence, recover_after, facts, device_id)
                text += f"; do: {details['do']}"
                text += "".join(f"; {word} {details[fact]}" for fact, word in _PLACE.items() if details[fact])
                text += f"; ends {details['ends']}" if finding.source != CORDON else ""  # the same command
        fields = {"resource_name": resource_name, "device_id": device_id, "reason": ", ".join(verdict.reasons)}
        level = logging.WARNING if verdict != FINE else logging.INFO
        log.log(level, "%s %s%s is %s", resource_name, device_id, shared, text, extra={"fields": fields | details})
        self._history.note(
            "verdict",
            f"{text}{shared}",
            resource_name=resource_name,
            device_id=device_id,
            reasons=verdict.reasons,
            details=details,
        )

    def _log_problem(self, level: int, problem: spool_pb2.Problem, what: str) -> None:
        text = f"{problem.vendor}: {problem.path}: {what}"
        fields = {"vendor": problem.vendor, "file": problem.path}
        log.log(level, "%s", text, extra={"fields": fields | {"device_id": problem.device}})
        self._history.note("problem", text, device_id=problem.device, details=fields)

    def _log_reload(self, changes: str) -> None:
        log.info("configuration reloaded from %s: %s", self._reloaded, changes)
        self._history.note("reload", f"configuration reloaded from {self._reloaded}: {changes}")
        self._reloaded = ""


Trouble = tuple[str, Literal["failed", "report_errors"]]
"""A source, and whether it cannot check devices or reports wrongly."""
_SOLVED = {"failed": "it checks devices again", "report_errors": "nothing is wrong with its reports any more"}


def _troubles_of(sources: Iterable[health_pb2.SourceState]) -> dict[Trouble, str]:
    troubles: dict[Trouble, str] = {}
    for source in sources:
        if source.failed:
            troubles[source.source, "failed"] = f"it cannot check devices: {source.failed}"
        if source.report_errors:
            troubles[source.source, "report_errors"] = "; ".join(source.report_errors)
    return troubles


def _is_process(source: str) -> bool:
    """True for a source that runs as a separate process: it is listed only while it is asked."""
    return source.startswith(EXTERNAL_PREFIX) or source in {*MONITORS, NVML, AMD_KFD}


_PLACE = {"pci_address": "PCI address", "slot": "slot", "serial": "serial"}
"""The facts that tell where a device is, and their names in messages."""
_NUMBER = re.compile(r"[-+.,:/ 0-9]+|0x[0-9a-fA-F]+")


def _words_of(finding: "Finding") -> str:
    """The evidence: file and value, with the driver's description if the value is only a number."""
    if finding.reason == EXTERNAL:
        return f"{finding.source}: {_in_its_words(finding)}"
    if finding.source == CORDON:
        return f"{finding.detail}, {finding.value}"
    if finding.detail and _NUMBER.fullmatch(finding.value):
        return f"{finding.detail} ({finding.file}: {finding.value})"
    return f"{finding.file}: {finding.value or finding.detail}"


def _in_its_words(finding: "Finding") -> str:
    """The report of an operator's program or a vendor's monitor: value and detail, each text once."""
    return finding.detail if finding.value in finding.detail else f"{finding.value}: {finding.detail}"


def _named(made: MadeOffer) -> Iterator[tuple[Name, DeviceKey]]:
    """Name and key of each device of an offer that has a verdict."""
    for key in made.verdicts:
        yield (made.name, key[2]), key


def _sizes_of(offers: Iterable[MadeOffer]) -> dict[str, int]:
    return {made.name: made.size for made in offers}


def _evidence(verdict: Verdict, before: Verdict, held: Iterable[Held]) -> Held | None:
    """The evidence for the first reason or warning that is new in a verdict."""
    news = {*verdict.reasons}.difference(before.reasons) | {*verdict.warnings}.difference(before.warnings)
    return next((one for one in held if one.finding.reason in news), None)


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """The resources that were added, removed or have another number of devices, as text."""
    parts = []
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            parts.append(f"+ {name} ({amount(after[name], 'device')})")
        elif name not in after:
            parts.append(f"- {name}")
        elif before[name] != after[name]:
            parts.append(f"{name} {before[name]} → {amount(after[name], 'device')}")
    return ", ".join(parts) or "the same resources and devices"
