"""From what sources see to verdicts: at once Unhealthy, and back by each finding's own way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd._native import Finding
from devherd.health.held import ANY_SOURCE, Now, Seen
from devherd.health.policy import FINE, Earlier, Policy, Verdict
from devherd.reasons.registry import MEANINGS

PORT = ("intel-fpga", "0000:81:00.0", "dfl-port.0")
OTHER = ("generic", "a.b/c group 0", "x")
BOOT = "boot-1"
QUIET = 600.0

MISSING = Finding(source="node", reason="node-missing", file="/dev/dfl-port.0", value="absent")
HOT = Finding(source="temperature", reason="temperature", file="/sys/temp1_input", value="101000")
GONE = Finding(source="inventory", reason="gone")
NARROW = Finding(source="pci-link", reason="link-degraded", file="/sys/current_link_width", value="8")


def fatal(count: int) -> Finding:
    return Finding(source="pci-aer-fatal", reason="pci-aer", file="/sys/aer_dev_fatal", value=str(count), count=count)


def at(seconds: float, boot_id: str = BOOT) -> Now:
    return Now(1_000_000.0 + seconds, seconds, boot_id)


def seen(**by_device: list[Finding]) -> Seen:
    return Seen({{"port": PORT, "other": OTHER}[name]: findings for name, findings in by_device.items()})


def observed(*looks: Seen, recover_after: int = 3, policy: Policy | None = None) -> Policy:
    """A policy after these periodic looks, one a second."""
    policy = policy or Policy(recover_after)
    for second, look in enumerate(looks):
        policy.observe(look, at(float(second)))
    return policy


def left_by(policy: Policy) -> Earlier:
    return Earlier(list(policy.all_held()), BOOT)


def reasons(policy: Policy) -> tuple[str, ...]:
    return policy.verdict(PORT).reasons


def test_a_fault_counts_at_once_and_leaves_after_a_run_of_good_looks():
    """One bad look is enough to be Unhealthy; `recover_after` good ones are needed to be Healthy again."""
    policy = Policy(recover_after=3)
    states = []
    for second, findings in enumerate([[MISSING], [], [], []]):
        policy.observe(seen(port=findings), at(second))
        states.append(reasons(policy))

    assert states == [("node-missing",), ("node-missing",), ("node-missing",), ()]


def test_several_polls_of_one_answer_are_one_good_look():
    """A monitor is asked each 30 s: three polls gave a device back after one answer that it is well."""
    ill = Finding(source="amd-exporter", reason="external", file="socket", value="unhealthy")

    def answer(number: float, *findings: Finding) -> Seen:
        return Seen({PORT: [*findings]}, looks={"amd-exporter": number})

    def states(policy: Policy, *answers: Seen) -> list[bool]:
        found = []
        for second, look in enumerate(answers):
            policy.observe(look, at(float(second)))
            found.append(reasons(policy) == ("external",))
        return found

    policy = Policy(recover_after=3)
    assert states(policy, answer(1.0, ill), *[answer(2.0)] * 9, answer(3.0), answer(3.0)) == [True] * 12
    [held] = policy.held_against(PORT)
    assert (held.good_looks, held.good_look) == (2, 3.0)
    assert states(policy, answer(3.0), answer(4.0), answer(4.0)) == [True, False, False]


def test_a_fault_that_returns_starts_the_run_afresh_and_is_counted_again():
    """A flapping device does not become Healthy in between."""
    policy = observed(seen(port=[MISSING]), seen(), seen(port=[MISSING]), seen(), recover_after=2)

    assert reasons(policy) == ("node-missing",)
    assert [held.count for held in policy.held_against(PORT)] == [2]


def test_reasons_recover_each_on_its_own():
    """A device is Healthy only when every reason is taken back."""
    policy = observed(seen(port=[MISSING, HOT]), seen(port=[HOT]), recover_after=1)

    assert reasons(policy) == ("temperature",)


def test_two_files_with_the_same_reason_are_two_findings():
    """Two nodes of a device may be missing; one that is back says nothing of the other."""
    second = Finding(source="node", reason="node-missing", file="/dev/dfl-fme.0", value="absent")
    policy = observed(seen(port=[MISSING, second]), seen(port=[second]), recover_after=1)

    assert [held.finding for held in policy.held_against(PORT)] == [second]
    assert reasons(policy) == ("node-missing",)


def test_a_look_between_periodic_ones_can_only_make_things_worse():
    """A burst of events must not be counted as good looks."""
    policy = observed(seen(port=[MISSING]), recover_after=2)
    for _ in range(10):
        policy.note(seen(), at(1))
    policy.note(seen(port=[HOT]), at(1))

    assert reasons(policy) == ("node-missing", "temperature")


def test_a_warning_stands_beside_reasons_and_leaves_the_device_healthy():
    """What is only warned of must not cost a pod its device."""
    policy = observed(seen(port=[NARROW]))

    assert policy.verdict(PORT) == Verdict((), ("link-degraded",))
    assert policy.verdicts() == {PORT: Verdict((), ("link-degraded",))}


def test_a_fatal_pci_error_stays_for_ten_minutes_and_not_for_three_polls():
    """A fatal error that was Unhealthy for three seconds reached no one."""
    policy = observed(seen(port=[fatal(1)]), *[seen(port=[fatal(1)])] * 10, recover_after=3)

    policy.observe(seen(port=[fatal(1)]), at(QUIET - 1))
    before = reasons(policy)
    policy.observe(seen(port=[fatal(1)]), at(QUIET))

    assert (before, reasons(policy)) == (("pci-aer",), ())


def test_an_event_that_is_over_comes_back_only_with_another_one():
    """Its source goes on counting the old one; old error bits of a working card are no fault."""
    policy = observed(seen(port=[fatal(2)]))
    policy.observe(seen(port=[fatal(2)]), at(QUIET))
    for second in range(5):
        policy.observe(seen(port=[fatal(2)]), at(QUIET + second))
        policy.note(seen(port=[fatal(2)]), at(QUIET + second))
    assert policy.verdict(PORT) == FINE

    policy.observe(seen(port=[fatal(3)]), at(QUIET + 10))

    [held] = policy.held_against(PORT)
    assert (reasons(policy), held.count, held.first) == (("pci-aer",), 1, at(QUIET + 10).wall)


@pytest.mark.parametrize("why", [{ANY_SOURCE: "the card does not answer"}, {"pci-aer-fatal": "it is gone"}])
def test_an_event_that_is_over_stays_over_when_its_device_was_away(why):
    """The source goes on counting when the card is back; that is no new error."""
    policy = observed(seen(port=[fatal(2)]))
    policy.observe(seen(port=[fatal(2)]), at(QUIET))
    policy.observe(Seen(not_looked={PORT: why}), at(QUIET + 1))
    policy.observe(seen(port=[fatal(2)]), at(QUIET + 2))

    assert policy.verdict(PORT) == FINE


def test_a_source_that_was_started_again_may_count_as_many_as_before():
    """One error, a restart of the source, another error: that is two."""
    policy = observed(seen(port=[fatal(1)]), seen(), seen(port=[fatal(1)]))

    assert [held.count for held in policy.held_against(PORT)] == [2]


def test_an_event_whose_look_was_lost_is_seen_with_the_next():
    """Fatal errors and slow reads come together: the count says what was missed."""
    policy = Policy(3)
    policy.observe(seen(port=[fatal(1)]), at(0))
    policy.observe(Seen(not_looked={PORT: {ANY_SOURCE: "no answer"}}), at(1))
    policy.observe(seen(port=[fatal(4)]), at(2))

    assert [held.count for held in policy.held_against(PORT)] == [4]


def test_each_event_begins_the_quiet_time_anew():
    """Ten minutes from the last error, not from the first."""
    policy = observed(seen(port=[fatal(1)]))
    policy.observe(seen(port=[fatal(2)]), at(QUIET - 1))
    policy.observe(seen(port=[fatal(2)]), at(QUIET + 1))

    assert reasons(policy) == ("pci-aer",)


def test_a_source_that_was_started_again_counts_from_one():
    """The first error after that is a new one, although the number is lower than before."""
    policy = observed(seen(port=[fatal(5)]), seen(), seen(port=[fatal(1)]))

    assert [held.count for held in policy.held_against(PORT)] == [6]


@pytest.mark.parametrize(
    "look",
    [
        Seen(not_looked={PORT: {"node": "asleep"}}),
        Seen(not_looked={PORT: {ANY_SOURCE: "the card does not answer"}}),
        Seen(failed={"node": "no permission"}),
    ],
    ids=["asleep", "card not examined", "source failed"],
)
def test_what_is_not_looked_at_stays_as_it_was(look):
    """Unknown is not well, and it is not ill either."""
    policy = observed(seen(port=[MISSING]), *[look] * 20)
    healthy = observed(*[look] * 20)

    assert reasons(policy) == ("node-missing",)
    assert healthy.verdict(PORT) == FINE


ASLEEP = {PORT: {"temperature": "asleep", "node": "asleep"}}


def test_an_operator_takes_back_what_nobody_can_look_at():
    """A card sleeps for ever with what it had: what stands would end by good looks alone. Nothing else goes with it."""
    policy = observed(seen(port=[MISSING, HOT]), Seen(not_looked=ASLEEP))
    cleared = Seen(not_looked=ASLEEP)
    cleared.cleared_by_operator(PORT, "node-missing", 1.5)
    policy.observe(cleared, at(2))
    assert policy.verdict(PORT) == Verdict(("temperature",))

    policy.observe(seen(port=[MISSING]), at(3))
    assert reasons(policy) == ("node-missing", "temperature"), "it is awake, and no better"


def test_what_an_operator_takes_back_while_it_is_seen_stands():
    """The command refuses that, and so does the policy; a card that falls asleep afterwards has it still."""
    cleared = seen(port=[MISSING])
    cleared.cleared_by_operator(PORT, "node-missing", 0.5)
    policy = observed(seen(port=[MISSING]), cleared, Seen(not_looked=ASLEEP))

    assert reasons(policy) == ("node-missing",)


def test_a_source_that_looks_takes_back_its_own_while_another_sleeps():
    """A sleeping card's node that is back is back."""
    policy = observed(seen(port=[MISSING, HOT]), Seen(not_looked={PORT: {"temperature": "asleep"}}), recover_after=1)

    assert reasons(policy) == ("temperature",)


