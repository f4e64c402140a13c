"""Which free devices a container had best be given."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from devherd.plugin.preferred import preferred

NODE_SETS = st.frozensets(st.integers(0, 3), max_size=2)
SINGLE_NODES = st.integers(0, 3).map(lambda node: frozenset([node]))


@st.composite
def questions(draw, nodes=NODE_SETS):
    """(available, required, size, healthy): the kubelet's list may hold ids that are unknown or unhealthy by now."""
    healthy = {f"d{number}": draw(nodes) for number in range(draw(st.integers(0, 8)))}
    known = sorted(healthy)
    available = draw(st.lists(st.sampled_from([*known, "old1", "old2"]), unique=True))
    required = draw(st.lists(st.sampled_from(available), unique=True)) if available else []
    return available, required, draw(st.integers(0, 12)), healthy


def covered(ids, healthy):
    """The NUMA nodes that a set of devices touches."""
    return frozenset().union(*(healthy.get(device_id, frozenset()) for device_id in ids))


@given(questions())
def test_the_answer_has_the_exact_size_and_the_required_ids(question):
    """An answer that is short is filled up at random by the kubelet; one without the required ids is useless."""
    available, required, size, healthy = question
    chosen = preferred(available, required, size, healthy)
    assert len(chosen) == len(set(chosen))
    assert set(chosen) <= set(available)
    if size == 0:
        assert chosen == []
    else:
        assert len(chosen) == max(len(required), min(size, len(available)))
        assert set(required) <= set(chosen)


@given(questions(), st.randoms())
def test_the_same_question_has_the_same_answer_in_whatever_order_it_is_asked(question, chance):
    """The kubelet's lists have no order."""
    available, required, size, healthy = question
    shuffled = list(available)
    chance.shuffle(shuffled)
    assert preferred(available, required, size, healthy) == preferred(shuffled, required, size, healthy)


@given(questions(nodes=SINGLE_NODES))
def test_no_other_choice_touches_fewer_numa_nodes(question):
    """Checked against every possible choice, for devices that sit on one node each."""
    available, required, size, healthy = question
    known = [device_id for device_id in available if device_id in healthy]
    required = [device_id for device_id in required if device_id in healthy]
    size = min(size, len(known))
    chosen = preferred(known, required, size, healthy)
    if size <= len(required):
        return
    others = [device_id for device_id in known if device_id not in required]
    choices = combinations(others, size - len(required))
    fewest = min(len(covered([*required, *choice], healthy)) for choice in choices)
    assert len(covered(chosen, healthy)) == fewest


@given(questions())
def test_what_is_unknown_or_unhealthy_is_taken_only_when_nothing_else_is_left(question):
    """A device that has failed since the kubelet's list would be refused by Allocate."""
    available, required, size, healthy = question
    chosen = preferred(available, required, size, healthy)
    doubtful = set(chosen) - healthy.keys() - set(required)
    if doubtful:
        assert set(available) & healthy.keys() <= set(chosen)


def test_the_smallest_numa_node_that_suffices_is_taken():
    """The large one stays whole for a request that needs it."""
    healthy = {f"a{n}": frozenset([0]) for n in range(4)} | {f"b{n}": frozenset([1]) for n in range(2)}
    assert preferred(list(healthy), [], 2, healthy) == ["b0", "b1"]
    assert preferred(list(healthy), [], 3, healthy) == ["a0", "a1", "a2"]
    assert preferred(list(healthy), ["a3"], 2, healthy) == ["a3", "a0"]


def test_without_topology_the_natural_order_decides():
    """Device 2 comes before device 10."""
    healthy = {device_id: frozenset() for device_id in ("gpu1", "gpu2", "gpu10")}
    assert preferred(["gpu10", "gpu2", "gpu1"], [], 2, healthy) == ["gpu1", "gpu2"]
