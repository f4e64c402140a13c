"""One line of the doctor's report."""

from dataclasses import dataclass
from enum import StrEnum

from devherd.proto import spool_pb2


class Level(StrEnum):
    """Severity of a line."""

    OK = "ok"
    WARNING = "warning"
    """devherd works; something is missing or likely to fail."""
    PROBLEM = "problem"
    """Something does not work."""


@dataclass(frozen=True, slots=True)
class Line:
    """The result of a check; `cure` is what to do about it, empty only for OK."""

    level: Level
    topic: str
    what: str
    cure: str = ""


def ok(topic: str, what: str) -> Line:
    """A line of level OK."""
    return Line(Level.OK, topic, what)


def warning(topic: str, what: str, cure: str) -> Line:
    """A line of level WARNING."""
    return Line(Level.WARNING, topic, what, cure)


def problem(topic: str, what: str, cure: str) -> Line:
    """A line of level PROBLEM."""
    return Line(Level.PROBLEM, topic, what, cure)


def ill(resource: spool_pb2.Offer, device: spool_pb2.Device) -> str:
    """The text of a line about an unhealthy device."""
    return f"{resource.name}: {device.id} is Unhealthy: {', '.join(device.reasons)}"
