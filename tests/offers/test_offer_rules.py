"""Devices + configuration → offers, and offers as the kubelet's device plugins hand them out."""

from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd._native import Device, Fact, NaturalKey
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.health.policy import Verdict
from devherd.inventory import DeviceKey, Entry
from devherd.offers import rules
from devherd.offers.device_plugin import DevicePluginOffers, device_plugin_offers, largest_size, resource_of
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import spool_pb2
from devherd.scanner.core import edits_for, native_scanner
from devherd.spool import listed, size_of


def entry(
    device_id: str,
    resource_name: str = "nvidia.com/gpu",
    vendor: str = "nvidia",
    more: dict | None = None,
    **attributes: str,
) -> Entry:
    facts = {name: Fact("text", value, "") for name, value in attributes.items()}
    return Entry(Device(id=device_id, vendor=vendor, facts=facts, **more or {}), resource_name)


@dataclass
class FakeEdits:
    """What a vendor answers, made by hand."""

    nodes: tuple = ()
    mounts: tuple = ()
    envs: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()
    specs: dict[str, object] = field(default_factory=dict)

    def encoded(self) -> bytes:
        return spool_pb2.Edits(
            nodes=[
                spool_pb2.Node(host_path=one.host_path, container_path=one.container_path, permissions=one.permissions)
                for one in self.nodes
            ],
            mounts=[
                spool_pb2.Mount(host_path=one.host_path, container_path=one.container_path, read_only=one.read_only)
                for one in self.mounts
            ],
            envs=self.envs,
            annotations=self.annotations,
            cdi_devices=self.cdi_devices,
        ).SerializeToString(deterministic=True)


def built(
    entries: list[Entry],
    config: dict | None = None,
    verdicts: dict[DeviceKey, Verdict] | None = None,
    edits: FakeEdits | None = None,
) -> DevicePluginOffers:
    made = resolve(Config.model_validate(config or {}))
    offers = rules.arrange(made, entries)
    return device_plugin_offers(offers, lambda *_, **__: edits or FakeEdits(), verdicts=verdicts)


def ids(result: DevicePluginOffers) -> dict[str, list[str]]:
    return {resource.name: [device_id for device_id, _ in listed(resource)] for resource in result.offers}


@pytest.mark.parametrize(("nodes", "expected"), [([[0], []], [0, 1, 2]), ([[0], [1]], []), ([[], []], []), ([[7]], [])])
def test_nodes_with_processors_are_those_of_a_device_whose_own_are_unknown(nodes, expected):
    """Others D5. They are read if a device needs them: an offer that does not stays as it is."""
    offers = rules.arrange(
        resolve(Config()), [entry(f"gpu-{n}", more={"numa_nodes": each}) for n, each in enumerate(nodes)]
    )
    (offer,) = device_plugin_offers(offers, lambda *_: FakeEdits(), lambda: [0, 1, 2]).offers
    assert [list(device.numa_nodes) for device in offer.devices] == nodes
    assert list(offer.processor_nodes) == list(resource_of(offer).processor_nodes) == expected


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
    verdicts = {("nvidia", "", "a"): Verdict(("xid",), ("link-degraded",))}
    rules = [{"sharing": {"replicas": 2, "rename": "nvidia.com/gpu.shared", "fail_requests_greater_than_one": True}}]

    [resource] = built([entry("a", model="H200")], {"resources": rules}, verdicts).offers

    assert (resource.name, resource.fail_requests_greater_than_one) == ("nvidia.com/gpu.shared", True)
    assert [
        (device_id, device.id, list(device.reasons), list(device.warnings)) for device_id, device in listed(resource)
    ] == [
        ("a::0", "a", ["xid"], ["link-degraded"]),
        ("a::1", "a", ["xid"], ["link-degraded"]),
    ]
    assert [device.attributes["model"] for device in resource.devices] == ["H200"]


