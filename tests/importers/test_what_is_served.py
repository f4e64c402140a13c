"""What a plugin served and what devherd serves after `config import`: the same, or a note names what is not.

The texts have the shapes of the examples in the plugins' repositories (`deployments/`, `docs/`, `hack/`, chart values).
"""

import json
from collections.abc import Mapping

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devherd.cli.import_config import _text
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.errors import UsageError
from devherd.importers import import_text
from devherd.scanner.once import scan_once
from devherd.spool import listed
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

UNCHANGED = "No setting needed"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """The root of a simulated node of a preset, made once."""
    made = {}

    def root(name):
        if name not in made:
            made[name] = SimulatedNode.create(tmp_path_factory.mktemp("node") / "node", preset(name)).root
        return made[name]

    return root


def served(root, config):
    """The number of ids of each resource."""
    report = scan_once(resolve(Config.model_validate(config | {"host_root": str(root)})))
    return {offer.name: len(list(listed(offer))) for offer in report.offers}


def imported(documents, plugin=None):
    """The only configuration of a text, or of documents in one stream."""
    text = documents if isinstance(documents, str) else yaml.safe_dump_all(documents)
    (found,) = import_text(text, "the text", plugin)
    return found


def daemon_set(name, image, *args):
    container = {"name": name, "image": image, "args": list(args), "volumeMounts": [{"name": "config"}]}
    pod = {"containers": [container], "volumes": [{"name": "config", "configMap": {"name": "devices"}}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"template": {"spec": pod}},
    }


def config_map(content, key="config.json"):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "devices"},
        "data": {key: json.dumps(content)},
    }


def resource_list(*resources):
    return config_map({"resourceList": list(resources)})


