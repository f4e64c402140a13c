"""A program that condemns most devices at once is doubted for a minute; the kernel, the bus and NVML are not."""

from collections.abc import Iterator

import pytest
from health.meanings import SOURCE, finding, registered
from hypothesis import given
from hypothesis import strategies as some

from devherd._native import Device, Fact, Finding
from devherd.health.breaker import FEWEST, Cards
from devherd.health.held import Now, Seen
from devherd.health.policy import FINE, Earlier, Policy, Verdict
from devherd.health.verdicts import VerdictsFile
from devherd.inventory import Entry
from devherd.reasons.registry import MEANINGS, MONITORS, is_hearsay

GPUS = [("nvidia", f"0000:0{number}:00.0", f"GPU-{number}") for number in range(4)]
SICK, DOUBTED = Verdict(("level",)), Verdict((), ("level",))
FATAL = Finding(source="pci-aer-fatal", reason="pci-aer", file="/sys/aer_dev_fatal", count=1)


@pytest.fixture(autouse=True)
def _reasons() -> Iterator[None]:
    with registered():
        yield


def at(seconds: float) -> Now:
    return Now(1_000_000.0 + seconds, seconds, "boot-1")


def policy_of(devices: int = 4) -> Policy:
    policy = Policy(1)
    policy.restore(Earlier(), GPUS[:devices], at(0))
    return policy


def looked(policy: Policy, second: float, *sick: int, also=()) -> list[Verdict]:
    """The verdicts on all devices after a look that finds these sick."""
    seen = Seen({GPUS[number]: [finding("level")] for number in sick})
    for number, other in also:
        seen.add(GPUS[number], [other])
    policy.observe(seen, at(second))
    return [policy.verdict(gpu) for gpu in GPUS]


def test_more_than_half_at_once_is_a_warning_for_a_minute():
    """Then it counts: the node may really have lost its power supply."""
    policy = policy_of()

    assert looked(policy, 1, 0, 1, 2) == [DOUBTED, DOUBTED, DOUBTED, FINE]
    assert looked(policy, 60, 0, 1, 2) == [DOUBTED, DOUBTED, DOUBTED, FINE]
    assert looked(policy, 61, 0, 1, 2) == [SICK, SICK, SICK, FINE]
    assert looked(policy, 62) == [FINE] * 4


def test_also_one_after_the_other_within_ten_seconds():
    """The first ones become Healthy again, until the minute is over."""
    policy = policy_of()

    assert looked(policy, 1, 0)[0] == SICK
    assert looked(policy, 6, 0, 1)[:2] == [SICK, SICK]
    assert looked(policy, 10, 0, 1, 2)[:3] == [DOUBTED] * 3
    assert looked(policy, 30, 0, 1, 2, 3)[3] == DOUBTED
    assert looked(policy, 70, 0, 1, 2, 3) == [SICK] * 4


def test_half_of_them_and_two_devices_and_over_a_longer_time_are_believed():
    """Devices do fail."""
    assert looked(policy_of(), 1, 0, 1)[:2] == [SICK, SICK]
    assert looked(policy_of(2), 1, 0, 1)[:2] == [SICK, SICK]
    slow = policy_of()
    looked(slow, 1, 0)
    looked(slow, 6, 0, 1)
    assert looked(slow, 11, 0, 1, 2)[:3] == [SICK] * 3


def test_one_card_that_takes_all_its_partitions_with_it_is_believed():
    """On a node with this card alone they are most devices, and there is nothing to be doubted."""
    partitions = [("amd", "0000:0c:00.0", f"amdgpu_xcp_{number}") for number in range(8)]
    policy = Policy(1)
    policy.restore(Earlier(), partitions, at(0))
    policy.observe(Seen({partition: [finding("level")] for partition in partitions}), at(1))

    assert {policy.verdict(partition) for partition in partitions} == {SICK}


def entry(vendor: str, number: int, **attributes: str) -> Entry:
    """A device of the inventory that is a card of its own, as far as its key tells."""
    address = attributes["pci_address"]
    facts = {name: Fact("text", value, "/sys") for name, value in attributes.items()}
    return Entry(Device(vendor=vendor, card=address, id=f"device-{number}", facts=facts), "rdma/hca")


def functions_of(cards: int, functions: int, *, are_virtual: bool) -> list[list[Entry]]:
    """Cards with so many functions each: of one PCI device, or virtual ones on other buses."""

    def function(card: int, number: int) -> Entry:
        if are_virtual:
            place = {"pci_address": f"0000:{0x80 + card:02x}:00.{number}", "physfn": f"0000:{card:02x}:00.0"}
        else:
            place = {"pci_address": f"0000:{card:02x}:00.{number}"}
        return entry("rdma", 8 * card + number, **place)

    return [[function(card, number) for number in range(functions)] for card in range(cards)]


