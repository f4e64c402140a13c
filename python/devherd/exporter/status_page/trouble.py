"""What an operator has to look at, worst first, each with the place on the page that shows more of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from devherd.exporter import health
from devherd.heartbeat import Heartbeats
from devherd.instance import RUNNING, Herd
from devherd.proto import spool_pb2
from devherd.spool.listing import size_of

PROBLEMS, SOURCES, CONFIGURATION, NOTES = "problems", "sources", "configuration", "notes"
PROCESSES, RESOURCES = "processes", "resources"
"""Places on the page. A resource's is its name."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One line; `is_bad` unless it is a warning."""

    text: str
    place: str
    is_bad: bool = True


@dataclass(frozen=True, slots=True)
class Count:
    """Ids of a resource, or of all: as many as the kubelet sees."""

    total: int = 0
    unhealthy: int = 0
    warned: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.total + other.total, self.unhealthy + other.unhealthy, self.warned + other.warned)


def count(resource: spool_pb2.Resource) -> Count:
    """Of a resource."""
    return Count(
        total=size_of(resource),
        unhealthy=sum(device.replicas or 1 for device in resource.devices if device.reasons),
        warned=sum(device.replicas or 1 for device in resource.devices if device.warnings and not device.reasons),
    )


def devices(number: int) -> str:
    """`1 device`, `1,000 devices`."""
    return f"{number:,} device{'' if number == 1 else 's'}"


def headline(herd: Herd) -> str:
    """Registration and health of everything in one sentence."""
    if not herd.resources:
        return "no devices"
    waiting = sum(not herd.registration(resource.name).registered for resource in herd.resources)
    every = sum(map(count, herd.resources), Count())
    registered = (
        f"{waiting} of {len(herd.resources)} resources not registered" if waiting else "all resources registered"
    )
    number, word = (every.unhealthy, "unhealthy") if every.unhealthy else (every.total, "healthy")
    return f"{registered}, {number:,} of {devices(every.total)} {word}"


def troubles(herd: Herd, heartbeats: Heartbeats) -> Sequence[Trouble]:
    """What is bad, then what is a warning."""
    found = [*_of_the_instance(herd, heartbeats), *_of_registration(herd), *_of_resources(herd), *_of_the_scan(herd)]
    return sorted(found, key=lambda trouble: not trouble.is_bad)


def is_failing(child: spool_pb2.Child) -> bool:
    """Whether a process is not where it should be; one that is being started is."""
    return child.state not in {RUNNING, "STARTING"}


def is_silent(child: spool_pb2.Child, heartbeats: Heartbeats) -> bool:
    """Whether a process runs, and has not said so for too long."""
    return child.state == RUNNING and heartbeats.silence_seconds(child.heartbeat_slot) > health.STALE_SECONDS


def _of_the_instance(herd: Herd, heartbeats: Heartbeats) -> Iterator[Trouble]:
    for reason in health.reasons_not_alive(herd, heartbeats):
        if not reason.startswith("scanner: ") or "scanner" not in herd.children:  # else it is among the processes
            yield Trouble(reason, PROCESSES)
    of_resources = [herd.child_of(resource.name) for resource in herd.resources]
    for name, child in sorted(herd.children.items()):
        if is_failing(child) and child not in of_resources:  # a resource's own line says what its process does
            last_exit = f", last exit: {child.last_exit}" if child.last_exit else ""
            yield Trouble(f"{name}: {child.state}{last_exit}", PROCESSES)
        if is_silent(child, heartbeats):
            yield Trouble(f"{name}: no heartbeat for more than {health.STALE_SECONDS:.0f} s", PROCESSES)
    for address in herd.addresses():
        if address.refusal:
            yield Trouble(address.complaint(), PROCESSES)
    if herd.configuration.refusal:
        yield Trouble(f"configuration not reloaded, the old one stays: {herd.configuration.refusal}", CONFIGURATION)
    if herd.configuration.warnings:
        number = len(herd.configuration.warnings)
        yield Trouble(f"{number} configuration warning{'' if number == 1 else 's'}", CONFIGURATION, is_bad=False)


def _of_registration(herd: Herd) -> Iterator[Trouble]:
    """Each reason once: when the kubelet is away, all resources have the same."""
    for detail, names in herd.waiting().items():
        if len(names) == 1:
            yield Trouble(f"{names[0]}: {detail}", names[0])
        else:
            whose = "all" if len(names) == len(herd.resources) else f"{len(names)} of"
            yield Trouble(f"{whose} {len(herd.resources)} resources: {detail}", RESOURCES)


def _of_resources(herd: Herd) -> Iterator[Trouble]:
    for resource in herd.resources:
        counted = count(resource)
        if counted.unhealthy:
            reasons = sorted({reason for device in resource.devices for reason in device.reasons})
            text = f"{resource.name}: {counted.unhealthy:,} of {devices(counted.total)} unhealthy"
            yield Trouble(f"{text} ({', '.join(reasons)})", resource.name)
        if counted.warned:
            warnings = sorted({warning for device in resource.devices for warning in device.warnings})
            text = f"{resource.name}: {counted.warned:,} of {devices(counted.total)} with a warning"
            yield Trouble(f"{text} ({', '.join(warnings)})", resource.name, is_bad=False)


def _of_the_scan(herd: Herd) -> Iterator[Trouble]:
    if herd.scan is None and not herd.resources:
        yield Trouble("no scan has finished yet", PROCESSES, is_bad=False)
    problems = len(herd.scan.problems) if herd.scan else 0
    if problems:
        yield Trouble(f"{problems} problem{'' if problems == 1 else 's'} of the last scan", PROBLEMS, is_bad=False)
    for source in herd.sources:
        if source.failed:
            yield Trouble(f"source {source.source} cannot look: {source.failed}", SOURCES, is_bad=False)
