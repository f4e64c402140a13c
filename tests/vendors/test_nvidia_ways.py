"""What NVIDIA's devices give where containers get them by CDI beside the device plugin, or by CDI alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from answering import core_settings, edits_of
from nvidia_host import complaints, planted, scanned, simulated
from test_nvidia_changes import without_nodes
from test_nvidia_trees import TEGRA, WSL

from devherd._native import Scan, Scanner
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

COMMON = "k8s.device-plugin.nvidia.com/gpu"
LISTED = """
etc/nvidia-container-runtime/host-files-for-container.d/drivers.csv = lib, /usr/lib/libcuda.so.1
usr/lib/libcuda.so.1 ==
"""
HOSTS = ["nvidia-8", "nvidia-mig", "nvidia-mig-procfs", "nvidia-odd", "everything", "bare", "tegra", "wsl"]
PLUGIN, CLAIMS = "device-plugin", "cdi"
STRATEGIES = [["envvar"], ["volume-mounts"], ["cdi-annotations"], ["cdi-cri"], ["envvar", "cdi-cri"]]


def host_of(name: str, path: Path) -> Path:
    """A preset, a host without nodes, a Tegra board or Windows; its root."""
    trees = {"tegra": [TEGRA, LISTED], "wsl": [WSL]}
    if name in trees:
        return planted(path, *trees[name])
    if name == "bare":
        return without_nodes(path).root
    return SimulatedNode.create(path / "node", preset(name)).root


def by(root: Path, *ways: str, **options: Any) -> tuple[Scanner, Scan]:
    """A scan of NVIDIA's devices where containers get them in these ways."""
    told = json.loads(core_settings(root, nvidia=options))
    scanner = Scanner(str(root), json.dumps(told | {"ways": ways}))
    return scanner, scanner.scan()


def of_nvidia(scanner: Scanner, scan: Scan, way: str) -> dict[str, Any]:
    """The edits of each device, by id."""
    return {each.id: edits_of(scanner, scan, each, way) for each in scan.devices if each.vendor == "nvidia"}


@pytest.mark.parametrize("strategy", ["none", "mixed"])
@pytest.mark.parametrize("name", HOSTS)
def test_where_cdi_is_a_way_a_container_gets_by_it_what_the_strategy_cdi_cri_gives(name, strategy, tmp_path):
    """Defect: under the plugin's default options a container had no library by it, and no hook for them."""
    root = host_of(name, tmp_path)
    claims = by(root, CLAIMS, mig_strategy=strategy)
    plugin = by(root, PLUGIN, mig_strategy=strategy, device_list_strategy=["cdi-cri"])
    assert of_nvidia(*claims, CLAIMS) == of_nvidia(*plugin, CLAIMS)
    assert claims[1].platforms["nvidia"] == plugin[1].platforms["nvidia"]
    assert [device for device in claims[1].devices if device.vendor == "nvidia"] == [
        device for device in plugin[1].devices if device.vendor == "nvidia"
    ]


def test_a_claim_for_a_gpu_brings_the_drivers_libraries_and_its_hooks(tmp_path):
    """The plugin alone has them not even looked for."""
    root = host_of("nvidia-8", tmp_path)

    def counted(*ways: str) -> tuple[int, int]:
        common = next(iter(of_nvidia(*by(root, *ways), CLAIMS).values())).specs[COMMON]
        return len(common.mounts), len(common.hooks)

    assert counted(PLUGIN) == (0, 2)
    assert counted(PLUGIN, CLAIMS) == counted(CLAIMS) == (26, 5)


@pytest.mark.parametrize("name", HOSTS)
def test_no_byte_of_what_the_plugin_answers_depends_on_another_way(name, tmp_path):
    """Whatever its strategies."""
    root = host_of(name, tmp_path)
    for strategies in STRATEGIES:
        for options in ({}, {"pass_device_specs": True}, {"mig_strategy": "mixed"}):
            told = {"device_list_strategy": strategies, **options}
            alone = of_nvidia(*by(root, PLUGIN, **told), PLUGIN)
            assert of_nvidia(*by(root, PLUGIN, CLAIMS, **told), PLUGIN) == alone
            assert of_nvidia(*by(root, CLAIMS, **told), PLUGIN) == alone


@pytest.mark.parametrize("ways", [(PLUGIN,), (CLAIMS,), (PLUGIN, CLAIMS)])
def test_nodes_that_the_runtime_would_make_must_be_there_where_cdi_is_a_way(ways, tmp_path):
    """Defect: beside the device plugin they need not be, and no container could start with such a device by CDI."""
    scan = by(host_of("bare", tmp_path), *ways)[1]
    own = [path for device in scan.devices for path in device.paths if path.role == "device"]
    assert own
    assert {path.is_required for path in own} == {CLAIMS in ways}
    assert {bool(device.findings) for device in scan.devices} == {CLAIMS not in ways}


def test_by_claims_mig_devices_are_expected_whatever_the_plugins_strategy_says(tmp_path):
    """A GPU in MIG mode without any, and MIG devices that only NVML could name, are told; under `none` neither was."""
    empty = simulated(tmp_path / "empty", gpus=1, nvml=True, mig=[[]]).root
    unnamed = host_of("nvidia-mig-procfs", tmp_path / "unnamed")
    for root, complaint in ((empty, "has no MIG devices"), (unnamed, "only NVML reports their UUIDs")):
        assert complaints(scanned(root, mig_strategy="none")) == []
        [first, *_] = by(root, CLAIMS, mig_strategy="none")[1].problems
        assert complaint in first.error


def test_by_claims_devices_of_several_kinds_are_no_problem(tmp_path):
    """That all are nvidia.com/gpu under `single` concerns the plugin alone."""
    root = simulated(tmp_path, gpus=2, nvml=True, mig=[["3g.40gb", "1g.10gb"], None]).root
    assert by(root, CLAIMS, mig_strategy="single")[1].problems == []
    assert len(by(root, PLUGIN, CLAIMS, mig_strategy="single")[1].problems) == 1