def test_one_name_may_hold_shared_and_whole_gpus():
    """N28: sharing is by rule, here of one GPU by address, another by index, none of the third."""
    rules = [
        {"match": {"pci_address": "0000:3b:00.0"}, "sharing": {"replicas": 2}},
        {"match": {"index": [7, 8]}, "sharing": {"replicas": 3, "rename": "nvidia.com/gpu.shared"}},
    ]
    gpus = [entry("a", pci_address="0000:3b:00.0"), entry("b", index="7"), entry("c", index="1")]

    result = built(gpus, {"resources": rules})

    assert ids(result) == {"nvidia.com/gpu": ["a::0", "a::1", "c"], "nvidia.com/gpu.shared": ["b::0", "b::1", "b::2"]}
    assert [one.preferred for one in result.offers] == [spool_pb2.DISTRIBUTED, spool_pb2.DISTRIBUTED]


def test_replicas_of_amd_gpus_are_spread_over_the_gpus():
    """Aligned would give a container two replicas of one partition, which bring no more than one."""
    gpus = [entry(gpu, "amd.com/gpu", "amd") for gpu in ("0000:05:00.0", "0000:27:00.0")]

    [whole] = built(gpus).offers
    [shared] = built(gpus, {"resources": [{"sharing": {"replicas": 2}}]}).offers

    assert (whole.preferred, shared.preferred) == (spool_pb2.ALIGNED, spool_pb2.DISTRIBUTED)


def test_devices_are_shared_that_a_list_of_uuids_names():
    """The `devices` lists of the vendor's plugin, which it discards, are matches here."""
    rules = [{"match": {"uuid": ["GPU-1", "GPU-3"]}, "sharing": {"replicas": 2}}]

    result = built([entry(f"GPU-{number}", uuid=f"GPU-{number}") for number in (1, 2, 3)], {"resources": rules})

    assert ids(result) == {"nvidia.com/gpu": ["GPU-1::0", "GPU-1::1", "GPU-2", "GPU-3::0", "GPU-3::1"]}


def test_replicas_tell_where_their_device_is():
    """Topology is theirs too, and written once for all of them."""
    gpu = entry("a", more={"numa_nodes": [1], "distances": {"0000:3b:00.0": 7}})

    [resource] = built([gpu], {"resources": [{"sharing": {"replicas": 3}}]}).offers

    assert [list(device.numa_nodes) for _, device in listed(resource)] == [[1]] * 3
    assert [dict(device.distances) for _, device in listed(resource)] == [{"0000:3b:00.0": 7}] * 3
    assert len(resource.devices) == 1


MPS = {"strategy": "mps", "replicas": 4, "rename": "nvidia.com/gpu.shared"}
MPS_CONFIG = {"vendors": {"nvidia": {"mps_root": "/run/nvidia/mps"}}, "resources": [{"sharing": MPS}]}


def test_mps_tells_each_container_where_the_control_daemon_of_its_resource_is():
    """The resource's final name is in the paths; a container may have one replica only, unless that is turned off."""
    config = resolve(Config.model_validate(MPS_CONFIG))
    edits_of = partial(edits_for, native_scanner(config), {}, config.mps_root)
    offers = rules.arrange(config, [entry("a", compute_capability="9.0")])
    [resource] = device_plugin_offers(offers, edits_of).offers

    assert (resource.name, resource.fail_requests_greater_than_one) == ("nvidia.com/gpu.shared", True)
    assert [device_id for device_id, _ in listed(resource)] == ["a::0", "a::1", "a::2", "a::3"]
    for device in resource.devices:
        assert device.edits.envs["CUDA_MPS_PIPE_DIRECTORY"] == "/mps/nvidia.com/gpu.shared/pipe"
        assert [(mount.host_path, mount.container_path, mount.read_only) for mount in device.edits.mounts] == [
            ("/run/nvidia/mps/nvidia.com/gpu.shared/pipe", "/mps/nvidia.com/gpu.shared/pipe", False),
            ("/run/nvidia/mps/shm", "/dev/shm", False),
        ]