def test_a_device_that_is_forgotten_takes_its_findings_along():
    """Nothing is held against a device that no longer exists."""
    policy = observed(seen(port=[GONE]))

    policy.forget_all_but(set(), at(1))

    assert policy.verdicts() == {}


def test_the_evidence_is_the_last_that_was_seen_and_says_since_when():
    """What `devherd explain` prints."""
    hotter = Finding(source="temperature", reason="temperature", file=HOT.file, value="105000")
    policy = observed(seen(port=[HOT]), seen(port=[hotter]), seen())

    [held] = policy.held_against(PORT)
    assert (held.finding, held.first, held.last, held.good_looks) == (hotter, at(0).wall, at(1).wall, 1)


def test_events_of_another_boot_are_over_and_what_stands_is_looked_at_again():
    """A boot resets the card; a missing node may be missing still."""
    before = observed(seen(port=[MISSING, fatal(1)]))

    after = Policy(1)
    after.restore(left_by(before), [PORT], at(1.0, "boot-2"))
    same_boot = Policy(1)
    same_boot.restore(left_by(before), [PORT], at(1.0))

    assert (reasons(after), reasons(same_boot)) == (("node-missing",), ("node-missing", "pci-aer"))


def test_every_meaning_is_one_that_the_policy_can_take_back():
    """A word without an action, a threshold or a way back would be a riddle to whoever meets it."""
    assert {meaning.action for meaning in MEANINGS.values()} <= {"unhealthy", "warn", "ignore"}
    assert all(meaning.threshold for meaning in MEANINGS.values())
    assert all(meaning.quiet_seconds > 0 for meaning in MEANINGS.values() if meaning.clears == "quiet")
    assert all(meaning.evidence for meaning in MEANINGS.values() if meaning.clears == "until")


