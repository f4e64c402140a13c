"""What a configuration does on this node that nobody can have meant."""

import pytest

from devherd._native import Device, Fact, HostPath
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.inventory import Entry
from devherd.offers import config_warnings, rules


def gpu(number, awaited=(), **facts):
    """A GPU with these facts, and names of those that NVML has not told yet."""
    facts = {name: Fact("text", value, "") for name, value in facts.items()}
    return Device(
        vendor="nvidia",
        id=f"GPU-{number}",
        resource_name="nvidia.com/gpu",
        facts=facts,
        paths=[node("/dev/nvidia0")],
        awaited=set(awaited),
    )


def node(path):
    return HostPath(path, "node", True, None, True, "", None)


def told(config, *devices):
    """The warnings about a configuration on a node with these devices."""
    entries = [Entry(device, device.resource_name) for device in devices]
    resolved = resolve(Config.model_validate(config))
    return config_warnings.config_warnings(resolved, entries, rules.arrange(resolved, entries))


GPUS = [gpu(0), gpu(1, awaited=["memory_bytes"])]
NONE_OF_TWO = (
    "matches no device of this node, which has 2 devices — compare it with the facts that `devherd scan --explain`"
    " shows, or add `optional: true`"
)


def test_a_rule_that_matches_no_device_of_the_node_is_told():
    """`model: "*A100*"` on a node with H100s was accepted without a word."""
    assert told({"resources": [{"match": {"id": "GPU-7"}}, {"match": {"id": "GPU-1"}}]}, *GPUS) == [
        f"resources[0]: {NONE_OF_TWO}"
    ]


def test_a_rule_whose_devices_are_taken_by_those_before_it_is_told():
    """Its text alone does not show it: these two rules take both GPUs."""
    rules = [{"match": {"id": "*0"}}, {"match": {"id": "*1"}}, {"match": {"vendor": "nvidia"}}]
    assert told({"resources": rules}, *GPUS) == [
        (
            "resources[2]: never reached on this node: the rules before it match every device that it matches — move it"
            " before them, or remove it"
        )
    ]


def test_a_last_rule_that_keeps_out_the_rest_is_right_where_there_is_none():
    """Defect: what `config import` had written was called a mistake where the rules before it have all functions.

    One that keeps out certain devices, and comes too late, is one.
    """
    every = [{"match": {"id": "*0"}}, {"match": {"id": "*1"}}]
    assert told({"resources": [*every, {"match": {"vendor": "nvidia"}, "advertise": False}]}, *GPUS) == []
    assert told({"resources": [*every, {"match": {}, "advertise": False}]}, *GPUS) == []
    [late] = told({"resources": [*every, {"match": {"model": "*"}, "advertise": False}]}, gpu(0, model="x"))[1:]
    assert late.startswith("resources[2]: never reached on this node")


def test_what_has_no_effect_on_any_node_is_not_told_twice():
    """The warning about the configuration says it already."""
    rules = [
        {"match": {"vendor": "nvidia"}},
        {"match": {"vendor": "nvidia", "id": "x"}},
        {"match": {"pci_address": "3b:*"}},
    ]
    assert told({"resources": rules}, *GPUS) == []


def test_rules_of_health_and_programs_that_mean_no_device_are_told():
    """They are about nothing."""
    health = {
        "rules": [{"match": {"vendor": "amd"}, "action": "warn"}, {"action": "warn"}],
        "external": [{"name": "a", "match": {"vendor": "rdma"}, "file": "/a"}],
    }
    assert told({"health": health}, *GPUS) == [
        f"health.rules[0]: {NONE_OF_TWO}",
        f"health.external[0]: {NONE_OF_TWO}",
    ]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"resources": [{"match": {"vendor": "nvidia", "exclude": [{"id": "GPU-9"}]}}]},
        {"resources": [{"match": {"vendor": "amd"}, "optional": True}]},
        {"health": {"rules": [{"match": {"vendor": "amd"}, "optional": True, "action": "warn"}]}},
        {"resources": [{"match": {"vendor": "nvidia", "memory_bytes": "8*"}}]},
    ],
)
def test_what_has_an_effect_or_may_have_one_soon_is_not_told(config):
    """An exception or what is optional is for another node; NVML says later how much memory a GPU has."""
    assert told(config, *GPUS) == []


@pytest.mark.parametrize("said", [gpu(0, memory_bytes="9"), gpu(0), gpu(0, awaited=["brand"])])
def test_a_rule_over_what_nvml_has_said_or_will_never_say_is_told(said):
    """It waits for nothing any more. Defect: where NVML had failed, or was not asked, it waited for ever."""
    assert told({"resources": [{"match": {"memory_bytes": "8*"}}]}, said) == [
        f"resources[0]: {NONE_OF_TWO.replace('2 devices', '1 device')}"
    ]


def test_a_node_without_devices_has_no_warnings_about_rules():
    """There is nothing to compare with; a scan says what it looked at."""
    assert told({"resources": [{"match": {"id": "GPU-7"}}]}) == []


def test_simulated_devices_beside_real_ones_are_told():
    """A pod may be given a device that is not there."""
    simulated = Device(vendor="simulated", id="gpu-0", resource_name="nvidia.com/gpu")
    assert told({}, *GPUS, simulated) == [
        (
            "simulated: `nvidia.com/gpu` has 1 simulated device beside 2 real, and a pod that is given a simulated"
            " one has no device —"
            " give the simulated ones another name"
        )
    ]
    assert told({}, simulated) == []


def test_a_node_that_a_generic_device_and_a_vendors_have_is_told_once():
    """Two pods would be given it."""
    generic = Device(vendor="generic", id="x", resource_name="a.example/x", paths=[node("/dev/nvidia0")])
    assert told({}, *GPUS, generic) == [
        (
            "generic: /dev/nvidia0 of `a.example/x` is also part of `nvidia.com/gpu`, and two pods may be given"
            " it — leave one of them out: `resources: [{match: {resource_name: nvidia.com/gpu}, advertise: false}]`"
        )
    ]
    left_out = {"resources": [{"match": {"vendor": "nvidia"}, "advertise": False}]}
    assert told(left_out, *GPUS, generic) == []


def test_one_resource_of_several_vendors_is_told():
    """Defect: a rule whose `vendor` was commented out made one resource of every device, without a word."""
    amd = Device(vendor="amd", id="amd-0", resource_name="amd.com/gpu")
    both = [{"match": {"vendor": vendor}, "name": "a.example/gpu"} for vendor in ("nvidia", "amd")]
    for resources in ([{"match": {}, "name": "a.example/gpu"}], both):
        [warning] = told({"resources": resources}, *GPUS, amd)
        assert warning.startswith(
            "resources: `a.example/gpu` is one resource of devices of amd, nvidia, and a pod gets"
        )
    assert told({"resources": both}, *GPUS) == [f"resources[1]: {NONE_OF_TWO}"]
