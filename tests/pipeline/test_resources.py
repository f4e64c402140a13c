"""Devices + configuration → resources."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.config import Config
from devherd.proto import spool_pb2
from devherd.scanner import resources
from devherd.scanner.health import Health
from devherd.scanner.inventory import Entry


def entry(device_id: str, resource_name: str = "nvidia.com/gpu", vendor: str = "nvidia", **attributes: str) -> Entry:
    device = spool_pb2.Device(
        id=device_id, physical_id=device_id, vendor=vendor, attributes=attributes, default_resource_name=resource_name
    )
    return Entry(vendor, device, resource_name)


def built(entries: list[Entry], config: dict | None = None, health: Health | None = None) -> resources.Resources:
    return resources.build(Config.model_validate(config or {}), entries, health or Health(3))


def ids(result: resources.Resources) -> dict[str, list[str]]:
    return {resource.name: [device.id for device in resource.devices] for resource in result.resources}


def test_without_rules_each_device_goes_under_its_vendors_own_name():
    """Drop-in: the vendor plugin's names by default, sorted by name, devices in natural order."""
    result = built([entry("gpu-10"), entry("gpu-9"), entry("card0", "amd.com/gpu", "amd")])

    assert ids(result) == {"amd.com/gpu": ["card0"], "nvidia.com/gpu": ["gpu-9", "gpu-10"]}


def test_the_first_rule_that_matches_decides():
    """Rules are read from the top, like a firewall's."""
    rules = [
        {"match": {"model": "*H200*"}, "name": "x.com/first"},
        {"match": {"vendor": "nvidia"}, "name": "x.com/second"},
    ]

    result = built(
        [entry("a", model="NVIDIA H200 NVL"), entry("b", model="A2"), entry("c", vendor="amd")], {"resources": rules}
    )

    assert ids(result) == {"nvidia.com/gpu": ["c"], "x.com/first": ["a"], "x.com/second": ["b"]}


def test_an_excluded_device_is_left_to_the_next_rule():
    """`exclude` makes an exception from its own rule only."""
    rules = [{"match": {"vendor": "nvidia", "exclude": [{"pci_address": "0000:3b:00.0"}]}, "name": "x.com/pool"}]

    result = built(
        [entry("a", pci_address="0000:3b:00.0"), entry("b", pci_address="0000:5e:00.0")], {"resources": rules}
    )

    assert ids(result) == {"nvidia.com/gpu": ["a"], "x.com/pool": ["b"]}


def test_a_rule_can_keep_devices_from_being_advertised():
    """For devices that the host itself uses."""
    result = built([entry("a"), entry("b")], {"resources": [{"match": {"id": "a"}, "advertise": False}]})

    assert ids(result) == {"nvidia.com/gpu": ["b"]}


def test_a_selector_asks_for_every_fact_and_a_list_of_globs_for_one_of_them():
    """AND across keys, OR within a key; a fact the device does not have never matches."""
    rules = [{"match": {"model": ["A2", "H*"], "driver": "550.*"}, "name": "x.com/y"}]
    devices = [
        entry("a", model="H200", driver="550.54"),
        entry("b", model="H200", driver="560"),
        entry("c", model="A2"),
    ]

    assert ids(built(devices, {"resources": rules}))["x.com/y"] == ["a"]


@pytest.mark.parametrize("vendor", ["intel_fpga", "intel-fpga", "intel*"])
def test_vendors_are_matched_by_the_name_of_their_section_or_of_the_output(vendor):
    """A spelling that silently matches nothing would be a trap: `scan` prints `intel-fpga`."""
    rules = [{"match": {"vendor": vendor}, "name": "x.com/y"}]

    assert ids(built([entry("p", vendor="intel-fpga")], {"resources": rules})) == {"x.com/y": ["p"]}


def test_replicas_share_a_device_and_carry_its_health_and_facts():
    """`<id>::<n>`, all Unhealthy when their device is."""
    health = Health(3)
    health.note({("nvidia", "", "a"): {"xid"}})
    rules = [{"sharing": {"replicas": 2, "rename": "nvidia.com/gpu.shared", "fail_requests_greater_than_one": True}}]

    [resource] = built([entry("a", model="H200")], {"resources": rules}, health).resources

    assert (resource.name, resource.fail_requests_greater_than_one) == ("nvidia.com/gpu.shared", True)
    assert [(device.id, device.physical_id, list(device.reasons)) for device in resource.devices] == [
        ("a::0", "a", ["xid"]),
        ("a::1", "a", ["xid"]),
    ]
    assert all(device.attributes["model"] == "H200" for device in resource.devices)


def test_a_name_that_the_kubelet_would_refuse_is_a_problem_of_that_device_alone():
    """`region-` without an interface id took the peer down; here the others go on."""
    result = built([entry("a", "fpga.intel.com/region-"), entry("b")])

    assert ids(result) == {"nvidia.com/gpu": ["b"]}
    assert [(problem.device, "cannot be advertised" in problem.error) for problem in result.problems] == [("a", True)]


def test_an_id_given_twice_is_advertised_once_and_told():
    """The kubelet collapses such ids without a word."""
    result = built([entry("a", "x.com/y", "generic"), entry("a", "x.com/y", "simulated")])

    assert ids(result) == {"x.com/y": ["a"]}
    assert "given twice" in result.problems[0].error


def test_more_devices_than_fit_one_message_are_capped_and_told():
    """The kubelet ends a stream whose list is larger than 4 MiB."""
    result = built([entry(f"{number:040}") for number in range(80_000)])

    [resource] = result.resources
    assert 40_000 < len(resource.devices) < 79_137
    assert "do not fit" in result.problems[0].error


def test_preferences_reach_the_child_that_answers():
    """`preferred` is a property of the resource."""
    [resource] = built([entry("a")], {"resources": [{"preferred": "none"}]}).resources

    assert resource.preferred == spool_pb2.NONE


@pytest.mark.parametrize("words", [["card2", "card10"], ["a", "a1", "a1b", "a2"], ["0000:81:00.0", "0000:81:00.1"]])
def test_natural_order_reads_numbers_as_numbers(words):
    """What a person expects of a list of devices."""
    shuffled = [*words[1:], words[0]]

    assert sorted(shuffled, key=resources.natural_key) == words


NAMES = st.sampled_from(["x.com/a", "x.com/b", "bad"])
DEVICES = st.dictionaries(st.text("abc0123-", min_size=1, max_size=6), NAMES, max_size=20)


@given(DEVICES, st.integers(1, 4))
def test_every_device_is_advertised_or_told_as_a_problem(devices, replicas):
    """Nothing is lost without a word, nothing is offered twice."""
    result = built(
        [entry(device, name) for device, name in devices.items()], {"resources": [{"sharing": {"replicas": replicas}}]}
    )

    shown = [device.physical_id for resource in result.resources for device in resource.devices]
    told = {problem.device for problem in result.problems}
    assert sorted(shown) == sorted(device for device in devices.keys() - told for _ in range(replicas))
    assert told == {device for device, name in devices.items() if name == "bad"}
