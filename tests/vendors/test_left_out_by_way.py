"""What the device plugin and CDI offer of the same hardware: never a device beside its parts, and nothing to nobody."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from remembered import remembered

from devherd import spool
from devherd._native import Device
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.inventory import CDI, DEVICE_PLUGIN, DevicesFile, Entry
from devherd.offers import rules
from devherd.proto import devices_pb2
from devherd.scanner.core import edits_for, native_scanner
from devherd.scanner.observer import Observer
from devherd.scanner.once import ScanReport, scan_once
from devherd_sim.node import faults
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.presets import PRESETS, preset
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

BOTH = (DEVICE_PLUGIN, CDI)
STRATEGIES = ("none", "single", "mixed")
POOL = {"name": "rdma/all", "rdma_hca_max": 2, "selectors": {"vendors": ["15b3"]}}
PLUGINS = (
    {"rdma": {"mode": "device"}},
    {
        "rdma": {"mode": "sriov"},
        "nvidia": {"mig_strategy": "single", "passthrough": True},
        "intel_gpu": {"monitoring": "single"},
    },
    {
        "rdma": {
            "mode": "shared",
            "pools": [{"name": "rdma/all", "rdma_hca_max": 2, "selectors": {"vendors": ["15b3"]}}],
        },
        "nvidia": {"mig_strategy": "mixed"},
        "intel_gpu": {"monitoring": "split"},
    },
)
"""Options of the plugins that decide what a device is."""
ALONE = (
    "it is for virtual machines, which are given devices by the device plugin alone",
    "it is in MIG mode, and has no MIG devices",
)
"""The reasons for which nothing else of the same hardware is offered."""


WITH_MIG_DEVICES = {name for name in PRESETS if "mig" in name} - {"nvidia-mig-procfs"} | {"everything"}


def scanned(root: Path, ways: tuple[str, ...] = BOTH, **vendors: Any) -> ScanReport:
    config = resolve(Config.model_validate({"host_root": root, "vendors": vendors}))
    return scan_once(replace(config, ways=ways))


def offered(report: ScanReport, way: str) -> list[Device]:
    return [entry.device for entry in report.inventory.entries.values() if way not in entry.left_out]


def left_out(report: ScanReport, way: str) -> dict[str, str]:
    return {
        entry.device.id: entry.left_out[way] for entry in report.inventory.entries.values() if way in entry.left_out
    }


def are_whole_and_part(whole: Device, part: Device) -> bool:
    """Whether the second is a part of the first: of one GPU or function, or one of those whose nodes the first has."""
    if whole.vendor != part.vendor or whole.key == part.key:
        return False
    facts, of_part = whole.attributes, part.attributes
    if "gpu_instance" in of_part:
        return whole.card == part.card and "gpu_instance" not in facts
    if "physfn" in of_part and facts.get("pci_address") == of_part["physfn"]:
        return True
    own = {path.path for path in part.paths if path.is_node and path.path != "/dev/infiniband/rdma_cm"}
    return not whole.functions and bool(own) and own <= {path.path for path in whole.paths}


@pytest.mark.parametrize("vendors", PLUGINS)
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_by_cdi_no_device_stands_beside_its_parts_and_what_is_left_out_is_offered_otherwise(
    tmp_path: Path, name: str, vendors: dict[str, Any]
) -> None:
    """Whatever the options of the plugins say: by DRA each piece of hardware can be given once."""
    SimulatedNode.create(tmp_path, preset(name))
    report = scanned(tmp_path, **vendors)
    found = offered(report, CDI)
    assert [(one.id, other.id) for one in found for other in found if are_whole_and_part(one, other)] == []
    for key, entry in report.inventory.entries.items():
        why = entry.left_out.get(CDI)
        if why is not None and why not in ALONE and name != "nvidia-mig-procfs":
            assert any(are_whole_and_part(entry.device, other) for other in found), (key, why)


@pytest.mark.parametrize("name", sorted(WITH_MIG_DEVICES))
def test_by_cdi_the_mig_devices_are_offered_under_every_strategy_and_their_gpus_under_none(
    tmp_path: Path, name: str
) -> None:
    """`mig_strategy` is an option of the device plugin: under its default no MIG device was offered to anybody."""
    SimulatedNode.create(tmp_path, preset(name))
    ids = []
    for strategy in STRATEGIES:
        found = offered(scanned(tmp_path, nvidia={"mig_strategy": strategy}), CDI)
        ids.append({device.id for device in found if device.vendor == "nvidia"})
        assert [device.id for device in found if device.attribute("mig_mode") == "enabled"] == []
        assert any(device.attribute("mig_profile") for device in found)
    assert ids[0] == ids[1] == ids[2]


def test_mig_devices_that_nobody_can_name_are_a_problem_also_where_the_device_plugin_expects_none(
    tmp_path: Path,
) -> None:
    """Without NVML they are offered to nobody, and that is said."""
    SimulatedNode.create(tmp_path, preset("nvidia-mig-procfs"))
    report = scanned(tmp_path)
    assert [device.id for device in offered(report, CDI) if device.attribute("mig_mode") == "enabled"] == []
    assert any("MIG devices" in problem.error for problem in report.problems)


def test_a_gpu_in_mig_mode_without_mig_devices_says_so(tmp_path: Path) -> None:
    """Nobody is offered it, and there are no MIG devices that would be instead."""
    SimulatedNode.create(tmp_path, NodeSpec.model_validate({"nvidia": {"gpus": 2, "nvml": True, "mig": [[], None]}}))
    report = scanned(tmp_path, nvidia={"mig_strategy": "mixed"})
    assert [*left_out(report, CDI).values()] == [*left_out(report, DEVICE_PLUGIN).values()] == [ALONE[1]]


@pytest.mark.parametrize("vendors", PLUGINS)
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_device_plugin_offers_the_same_beside_another_way(
    tmp_path: Path, name: str, vendors: dict[str, Any]
) -> None:
    """And where it is alone, nothing is said of the way that is not in use."""
    SimulatedNode.create(tmp_path, preset(name))
    alone, both = (scanned(tmp_path, ways, **vendors) for ways in ((DEVICE_PLUGIN,), BOTH))
    assert {device.key for device in offered(alone, DEVICE_PLUGIN)} == {
        device.key for device in offered(both, DEVICE_PLUGIN)
    }
    assert {way for entry in alone.inventory.entries.values() for way in entry.left_out} <= {DEVICE_PLUGIN}


@pytest.mark.parametrize("driver", ["gim", "vfio-pci"])
def test_what_is_for_virtual_machines_is_offered_by_the_device_plugin_alone(tmp_path: Path, driver: str) -> None:
    """AMD's GPUs under a driver for virtual machines."""
    vfs = 2 if driver == "gim" else 0
    SimulatedNode.create(tmp_path, NodeSpec(amd=[AmdSpec(model="mi300x", cards=2, driver=driver, vfs=vfs)]))
    report = scanned(tmp_path)
    assert (len(offered(report, DEVICE_PLUGIN)), offered(report, CDI)) == (2 * max(vfs, 1), [])
    assert {*left_out(report, CDI).values()} == {ALONE[0]}


