"""On trees of each vendor: the devices are those that the vendor's own driver publishes, without a difference."""

import pytest
import vendors_drivers
from publishing import devices_of, published

from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

SPARSE = NodeSpec(nvidia=NvidiaSpec(gpus=8, numa_nodes=2, nvml=True, excluded=[2], uninitialised=[5]))
MIG = NodeSpec(nvidia=NvidiaSpec(gpus=2, nvml=True, mig=[["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"], None]))

TREES = {
    "AMD MI210": (preset("amd-8"), "gpu.amd.com", vendors_drivers.amd, 8),
    "AMD MI300X, CPX": (preset("amd-8-cpx"), "gpu.amd.com", vendors_drivers.amd, 63),
    "AMD MI308X": (preset("amd-8-mi308"), "gpu.amd.com", vendors_drivers.amd, 32),
    "Intel, xe": (NodeSpec(intel_gpu=[IntelGpuSpec(cards=4)]), "gpu.intel.com", vendors_drivers.intel, 4),
    "Intel, i915": (
        NodeSpec(intel_gpu=[IntelGpuSpec(driver="i915", cards=2, numa_nodes=0)]),
        "gpu.intel.com",
        vendors_drivers.intel,
        2,
    ),
    "NVIDIA, sparse": (SPARSE, "gpu.nvidia.com", vendors_drivers.nvidia, 7),
    "NVIDIA, MIG": (MIG, "gpu.nvidia.com", vendors_drivers.nvidia, 5),
}


@pytest.mark.parametrize("tree", TREES)
def test_devices_are_those_of_the_vendors_driver(tree, tmp_path):
    """Names, attributes with their kinds, and capacities by value."""
    spec, driver, vendors, count = TREES[tree]
    root = SimulatedNode.create(tmp_path / "node", spec).root
    pools, _, notices = published(root, {"vendors": {"nvidia": {"mig_strategy": "mixed"}}})
    expected = vendors(root)
    assert len(expected) == count
    assert devices_of(pools, driver) == expected
    assert notices == []


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_mig_devices_are_published_whatever_the_device_plugins_strategy(strategy, tmp_path):
    """As the vendor's driver does, which has none; what the strategy calls them is a class of its own, or a notice."""
    root = SimulatedNode.create(tmp_path / "node", MIG).root
    pools, classes, notices = published(root, {"vendors": {"nvidia": {"mig_strategy": strategy}}})
    assert devices_of(pools, "gpu.nvidia.com") == vendors_drivers.nvidia(root)
    names = {each.name: each.extended_resource_name for each in classes}
    assert names["gpu.nvidia.com"] == "nvidia.com/gpu"
    assert "mig.nvidia.com" in names
    if strategy == "mixed":
        assert names["nvidia.com-mig-1g.10gb"] == "nvidia.com/mig-1g.10gb"
        assert notices == []
    else:
        assert [notice.partition(": ")[0] for notice in notices] == ["class gpu.nvidia.com"]


def test_a_node_without_a_whole_gpu_has_no_second_class_for_the_name_of_whole_gpus(tmp_path):
    """The vendor's class is the cluster's: another node prints it, and the name can have no other."""
    parts = NodeSpec(nvidia=NvidiaSpec(gpus=1, nvml=True, mig=[["1g.10gb", "2g.20gb"]]))
    root = SimulatedNode.create(tmp_path / "node", parts).root
    _, classes, notices = published(root)
    assert [(each.name, each.extended_resource_name) for each in classes] == [("mig.nvidia.com", None)]
    (notice,) = notices
    assert notice.startswith("class gpu.nvidia.com: a pod that asks for nvidia.com/gpu never gets ")


def test_virtual_functions_of_an_intel_gpu_are_as_the_vendors_driver_has_them_without_the_physical_one(tmp_path):
    """The vendor's driver publishes both, although they share the GPU: here no device stands beside its parts."""
    root = SimulatedNode.create(tmp_path / "node", preset("intel-gpu-sriov")).root
    pools, _, _ = published(root)
    functions = {
        name: device for name, device in vendors_drivers.intel(root).items() if device[0]["type"] == {"string": "vf"}
    }
    assert len(functions) == 7
    assert devices_of(pools, "gpu.intel.com") == functions
