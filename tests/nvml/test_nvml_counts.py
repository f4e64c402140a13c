"""What NVML counts: storms of corrected errors, NVLinks that are lost, and the numbers that metrics show."""

import pytest
from hypothesis import given
from hypothesis import strategies as some
from nvml_readings import FINE, NOTHING

from devherd.health.held import Now
from devherd.reasons.registry import MEANINGS
from devherd.sources.nvml.findings import MOST_CORRECTED_ERRORS, Health, is_blind

GPU = "0000:3b:00.0"
OTHER = "0000:5e:00.0"


def reading(gpu=GPU, **values):
    """A look at a well GPU, but for this."""
    return {"pci_address": gpu, **FINE, **values}


def looked(*looks, health=None):
    """After looks at a GPU, half a minute apart."""
    health = health or Health()
    for number, values in enumerate(looks):
        health.take_readings([reading(**values)], 30.0 * number)
    return health


def message_of(health):
    """The findings file's content."""
    return health.message(Now(5000.0, 100.0, "boot"))


def found(health):
    """Reasons and values, with the counts of events."""
    return [(one.reason, one.value, one.count) for one in message_of(health).findings]


@pytest.mark.parametrize("counter", ["corrected_errors", "lifetime_corrected_errors"])
def test_more_than_sixty_corrected_errors_within_a_minute_are_a_storm(counter):
    """By the counter of the driver or that of the board, also over two looks; each look in it is one more event."""
    assert found(looked({counter: 1000}, {counter: 1060})) == []
    assert found(looked({counter: 1000}, {counter: 1061})) == [("ecc-storm", "rate", 1)]
    assert found(looked({counter: 1000}, {counter: 1040}, {counter: 1080})) == [("ecc-storm", "rate", 1)]
    assert found(looked({counter: 0}, {counter: 99}, {counter: 199})) == [("ecc-storm", "rate", 2)]
    assert ("nvml", "ecc-storm") in MEANINGS


def test_errors_from_before_the_first_look_and_slow_ones_are_no_storm():
    """A board may have millions of its life; a counter that falls begins anew."""
    assert found(looked({"lifetime_corrected_errors": 10**9})) == []
    assert found(looked(*({"corrected_errors": 29 * number} for number in range(20)))) == []
    assert found(looked({"corrected_errors": 5000}, {"corrected_errors": 0}, {"corrected_errors": 60})) == []


def test_a_storm_that_nvml_tells_of_is_one():
    """By an event of its own, of GPUs that have it."""
    health = looked({})
    storm = {"pci_address": GPU, "kind": 0x200, "data": 0, "gpu_instance": None, "compute_instance": None}
    health.take_events([storm, storm], 9.0)
    assert found(health) == [("ecc-storm", "storm", 2)]


def test_a_poison_error_that_is_not_fatal_is_a_warning_and_one_that_is_says_nothing_by_itself():
    """What a fatal one needs is the driver's recovery action."""
    health = looked({})
    poison = {"pci_address": GPU, "kind": 0x1000, "data": 0, "gpu_instance": None, "compute_instance": None}
    health.take_events([poison, poison | {"kind": 0x2000}, poison], 9.0)
    assert found(health) == [("memory-poison", "", 2)]
    assert MEANINGS["nvml", "memory-poison"].action == "warn"


@given(some.lists(some.integers(0, 200), min_size=1, max_size=20))
def test_a_storm_is_told_where_one_minute_had_more_errors_than_there_may_be_and_nowhere_else(steps):
    """Looks are half a minute apart: two steps are a minute."""
    totals = [sum(steps[: number + 1]) for number in range(len(steps))]
    health = looked(*({"corrected_errors": total} for total in totals))
    rises = [totals[number] - totals[max(0, number - 2)] for number in range(len(totals))]
    storms = sum(rise > MOST_CORRECTED_ERRORS for rise in rises)
    assert found(health) == ([("ecc-storm", "rate", storms)] if storms else [])


def test_an_nvlink_that_was_up_and_is_down_is_a_warning_until_it_is_up_again():
    """Links of a card without a bridge were never up: NVIDIA lists them all the same."""
    never = {"0": False, "1": False}
    assert found(looked({"links": never}, {"links": never})) == []
    lost = looked({"links": {"0": True, "1": True, "2": False}}, {"links": {"0": True, "1": False, "2": False}})
    assert found(lost) == [("nvlink-down", "1", 0)]
    assert found(looked({"links": {"0": True, "1": True}}, health=lost)) == []


