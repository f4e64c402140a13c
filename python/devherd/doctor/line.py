"""One line of the doctor's report."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """devherd works, and something is lacking or likely to go wrong."""
    PROBLEM = "problem"
    """Something does not work until it is mended."""


@dataclass(frozen=True, slots=True)
class Line:
    """What was checked and found; `cure` says what to do, and is empty only where all is well."""

    level: Level
    topic: str
    what: str
    cure: str = ""


def ok(topic: str, what: str) -> Line:
    """All is well."""
    return Line(Level.OK, topic, what)


def warning(topic: str, what: str, cure: str) -> Line:
    """Something is lacking."""
    return Line(Level.WARNING, topic, what, cure)


def problem(topic: str, what: str, cure: str) -> Line:
    """Something does not work."""
    return Line(Level.PROBLEM, topic, what, cure)
