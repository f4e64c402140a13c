"""Offers made again after a change are those made from nothing, and what has not changed is the same object."""

from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offered import served_of
from test_offer_rules import FakeEdits, entry

from devherd import spool
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.health.policy import Verdict
from devherd.instance.read import is_by_dra, read_instance
from devherd.inventory import Entry, key_of
from devherd.offers import device_plugin, rules
from devherd.offers.device_plugin import Maker, device_plugin_offers, resource_of
from devherd.offers.made import DraOffers, Judge
from devherd.proto import spool_pb2
from devherd.scanner.publisher import Acknowledgements, Publisher
from devherd.settings import Settings
from devherd.spool import listed, size_of

CONFIG = {
    "resources": [
        {"match": {"id": "gpu-1*"}, "name": "a.b/ones", "sharing": {"strategy": "time_slicing", "replicas": 2}},
        {"match": {"id": "gpu-2"}, "advertise": False},
    ],
}
ILLEGAL = {
    "gpu-4": FakeEdits(cdi_devices=("v.com/gpu=MIG-GPU-1/1/0",), annotations={"a": "v.com/gpu=MIG-GPU-1/1/0"}),
}

NAMES = {"nvidia": "nvidia.com/x", "amd": "amd.com/x", "intel-gpu": "kubernetes.io/refused"}

DEVICES = st.builds(
    lambda number, vendor, model, nodes: entry(f"gpu-{number}", NAMES[vendor], vendor, nodes, model=model),
    st.integers(0, 15),
    st.sampled_from([*NAMES]),
    st.sampled_from("AB"),
    st.sampled_from([{}, {"numa_nodes": [0]}, {"numa_nodes": [1], "distances": {"c": 1}}, {"shares": ["s0", "s1"]}]),
)
ENTRIES = st.lists(
    st.builds(
        lambda made, gone, why: replace(made, gone_since=gone, left_out=why),
        DEVICES,
        st.sampled_from([None, None, 1.0]),
        st.sampled_from([{}, {"cdi": "for virtual machines"}, {"device-plugin": "in use"}]),
    ),
    max_size=12,
    unique_by=lambda one: one.key,
)
VERDICT = st.sampled_from([Verdict(("gone",), ()), Verdict((), ("slow",)), Verdict(("a", "b"), ("c",))])
STEPS = st.lists(st.tuples(ENTRIES, st.lists(st.tuples(st.integers(0, 11), VERDICT), max_size=3)), max_size=6)


def edits_of(one: Entry, resource_name: str, *, by_mps: bool = False) -> FakeEdits:
    mine = FakeEdits(envs={"DEVICE": one.device.id, "RESOURCE": resource_name, **one.device.attributes})
    return ILLEGAL.get(one.device.id, mine)


@given(steps=STEPS)
def test_offers_made_again_after_any_changes_are_those_made_from_nothing(steps):
    """Each step changes any devices and verdicts; an entry that is equal to the last may be another object."""
    config = resolve(Config.model_validate(CONFIG))
    arranger, maker, judge = rules.Arranger(config), Maker(edits_of, lambda: [0, 1, 2]), Judge()
    for entries, sick in steps:
        verdicts = {entries[place % len(entries)].key: verdict for place, verdict in sick if entries}
        made = maker.make(arranger.arrange(entries))
        made = replace(made, served=judge.judge(made.served, verdicts))
        fresh = device_plugin_offers(rules.arrange(config, entries), edits_of, lambda: [0, 1, 2], verdicts)
        assert (made.offers, made.problems, made.rules) == (fresh.offers, fresh.problems, fresh.rules)
        for one in made.served:
            offer = one.offer.message
            whole, resource = served_of(offer), resource_of(offer)
            assert spool_pb2.Resource.FromString(one.in_resource) == resource
            assert (whole.offer.message, spool_pb2.Resource.FromString(whole.in_resource)) == (offer, resource)
            ids = one.offer.ids
            assert ids == whole.offer.ids
            assert [device_id for of_device in ids.values() for device_id in of_device] == [
                device_id for device_id, _ in listed(offer)
            ]
            assert one.offer.verdicts == whole.offer.verdicts
            assert one.offer.size == size_of(offer)
        assert [(one.offer.content, one.in_resource) for one in made.served] == [
            (one.offer.content, one.in_resource) for one in fresh.served
        ]


@given(steps=st.lists(st.sets(st.integers(0, 19)), max_size=6), limit=st.integers(0, 800))
def test_offers_made_again_that_do_not_fit_are_cut_as_those_made_from_nothing(steps, limit):
    """Defect: a device kept all its ids although another before it had taken their place; the list was too long."""
    config = resolve(Config.model_validate(CONFIG))
    arranger, maker = rules.Arranger(config), Maker(edits_of)
    known = [entry(f"gpu-{place}", more={"shares": [f"s{place}-0", f"s{place}-1"][: place % 3]}) for place in range(20)]
    with mock.patch.object(device_plugin, "MAX_LIST_BYTES", limit):
        for places in steps:
            entries = [known[place] for place in places]
            made = maker.make(arranger.arrange(entries))
            fresh = device_plugin_offers(rules.arrange(config, entries), edits_of)
            assert (made.offers, made.problems) == (fresh.offers, fresh.problems)
            assert [(one.in_resource, one.offer.size) for one in made.served] == [
                (one.in_resource, one.offer.size) for one in fresh.served
            ]