@pytest.mark.parametrize(
    ("strategy", "given", "refuses"),
    [
        ("time_slicing", None, False),
        ("time_slicing", True, True),
        ("mps", None, True),
        ("mps", False, False),
    ],
)
def test_whether_several_replicas_are_refused_depends_on_the_strategy_unless_it_is_said(strategy, given, refuses):
    """As in the vendor's plugin: by default MPS refuses, time slices do not."""
    sharing = {"strategy": strategy, "replicas": 2, "fail_requests_greater_than_one": given}

    [resource] = built([entry("a")], MPS_CONFIG | {"resources": [{"sharing": sharing}]}).offers

    assert resource.fail_requests_greater_than_one is refuses


@pytest.mark.parametrize(
    ("sharing", "refuses"),
    [
        ({"fail_requests_greater_than_one": True}, True),
        ({"fail_requests_greater_than_one": False}, False),
        ({"strategy": "mps"}, False),
    ],
)
def test_more_than_one_device_is_refused_without_replicas_only_where_it_is_said_w4(sharing, refuses):
    """For the shares of a vendor's own plugin, which are devices here."""
    [resource] = built([entry("a")], MPS_CONFIG | {"resources": [{"sharing": sharing}]}).offers
    assert resource.fail_requests_greater_than_one is refuses


@pytest.mark.parametrize(("capability", "replicas"), [("6.1", 16), ("7.0", 20), ("9.0", 20), (None, 20)])
def test_mps_counts_volta_as_new(capability, replicas):
    """N34: the vendor's plugin allows 16 clients on a V100 (7.0), which serves 48."""
    gpu = entry("a", **({"compute_capability": capability} if capability else {}))

    result = built([gpu], MPS_CONFIG | {"resources": [{"sharing": MPS | {"replicas": 20}}]})

    assert size_of(result.offers[0]) == replicas
    assert [problem.error for problem in result.problems] == (
        ["MPS serves at most 16 clients on a GPU of compute capability 6.1: replicas limited to 16"]
        if replicas == 16
        else []
    )


def test_what_mps_cannot_share_is_advertised_unshared_and_told():
    """N34: no MIG device; and no GPU of another vendor, though a rule without a match meets it."""
    result = built([entry("m", mig_profile="1g.10gb"), entry("x", "amd.com/gpu", "amd"), entry("a")], MPS_CONFIG)

    assert ids(result) == {
        "amd.com/gpu": ["x"],
        "nvidia.com/gpu": ["m"],
        "nvidia.com/gpu.shared": ["a::0", "a::1", "a::2", "a::3"],
    }
    assert [(problem.device, problem.error) for problem in result.problems] == [
        ("m", "MPS cannot share a MIG device: it is advertised unshared"),
        ("x", "MPS shares NVIDIA's GPUs only: it is advertised unshared"),
    ]


def test_edits_are_asked_for_under_the_name_that_pods_ask_for():
    """KubeVirt finds the PCI addresses of a resource under that name, renamed or not."""
    asked = []

    def edits_of(entry, resource_name, *, by_mps=False):
        asked.append((entry.device.id, resource_name))
        return FakeEdits()

    made = resolve(Config.model_validate({"resources": [{"match": {"id": "a"}, "name": "x.com/y"}]}))
    device_plugin_offers(rules.arrange(made, [entry("a"), entry("b")]), edits_of)

    assert asked == [("b", "nvidia.com/gpu"), ("a", "x.com/y")]