@pytest.mark.parametrize("monitoring", ["single", "split"])
def test_the_monitoring_device_of_intels_plugin_is_not_offered_by_cdi(tmp_path: Path, monitoring: str) -> None:
    """It has the nodes of all cards, each of which is offered."""
    SimulatedNode.create(tmp_path, NodeSpec(intel_gpu=[IntelGpuSpec(cards=2)]))
    report = scanned(tmp_path, intel_gpu={"monitoring": monitoring})
    assert {device.id for device in offered(report, DEVICE_PLUGIN)} == {"all", "card0-0", "card1-0"}
    assert left_out(report, CDI) == {"all": "the cards whose nodes it has are offered instead"}


def test_where_there_are_pools_each_way_has_its_own_devices_of_a_card(tmp_path: Path) -> None:
    """Pools are many containers on all devices, which the device plugin can say; by CDI each device is one."""
    SimulatedNode.create(tmp_path, NodeSpec(rdma=[RdmaSpec(cards=2)]))
    pools = {"mode": "shared", "pools": [POOL]}
    report = scanned(tmp_path, rdma=pools)
    assert [device.card for device in offered(report, DEVICE_PLUGIN)] == ["rdma/all"]
    assert {device.id for device in offered(report, CDI)} == {"mlx5_0", "mlx5_1"}
    assert left_out(report, DEVICE_PLUGIN) == dict.fromkeys(
        ["mlx5_0", "mlx5_1"], "pools are offered instead (`vendors.rdma.mode` is `shared`)"
    )
    assert left_out(report, CDI) == {"0": "the RDMA devices whose nodes it has are offered instead"}
    alone = scanned(tmp_path, (DEVICE_PLUGIN,), rdma=pools)
    assert [entry.device.card for entry in alone.inventory.entries.values()] == ["rdma/all"]


