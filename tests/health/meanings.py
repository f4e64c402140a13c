"""Reasons of every kind, of a source that only tests have."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from unittest import mock

from devherd._native import Evidence, Finding
from devherd.health import held, verdicts
from devherd.reasons import registry
from devherd.reasons.registry import MEANINGS, Meaning

SOURCE = "external-bench"
"""A program: the breaker doubts those alone."""
RECOVERED = frozenset({Evidence.REBOUND, Evidence.READDED, Evidence.REBOOTED, Evidence.RECOVERY_NONE})
UNTIL = Meaning("unhealthy", "it has happened", "until", evidence=RECOVERED)

OF_TESTS = {
    "level": Meaning("unhealthy", "it is seen"),
    "late": Meaning("unhealthy", "it is seen", after=30.0),
    "kept": Meaning("unhealthy", "it is seen", hold=60.0),
    "noted": Meaning("ignore", "it is seen"),
    "edge": Meaning("unhealthy", "it has happened", "quiet", quiet_seconds=600.0),
    "broken": UNTIL,
    "kept-broken": replace(UNTIL, hold=60.0),
    "worn-out": Meaning("unhealthy", "it has happened", "never"),
    "tenacious": replace(UNTIL, evidence=frozenset({Evidence.RECOVERY_NONE})),
    "code": Meaning(
        "warn",
        "it has happened",
        "quiet",
        quiet_seconds=600.0,
        by_value={"79": replace(UNTIL, threshold="off the bus")},
    ),
}


def finding(reason: str, *, value: str = "", count: int = 0, file: str = "") -> Finding:
    """One of these reasons."""
    return Finding(source=SOURCE, reason=reason, value=value, count=count, file=file)


@contextmanager
def registered() -> Iterator[None]:
    """These reasons are in the registry."""
    all_meanings = MappingProxyType(MEANINGS | {(SOURCE, reason): meaning for reason, meaning in OF_TESTS.items()})
    with (
        mock.patch.object(registry, "MEANINGS", all_meanings),
        mock.patch.object(held, "MEANINGS", all_meanings),
        mock.patch.object(verdicts, "MEANINGS", all_meanings),
    ):
        yield