def test_nvlinks_are_forgotten_when_mig_mode_changes():
    """Defect: the driver shuts links down in MIG mode, and the warning stayed until the next boot."""
    up, down = {"0": True, "1": True}, {"0": False, "1": False}
    health = looked({"links": up, "mig_mode": False}, {"links": down, "mig_mode": True})
    assert found(health) == []
    health = Health(message_of(health))
    assert found(looked({"links": up, "mig_mode": False}, {"links": down, "mig_mode": None}, health=health)) == [
        ("nvlink-down", "0, 1", 0)
    ]


def test_which_nvlinks_were_up_in_this_boot_outlives_the_process():
    """A link that is lost while nobody looks is lost all the same."""
    first = looked({"links": {"0": True, "1": True, "11": True}})
    second = Health(message_of(first))
    second.take_readings([reading(links={"0": True, "1": False, "11": False})], 40.0)
    assert found(second) == [("nvlink-down", "1, 11", 0)]


def test_an_nvlink_that_could_not_be_recovered_is_an_event():
    """As often as looks find more of them; what was counted before the first look is not."""
    errors = [{"link_errors": {"recovery-failed": number}} for number in (4, 4, 5, 7, 0, 1)]
    assert found(looked(*errors)) == [("nvlink-errors", "recovery-failed", 3)]


def test_events_are_gone_on_with_by_another_process():
    """The next is a new one; what stood before it is no event."""
    first = looked({"corrected_errors": 0}, {"corrected_errors": 100, "links": {"0": True}})
    second = Health(message_of(first))
    assert found(second) == found(first) == [("nvlink-down", "1", 0), ("ecc-storm", "rate", 1)][1:]
    looked({"corrected_errors": 0}, {"corrected_errors": 100}, health=second)
    assert found(second) == [("ecc-storm", "rate", 2)]


def test_numbers_are_told_by_name_and_kind():
    """Of each GPU those that its driver has, as of the last look; not of one that the driver has no more."""
    health = looked({"links": {"0": True, "1": False}})
    health.take_readings([{"pci_address": OTHER, **NOTHING, "pcie_replays": 1}], 40.0)
    numbers = {(one.pci_address, one.name, one.kind): one.number for one in message_of(health).counts}
    assert numbers == {
        (GPU, "ecc-errors", "corrected"): 70,
        (GPU, "ecc-errors", "uncorrected"): 2,
        (GPU, "remapped-rows", "corrected"): 3,
        (GPU, "remapped-rows", "uncorrected"): 1,
        (GPU, "inactive-remapped-rows", "corrected"): 1,
        (GPU, "inactive-remapped-rows", "uncorrected"): 0,
        (GPU, "retired-pages", ""): 62,
        (GPU, "pcie-replays", ""): 5,
        (GPU, "nvlinks", "up"): 1,
        (GPU, "nvlinks", "down"): 1,
        (GPU, "nvlink-errors", "crc"): 4,
        (GPU, "nvlink-errors", "recovery-failed"): 0,
        (OTHER, "pcie-replays", ""): 1,
    } | {
        (GPU, "clocks-lowered", kind): kind in {"hardware", "heat", "power-cap"}
        for kind in ("hardware", "hardware-heat", "heat", "power-brake", "power-cap", "sync-boost")
    }
    health.forget_all_but([OTHER])
    assert {one.pci_address for one in message_of(health).counts} == {OTHER}


def test_why_clocks_are_lowered_is_told_but_not_that_the_gpu_is_idle():
    """Each kind by itself, as of the last look."""
    for reasons, expected in ((0x1, set()), (0x1 | 0x4 | 0x8 | 0x40, {"power-cap", "hardware", "hardware-heat"})):
        counts = message_of(looked({"clock_reasons": reasons})).counts
        assert {one.kind for one in counts if one.name == "clocks-lowered" and one.number} == expected


def test_a_gpu_that_could_not_be_looked_at_keeps_its_numbers():
    """And has not lost its NVLinks."""
    health = looked({})
    before = list(message_of(health).counts)
    failure = {"function": "nvmlDeviceGetFieldValues", "code": 999, "meaning": "Unknown Error"}
    blind = {"pci_address": GPU, **NOTHING, "failures": [failure]}
    health.take_readings([blind], 40.0)
    assert is_blind(blind)
    assert (list(message_of(health).counts), found(health)) == (before, [])


def test_a_look_that_could_not_read_a_counter_is_no_new_beginning():
    """As while a GPU is lost: what it counts afterwards is no rise from zero."""
    nothing = dict.fromkeys(("corrected_errors", "lifetime_corrected_errors"))
    assert found(looked({}, nothing, {})) == []
    missing = [{"link_errors": errors} for errors in ({"recovery-failed": 9}, {}, {"recovery-failed": 9})]
    assert found(looked(*missing)) == []
