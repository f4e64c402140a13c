"""Reasons of every kind, of a source that only tests have."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from unittest import mock

from devherd._native import Finding
from devherd.health import held, registry, verdicts_file
from devherd.health.clears import Evidence, Never, Quiet, Until
from devherd.health.registry import MEANINGS, Meaning

SOURCE = "bench"
UNTIL = Until(frozenset({Evidence.REBOUND, Evidence.READDED, Evidence.REBOOTED, Evidence.RECOVERY_NONE}))

OF_TESTS = {
    "level": Meaning("unhealthy", "it is seen"),
    "late": Meaning("unhealthy", "it is seen", after=30.0),
    "kept": Meaning("unhealthy", "it is seen", hold=60.0),
    "noted": Meaning("ignore", "it is seen"),
    "edge": Meaning("unhealthy", "it has happened", Quiet(600.0)),
    "broken": Meaning("unhealthy", "it has happened", UNTIL),
    "kept-broken": Meaning("unhealthy", "it has happened", UNTIL, hold=60.0),
    "worn-out": Meaning("unhealthy", "it has happened", Never()),
    "tenacious": Meaning("unhealthy", "it has happened", Until(frozenset({Evidence.RECOVERY_NONE}))),
    "code": Meaning(
        "warn", "it has happened", Quiet(600.0), by_value={"79": Meaning("unhealthy", "off the bus", UNTIL)}
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
        mock.patch.object(verdicts_file, "MEANINGS", all_meanings),
    ):
        yield