def test_a_cdi_name_that_no_runtime_accepts_is_left_out_and_told():
    """The ids of MIG devices under drivers before 470 hold slashes: the device is given without CDI."""
    edits = FakeEdits(
        cdi_devices=("v.com/gpu=MIG-GPU-1/1/0", "v.com/gds=all"),
        annotations={
            "cdi.k8s.io/x": "v.com/gpu=MIG-GPU-1/1/0,v.com/gds=all",
            "cdi.k8s.io/y": "v.com/gpu=MIG-GPU-1/1/0",
        },
    )

    result = built([entry("MIG-GPU-1/1/0")], edits=edits)

    assert list(result.offers[0].devices[0].edits.cdi_devices) == ["v.com/gds=all"]
    assert dict(result.offers[0].devices[0].edits.annotations) == {"cdi.k8s.io/x": "v.com/gds=all"}
    assert result.problems[0].error == "is allocated without CDI: not a valid CDI name: v.com/gpu=MIG-GPU-1/1/0"


def test_a_name_that_the_kubelet_would_refuse_is_a_problem_of_that_device_alone():
    """`region-` without an interface id took the peer down; here the others go on."""
    result = built([entry("a", "fpga.intel.com/region-"), entry("b")])

    assert ids(result) == {"nvidia.com/gpu": ["b"]}
    assert [(problem.device, "cannot be advertised" in problem.error) for problem in result.problems] == [("a", True)]


def test_an_id_given_twice_is_advertised_once_and_told():
    """The kubelet collapses such ids without a word."""
    result = built([entry("a", "x.com/y", "generic"), entry("a", "x.com/y", "simulated")])

    assert ids(result) == {"x.com/y": ["a"]}
    assert "duplicate" in result.problems[0].error


def test_an_id_that_moved_to_another_card_is_no_duplicate():
    """The kernel gives the numbers of partitions anew: the device of that id is the one that is there."""
    gone = replace(entry("a", "x.com/y", "simulated"), gone_since=1.0)
    result = built([entry("a", "x.com/y", "generic"), gone])

    [resource] = result.offers
    assert [device.vendor for device in resource.devices] == ["generic"]
    assert result.problems == []


def test_more_devices_than_fit_one_message_are_capped_and_told():
    """The kubelet ends a stream whose list is larger than 4 MiB."""
    result = built([entry(f"{number:040}") for number in range(80_000)])

    [resource] = result.offers
    assert 40_000 < len(resource.devices) < 79_137
    assert "do not fit" in result.problems[0].error


def test_replicas_that_do_not_fit_are_left_out_of_the_last_device():
    """The list ends where the message does, in the middle of a device's replicas if need be."""
    gpus = [entry(f"{number:04}" + "x" * 196) for number in range(3)]

    result = built(gpus, {"resources": [{"sharing": {"replicas": 10_000}}]})

    [resource] = result.offers
    fitting = size_of(resource)
    assert 10_000 < fitting < 20_000
    assert [device.replicas for device in resource.devices] == [10_000, fitting - 10_000]
    [problem] = result.problems
    assert problem.error == (
        f"30000 devices do not fit into one message to the kubelet; the first {fitting} are advertised"
    )


def test_preferences_reach_the_child_that_answers():
    """`preferred` is a property of the resource."""
    [resource] = built([entry("a")], {"resources": [{"preferred": "none"}]}).offers

    assert resource.preferred == spool_pb2.NONE


@pytest.mark.parametrize("words", [["card2", "card10"], ["a", "a1", "a1b", "a2"], ["0000:81:00.0", "0000:81:00.1"]])
def test_natural_order_reads_numbers_as_numbers(words):
    """What a person expects of a list of devices."""
    shuffled = [*words[1:], words[0]]

    assert sorted(shuffled, key=NaturalKey) == words


NAMES = st.sampled_from(["x.com/a", "x.com/b", "bad"])
DEVICES = st.dictionaries(st.text("abc0123-", min_size=1, max_size=6), NAMES, max_size=20)


@given(DEVICES, st.integers(1, 4))
def test_every_device_is_advertised_or_told_as_a_problem(devices, replicas):
    """Nothing is lost without a word, nothing is offered twice."""
    result = built(
        [entry(device, name) for device, name in devices.items()], {"resources": [{"sharing": {"replicas": replicas}}]}
    )

    shown = [device.id for resource in result.offers for _, device in listed(resource)]
    told = {problem.device for problem in result.problems}
    assert sorted(shown) == sorted(device for device in devices.keys() - told for _ in range(replicas))
    assert told == {device for device, name in devices.items() if name == "bad"}