@pytest.mark.parametrize("mode", ["device", "sriov"])
def test_one_rdma_device_serves_both_ways_but_a_physical_function_beside_its_virtual_ones(
    tmp_path: Path, mode: str
) -> None:
    """In mode `device` the plugin offers physical and virtual functions alike; by CDI the hardware is given once."""
    SimulatedNode.create(tmp_path, NodeSpec(rdma=[RdmaSpec(vfs=2)]))
    report = scanned(tmp_path, rdma={"mode": mode})
    assert len(offered(report, DEVICE_PLUGIN)) == (3 if mode == "device" else 2)
    assert {device.attribute("virtual") for device in offered(report, CDI)} == {"true"}
    assert [*left_out(report, CDI).values()] == ["its virtual functions are offered instead"]


def test_a_physical_function_whose_virtual_ones_are_elsewhere_is_offered_by_cdi_as_by_the_mode(tmp_path: Path) -> None:
    """Nothing of it stands beside it; only mode `sriov` waits for a rule that names it."""
    SimulatedNode.create(tmp_path, NodeSpec(rdma=[RdmaSpec(vfs=2, vf_driver="vfio-pci")]))
    numbers = [len(offered(scanned(tmp_path, rdma={"mode": mode}), CDI)) for mode in ("device", "sriov")]
    assert numbers == [1, 0]


@pytest.mark.parametrize("mode", ["device", "sriov"])
def test_physical_and_virtual_functions_have_the_facts_that_a_condition_asks_of_both(tmp_path: Path, mode: str) -> None:
    """A condition on a fact that some devices lack ends an allocation by DRA for all."""
    SimulatedNode.create(tmp_path, NodeSpec(rdma=[RdmaSpec(vfs=2), RdmaSpec()]))
    devices = [entry.device for entry in scanned(tmp_path, rdma={"mode": mode}).inventory.entries.values()]
    asked = [(device.attribute("virtual"), device.attribute("pf_address")) for device in devices]
    own = [device.attribute("pci_address") for device in devices]
    physical = [device.attribute("physfn") or address for device, address in zip(devices, own, strict=True)]
    assert asked == [
        (str(device.attribute("physfn") is not None).lower(), address)
        for device, address in zip(devices, physical, strict=True)
    ]
    assert len({device.attribute("pf_netdev") for device in devices}) == 2
    assert all(device.attribute("pf_netdev") for device in devices)


