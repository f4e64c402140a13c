"""Writes a log line and a history event for each new verdict, problem and reload of the scanner."""

import logging
from collections.abc import Callable, Iterable, Mapping

from devherd.health.held import Held
from devherd.health.policy import FINE, Verdict
from devherd.history import History
from devherd.inventory import DeviceKey, key_of
from devherd.proto import spool_pb2
from devherd.spool import HEALTHY, UNHEALTHY, size_of
from devherd.text import amount, sharing_of

log = logging.getLogger(__name__)

Devices = Mapping[tuple[str, str], spool_pb2.Device]
"""By resource name and device id. A device with replicas counts once: one line is enough."""


class ChangeLog:
    """Remembers what it has logged, so that each change is logged once."""

    def __init__(
        self, history: History, published: Iterable[spool_pb2.Offer], problems: Iterable[spool_pb2.Problem]
    ) -> None:
        """An earlier scanner has logged what is published and what is a problem at the start."""
        self._history = history
        published = list(published)
        self._devices = _devices_of(published)
        self._sizes = _sizes_of(published)
        self._problems = list(problems)
        self._reloaded = ""

    def write(self) -> None:
        """Write the events to the history."""
        self._history.keep()

    def published(
        self,
        offers: Iterable[spool_pb2.Offer],
        held_against: Callable[[DeviceKey], Iterable[Held]],
        *,
        is_complete: bool,
    ) -> None:
        """Log what these offers change. Without `is_complete`, some devices still wait for their move.

        `held_against` returns the evidence for a device's verdict.
        """
        offers = list(offers)
        devices, before = _devices_of(offers), self._devices
        for name, device in devices.items():
            verdict, earlier = _verdict_on(device), _verdict_on(before[name]) if name in before else FINE
            if verdict != earlier:
                self._log_verdict(name, device, verdict, _evidence(verdict, earlier, held_against(key_of(device))))
        self._devices = devices
        if is_complete:
            before_that, self._sizes = self._sizes, _sizes_of(offers)
            if self._reloaded:
                self._log_reload(_changes(before_that, self._sizes))

    def reloaded(self, source: str) -> None:
        """Another configuration is in force; its changes are logged with the next complete publication."""
        self._reloaded = source

    def found_problems(self, problems: Iterable[spool_pb2.Problem]) -> None:
        """Log the problems that are new, and those that are solved."""
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

    def _log_verdict(
        self, name: tuple[str, str], device: spool_pb2.Device, verdict: Verdict, evidence: Held | None
    ) -> None:
        resource_name, device_id = name
        health = UNHEALTHY if verdict.reasons else HEALTHY
        text = f"{health}: {', '.join(verdict.reasons)}" if verdict.reasons else health
        if verdict.warnings:
            text += f" (warning: {', '.join(verdict.warnings)})"
        finding = evidence.finding if evidence is not None else None
        if finding is not None and finding.file:
            text += f": {finding.file}: {finding.value or finding.detail}"
        sharing = sharing_of(device)
        shared = f" ({sharing})" if sharing else ""
        details = {"health": health, "warning": ", ".join(verdict.warnings)}
        if finding is not None:
            details |= {"source": finding.source, "file": finding.file, "value": finding.value}
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


def _devices_of(offers: Iterable[spool_pb2.Offer]) -> Devices:
    return {(offer.name, device.id): device for offer in offers for device in offer.devices}


def _sizes_of(offers: Iterable[spool_pb2.Offer]) -> dict[str, int]:
    return {offer.name: size_of(offer) for offer in offers}


def _verdict_on(device: spool_pb2.Device) -> Verdict:
    return Verdict(tuple(device.reasons), tuple(device.warnings))


def _evidence(verdict: Verdict, before: Verdict, held: Iterable[Held]) -> Held | None:
    """The evidence for the first reason or warning that is new in a verdict."""
    news = {*verdict.reasons, *verdict.warnings} - {*before.reasons, *before.warnings}
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