@pytest.mark.parametrize("shares", [[], ["s0", "s1"]])
def test_one_more_device_takes_the_place_of_the_last_ids_in_a_full_list(shares, monkeypatch):
    """In the order of the ids."""
    monkeypatch.setattr(device_plugin, "MAX_LIST_BYTES", 215)
    config = resolve(Config.model_validate(CONFIG))
    arranger, maker = rules.Arranger(config), Maker(edits_of)
    entries = [
        entry(f"gpu-{number}", "nvidia.com/x", "nvidia", {"shares": [f"gpu-{number}-{one}" for one in shares]})
        for number in (10, 11, 12, 13, 14, 1)
    ]
    full = maker.make(arranger.arrange(entries[:5])).served[0]
    again = maker.make(arranger.arrange(entries)).served[0]
    fresh = device_plugin_offers(rules.arrange(config, entries), edits_of).served[0]
    assert len(full.in_resource) > 0
    assert again.in_resource == fresh.in_resource
    assert again.offer.size <= full.offer.size < 10


def test_an_offer_whose_devices_and_verdicts_stay_is_the_same_object():
    """The publisher, the log and the child need not look at it again."""
    config = resolve(Config())
    arranger, maker, judge = rules.Arranger(config), Maker(edits_of), Judge()

    def judged(entries, verdicts):
        return judge.judge(maker.make(arranger.arrange(entries)).served, verdicts)

    entries = [entry("gpu-1"), entry("gpu-2"), entry("card0", "amd.com/gpu", "amd"), entry("x", "z.com/z", "amd")]
    sick = {entries[0].key: Verdict(("gone",), ())}
    before, again = judged(entries, sick), judged(entries, sick)
    changed = judged([*entries[:2], entry("card1", "amd.com/gpu", "amd"), entries[3]], sick)

    assert [one is two for one, two in zip(before, again, strict=True)] == [True, True, True]
    assert [one is two for one, two in zip(before, changed, strict=True)] == [False, True, True]
    well = judged(entries, {})
    assert [one is two for one, two in zip(well, before, strict=True)] == [False, False, True]


def test_rules_and_edits_are_asked_again_only_for_a_device_that_changed():
    """Ten thousand devices of one resource: one that vanishes costs a look at one."""
    asked = []

    def noted(one: Entry, resource_name: str, *, by_mps: bool = False) -> FakeEdits:
        asked.append(one.device.id)
        return edits_of(one, resource_name)

    arranger, maker = rules.Arranger(resolve(Config())), Maker(noted)
    entries = [entry(f"gpu-{number}") for number in range(5)]
    maker.make(arranger.arrange(entries))
    assert asked == [f"gpu-{number}" for number in range(5)]
    maker.make(arranger.arrange([*entries[:2], replace(entries[2], gone_since=1.0), *entries[3:]]))
    maker.make(arranger.arrange(entries[1:]))
    assert asked[5:] == ["gpu-2", "gpu-2"]


@given(entries=ENTRIES)
def test_another_front_end_makes_its_offers_of_the_same_devices_with_the_edits_of_its_way(entries):
    """No limit of the kubelet's, and of each device the facts, the rule and the sharing that the device plugin has."""
    config = resolve(Config.model_validate(CONFIG))

    def by_cdi(one: Entry, resource_name: str, *, by_mps: bool = False) -> FakeEdits:
        return FakeEdits(cdi_devices=(f"a.b/c={one.device.id}",))

    maker = DraOffers(by_cdi)
    for some in (entries, entries[1:], entries):
        offers = rules.arrange(config, some, "cdi")
        made = maker.make(offers)
        again = maker.make(rules.arrange(config, some, "cdi"))
        assert all(one is two for one, two in zip(made.offers, again.offers, strict=True))
        assert [*made.problems] == offers.problems
        for offer, encoded in zip(offers.offers, made.offers, strict=True):
            message, size = encoded.message, sum(len(one.ids) for one in offer.devices)
            assert (message.name, message.front_end) == (offer.name, "dra")
            assert size_of(message) == encoded.size == size
            by_key = {one.entry.key: one for one in offer.devices}
            assert sorted(map(key_of, message.devices)) == sorted(by_key)
            for device in message.devices:
                one = by_key[key_of(device)]
                assert [*device.edits.cdi_devices] == [f"a.b/c={device.id}"]
                assert (device.rule, device.replicas, [*device.shares]) == (
                    one.rule,
                    one.replicas,
                    [*one.entry.device.shares],
                )
                assert dict(device.attributes) == one.entry.device.attributes
                assert not device.HasField("pre_start")


def test_the_offers_of_all_front_ends_are_read_as_one_and_told_apart(tmp_path):
    """No process serves those of DRA as resources. What the scanner has said of any it does not say again."""
    gpu = spool_pb2.Device(id="gpu-1", vendor="nvidia", card="c")
    offered = [spool_pb2.Offer(name=name, front_end=name, devices=[gpu]) for name in ("device-plugin", "dra")]
    settings = Settings(run_dir=tmp_path)
    spool.write(settings.offers_file, spool_pb2.Offers(offers=offered, version=1))

    assert [(offer.name, is_by_dra(offer)) for offer in read_instance(settings).resources] == [
        ("device-plugin", False),
        ("dra", True),
    ]
    assert [offer.name for offer in spool.resources_in(spool.read(settings.offers_file, spool_pb2.Offers))] == [
        "device-plugin"
    ]
    publisher = Publisher(settings.offers_file, settings.resources_directory, Acknowledgements(tmp_path, tmp_path))
    assert [offer.name for offer in publisher.published] == ["device-plugin", "dra"]
