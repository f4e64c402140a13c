"""The plan of writes: one round of it makes the server have what is wanted, whatever is there; the next is empty."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as some
from publishing import NODE
from slice_store import SliceStore, without_empties

from devherd.dra.slice_plan import content_of, dropped, normal, plan_slices
from devherd.dra.values import number_in
from devherd.kubernetes.driver_slices import with_name

DRIVER = "gpu.example.com"


def device(name, taints=(), **capacity):
    made = {"name": name, "attributes": {"type": {"string": "gpu"}, "empty": {}}, "taints": []}
    made["capacity"] = {key: {"value": value} for key, value in capacity.items()}
    made["taints"] = [{"key": f"devherd.io/{key}", "effect": "NoSchedule"} for key in taints]
    return made


def slices(*parts, driver=DRIVER, uid="node-uid", pool=NODE):
    """The slices with these devices."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid, "controller": True}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"generateName": f"{index:05x}-{driver}-{NODE}-", "ownerReferences": [owner]},
            "spec": {
                "driver": driver,
                "nodeName": NODE,
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": len(parts)},
                "devices": list(part),
            },
        }
        for index, part in enumerate(parts)
    ]


def bring(store, wanted, stored=None, most=None):
    """Carry out a plan as the publisher does, or its first writes; returns the number of writes."""
    stored = {} if stored is None else stored
    plan = plan_slices(wanted, store.of(DRIVER), stored)
    writes = [*((None, each) for each in plan.deletes), *plan.updates, *plan.creates][:most]
    for index, each in writes:
        metadata = each["metadata"]
        if index is None:
            preconditions = {key: metadata[key] for key in ("uid", "resourceVersion")}
            assert store.delete(metadata["name"], preconditions)[0] == 200
            continue
        sent = each if "name" in metadata else with_name(each)
        done = store.replace(metadata["name"], sent, "devherd") if sent is each else store.create(sent, "devherd")
        assert done[0] in (200, 201), done
        stored[index] = content_of(sent), content_of(done[1])
    return len(writes)


def is_whole(store, wanted):
    """Whether a scheduler uses the pool, and finds in it what is wanted."""
    there = store.of(DRIVER)
    assert len({each["spec"]["pool"]["generation"] for each in there}) <= 1
    assert {each["spec"]["pool"]["resourceSliceCount"] for each in there} <= {len(there)}
    assert [content_of(each)["pool"] for each in there] == [content_of(each)["pool"] for each in wanted]
    found = [names_of(each) for each in there]
    return found == [names_of(each) for each in wanted]


def names_of(slice_):
    taints = {
        one["name"]: [taint["key"] for taint in one.get("taints", ())] for one in slice_["spec"].get("devices", ())
    }
    return list(taints), taints, [each["uid"] for each in slice_["metadata"]["ownerReferences"]]


CAPACITY = some.sampled_from(["1000", "1k", "80Gi", "85899345920", "0", "1000000", "1500m"])
DEVICES = some.lists(
    some.builds(
        lambda name, taints, memory: device(f"gpu-{name}", taints, memory=memory),
        some.integers(0, 9),
        some.lists(some.sampled_from(["gone", "xid", "cordoned"]), unique=True, max_size=2).map(sorted),
        CAPACITY,
    ),
    unique_by=lambda made: made["name"],
    max_size=4,
)
WANTED = some.lists(DEVICES, max_size=4).map(
    lambda parts: [[{**one, "name": f"{one['name']}-{number}"} for one in part] for number, part in enumerate(parts)]
)


def wipe(store, names):
    for name in names[:1]:
        store.delete(name)


def wipe_all(store, names):
    for name in names:
        store.delete(name)


def empty(store, names):
    for name in names[:1]:
        store.change(name, lambda slice_: slice_["spec"].pop("devices", None))


def another_generation(store, names):
    for name in names[-1:]:
        store.change(name, lambda slice_: slice_["spec"]["pool"].update(generation=7))


def the_last_generation(store, names):
    for name in names[:1]:
        store.change(name, lambda slice_: slice_["spec"]["pool"].update(generation=2**63 - 1))


def another_count(store, names):
    for name in names[:2]:
        store.change(name, lambda slice_: slice_["spec"]["pool"].update(resourceSliceCount=9))


def twice(store, names):
    for name in names[:1]:
        made = copy.deepcopy(store.slices[name])
        made["metadata"] = {"name": f"{name}-twice"}
        store.create(made)


def another_name(store, _names):
    [made] = slices([device("foreign")])
    store.create({**made, "metadata": {"name": "a-name"}})


def another_pool(store, _names):
    [made] = slices([device("foreign")], pool="another-pool")
    store.create(with_name(made))


def too_many(store, _names):
    made = slices(*[[device("foreign")]] * 30)[-1]
    store.create(with_name(made))


def no_owner(store, names):
    for name in names[:3]:
        store.change(name, lambda slice_: slice_["metadata"].pop("ownerReferences", None))


