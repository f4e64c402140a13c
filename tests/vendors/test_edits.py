"""What containers get, by one way and by the other, for every device of every simulated node."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from answering import edits_of, scanner_of
from remembered import remembered

from devherd import cdi
from devherd._native import Edits
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.scanner.core import native_scanner
from devherd.scanner.observer import Observer
from devherd_sim.node.presets import PRESETS

Roots = Callable[[str], Path]
"""The fixture `preset_root`."""

OPTIONS: dict[str, dict[str, Any]] = {
    "nodes alone": {
        "nvidia": {"device_list_strategy": ["envvar"], "pass_device_specs": True, "mig_strategy": "mixed"},
        "intel_fpga": {"mode": "af"},
        "rdma": {"mode": "sriov"},
    },
    "both ways": {
        "nvidia": {"device_list_strategy": ["volume-mounts", "cdi-cri"], "pass_device_specs": True},
        "intel_fpga": {"mode": "region"},
        "intel_gpu": {"shared_devices": 2, "monitoring": True},
        "rdma": {
            "mode": "shared",
            "pools": [
                {"name": f"rdma/pool_{number}", "rdma_hca_max": number, "selectors": {"vendors": ["15b3"]}}
                for number in (1, 2)
            ],
        },
    },
    "all that there is": {
        "nvidia": {"device_list_strategy": ["cdi-annotations"], "mig_strategy": "single", "gds_enabled": True},
        "intel_fpga": {"mode": "regiondevel"},
        "rdma": {"shared_devices": 2},
    },
}
GENERIC = [
    {
        "name": "example.com/both",
        "groups": [{"paths": [{"path": "/dev/kvm", "mountPath": "/dev/x"}, {"path": "/dev/net", "type": "Mount"}]}],
    }
]


def nodes(edits: Edits) -> set[tuple[str, str]]:
    """Host path and container path of each node."""
    return {(node.host_path, node.container_path) for node in edits.nodes}


def mounts(edits: Edits) -> set[tuple[str, str]]:
    """Host path and container path of each mount, except those that only name a device to NVIDIA's runtime."""
    return {(mount.host_path, mount.container_path) for mount in edits.mounts if mount.host_path != "/dev/null"}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_by_cdi_a_container_gets_the_nodes_and_mounts_that_it_gets_without(name: str, options: str, preset_root: Roots):
    """Every vendor can answer by CDI. NVIDIA's names bring the driver's libraries and graphics nodes as well."""
    root = preset_root(name)
    scanner, scan = scanner_of(root, vendors=OPTIONS[options], generic=GENERIC)
    assert scan.devices or name == "nvidia-mig-procfs", "its MIG devices are known through NVML alone"
    for device in scan.devices:
        by_specs, by_cdi = (edits_of(scanner, scan, device, way) for way in ("device-plugin", "cdi"))
        assert (nodes(by_cdi), mounts(by_cdi)) == (set(), set())
        assert all(cdi.is_legal(cdi_name) for cdi_name in by_cdi.specs)
        assert set(by_cdi.cdi_devices) <= by_cdi.specs.keys()
        given_nodes = {node for edits in by_cdi.specs.values() for node in nodes(edits)}
        given_mounts = {mount for edits in by_cdi.specs.values() for mount in mounts(edits)}
        if device.vendor == "nvidia":
            assert nodes(by_specs) <= given_nodes
            assert given_nodes, "a GPU is nothing without its nodes"
        else:
            assert (nodes(by_specs), mounts(by_specs)) == (given_nodes, given_mounts)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_no_two_devices_of_a_node_share_a_cdi_name_unless_they_bring_the_same(name: str, preset_root: Roots):
    """A name stands for one thing: two specs for it would make runtimes refuse both."""
    root = preset_root(name)
    scanner, scan = scanner_of(root, vendors=OPTIONS["both ways"], generic=GENERIC)
    assert scan.devices
    known: dict[str, Edits] = {}
    for device in scan.devices:
        for cdi_name, edits in edits_of(scanner, scan, device, "cdi").specs.items():
            assert known.setdefault(cdi_name, edits) == edits


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_device_that_an_earlier_scanner_found_is_answered_as_it_was(name: str, options: str, preset_root: Roots):
    """A running pod's devices stay what they are when the scanner is started again while they cannot be looked at."""
    root = preset_root(name)
    config = resolve(Config.model_validate({"host_root": root, "vendors": OPTIONS[options], "generic": GENERIC}))
    before = Observer(config)
    before.scan(0.0)
    kept, fresh = remembered(before), native_scanner(config)
    assert kept.platforms == before.inventory.platforms
    for key, entry in before.inventory.entries.items():
        for way in ("device-plugin", "cdi"):
            answers = [
                native.edits(inventory.entries[key].device, inventory.platforms.get(entry.vendor), way, "a/b")
                for native, inventory in ((fresh, kept), (fresh, before.inventory))
            ]
            assert answers[0] == answers[1] is not None
