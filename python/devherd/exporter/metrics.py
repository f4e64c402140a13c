"""Everything on /metrics: gauges made from the run directory at each scrape, and the counters that the processes keep.

A series exists for as long as its subject: the series of removed devices and resources are removed with them.
"""

import time
from collections.abc import Iterable, Iterator, Sequence

from devherd.config.resolved import DeviceMetrics
from devherd.exporter import device_metrics, observed, processes, totals
from devherd.exporter.exposition import Family
from devherd.heartbeat import Heartbeats
from devherd.instance import RUNNING, Allocations, Herd
from devherd.version import revision, version

RESTART_CAUSES = ("exit", "signal", "heartbeat", "operator", "renewal")

MOST_SCAN_PROBLEMS = 50
"""Listed one by one; all are counted."""


def families(
    herd: Herd,
    allocations: Allocations | None,
    heartbeats: Heartbeats,
    *,
    of_devices: DeviceMetrics = "all",
    kubelet_listens: bool = True,
) -> Iterator[Family]:
    """Gauges, then counters and histograms by name."""
    counted = list(totals.families(herd, of_devices))
    yield build_info()
    yield from device_metrics.families(herd, allocations, of_devices)
    yield from scan_gauges(herd, next((family for family in counted if family.name == "devherd_scans"), None))
    yield from source_gauges(herd)
    yield from registration_gauges(herd, kubelet_listens=kubelet_listens)
    yield from child_metrics(herd, heartbeats)
    yield from configuration(herd)
    yield from processes.families(herd)
    yield from counted


def build_info() -> Family:
    """Which devherd this is, as labels of a constant 1."""
    family = observed.BUILD_INFO.family()
    family.add(1, version=version(), revision=revision())
    return family


def configuration(herd: Herd) -> Iterator[Family]:
    """The configuration in force and its reloads, as the supervisor knows them; no series before there is one."""
    if herd.supervisor_pid:
        for kind, value in (
            (observed.LAST_RELOAD_SUCCESSFUL, not herd.configuration.refusal),
            (observed.LAST_RELOAD_SUCCESS, herd.configuration.loaded_timestamp_seconds),
            (observed.CONFIG_WARNINGS, len(herd.configuration.warnings)),
            (observed.RELOADS, herd.config_reloads),
            (observed.RELOAD_FAILURES, herd.config_reload_failures),
        ):
            family = kind.family()
            family.add(value)
            yield family


def scan_gauges(herd: Herd, scans: Family | None) -> Iterator[Family]:
    """When the host was last looked at, and what could not be looked at. `scans` names the vendors that were asked."""
    problems, listed, last = (
        kind.family() for kind in (observed.SCAN_PROBLEMS, observed.SCAN_PROBLEM_INFO, observed.LAST_SCAN)
    )
    if herd.scan is not None:
        counts = {labels["vendor"]: 0 for _, labels, _ in scans.samples} if scans else {}
        for problem in herd.scan.problems:
            counts[problem.vendor] = counts.get(problem.vendor, 0) + 1
        for vendor in sorted(counts):
            problems.add(counts[vendor], vendor=vendor)
        for vendor, device, path in _first((each.vendor, each.device, each.path) for each in herd.scan.problems):
            listed.add(1, vendor=vendor, device=device, path=path)
        last.add(herd.scan.timestamp_seconds)
    yield from (problems, listed, last)


def _first(places: Iterable[tuple[str, str, str]]) -> Sequence[tuple[str, str, str]]:
    """Each once, and the same ones while they stay."""
    return sorted(set(places))[:MOST_SCAN_PROBLEMS]


def source_gauges(herd: Herd) -> Iterator[Family]:
    """Whether each source of health findings can look, and when it did last."""
    up, last = observed.SOURCE_UP.family(), observed.SOURCE_LAST_REPORT.family()
    for source in herd.sources:
        up.add(not source.failed, source=source.source)
        if source.last_report_timestamp_seconds:
            last.add(source.last_report_timestamp_seconds, source=source.source)
    yield from (up, last)


def registration_gauges(herd: Herd, *, kubelet_listens: bool) -> Iterator[Family]:
    """How each resource stands with the kubelet."""
    registered, states, streams = (
        kind.family() for kind in (observed.REGISTERED, observed.REGISTRATION_STATE, observed.STREAMS)
    )
    for resource in herd.resources:
        registration = herd.registration(resource.name)
        registered.add(registration.registered, resource_name=resource.name)
        state = registration_state(herd, resource.name, kubelet_listens=kubelet_listens)
        for each in REGISTRATION_STATES:
            states.add(each == state, resource_name=resource.name, state=each)
        streams.add(registration.streams, resource_name=resource.name)
    yield from (registered, states, streams)


REGISTRATION_STATES = ("registered", "kubelet-away", "not-accepted", "child-down")


def registration_state(herd: Herd, resource_name: str, *, kubelet_listens: bool) -> str:
    """Why a resource is not registered, as far as that decides what to do about it."""
    if herd.registration(resource_name).registered:
        return "registered"
    child = herd.child_of(resource_name)
    if herd.children and (child is None or child.state != RUNNING):
        return "child-down"
    return "not-accepted" if kubelet_listens else "kubelet-away"


def child_metrics(herd: Herd, heartbeats: Heartbeats) -> Iterator[Family]:
    """Whether each child runs, when it last beat, and why it was started again."""
    up, beats, restarts = (
        kind.family() for kind in (observed.CHILD_UP, observed.CHILD_LAST_HEARTBEAT, observed.CHILD_RESTARTS)
    )
    wall_clock_offset = time.time() - time.monotonic()
    for name, child in sorted(herd.children.items()):
        up.add(child.state == RUNNING, child=name)
        last_beat = heartbeats.last_beat(child.heartbeat_slot)
        if last_beat:
            beats.add(last_beat + wall_clock_offset, child=name)
        for cause in sorted({*RESTART_CAUSES, *child.restarts}):
            restarts.add(child.restarts.get(cause, 0), child=name, cause=cause)
    yield from (up, beats, restarts)