def a_label(store, names):
    for name in names[:1]:
        store.change(name, lambda slice_: slice_["metadata"].update(labels={"a": "b"}))


DEEDS = [
    wipe, wipe_all, empty, another_generation, the_last_generation, another_count,
    twice, another_name, another_pool, too_many, no_owner, a_label,
]  # fmt: skip


@given(
    some.lists(some.tuples(WANTED, some.lists(some.sampled_from(DEEDS), max_size=3)), min_size=1, max_size=4),
    some.sets(some.sampled_from(["taints", "capacity", "requestPolicy"])),
)
def test_one_round_makes_the_server_have_what_is_wanted_and_the_next_is_empty(steps, unknown):
    """Whatever others have made of it, and whatever the server drops. The slices of other drivers are left alone."""
    store, stored = SliceStore(*unknown), {}
    store.create(with_name(slices([device("other")], driver="other.example.com")[0]))
    other = store.of("other.example.com")
    for parts, deeds in steps:
        for deed in deeds:
            deed(store, sorted(each["metadata"]["name"] for each in store.of(DRIVER)))
        wanted = slices(*parts)
        bring(store, wanted, stored)
        assert bring(store, wanted, stored) == 0
        if "taints" not in unknown:
            assert is_whole(store, wanted)
    assert store.of("other.example.com") == other


@given(WANTED, some.data())
def test_a_change_of_one_device_is_one_write(parts, data):
    """Within its generation: the pool is whole at each moment."""
    places = [(number, place) for number, part in enumerate(parts) for place in range(len(part))]
    if not places:
        return
    store, stored = SliceStore(), {}
    bring(store, slices(*parts), stored)
    number, place = data.draw(some.sampled_from(places))
    parts[number][place] = device(parts[number][place]["name"], ["wedged"], memory="5")
    assert bring(store, slices(*parts), stored) == 1
    assert {each["spec"]["pool"]["generation"] for each in store.of(DRIVER)} == {1}


def test_several_changes_make_the_next_generation():
    """Else a scheduler could see a half of them."""
    store = SliceStore()
    bring(store, slices([device("a")], [device("b")]))
    bring(store, slices([device("a", ["xid"])], [device("b", ["xid"])]))
    assert [each["spec"]["pool"]["generation"] for each in store.of(DRIVER)] == [2, 2]
    bring(store, slices([device("a", ["xid"])], [device("b", ["xid"])], [device("c")]))
    assert [each["spec"]["pool"]["generation"] for each in store.of(DRIVER)] == [3, 3, 3]
    assert is_whole(store, slices([device("a", ["xid"])], [device("b", ["xid"])], [device("c")]))


@given(
    some.lists(some.integers(1, 5), min_size=1, max_size=3),
    some.lists(some.lists(some.sampled_from(DEEDS), max_size=2), min_size=3, max_size=3),
    some.integers(1, 3),
)
def test_a_limit_of_writes_begins_no_generation_anew(counts, deeds, most):
    """Of a pool with more slices than the limit allows at once, the first would be written again and again."""
    store = SliceStore()
    for number, count in enumerate(counts):
        for deed in deeds[number]:
            deed(store, sorted(each["metadata"]["name"] for each in store.of(DRIVER)))
        wanted = slices(*([device(f"gpu-{part}", [f"round-{number}"])] for part in range(count)))
        there = len(store.of(DRIVER))
        writes = 0
        while done := bring(store, wanted, most=most):
            writes += done
            assert writes <= there + count
        assert is_whole(store, wanted)


@given(some.integers(2, 5), some.integers(0, 5), some.integers(1, 5), some.integers(1, 5))
def test_a_scheduler_sees_all_of_several_changes_or_none(before, wiped, after, first):
    """Whenever the writes are interrupted, and though others are wanted then."""
    store = SliceStore()
    bring(store, slices(*([device(f"gpu-{part}", ["first"])] for part in range(before))))
    wipe_all(store, sorted(store.slices)[:wiped])
    states = [slices(*([device(f"gpu-{part}", [word])] for part in range(after))) for word in ("second", "third")]
    for wanted, steps in zip(states, (first, 20), strict=True):
        for _ in range(steps):
            bring(store, wanted, most=1)
            assert len(words_of_a_whole_pool(store)) <= 1
    assert is_whole(store, states[1])


def words_of_a_whole_pool(store):
    """The taints of the devices that a scheduler uses."""
    there = store.of(DRIVER)
    highest = max((each["spec"]["pool"]["generation"] for each in there), default=0)
    used = [each for each in there if each["spec"]["pool"]["generation"] == highest]
    if any(each["spec"]["pool"]["resourceSliceCount"] != len(used) for each in used):
        return set()
    return {taint["key"] for each in used for one in each["spec"]["devices"] for taint in one["taints"]}