@pytest.mark.parametrize("way", BOTH)
def test_rules_leave_out_what_their_way_leaves_out_and_no_more(tmp_path: Path, way: str) -> None:
    """One configuration serves both ways; only reasons of the own way count."""
    SimulatedNode.create(tmp_path, NodeSpec(intel_gpu=[IntelGpuSpec()], rdma=[RdmaSpec()]))
    config = resolve(Config.model_validate({"host_root": tmp_path, "vendors": {"intel_gpu": {"monitoring": True}}}))
    report = scan_once(replace(config, ways=BOTH))
    made = rules.arrange(config, report.inventory.entries.values(), way)
    by_both = {"gpu.intel.com/xe": 1, "rdma/hca": 1}
    expected = by_both if way == CDI else by_both | {"gpu.intel.com/monitoring": 1}
    assert {offer.name: len(offer.devices) for offer in made.offers} == expected


def test_a_pool_without_devices_is_an_offer_of_the_device_plugin_alone() -> None:
    """By CDI there are no pools."""
    config = resolve(Config.model_validate({"vendors": {"rdma": {"mode": "shared", "pools": [POOL]}}}))
    assert [[offer.name for offer in rules.arrange(config, [], way).offers] for way in BOTH] == [["rdma/all"], []]


def test_the_reasons_of_each_way_survive_a_restart_of_the_scanner(tmp_path: Path) -> None:
    """And a file of the version before, which had one reason for all ways, is read without it."""
    left = {DEVICE_PLUGIN: "its MIG devices are offered instead", CDI: "it is in use"}
    file = DevicesFile(tmp_path / "devices.pb")
    inventory = file.read()
    inventory.entries = {("amd", "", "a"): Entry(Device(vendor="amd", id="a"), "amd.com/gpu", left_out=left)}
    inventory.version += 1
    file.write(inventory)
    assert [entry.left_out for entry in DevicesFile(tmp_path / "devices.pb").read().entries.values()] == [left]

    text = left[DEVICE_PLUGIN].encode()
    known = spool.encoded(devices_pb2.KnownDevice(device=devices_pb2.Device(vendor="amd", id="a"), resource_name="x"))
    known += bytes([4 << 3 | 2, len(text)]) + text
    (tmp_path / "devices.pb").write_bytes(bytes([1 << 3 | 2, len(known)]) + known)
    assert [entry.left_out for entry in DevicesFile(tmp_path / "devices.pb").read().entries.values()] == [{}]


FPGA = {"intel_fpga": {"mode": "region"}, "intel_gpu": {"monitoring": True}, "rdma": {"mode": "sriov"}}


def specs_of(root: Path, ways: tuple[str, ...]) -> dict[str, set[str]]:
    """The files that an observer writes, each with the names of its devices."""
    for file in (root / "cdi").glob("*"):
        file.unlink()
    config = resolve(Config.model_validate({"host_root": root, "cdi_dir": "/cdi", "vendors": FPGA}))
    Observer(replace(config, ways=ways)).scan(0.0)
    texts = {file.name: json.loads(file.read_text()) for file in (root / "cdi").glob("[!.]*")}
    return {name: {f"{spec['kind']}={device['name']}" for device in spec["devices"]} for name, spec in texts.items()}


def test_the_specs_of_all_ways_are_there_also_of_devices_that_the_device_plugin_leaves_out(tmp_path: Path) -> None:
    """By names that stay; and of what no way offers there is none."""
    SimulatedNode.create(tmp_path, preset("everything"))
    config = resolve(Config.model_validate({"host_root": tmp_path, "vendors": FPGA}))
    report = scan_once(replace(config, ways=BOTH))
    native = native_scanner(replace(config, ways=BOTH))
    wanted = set()
    for entry in report.inventory.entries.values():
        if CDI not in entry.left_out:
            edits = edits_for(native, report.inventory.platforms, None, entry, "a.b/c", way=CDI)
            assert edits is not None
            assert edits.cdi_devices
            wanted |= {name for name in edits.specs if "=" in name}
    found = specs_of(tmp_path, BOTH)
    names = {name for of_file in found.values() for name in of_file if not name.endswith("=all")}
    assert names == {name for name in wanted if not name.endswith("=all")}
    assert any("MIG-" in name for name in names), "which the device plugin leaves out by default"
    assert not any("monitoring" in name for name in names)


