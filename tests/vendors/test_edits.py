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
from devherd.device_plugin.allocation import merge
from devherd.inventory import Entry
from devherd.proto import spool_pb2
from devherd.scanner.core import edits_for, native_scanner
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


def variables(edits: Edits) -> dict[str, str]:
    """The variables in the static specs of a device."""
    return {name: value for of_name in edits.specs.values() for name, value in of_name.envs.items()}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_by_cdi_the_specs_of_devices_and_of_their_claim_set_the_variables_of_the_device_plugin(
    name: str, options: str, preset_root: Roots
):
    """A runtime keeps the last value of a variable that two static specs set: PCIDEVICE_… named one device of two."""
    scanner, scan = scanner_of(preset_root(name), vendors=OPTIONS[options], generic=GENERIC)
    static: dict[str, set[str]] = {}
    for vendor in {device.vendor for device in scan.devices}:
        devices = [device for device in scan.devices if device.vendor == vendor]
        by_cdi = [edits_for(scanner, scan.platforms, None, Entry(one, "a.b/c"), "a.b/c", way="cdi") for one in devices]
        answers = [edits_for(scanner, scan.platforms, None, Entry(one, "a.b/c"), "a.b/c") for one in devices]
        text = cdi.claim_spec("devherd.io/claim", {"uid": by_cdi})
        of_claim = cdi.read(text)["devherd.io/claim=uid"] if text else {}
        assert of_claim.keys() <= {"env"}
        for each in by_cdi:
            for variable, value in variables(each).items():
                static.setdefault(variable, set()).add(value)
        if vendor != "nvidia":  # whose own runtime is told by variables, and needs none with CDI
            merged = merge([spool_pb2.Edits.FromString(answer.encoded()) for answer in answers])
            set_by_cdi = static | {line.partition("=")[0]: {line.partition("=")[2]} for line in of_claim.get("env", ())}
            assert {name: {value} for name, value in merged.envs.items()}.items() <= set_by_cdi.items()
    assert all(len(values) == 1 for values in static.values()), static


def test_what_mps_needs_depends_on_the_resource_name_and_is_in_no_static_spec(preset_root: Roots):
    """By either way a container of the resource gets it."""
    scanner, scan = scanner_of(preset_root("nvidia-8-nvlink"))
    device = scan.devices[0]
    for way in ("device-plugin", "cdi"):
        plain, shared = (
            edits_for(scanner, scan.platforms, "/run/mps", Entry(device, "x"), "a.b/c", way=way, by_mps=by_mps)
            for by_mps in (False, True)
        )
        assert plain is not None
        assert shared is not None
        assert shared.specs == plain.specs
        assert shared.envs == plain.envs | {"CUDA_MPS_PIPE_DIRECTORY": "/mps/a.b/c/pipe"}
        assert mounts(shared) - mounts(plain) == {
            ("/run/mps/a.b/c/pipe", "/mps/a.b/c/pipe"),
            ("/run/mps/shm", "/dev/shm"),
        }