@given(
    cards=some.integers(1, 8),
    functions=some.integers(1, 8),
    are_virtual=some.booleans(),
    broken=some.data(),
)
def test_physical_cards_are_counted_whatever_is_made_of_them(cards, functions, are_virtual, broken):
    """More than half of them and three at least are doubted, and otherwise none; half a card is one that fails."""
    made = functions_of(cards, functions, are_virtual=are_virtual)
    sick = broken.draw(some.sets(some.integers(0, cards - 1)))
    failing = [one for card in sick for one in made[card][: broken.draw(some.integers(1, functions))]]
    known = {one.key: one for card in made for one in card}
    policy = Policy(1)
    policy.restore(Earlier(), known, at(0))
    policy.observe(Seen({one.key: [finding("level")] for one in failing}), at(1))

    is_doubted = len(sick) >= FEWEST and 2 * len(sick) > cards
    assert {policy.verdict(one.key) for one in failing} <= {DOUBTED if is_doubted else SICK}
    assert Cards(known).count == cards


def test_a_physical_card_that_fails_with_all_its_virtual_functions_is_believed():
    """On a node with two of them: nine devices of ten are one card."""
    (one, other) = functions_of(2, 8, are_virtual=True)
    policy = Policy(1)
    policy.restore(Earlier(), {each.key: each for each in [*one, other[0]]}, at(0))
    policy.observe(Seen({each.key: [finding("level")] for each in one}), at(1))

    assert {policy.verdict(each.key) for each in one} == {SICK}


def test_what_another_source_agrees_on_counts():
    """For that device alone."""
    verdicts = looked(policy_of(), 1, 0, 1, 2, also=[(1, FATAL)])

    assert verdicts[:3] == [DOUBTED, Verdict(("level", "pci-aer")), DOUBTED]


SEEN_BY_THE_KERNEL = [
    Finding(source="kernel-log", reason="xid", file="/dev/kmsg", value="79"),
    Finding(source="kernel-log", reason="gpu-lost", file="/dev/kmsg", value="nvidia-fallen-off-the-bus"),
    Finding(source="nvml", reason="gpu-lost", file="libnvidia-ml.so.1", value="15"),
    Finding(source="nvml", reason="recovery-action", file="libnvidia-ml.so.1", value="1"),
    Finding(source="pci-recovery", reason="pci-recovery", file="/sys/port", value="FAILED_RECOVERY"),
    Finding(source="wedged", reason="wedged", file="/sys/card", value="rebind"),
    Finding(source="pci-config", reason="off-bus", file="/sys/config", value="ffffffff"),
    FATAL,
    Finding(source="node", reason="node-missing", file="/dev/x", value="absent"),
]


@pytest.mark.parametrize("said", SEEN_BY_THE_KERNEL, ids=lambda one: f"{one.source}: {one.reason}")
def test_what_the_kernel_the_bus_or_nvml_says_of_all_devices_counts_at_once(said):
    """A switch that fails takes all GPUs below it: none of them may be given to a pod, not even for a minute."""
    policy, seen = policy_of(), Seen()
    for gpu in GPUS:
        if MEANINGS[said.source, said.reason].is_event and not said.count:
            seen.happened(gpu, said, 1.0)
        else:
            seen.add(gpu, [said])
    policy.observe(seen, at(1))

    assert {policy.verdict(gpu) for gpu in GPUS} == {Verdict((said.reason,))}


def test_exporters_programs_and_texts_of_firmware_are_doubted_and_no_other_source():
    """Of every source that is registered."""
    hearsay = {source for source, _ in MEANINGS if is_hearsay(source)}

    assert hearsay == {*MONITORS, "amd-bad-pages", "xe-health", "xe-health-warning"}
    assert is_hearsay("external-checks")


def test_a_restart_of_the_scanner_does_not_begin_the_minute_anew(tmp_path):
    """Nor end it."""
    before = policy_of()
    looked(before, 1, 0, 1, 2)
    VerdictsFile(tmp_path / "verdicts.pb").write(before, at(20))
    after = Policy(1)
    after.restore(VerdictsFile(tmp_path / "verdicts.pb").read(), GPUS, at(30))

    assert after.verdict(GPUS[0]) == DOUBTED
    assert looked(after, 31, 0, 1, 2)[:3] == [DOUBTED] * 3
    assert looked(after, 61, 0, 1, 2)[:3] == [SICK] * 3


def test_where_the_configuration_says_so_nothing_is_doubted():
    """`health.breaker: off`, also for what is doubted already."""
    policy, without = policy_of(), policy_of()
    without.use(1, has_breaker=False)
    looked(policy, 1, 0, 1, 2)
    policy.use(1, has_breaker=False)

    assert looked(without, 1, 0, 1, 2)[:3] == [SICK] * 3
    assert policy.verdict(GPUS[0]) == SICK


def test_a_source_that_condemns_all_and_dies_is_doubted_until_it_looks_again():
    """What it said last becomes no truer by its silence."""
    policy = policy_of()
    looked(policy, 1, 0, 1, 2)
    policy.observe(Seen(failed={SOURCE: "it hangs"}), at(600))
    blind = policy.verdict(GPUS[0])

    assert (blind, looked(policy, 601, 0, 1, 2)[0]) == (DOUBTED, SICK)