def test_a_device_that_the_plugin_names_for_a_part_has_all_its_edits_in_its_spec_by_cdi(tmp_path: Path) -> None:
    """In mode `region` of FPGAs the plugin's name brings the hook alone; nodes go by the kubelet's API."""
    SimulatedNode.create(tmp_path, preset("fpga-1"))
    for ways, parts in (((DEVICE_PLUGIN,), {"hooks"}), (BOTH, {"hooks", "deviceNodes"})):
        specs_of(tmp_path, ways)
        [file] = (tmp_path / "cdi").glob("[!.]*")
        [device] = json.loads(file.read_text())["devices"]
        assert device["containerEdits"].keys() == parts


@pytest.mark.parametrize("restarts", [False, True])
def test_devices_of_a_way_that_is_no_longer_in_use_are_dropped_and_not_gone(tmp_path: Path, restarts: bool) -> None:
    """Defect: RDMA devices stayed for `forget_after`, Unhealthy, as those that had vanished."""
    SimulatedNode.create(tmp_path, NodeSpec(rdma=[RdmaSpec(cards=2)], amd=[AmdSpec(model="mi300x")]))
    config = resolve(
        Config.model_validate({"host_root": tmp_path, "vendors": {"rdma": {"mode": "shared", "pools": [POOL]}}})
    )
    observer = Observer(replace(config, ways=BOTH))
    observer.scan(0.0)
    assert len(observer.inventory.entries) == 4
    if restarts:
        observer = Observer(config, inventory=remembered(observer))
    else:
        observer.reconfigure(config)
    observer.scan(1.0)
    assert [(key[0], entry.gone_since) for key, entry in observer.inventory.entries.items()] == [
        ("amd", None),
        ("rdma", None),
    ]


def test_a_forgotten_device_leaves_no_spec_of_a_way_that_is_no_longer_in_use(tmp_path: Path) -> None:
    """Defect: it stayed for ever. What other devices have in common stays: pods may hold them."""
    node = SimulatedNode.create(tmp_path, NodeSpec.model_validate({"nvidia": {"gpus": 2, "nvml": True}}))
    config = resolve(Config.model_validate({"host_root": tmp_path, "cdi_dir": "/cdi"}))
    observer = Observer(replace(config, ways=BOTH))
    observer.scan(0.0)
    observer.reconfigure(config)
    observer.scan(1.0)
    found = []
    for place, address in enumerate(node.nvidia.addresses(), 1):
        faults.inject(node, "remove", address)
        observer.scan(1e6 * place)
        found.append(specs_in(tmp_path / "cdi"))
        observer.scan(1e6 * place + 1e5)
        found.append(specs_in(tmp_path / "cdi"))
    assert [len(each["devices"]) for each in found if each] == [3, 2, 2]
    assert all(each["containerEdits"]["mounts"] for each in found[:3])
    assert found[3] == {}


def specs_in(directory: Path) -> dict[str, Any]:
    """The only spec there; empty if there is none."""
    files = list(directory.glob("[!.]*"))
    assert len(files) <= 1
    return json.loads(files[0].read_text()) if files else {}


def test_specs_follow_the_ways_of_a_reload(tmp_path: Path) -> None:
    """And what a container may still be given stays."""
    SimulatedNode.create(tmp_path, preset("amd-1"))
    config = resolve(Config.model_validate({"host_root": tmp_path, "cdi_dir": "/cdi"}))
    observer = Observer(config)
    found = []
    for place, ways in enumerate([(DEVICE_PLUGIN,), BOTH, (DEVICE_PLUGIN,)]):
        observer.reconfigure(replace(config, ways=ways))
        observer.scan(float(place))
        found.append([file.name for file in (tmp_path / "cdi").glob("[!.]*")])
    assert found == [[], ["devherd-amd.json"], ["devherd-amd.json"]]