RDMA_SHARED = daemon_set("k8s-rdma-shared-dp-ds", "ghcr.io/mellanox/k8s-rdma-shared-dev-plugin")
SRIOV = daemon_set(
    "kube-sriovdp", "ghcr.io/k8snetworkplumbingwg/sriov-network-device-plugin:latest", "--log-level=10", "--use-cdi"
)
AMD_SPEC = {
    "selector": {"feature.node.kubernetes.io/amd-gpu": "true"},
    "driver": {"enable": False},
    "devicePlugin": {
        "enableDevicePlugin": True,
        "devicePluginImage": "rocm/k8s-device-plugin:latest",
        "devicePluginArguments": {},
        "enableNodeLabeller": True,
        "kubeletSocketPath": "/var/lib/kubelet/device-plugins",
    },
    "metricsExporter": {"enable": True},
}
AMD_VALUES = {
    "node-feature-discovery": {"enabled": True},
    "kmm": {"enabled": True},
    "installdefaultNFDRule": True,
    "crds": {"defaultCR": {"install": True}},
    "deviceConfig": {"spec": AMD_SPEC},
    "controllerManager": {"replicas": 1},
}
NVIDIA_VALUES = {
    "driver": {"enabled": True},
    "devicePlugin": {"enabled": True, "repository": "nvcr.io/nvidia", "image": "k8s-device-plugin"},
    "gfd": {"enabled": True},
    "dcgmExporter": {"enabled": True},
    "sandboxWorkloads": {"enabled": False},
    "sandboxDevicePlugin": {"enabled": True},
    "kataSandboxDevicePlugin": {"enabled": True},
}
NOTHING: Mapping[str, int] = {}
EXAMPLES = {
    "pools": (
        "rdma-2",
        [
            RDMA_SHARED,
            config_map(
                {
                    "periodicUpdateInterval": 300,
                    "configList": [
                        {"resourceName": "hca_a", "rdmaHcaMax": 1000, "devices": ["ib0", "ib1"]},
                        {"resourceName": "hca_b", "rdmaHcaMax": 50, "selectors": {"ifNames": ["ib3", "ib4"]}},
                    ],
                }
            ),
        ],
        {"rdma/hca_a": 1000, "rdma/hca_b": 0},
    ),
    "no pool": ("rdma-2", [RDMA_SHARED, config_map({"configList": []})], NOTHING),
    "DDP profiles": (
        "rdma-sriov",
        [SRIOV, resource_list({"resourceName": "e800", "selectors": [{"devices": ["1889"], "ddpProfiles": ["ICE"]}]})],
        NOTHING,
    ),
    "DPDK": (
        "rdma-sriov",
        [SRIOV, resource_list({"resourceName": "x710vfio", "selectors": [{"drivers": ["vfio-pci"]}]})],
        NOTHING,
    ),
    "RDMA and DPDK in one": (
        "rdma-sriov",
        [
            SRIOV,
            resource_list(
                {
                    "resourcePrefix": "dpdk.org",
                    "resourceName": "nic",
                    "selectors": [
                        {"vendors": ["15b3"], "devices": ["101c"], "drivers": ["mlx5_core"], "isRdma": True},
                        {"vendors": ["8086"], "drivers": ["vfio-pci"]},
                    ],
                }
            ),
        ],
        {"dpdk.org/nic": 4},
    ),
    "values of AMD's operator": ("amd-8", [AMD_VALUES], {"amd.com/gpu": 8}),
    "a DeviceConfig": (
        "amd-8",
        [{"apiVersion": "amd.com/v1alpha1", "kind": "DeviceConfig", "spec": AMD_SPEC}],
        {"amd.com/gpu": 8},
    ),
    "AMD's plugin": ("amd-8", [daemon_set("amdgpu-dp-cntr", "rocm/k8s-device-plugin")], {"amd.com/gpu": 8}),
    "values of NVIDIA's operator": ("nvidia-8", [NVIDIA_VALUES], {"nvidia.com/gpu": 8}),
    "NVIDIA's plugin": (
        "nvidia-8",
        [daemon_set("nvidia-device-plugin-ctr", "nvcr.io/nvidia/k8s-device-plugin:v0.19.0")],
        {"nvidia.com/gpu": 8},
    ),
    "time slices": (
        "nvidia-8",
        [{"version": "v1", "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}],
        {"nvidia.com/gpu": 32},
    ),
    "shares of Intel GPUs": (
        "intel-gpu-2",
        [daemon_set("intel-gpu-plugin", "intel/intel-gpu-plugin:0.36.0", "-shared-dev-num=3", "-enable-monitoring")],
        {"gpu.intel.com/i915": 3, "gpu.intel.com/xe": 3, "gpu.intel.com/monitoring": 1},
    ),
    "Intel GPUs": (
        "intel-gpu-2",
        [daemon_set("intel-gpu-plugin", "intel/intel-gpu-plugin:0.36.0")],
        {"gpu.intel.com/i915": 1, "gpu.intel.com/xe": 1},
    ),
    "FPGA regions": (
        "fpga-1",
        [daemon_set("intel-fpga-plugin", "intel/intel-fpga-plugin:0.36.0", "-mode=region")],
        {"fpga.intel.com/region-69528db6eb31577a8c3668f9faa081f6": 1},
    ),
    "Xilinx": (
        "xilinx-2",
        [daemon_set("xilinx-fpga-device-plugin", "public.ecr.aws/xilinx_dcg/k8s-device-plugin:1.1.0")],
        {"amd.com/xilinx_u200_xdma_201830_2-1561465320": 1, "amd.com/xilinx_u250_qdma_201920_1-1579647260": 1},
    ),
    "generic": (
        "generic",
        "--device '{name: kvm, groups: [{count: 5, paths: [{path: /dev/kvm}]}]}'",
        {"devic.es/kvm": 5},
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_same_is_served_after_an_import(name, node):
    """Of what devherd serves at all; `No setting needed` only where the defaults serve it, too."""
    spec, documents, before = EXAMPLES[name]
    found = imported(documents, "xilinx" if name == "Xilinx" else None)
    assert served(node(spec), found.config) == before
    if UNCHANGED in _text(found):
        assert served(node(spec), {}) == before


@pytest.mark.parametrize("name", ["DDP profiles", "DPDK", "RDMA and DPDK in one"])
def test_a_resource_that_is_not_served_any_more_is_named(name):
    """Users 3.3: all resources were left out, and yet every default was right."""
    found = imported(EXAMPLES[name][1])
    assert not found.serves_the_same
    assert any("is left out: only its RDMA devices are served" in note for note in found.notes)


@pytest.mark.parametrize(
    "documents",
    [
        [RDMA_SHARED],
        [{**daemon_set("k8s-rdma-shared-dp-ds", ""), "metadata": {"name": "an overlay"}}],
        [SRIOV],
        "--resource-prefix=x.example --config-file=/etc/pcidp/config.json --use-cdi",
        "generic-device-plugin --config /etc/config.yaml",
    ],
)
def test_a_plugin_whose_resources_are_elsewhere_is_refused(documents):
    """Users 3.3: the default serves rdma/hca, which these never had, and none of theirs."""
    with pytest.raises(UsageError, match="are not in what is imported") as error:
        imported(documents)
    assert "ConfigMap" in error.value.cure


@pytest.mark.parametrize(
    ("documents", "why"),
    [
        ("--config-file=/config/config.yaml --fail-on-init-error", "the file of --config-file is not read"),
        ("-wsl", "-wsl is left out"),
        ("-resource-manager -enable-monitoring=false", "-resource-manager is left out"),
        ([{**NVIDIA_VALUES, "devicePlugin": {"enabled": False, "image": "x"}}], "the operator starts no plugin"),
        (
            [{"deviceConfig": {"spec": {"devicePlugin": {"enableDevicePlugin": False}}}}],
            "the operator starts no plugin",
        ),
    ],
)
def test_a_default_is_not_called_right_where_it_serves_something_else(documents, why):
    """A note says what."""
    found = imported(documents)
    assert UNCHANGED not in _text(found)
    assert any(why in note for note in found.notes)


@pytest.mark.parametrize(
    ("documents", "names"),
    [
        ([AMD_VALUES], ["enableNodeLabeller", "selector", "devicePluginImage", "metricsExporter", "kmm", "crds"]),
        ([NVIDIA_VALUES], ["gfd", "sandboxDevicePlugin", "kataSandboxDevicePlugin", "dcgmExporter"]),
    ],
)
def test_each_part_of_an_operator_that_is_left_out_is_named(documents, names):
    """Users 3.3: docs/switch.md says that none is left out without a comment."""
    said = " ".join(note for note in imported(documents).notes if "left out" in note)
    assert [name for name in names if name not in said] == []


def test_an_object_for_devices_that_are_not_served_says_so():
    """Others D10: it was taken for values of a chart. Beside one that is served it is named."""
    item = {"apiVersion": "deviceplugin.intel.com/v1", "kind": "XpuDevicePlugin", "spec": {"sharedDevNum": 10}}
    with pytest.raises(UsageError) as error:
        imported([item])
    assert error.value.why == "devices of XpuDevicePlugin are not served by devherd"
    gpu = {"apiVersion": "deviceplugin.intel.com/v1", "kind": "GpuDevicePlugin", "spec": {"sharedDevNum": 2}}
    assert "XpuDevicePlugin is left out: its devices are not served by devherd" in imported([item, gpu]).notes


def test_flags_may_be_quoted_as_for_a_shell():
    """Others D9: the first word began with a quote, and was no flag."""
    quoted = "'--domain' x.example '--device' '{name: kvm, groups: [{paths: [{path: /dev/kvm}]}]}'"
    assert imported(quoted).config["generic"][0]["name"] == "x.example/kvm"


SELECTORS = st.fixed_dictionaries(
    {},
    optional={
        "vendors": st.sampled_from([["15b3"], ["1dd8"], ["1dd8", "15b3"]]),
        "ifNames": st.lists(st.sampled_from(["ib0", "ib1", "ib9"]), min_size=1, unique=True),
    },
).filter(bool)
INTERFACES = {"ib0", "ib1"}
QUIETLY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUIETLY
@given(st.lists(st.tuples(st.integers(1, 50), SELECTORS), max_size=4))
def test_any_pools_are_served_as_before(node, pools):
    """By the shared plugin each pool is registered, with its number of ids or, if no card fits, with none."""
    entries = [
        {"resourceName": f"p{number}", "rdmaHcaMax": size, "selectors": selectors}
        for number, (size, selectors) in enumerate(pools)
    ]
    before = {
        f"rdma/{entry['resourceName']}": entry["rdmaHcaMax"]
        if "15b3" in entry["selectors"].get("vendors", ["15b3"])
        and INTERFACES.intersection(entry["selectors"].get("ifNames", INTERFACES))
        else 0
        for entry in entries
    }
    found = imported([RDMA_SHARED, config_map({"configList": entries})])
    assert served(node("rdma-2"), found.config) == before
    assert UNCHANGED not in _text(found)


@QUIETLY
@given(
    st.lists(
        st.fixed_dictionaries(
            {"isRdma": st.booleans()},
            optional={"vendors": st.sampled_from([["15b3"], ["8086"]]), "pfNames": st.just(["eth0#0-1"])},
        ),
        max_size=4,
    )
)
def test_any_functions_are_served_as_before(node, selectors):
    """By the SR-IOV plugin a function belongs to the first resource that fits, if that asks for RDMA devices."""
    left, before = {0, 1, 2, 3}, {}
    entries = []
    for number, selector in enumerate(selectors):
        entries.append({"resourceName": f"r{number}", "selectors": selector})
        if selector["isRdma"] and selector.get("vendors") != ["8086"]:
            taken = left & ({0, 1} if "pfNames" in selector else left)
            before |= {f"intel.com/r{number}": len(taken)} if taken else {}
            left -= taken
    found = imported([SRIOV, resource_list(*entries)])
    assert served(node("rdma-sriov"), found.config) == before
    assert UNCHANGED not in _text(found)
    assert found.serves_the_same == all(selector["isRdma"] for selector in selectors)
