"""`front_end`: what follows from it, and the settings that it leaves without effect."""

import pytest
from pydantic import ValidationError

from devherd.config.checks import warnings_of
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.config.resolved import as_json, from_json

POOL = {"name": "rdma/all", "rdma_hca_max": 2, "selectors": {"vendors": ["15b3"]}}


def warnings(content):
    """Place and text of each warning."""
    return [
        (".".join(map(str, problem.location)), problem.what) for problem in warnings_of(Config.model_validate(content))
    ]


@pytest.mark.parametrize(
    ("front_end", "way", "is_dra"), [("device_plugin", "device-plugin", False), ("dra", "cdi", True)]
)
def test_a_front_end_gives_devices_in_its_own_way(front_end, way, is_dra):
    """Through the file that processes read."""
    config = from_json(as_json(resolve(Config.model_validate({"front_end": front_end}))))
    assert (config.front_end, config.way, config.ways, config.is_dra) == (front_end, way, (way,), is_dra)


def test_by_default_the_device_plugin_serves_and_taints_let_pods_run():
    """As before there was a choice."""
    config = resolve(Config())
    assert (config.front_end, config.health.taint, config.ways) == ("device_plugin", "NoSchedule", ("device-plugin",))


@pytest.mark.parametrize("wrong", [{"front_end": "both"}, {"health": {"taint": "PreferNoSchedule"}}])
def test_a_front_end_or_taint_that_is_none_is_refused(wrong):
    """Kubernetes has a third effect, which does not keep a sick device from pods."""
    with pytest.raises(ValidationError):
        Config.model_validate(wrong)


def test_pools_and_device_info_are_the_device_plugins():
    """By DRA each RDMA device stands for itself, and Multus asks nobody for it."""
    shared = {"vendors": {"rdma": {"mode": "shared", "pools": [POOL]}}}
    functions = {"vendors": {"rdma": {"mode": "sriov"}}}
    assert resolve(Config.model_validate(shared)).pools == ["rdma/all"]
    assert resolve(Config.model_validate({**shared, "front_end": "dra"})).pools == []
    assert resolve(Config.model_validate(functions)).device_info_dir is not None
    assert resolve(Config.model_validate({**functions, "front_end": "dra"})).device_info_dir is None


IDLE = {
    "registration": {"registration": "plugins_registry"},
    "kubelet_check": {"kubelet_check": "10s"},
    "ledger.enabled": {"ledger": {"enabled": True}},
    "vendors.nvidia.device_list_strategy": {"vendors": {"nvidia": {"device_list_strategy": "cdi-cri"}}},
    "vendors.nvidia.pass_device_specs": {"vendors": {"nvidia": {"pass_device_specs": True}}},
    "vendors.nvidia.cdi_annotation_prefix": {"vendors": {"nvidia": {"cdi_annotation_prefix": "a.b/"}}},
    "vendors.nvidia.shared_devices_allocation_policy": {
        "vendors": {"nvidia": {"shared_devices_allocation_policy": "packed"}}
    },
    "vendors.nvidia.passthrough": {"vendors": {"nvidia": {"passthrough": True}}},
    "vendors.intel_gpu.allocation_policy": {"vendors": {"intel_gpu": {"allocation_policy": "packed"}}},
    "vendors.intel_gpu.monitoring": {"vendors": {"intel_gpu": {"monitoring": "split"}}},
    "vendors.rdma.pools": {"vendors": {"rdma": {"mode": "shared", "pools": [POOL]}}},
    "vendors.rdma.device_info_dir": {"vendors": {"rdma": {"device_info_dir": "/var/run/x"}}},
    "resources.0.preferred": {"resources": [{"preferred": "aligned"}]},
    "resources.0.pre_start": {"resources": [{"pre_start": {"unhealthy": "wait"}}]},
    "resources.0.sharing.strategy": {
        "resources": [{"match": {"vendor": "nvidia"}, "sharing": {"strategy": "mps", "replicas": 2}}],
        "vendors": {"nvidia": {"mps_root": "/run/mps"}},
    },
    "resources.0.sharing.fail_requests_greater_than_one": {
        "resources": [{"sharing": {"fail_requests_greater_than_one": True}}]
    },
}


@pytest.mark.parametrize("place", IDLE)
def test_what_only_the_device_plugin_uses_is_told_with_dra_alone(place):
    """A user who moves a configuration learns what it loses."""
    assert warnings(IDLE[place]) == []
    [(where, what)] = warnings({"front_end": "dra", **IDLE[place]})
    assert where == place
    assert what.startswith("no effect with `front_end: dra`: ")


@pytest.mark.parametrize(
    "used",
    [
        {},
        {"vendors": {"nvidia": {"mig_strategy": "mixed"}}},  # it names the devices, and their classes
        {"vendors": {"rdma": {"mode": "sriov"}, "intel_gpu": {"shared_devices": 4}}},
        {"resources": [{"sharing": {"replicas": 2, "fail_requests_greater_than_one": True}}]},
        {"resources": [{"advertise": False}]},
        {"health": {"taint": "NoExecute"}},
    ],
)
def test_what_dra_uses_too_is_not_told(used):
    """Names, shares and what is left out are in the slices."""
    assert warnings({"front_end": "dra", **used}) == []


def test_the_effect_of_taints_is_told_where_nothing_has_taints():
    """The device plugin has none."""
    [(place, what)] = warnings({"health": {"taint": "NoExecute"}})
    assert (place, what) == ("health.taint", "no effect: only devices that are published for DRA have taints")


def test_with_dra_nothing_is_asked_before_a_start_and_no_ledger_is_kept(tmp_path):
    """The first would be asked by nobody, the second would take a claim's pod for one that was given nothing."""
    from devherd.sources.request import requests_for
    from devherd.supervisor.programs import DEVHERD

    content = {"resources": [{"pre_start": {"unhealthy": "wait"}}], "ledger": {"enabled": True}}
    [program] = [one for one in DEVHERD.children if one.group == "pre-start"]
    [resource] = [one for one in DEVHERD.children if one.group == "resource"]
    for front_end, is_there in (("device_plugin", True), ("dra", False)):
        config = resolve(Config.model_validate({**content, "front_end": front_end}))
        assert program.wanted(config, config.settings()) is is_there
        assert resource.wanted(config, config.settings()) is is_there
        assert ("ledger" in requests_for(config, None, "boot")) is is_there
