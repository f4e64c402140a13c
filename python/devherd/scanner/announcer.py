"""What the scanner tells people of: a line of the log and an event for each verdict, problem and reload that is new."""

import logging
from collections.abc import Callable, Iterable, Mapping

from devherd.amounts import amount
from devherd.health.held import Held
from devherd.health.policy import FINE, Verdict
from devherd.history.record import History
from devherd.inventory import DeviceKey, key_of
from devherd.proto import spool_pb2
from devherd.spool import HEALTHY, UNHEALTHY
from devherd.spool.listing import size_of

log = logging.getLogger(__name__)

Devices = Mapping[tuple[str, str], spool_pb2.Device]
"""By resource name and device id: one with replicas is one device, of which one line is enough."""


class Announcer:
    """Remembers what it has told of, so that each change is told of once."""

    def __init__(
        self, history: History, published: Iterable[spool_pb2.Resource], problems: Iterable[spool_pb2.Problem]
    ) -> None:
        """What is published and what was a problem at the start was told of by an earlier scanner."""
        self._history = history
        published = list(published)
        self._devices = _devices_of(published)
        self._sizes = _sizes_of(published)
        self._problems = list(problems)
        self._reloaded = ""

    def keep(self) -> None:
        """Write the events."""
        self._history.keep()

    def published(
        self,
        resources: Iterable[spool_pb2.Resource],
        held_against: Callable[[DeviceKey], Iterable[Held]],
        *,
        is_complete: bool,
    ) -> None:
        """These resources are offered now, or, unless `is_complete`, will be once devices have moved.

        `held_against` has the evidence of a verdict.
        """
        resources = list(resources)
        devices, before = _devices_of(resources), self._devices
        for name, device in devices.items():
            verdict, earlier = _verdict_on(device), _verdict_on(before[name]) if name in before else FINE
            if verdict != earlier:
                self._say_verdict(name, device, verdict, _evidence(verdict, earlier, held_against(key_of(device))))
        self._devices = devices
        if is_complete:
            before_that, self._sizes = self._sizes, _sizes_of(resources)
            if self._reloaded:
                self._say_reload(_changes(before_that, self._sizes))

    def reloaded(self, source: str) -> None:
        """Another configuration is in force; what it changes is told of with the resources that result."""
        self._reloaded = source

    def found_problems(self, problems: Iterable[spool_pb2.Problem]) -> None:
        """These are the problems now."""
        before, self._problems = self._problems, list(problems)
        for problem in self._problems:
            if problem not in before:
                self._say_problem(logging.WARNING, problem, problem.error)
        for problem in before:
            if problem not in self._problems:
                self._say_problem(logging.INFO, problem, f"solved: {problem.error}")

    def found_notices(self, notices: Iterable[spool_pb2.Problem]) -> None:
        """These are no problems, and to be said once."""
        for notice in notices:
            self._say_problem(logging.INFO, notice, notice.error)

    def _say_verdict(
        self, name: tuple[str, str], device: spool_pb2.Device, verdict: Verdict, evidence: Held | None
    ) -> None:
        resource_name, device_id = name
        health = UNHEALTHY if verdict.reasons else HEALTHY
        said = f"{health}: {', '.join(verdict.reasons)}" if verdict.reasons else health
        if verdict.warnings:
            said += f" (warning: {', '.join(verdict.warnings)})"
        finding = evidence.finding if evidence is not None else None
        if finding is not None and finding.file:
            said += f": {finding.file}: {finding.value or finding.detail}"
        replicas = f" ({amount(device.replicas, 'replica')})" if device.replicas else ""
        details = {"health": health, "warning": ", ".join(verdict.warnings)}
        if finding is not None:
            details |= {"source": finding.source, "file": finding.file, "value": finding.value}
        fields = {"resource_name": resource_name, "device_id": device_id, "reason": ", ".join(verdict.reasons)}
        level = logging.WARNING if verdict != FINE else logging.INFO
        log.log(level, "%s %s%s is %s", resource_name, device_id, replicas, said, extra={"fields": fields | details})
        self._history.note(
            "verdict",
            f"{said}{replicas}",
            resource_name=resource_name,
            device_id=device_id,
            reasons=verdict.reasons,
            details=details,
        )

    def _say_problem(self, level: int, problem: spool_pb2.Problem, what: str) -> None:
        said = f"{problem.vendor}: {problem.path}: {what}"
        fields = {"vendor": problem.vendor, "file": problem.path}
        log.log(level, "%s", said, extra={"fields": fields | {"device_id": problem.device}})
        self._history.note("problem", said, device_id=problem.device, details=fields)

    def _say_reload(self, changes: str) -> None:
        log.info("configuration reloaded from %s: %s", self._reloaded, changes)
        self._history.note("reload", f"configuration reloaded from {self._reloaded}: {changes}")
        self._reloaded = ""


def _devices_of(resources: Iterable[spool_pb2.Resource]) -> Devices:
    return {(resource.name, device.id): device for resource in resources for device in resource.devices}


def _sizes_of(resources: Iterable[spool_pb2.Resource]) -> dict[str, int]:
    return {resource.name: size_of(resource) for resource in resources}


def _verdict_on(device: spool_pb2.Device) -> Verdict:
    return Verdict(tuple(device.reasons), tuple(device.warnings))


def _evidence(verdict: Verdict, before: Verdict, held: Iterable[Held]) -> Held | None:
    """What is behind the news of a verdict."""
    news = {*verdict.reasons, *verdict.warnings} - {*before.reasons, *before.warnings}
    return next((one for one in held if one.finding.reason in news), None)


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Which resources came, went or have another number of devices."""
    said = []
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            said.append(f"+ {name} ({amount(after[name], 'device')})")
        elif name not in after:
            said.append(f"- {name}")
        elif before[name] != after[name]:
            said.append(f"{name} {before[name]} → {amount(after[name], 'device')}")
    return ", ".join(said) or "the same resources and devices"