POOLED = {
    "vendors": {
        "rdma": {
            "mode": "shared",
            "pools": [{"name": "rdma/a", "rdma_hca_max": 2, "selectors": {"vendors": ["15b3"]}}],
        }
    }
}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {"rdma/a": []}),
        ({"resources": [{"match": {"vendor": "rdma"}, "name": "example.com/hca"}]}, {"example.com/hca": []}),
        ({"resources": [{"match": {"resource_name": "rdma/a"}, "advertise": False}]}, {}),
    ],
)
def test_a_pool_is_offered_also_without_devices_as_the_rules_name_it(more, expected):
    """Others D8: as k8s-rdma-shared-dev-plugin registers it."""
    assert ids(built([], POOLED | more)) == expected
    full = entry("0", "rdma/a", "rdma")
    assert ids(built([full], POOLED | more)) == {name: ["0"] for name in expected}


def test_a_pool_of_a_vendor_that_is_switched_off_is_not_offered():
    """`enabled: false` serves nothing."""
    assert ids(built([], {"vendors": {"rdma": POOLED["vendors"]["rdma"] | {"enabled": False}}})) == {}


@pytest.mark.parametrize("device_id", ["gpu-7", "GPU-955ddd45-3e91-5ca4-86ec-14da31fba132::1249", "x" * 200])
@pytest.mark.parametrize("nodes", [[], [0], [0, 1], [1022, 1023]])
def test_what_a_device_takes_of_a_list_is_foreseen_closely(device_id, nodes):
    """Defect: of 80 000 replicas a third fewer were offered than fit. Never less than what the kubelet receives."""
    topology = v1beta1.TopologyInfo(nodes=[v1beta1.NUMANode(ID=node) for node in nodes]) if nodes else None
    device = v1beta1.Device(ID=device_id, health="Unhealthy", topology=topology)
    size = v1beta1.ListAndWatchResponse(devices=[device]).ByteSize()
    assert size <= largest_size(device_id, len(nodes)) <= size + 12


def of_class(device_id: str, resource_name: str) -> Entry:
    """A device that class `widget` has found."""
    return entry(device_id, resource_name, "classes", **{"class": "widget"})


def test_a_class_does_not_mix_its_devices_into_a_resource_of_another_vendor():
    """The kubelet would give a container one or the other. Both are named, once."""
    entries = [
        of_class("w0", "nvidia.com/gpu"),
        of_class("w1", "nvidia.com/gpu"),
        of_class("w2", "a.b/c"),
        entry("GPU-1"),
    ]

    offers = rules.arrange(resolve(Config()), entries)

    assert {offer.name: [one.entry.device.id for one in offer.devices] for offer in offers.offers} == {
        "a.b/c": ["w2"],
        "nvidia.com/gpu": ["GPU-1"],
    }
    assert [problem.error for problem in offers.problems] == [
        (
            "class `widget` and nvidia both have the resource nvidia.com/gpu: the class's devices are not offered —"
            " give the class another `plugin.resource`, or its devices a `name` by a rule of `resources`"
        )
    ]
    assert offers.rules[entries[0].key] == "left out: its resource is nvidia's, too"


def test_a_rule_can_put_devices_of_a_class_and_of_a_vendor_under_one_name():
    """Whoever writes that means it."""
    config = Config.model_validate({"resources": [{"name": "a.b/all"}]})

    offers = rules.arrange(resolve(config), [of_class("w0", "nvidia.com/gpu"), entry("GPU-1")])

    assert [(offer.name, len(offer.devices)) for offer in offers.offers] == [("a.b/all", 2)]
    assert offers.problems == []
