"""Which free devices a container had best be given: the way of a resource into the scan core, and what comes back.

How the choice is made is tested beside the code, in rust/tests/allocation.
"""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd._native import Preference
from devherd.device_plugin.snapshot import Snapshot, preference
from devherd.proto import spool_pb2
from devherd.spool import listed

NODE_SETS = st.frozensets(st.integers(0, 3), max_size=2)
SINGLE_NODES = st.integers(0, 3).map(lambda node: frozenset([node]))
PREFERENCES = st.sampled_from(spool_pb2.Preference.values())


def resource(numa_nodes, kind=spool_pb2.PACKED, unhealthy=()):
    """A resource with these devices, by id; each is a card of its own."""
    devices = [
        spool_pb2.ListedDevice(
            id=device_id,
            card=device_id,
            numa_nodes=sorted(nodes),
            reasons=["gone"] if device_id in unhealthy else [],
        )
        for device_id, nodes in numa_nodes.items()
    ]
    return spool_pb2.Resource(name="example.com/gpu", devices=devices, preferred=kind)


@st.composite
def questions(draw, nodes=NODE_SETS):
    """(available, required, size, NUMA nodes): the kubelet's list may hold ids that are unknown by now."""
    numa_nodes = {f"d{number}": draw(nodes) for number in range(draw(st.integers(0, 8)))}
    known = sorted(numa_nodes)
    available = draw(st.lists(st.sampled_from([*known, "old1", "old2"]), unique=True))
    required = draw(st.lists(st.sampled_from(available), unique=True)) if available else []
    return available, required, draw(st.integers(0, 12)), numa_nodes


def covered(ids, numa_nodes):
    """The NUMA nodes that a set of devices touches."""
    return frozenset().union(*(numa_nodes.get(device_id, frozenset()) for device_id in ids))


@given(questions(), PREFERENCES)
def test_the_answer_has_the_exact_size_and_the_required_ids(question, kind):
    """An answer that is short is filled up at random by the kubelet; one without the required ids is useless."""
    available, required, size, numa_nodes = question
    chosen = preference(resource(numa_nodes, kind)).choose(available, required, size)
    assert len(chosen) == len(set(chosen))
    assert set(chosen) <= set(available)
    if size == 0:
        assert chosen == []
    else:
        assert len(chosen) == max(len(required), min(size, len(available)))
        assert set(required) <= set(chosen)


@given(questions(), PREFERENCES, st.randoms())
def test_the_same_question_has_the_same_answer_in_whatever_order_it_is_asked(question, kind, chance):
    """The kubelet's lists have no order."""
    available, required, size, numa_nodes = question
    asked = preference(resource(numa_nodes, kind))
    answers = []
    for _ in range(2):
        answers.append(asked.choose(available, required, size))
        chance.shuffle(available)
        chance.shuffle(required)
    assert answers[0] == answers[1]


@given(questions(nodes=SINGLE_NODES))
def test_no_other_choice_touches_fewer_numa_nodes(question):
    """Checked against every possible choice, for devices that sit on one node each."""
    available, required, size, numa_nodes = question
    known = [device_id for device_id in available if device_id in numa_nodes]
    required = [device_id for device_id in required if device_id in numa_nodes]
    size = min(size, len(known))
    chosen = preference(resource(numa_nodes)).choose(known, required, size)
    if size <= len(required):
        return
    others = [device_id for device_id in known if device_id not in required]
    choices = combinations(others, size - len(required))
    fewest = min(len(covered([*required, *choice], numa_nodes)) for choice in choices)
    assert len(covered(chosen, numa_nodes)) == fewest


@given(questions(), PREFERENCES, st.data())
def test_what_is_unknown_or_unhealthy_is_taken_only_when_nothing_else_is_left(question, kind, data):
    """A device that has failed since the kubelet's list would be refused by Allocate."""
    available, required, size, numa_nodes = question
    unhealthy = data.draw(st.sets(st.sampled_from(sorted(numa_nodes)))) if numa_nodes else set()
    chosen = preference(resource(numa_nodes, kind, unhealthy)).choose(available, required, size)
    healthy = numa_nodes.keys() - unhealthy
    if set(chosen) - healthy - set(required):
        assert set(available) & healthy <= set(chosen)


def test_the_smallest_numa_node_that_suffices_is_taken():
    """The large one stays whole for a request that needs it."""
    numa_nodes = {f"a{n}": [0] for n in range(4)} | {f"b{n}": [1] for n in range(2)}
    packed = preference(resource(numa_nodes))
    assert packed.choose(list(numa_nodes), [], 2) == ["b0", "b1"]
    assert packed.choose(list(numa_nodes), [], 3) == ["a0", "a1", "a2"]
    assert packed.choose(list(numa_nodes), ["a3"], 2) == ["a3", "a0"]


def test_a_device_whose_numa_node_is_unknown_is_chosen_last():
    """Others D5: it made the choice blind to the nodes of all."""
    packed = preference(resource({"a": [], "b": [0], "c": [1], "d": [1]}))
    assert packed.choose(["a", "b", "c", "d"], [], 2) == ["c", "d"]
    assert packed.choose(["a", "b", "c", "d"], ["b"], 2) == ["b", "c"]


def test_without_topology_the_natural_order_decides():
    """Device 2 comes before device 10."""
    packed = preference(resource(dict.fromkeys(("gpu1", "gpu2", "gpu10"), ())))
    assert packed.choose(["gpu10", "gpu2", "gpu1"], [], 2) == ["gpu1", "gpu2"]


def shared(kind):
    """Two cards of two devices with two replicas each; both know how close they are."""
    distances = {"card a": 30, "card b": 10}
    devices = [
        spool_pb2.ListedDevice(id=f"{card}{part}", replicas=2, card=f"card {card}", distances=distances)
        for card in "ab"
        for part in range(2)
    ]
    return spool_pb2.Resource(devices=devices, preferred=kind)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (spool_pb2.PACKED, ["a0::0", "a0::1"]),
        (spool_pb2.NONE, ["a0::0", "a0::1"]),
        (spool_pb2.DISTRIBUTED, ["a0::0", "b0::0"]),
        (spool_pb2.ALIGNED, ["b0::0", "b0::1"]),
    ],
)
def test_the_resources_preference_decides(kind, expected):
    """Few cards, many cards, or those that are close; a kubelet that asks unasked gets an answer as well."""
    told = shared(kind)
    ids = [device_id for device_id, _ in listed(told)]
    assert preference(told).choose(ids, [], 2) == expected


def test_the_topology_is_made_once_per_snapshot():
    """NVIDIA N3: the vendor's plugin reads it anew for every request."""
    snapshot = Snapshot(shared(spool_pb2.ALIGNED))
    assert snapshot.preference is snapshot.preference


def test_an_unknown_kind_is_refused():
    """The words are the configuration's."""
    with pytest.raises(ValueError, match='unknown preference "none"'):
        Preference("none", [])