def register(value, file="/sys/errors"):
    return Finding(source="fpga-errors", reason="port-error", file=file, value=value)


def looked(*values):
    """One look at the port, and at another device, with one finding for each value of an error register."""
    return Seen({PORT: [register(value) for value in values]}, {PORT: {}, OTHER: {}})


def test_error_bits_from_before_the_first_look_are_a_warning_and_new_ones_are_not():
    """Only root's write clears them: a card that works would be lost at the switch to devherd (intel B4)."""
    policy = observed(looked("0x20"))
    assert policy.verdict(PORT) == Verdict(warnings=("port-error",))

    policy.observe(looked("0x20"), at(1))
    assert policy.verdict(PORT) == Verdict(warnings=("port-error",))
    policy.observe(looked("0x21"), at(2))
    assert policy.verdict(PORT) == Verdict(reasons=("port-error",))
    policy.observe(looked("0x20"), at(3))
    assert policy.verdict(PORT) == Verdict(reasons=("port-error",))


def test_error_bits_that_come_after_a_look_without_any_are_no_warning():
    """Also in a register that has been cleared since."""
    policy = observed(looked("0x20"), looked(), looked(), looked(), recover_after=3)
    assert policy.verdict(PORT) == FINE

    policy.observe(looked("0x20"), at(9))

    assert policy.verdict(PORT) == Verdict(reasons=("port-error",))


