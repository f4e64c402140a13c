"""`health.rules`: what a finding means under the configuration."""

from collections.abc import Iterator
from typing import Any

import pytest
from health.meanings import finding, registered

from devherd._native import Device, Fact
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.health.held import Now, Seen
from devherd.health.policy import FINE, Policy, Rules, Verdict
from devherd.inventory import Entry, Inventory


def gpu(number: int, model: str) -> Entry:
    facts = {"model": Fact("text", model, "")}
    device = Device(vendor="nvidia", id=f"GPU-{number}", card=f"0000:0{number}:00.0", facts=facts)
    return Entry(device, "nvidia.com/gpu")


H100, L4 = gpu(1, "H100"), gpu(2, "L4")


@pytest.fixture(autouse=True)
def _reasons() -> Iterator[None]:
    with registered():
        yield


def at(seconds: float) -> Now:
    return Now(1_000_000.0 + seconds, seconds, "boot-1")


def judging(policy: Policy, *rules: dict[str, Any]) -> Policy:
    """A policy under these rules of the configuration, which the test's own reasons are not checked against."""
    resolved = resolve(Config.model_validate({"health": {"rules": rules}})).health.rules
    policy.use(1, Rules(resolved, Inventory([H100, L4])).meaning_of)
    return policy


def verdicts(policy: Policy, second: float, **findings: Any) -> tuple[Verdict, Verdict]:
    """On both devices, with what is found on each."""
    seen = Seen({{"h100": H100, "l4": L4}[name].key: found for name, found in findings.items()})
    policy.observe(seen, at(second))
    return policy.verdict(H100.key), policy.verdict(L4.key)


def test_the_first_rule_that_fits_the_device_and_the_finding_decides():
    """Like resource rules."""
    policy = judging(
        Policy(1),
        {"match": {"model": "H*"}, "reason": "level", "action": "warn"},
        {"source": "external-ben*", "reason": ["level", "kept"], "action": "ignore"},
        {"action": "unhealthy"},
    )
    found = [finding("level"), finding("noted")]

    assert verdicts(policy, 0, h100=found, l4=found) == (Verdict(("noted",), ("level",)), Verdict(("noted",)))


def test_a_rule_for_a_value_is_about_that_value():
    """One code of an Xid."""
    policy = judging(Policy(1), {"value": "31", "action": "ignore"})
    found = [finding("code", value=value) for value in ("31", "79", "43")]

    assert verdicts(policy, 0, h100=found)[0] == Verdict(("code",), ("code",))
    assert [(one.finding.value, one.action) for one in policy.held_against(H100.key)] == [
        ("79", "unhealthy"),
        ("43", "warn"),
        ("31", "ignore"),
    ]


def test_after_and_hold_are_those_of_the_rule():
    """And the action stays the source's."""
    policy = judging(Policy(1), {"reason": "level", "after": "5s", "hold": "20s"})
    found = [finding("level")]

    states = [verdicts(policy, second, l4=found if second <= 5 else [])[1] for second in (0, 4, 5, 24, 25)]

    assert states == [FINE, FINE, Verdict(("level",)), Verdict(("level",)), FINE]


def test_rules_that_change_are_about_what_is_held_already():
    """A reload, without waiting for the fault to come again."""
    policy = judging(Policy(1))
    found = [finding("level")]
    assert verdicts(policy, 0, h100=found)[0] == Verdict(("level",))

    judging(policy, {"action": "ignore"})

    assert policy.verdict(H100.key) == FINE
    assert policy.held_against(H100.key)[0].meaning.rule == "health.rules[0]"


def test_no_rule_is_no_change():
    """What the registry says."""
    assert Rules([], Inventory([H100])).meaning_of(H100.key, finding("late")).after == 30.0
    assert resolve(Config()).health.rules == []