def test_a_taint_that_stays_keeps_when_it_came():
    """Evictions count from then; one with another effect is another."""
    store = SliceStore()
    bring(store, slices([device("a", ["xid"]), device("b")]))

    def times():
        return {one["name"]: one.get("taints") for one in store.of(DRIVER)[0]["spec"]["devices"]}

    first = times()["a"]
    store.version += 10
    bring(store, slices([device("b", ["gone"]), device("a", ["cordoned", "xid"])]))
    assert times()["a"][1] == first[0]
    assert times()["a"][0]["timeAdded"] != first[0]["timeAdded"]
    made = slices([device("a", ["xid"])])
    made[0]["spec"]["devices"][0]["taints"][0]["effect"] = "NoExecute"
    store.version += 10
    bring(store, made)
    assert times()["a"][0]["timeAdded"] != first[0]["timeAdded"]


def test_slices_of_a_driver_that_is_no_more_are_removed():
    """All of its devices have gone, and no rule offers others. One without devices stays: it says that it runs."""
    store = SliceStore()
    bring(store, slices([device("a")], [device("b")]))
    bring(store, slices([]))
    assert [each["spec"].get("devices") for each in store.of(DRIVER)] == [None]
    bring(store, [])
    assert store.of(DRIVER) == []


def test_slices_of_a_node_that_was_made_anew_get_its_uid():
    """The garbage collector would remove them; the pool is whole all the time."""
    store = SliceStore()
    bring(store, slices([device("a")], [device("b")]))
    assert bring(store, slices([device("a")], [device("b")], uid="another")) == 2
    assert is_whole(store, slices([device("a")], [device("b")], uid="another"))
    assert [each["spec"]["pool"]["generation"] for each in store.of(DRIVER)] == [1, 1]


def test_a_slice_that_is_being_removed_is_left_to_its_end():
    """A finalizer of somebody holds it: it is neither changed nor removed again, and its index is made anew."""
    store = SliceStore()
    bring(store, slices([device("a")]))
    [name] = store.slices
    store.slices[name]["metadata"]["deletionTimestamp"] = "2026-11-28T00:00:00Z"
    assert bring(store, slices([device("a")])) == 1
    assert bring(store, slices([device("a")])) == 0
    assert sorted(each["spec"]["pool"]["generation"] for each in store.slices.values()) == [1, 2]


def test_what_a_server_adds_by_itself_is_no_difference():
    """A field of a newer release; its loss is one."""
    store, stored = SliceStore(), {}
    kept = store._kept
    store._kept = lambda spec: {**kept(spec), "skipNodeOperations": ["none"]}
    bring(store, slices([device("a")]), stored)
    assert bring(store, slices([device("a")]), stored) == 0
    [name] = store.slices
    store.slices[name]["spec"]["skipNodeOperations"] = ["*"]
    assert bring(store, slices([device("a")]), stored) == 1


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        ("1000", 1000), ("1k", 1000), ("1Ki", 1024), ("80Gi", 80 * 2**30), ("0.5", 0.5), (".5", 0.5), ("1.", 1),
        ("1500m", 1.5), ("1e3", 1000), ("1E3", 1000), ("1E", 10**18), ("5E-1", 0.5), ("-3", -3), ("+3M", 3 * 10**6),
        ("", None), ("x", None), ("1e999", None), ("1kk", None), ("1 k", None), ("٣", None), ("9" * 50, None),
    ],
)  # fmt: skip
def test_quantities_are_equal_by_value(quantity, number):
    """As Kubernetes writes them."""
    assert number_in(quantity) == number


def test_texts_are_no_quantities_but_below_capacities():
    """An attribute `1000` is not `1k`, nor is a taint's value."""
    spec = {
        "attributes": {"value": {"string": "1000"}},
        "taints": [{"value": "1000"}],
        "capacity": {"a": {"value": "1k"}},
    }
    assert normal(spec) == {**spec, "capacity": {"a": {"value": 1000}}}


def test_dropped_fields_are_named_at_any_depth():
    """Empty ones are not: they are never stored."""
    [sent] = slices([device("a", ["xid"], memory="1"), device("b")])
    sent["spec"]["devices"][0]["capacity"]["memory"]["requestPolicy"] = {"default": "1"}
    answer = without_empties(sent)
    assert dropped(sent["spec"], answer["spec"]) == set()
    answer["spec"]["devices"][0].pop("taints")
    answer["spec"]["devices"][0]["capacity"]["memory"].pop("requestPolicy")
    assert dropped(sent["spec"], answer["spec"]) == {"taints", "requestPolicy"}
    assert dropped(sent["spec"], None) == {"devices", "driver", "nodeName", "pool"}


def test_a_long_name_is_cut_to_a_legal_one():
    """A node's name may have 253 characters; the index and the driver stay at the beginning."""
    made = slices([device("a")])[0]
    node = ".".join(["n" * 60] * 4)
    made["metadata"]["generateName"] = f"00000-{DRIVER}-{node}-"
    name = with_name(made)["metadata"]["name"]
    assert len(name) <= 253
    assert SliceStore().create(with_name(made))[0] == 201
    made["metadata"]["generateName"] = f"00000-{DRIVER}-" + "n" * (246 - 7 - len(DRIVER)) + ".node"
    assert SliceStore().create(with_name(made))[0] == 201
