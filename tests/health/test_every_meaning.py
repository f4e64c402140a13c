"""Every kind of meaning that is registered: raised, judged, and taken back by its own way, without a restart."""

from dataclasses import replace

import pytest

from devherd._native import Evidence, Finding
from devherd.health.held import Now, Seen
from devherd.health.policy import FINE, Earlier, Policy, Verdict
from devherd.reasons.registry import (
    ALL_AT_ONCE,
    AMD_EXPORTER,
    AMD_NIC_EXPORTER,
    DEVLINK,
    EXTERNAL,
    FIRMWARE,
    HANGING,
    LATCHED,
    MEANINGS,
    WEDGED,
    Meaning,
)

DEVICE = ("vendor", "card", "device")
OTHER = ("vendor", "card", "other")


def kinds() -> list[tuple[str, str, str, Meaning]]:
    """Source, reason, value and meaning: the first of those that differ in nothing that the policy looks at."""
    found: dict[str, tuple[str, str, str, Meaning]] = {}
    for (source, reason), of_all in MEANINGS.items():
        for value, meaning in ({"": of_all} | dict(of_all.by_value)).items():
            found.setdefault(
                repr(replace(meaning, threshold="", do="", do_by_value={}, by_value={})),
                (source, reason, value, meaning),
            )
    return list(found.values())


def at(seconds: float) -> Now:
    return Now(1_000_000.0 + seconds, seconds, "boot-1")


def judged(meaning: Meaning, reason: str) -> Verdict:
    """What the action comes to."""
    return {"unhealthy": Verdict((reason,)), "warn": Verdict((), (reason,)), "ignore": FINE}[meaning.action]


@pytest.mark.parametrize(("source", "reason", "value", "meaning"), kinds())
def test_it_counts_and_goes_its_own_way(source, reason, value, meaning):
    """What is raised after the first look does what it is registered with, from its moment on, until it is over."""
    policy, finding = Policy(3), Finding(source=source, reason=reason, value=value)
    policy.observe(Seen(not_looked={DEVICE: {}, OTHER: {}}), at(0))

    def look(second: float, *, stands: bool) -> Verdict:
        policy.observe(Seen({DEVICE: [finding]} if stands else {}), at(second))
        return policy.verdict(DEVICE)

    if not meaning.is_event:
        assert look(1, stands=True) == (FINE if meaning.after else judged(meaning, reason))
        assert look(1 + meaning.after, stands=True) == judged(meaning, reason)
        end = 10 + meaning.after + meaning.hold
        assert look(end, stands=False) == judged(meaning, reason)
        look(end + 1, stands=False)
    else:
        happened = Seen()
        happened.happened(DEVICE, finding, 1.0)
        policy.observe(happened, at(1))
        assert look(1 + meaning.after, stands=False) == judged(meaning, reason)
        end = 2 + meaning.after + meaning.hold
    if meaning.clears == "quiet":
        end = 1 + max(meaning.quiet_seconds, meaning.hold)
        assert look(end - 0.5, stands=False) == judged(meaning, reason)
    elif meaning.clears == "until":
        for evidence in Evidence.ALL - meaning.evidence - {Evidence.SOURCE_CLEARED}:
            policy.note(_stated(evidence, end), at(end))
            assert policy.verdict(DEVICE) == judged(meaning, reason), evidence
        policy.note(_stated_for(meaning.evidence, source, reason, end), at(end))
    elif meaning.is_event:
        policy.note(_stated_for({Evidence.SOURCE_CLEARED}, source, reason, end), at(end))

    assert look(end + 2, stands=False) == FINE
    assert (policy.held_against(DEVICE), policy.verdict(OTHER)) == ([], FINE)


def _stated(evidence: str, second: float) -> Seen:
    seen = Seen()
    seen.evident(DEVICE, evidence, second)
    return seen


def _stated_for(ways: set[str] | frozenset[str], source: str, reason: str, second: float) -> Seen:
    """One of the ways."""
    seen = Seen()
    way = min(ways)
    if way == Evidence.SOURCE_CLEARED:
        seen.cleared(DEVICE, source, reason, second)
    else:
        seen.evident(DEVICE, way, second)
    return seen


@pytest.mark.parametrize(("source", "reason", "value", "meaning"), kinds())
def test_a_boot_ends_what_it_may_end_and_nothing_else(source, reason, value, meaning):
    """What stands is looked at again; events go but for those that need more than a boot."""
    before, after = Policy(3), Policy(3)
    finding = Finding(source=source, reason=reason, value=value)
    before.observe(Seen(not_looked={DEVICE: {}}), at(0))
    seen = Seen()
    if not meaning.is_event:
        seen.add(DEVICE, [finding])
    else:
        seen.happened(DEVICE, finding, 1.0)
    before.observe(seen, at(1))
    after.restore(Earlier(list(before.all_held()), "boot-1"), [DEVICE], Now(1_000_100.0, 5.0, "boot-2"))

    goes = meaning.clears == "quiet" or Evidence.REBOOTED in meaning.evidence
    assert bool(after.held_against(DEVICE)) is not (goes or meaning.only_when_new)


@pytest.mark.parametrize(
    ("source", "reason", "value"),
    [
        (AMD_EXPORTER, EXTERNAL, ALL_AT_ONCE),
        (AMD_NIC_EXPORTER, EXTERNAL, ALL_AT_ONCE),
        (DEVLINK, FIRMWARE, LATCHED),
        (WEDGED, WEDGED, HANGING),
    ],
)
def test_a_value_that_python_writes_is_declared_in_rust(source, reason, value):
    """Rust declares the value by its own text: with another spelling, its meaning would not be found."""
    assert value in MEANINGS[source, reason].by_value
