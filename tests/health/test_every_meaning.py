"""Every reason that is registered: raised, judged, and taken back by its own way, without a restart."""

import pytest

from devherd._native import Finding
from devherd.health.clears import Evidence, Level, Quiet, Until
from devherd.health.policy import FINE, Earlier, Policy, Verdict
from devherd.health.registry import MEANINGS, Meaning
from devherd.health.seen import Now, Seen

DEVICE = ("vendor", "card", "device")
OTHER = ("vendor", "card", "other")


def every() -> list[tuple[str, str, str, Meaning]]:
    """Source, reason, value and meaning; a reason with meanings for values once for each, and once for all others."""
    return [
        (source, reason, value, meaning)
        for (source, reason), of_all in MEANINGS.items()
        for value, meaning in ({"": of_all} | dict(of_all.by_value)).items()
    ]


def at(seconds: float) -> Now:
    return Now(1_000_000.0 + seconds, seconds, "boot-1")


def judged(meaning: Meaning, reason: str) -> Verdict:
    """What the action comes to."""
    return {"unhealthy": Verdict((reason,)), "warn": Verdict((), (reason,)), "ignore": FINE}[meaning.action]


@pytest.mark.parametrize(("source", "reason", "value", "meaning"), every())
def test_it_counts_and_goes_its_own_way(source, reason, value, meaning):
    """What is raised after the first look does what it is registered with, from its moment on, until it is over."""
    policy, finding = Policy(3), Finding(source=source, reason=reason, value=value)
    policy.observe(Seen(not_looked={DEVICE: {}, OTHER: {}}), at(0))

    def look(second: float, *, stands: bool) -> Verdict:
        policy.observe(Seen({DEVICE: [finding]} if stands else {}), at(second))
        return policy.verdict(DEVICE)

    if isinstance(meaning.clears, Level):
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
    if isinstance(meaning.clears, Quiet):
        end = 1 + max(meaning.clears.seconds, meaning.hold)
        assert look(end - 0.5, stands=False) == judged(meaning, reason)
    elif isinstance(meaning.clears, Until):
        for evidence in set(Evidence) - meaning.clears.evidence - {Evidence.SOURCE_CLEARED}:
            policy.note(_stated(evidence, end), at(end))
            assert policy.verdict(DEVICE) == judged(meaning, reason), evidence
        policy.note(_stated_for(meaning.clears.evidence, source, reason, end), at(end))
    elif not isinstance(meaning.clears, Level):
        policy.note(_stated_for({Evidence.SOURCE_CLEARED}, source, reason, end), at(end))

    assert look(end + 2, stands=False) == FINE
    assert (policy.held_against(DEVICE), policy.verdict(OTHER)) == ([], FINE)


def _stated(evidence: Evidence, second: float) -> Seen:
    seen = Seen()
    seen.evident(DEVICE, evidence, second)
    return seen


def _stated_for(ways: set[Evidence] | frozenset[Evidence], source: str, reason: str, second: float) -> Seen:
    """One of the ways."""
    seen = Seen()
    way = min(ways)
    if way is Evidence.SOURCE_CLEARED:
        seen.cleared(DEVICE, source, reason, second)
    else:
        seen.evident(DEVICE, way, second)
    return seen


@pytest.mark.parametrize(("source", "reason", "value", "meaning"), every())
def test_a_boot_ends_what_it_may_end_and_nothing_else(source, reason, value, meaning):
    """What stands is looked at again; events go but for those that need more than a boot."""
    before, after = Policy(3), Policy(3)
    finding = Finding(source=source, reason=reason, value=value)
    before.observe(Seen(not_looked={DEVICE: {}}), at(0))
    seen = Seen()
    if isinstance(meaning.clears, Level):
        seen.add(DEVICE, [finding])
    else:
        seen.happened(DEVICE, finding, 1.0)
    before.observe(seen, at(1))
    after.restore(Earlier(list(before.all_held()), "boot-1"), [DEVICE], Now(1_000_100.0, 5.0, "boot-2"))

    goes = isinstance(meaning.clears, Quiet) or (
        isinstance(meaning.clears, Until) and Evidence.REBOOTED in meaning.clears.evidence
    )
    assert bool(after.held_against(DEVICE)) is not (goes or meaning.only_when_new)