def test_a_register_that_cannot_be_read_as_one_at_the_first_look_is_no_warning():
    """Failing hardware, not an old error."""
    for value in ("", "garbage"):
        assert observed(looked(value)).verdict(PORT) == Verdict(reasons=("port-error",))


def test_the_first_look_is_the_first_that_was_taken():
    """A device that was asleep or hung has not been looked at."""
    asleep = Seen(not_looked={PORT: {"fpga-errors": "asleep"}})
    not_examined = Seen(not_looked={PORT: {ANY_SOURCE: "the card does not answer"}})

    assert observed(asleep, not_examined, looked("0x1")).verdict(PORT) == Verdict(warnings=("port-error",))


def test_after_another_boot_the_registers_are_looked_at_anew():
    """The card has been reset; what it holds now is from before the first look again."""
    before = observed(looked(), looked("0x4"))
    assert before.verdict(PORT) == Verdict(reasons=("port-error",))

    after = Policy(3)
    after.restore(left_by(before), [PORT], at(2, "boot-2"))
    after.observe(looked("0x4"), at(3, "boot-2"))

    assert after.verdict(PORT) == Verdict(warnings=("port-error",))


@given(st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=12), st.integers(1, 12))
def test_a_device_is_unhealthy_exactly_since_a_bit_was_seen_to_come(looks, restart):
    """One that the register had not when it was last read with any; wherever the scanner is started again."""
    policy, last, is_new = Policy(100), None, False
    for second, look in enumerate(looks):
        if second == restart:
            policy, before = Policy(100), policy
            policy.restore(left_by(before), [PORT], at(second))
        mask = sum(1 << bit for bit in look)
        policy.observe(looked(hex(mask)) if mask else looked(), at(second))
        if mask:
            is_new |= bool(mask & ~last) if last is not None else second > 0
            last = mask

        assert reasons(policy) == (("port-error",) if is_new else ())


LEVELS = [MISSING, HOT, GONE, NARROW]
LOOKS = st.lists(st.dictionaries(st.sampled_from(["port", "other"]), st.sets(st.sampled_from(LEVELS))), max_size=30)


@given(st.integers(1, 4), LOOKS)
def test_a_finding_is_held_exactly_while_one_of_the_last_looks_found_it(recover_after, looks):
    """The definition of a level: held if and only if it was found in the last `recover_after` looks."""
    all_seen = [seen(**{name: list(found) for name, found in look.items()}) for look in looks]
    policy = Policy(recover_after)
    policy.use(recover_after, damps=False)
    observed(*all_seen, policy=policy)

    recent = looks[-recover_after:]
    for name, key in (("port", PORT), ("other", OTHER)):
        expected = set().union(*(look.get(name, set()) for look in recent))
        assert {held.finding for held in policy.held_against(key)} == expected


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.lists(st.floats(0.1, 400.0), min_size=20, max_size=20))
def test_an_event_is_held_exactly_until_it_was_quiet_for_its_time(rises, pauses):
    """Whatever the looks in between: the last rise decides, and no event is counted twice or lost."""
    policy, count, moment, last_rise = Policy(3), 0, 0.0, None
    policy.use(3, damps=False)
    for rise, pause in zip(rises, pauses, strict=False):
        moment += pause
        count += rise
        last_rise = moment if rise else last_rise
        policy.observe(seen(port=[fatal(count)] if count else []), at(moment))
        is_held = last_rise is not None and moment - last_rise < QUIET
        assert reasons(policy) == (("pci-aer",) if is_held else ())


@given(st.lists(st.sets(st.sampled_from([*LEVELS, fatal(1)])), min_size=2, max_size=12), st.integers(0, 10))
def test_a_restart_of_the_scanner_loses_nothing(looks, restart):
    """What was held is held, with the same beginning; at most a run of good looks begins anew."""
    straight, restarted = Policy(3), Policy(3)
    for second, look in enumerate(looks):
        if second == restart:
            before, restarted = restarted, Policy(3)
            restarted.restore(left_by(before), [PORT], at(second))
        for policy in (straight, restarted):
            policy.observe(seen(port=list(look)), at(second))

    firsts = {held.finding: held.first for held in straight.held_against(PORT)}
    known = {held.finding: held.first for held in restarted.held_against(PORT)}
    assert firsts.keys() <= known.keys()
    assert all(known[finding] <= first for finding, first in firsts.items())
