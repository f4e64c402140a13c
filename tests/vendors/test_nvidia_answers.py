"""What a container with NVIDIA devices gets, in each of the vendor's strategies: nvidia.md 3.1 to 3.4."""

from pathlib import Path
from typing import Any

import pytest
from nvidia_host import by_index, complaints, node_paths, scanned, simulated

from devherd._native import Device
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.device_plugin.allocation import merge
from devherd.scanner.once import scan_once
from devherd_sim.node.entry import DeviceNode
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.tree import put

CONTROL = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"]
CDI = "k8s.device-plugin.nvidia.com"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
MOUNTS = "/var/run/nvidia-container-devices"


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    """Two GPUs; the second in MIG mode, with NVML. Beside them, the nodes of all that containers may get as well."""
    node = simulated(tmp_path, gpus=2, nvml=True, mig=[None, ["3g.40gb", "1g.10gb"]])
    for minor, name in enumerate(("gdrdrv", "nvidia-fs0", "infiniband/uverbs0")):
        put(DeviceNode(f"dev/{name}", "char", 240, minor), node.root)
    return node


def device(node: SimulatedNode, index: str = "0", **options: Any) -> Device:
    """The device of an index."""
    strategy = "mixed" if ":" in index else "none"
    return by_index(scanned(node.root, mig_strategy=strategy, **options))[index]


def mounts(device: Device) -> list[tuple[str, str, bool]]:
    """Host path, container path, read-only."""
    return [(mount.host_path, mount.container_path, mount.read_only) for mount in device.mounts]


@pytest.mark.parametrize("index", ["0", "1:1"])
def test_a_variable_names_the_device(node: SimulatedNode, index: str):
    """`envvar`, by UUID and by index; nothing else is answered."""
    by_uuid = device(node, index)
    assert by_uuid.envs == {VISIBLE: by_uuid.id}
    assert device(node, index, device_id_strategy="index").envs == {VISIBLE: index}
    assert (by_uuid.nodes, by_uuid.mounts, by_uuid.annotations, by_uuid.cdi_devices) == ([], [], {}, [])


@pytest.mark.parametrize("index", ["0", "1:1"])
def test_mounts_name_the_device(node: SimulatedNode, index: str):
    """`volume-mounts`: /dev/null below a directory that the variable names."""
    mounted = device(node, index, device_list_strategy=["volume-mounts"])
    assert mounted.envs == {VISIBLE: MOUNTS}
    assert mounts(mounted) == [("/dev/null", f"{MOUNTS}/{mounted.id}", False)]
    by_index_ = device(node, index, device_list_strategy=["volume-mounts"], device_id_strategy="index")
    assert mounts(by_index_) == [("/dev/null", f"{MOUNTS}/{index}", False)]


@pytest.mark.parametrize("strategies", [["envvar", "volume-mounts"], ["volume-mounts", "envvar"]])
def test_mounts_have_the_last_word_on_the_variable(node: SimulatedNode, strategies: list[str]):
    """N30: with both strategies the variable is that of the mounts, in whatever order they are given."""
    both = device(node, device_list_strategy=strategies)
    assert both.envs == {VISIBLE: MOUNTS}
    assert len(both.mounts) == 1


def test_cdi_names_the_device_and_nothing_else_is_answered(node: SimulatedNode):
    """`cdi-cri`, by UUID and by index; the runtime brings the nodes, so that none is passed."""
    by_uuid = device(node, device_list_strategy=["cdi-cri"], pass_device_specs=True)
    assert by_uuid.cdi_devices == [f"{CDI}/gpu={by_uuid.id}"]
    assert (by_uuid.envs, by_uuid.nodes, by_uuid.mounts, by_uuid.annotations) == ({}, [], [], {})
    by_place = device(node, "1:0", device_list_strategy=["cdi-cri"], device_id_strategy="index")
    assert by_place.cdi_devices == [f"{CDI}/gpu=1:0"]


def test_annotations_have_the_same_keys_in_every_answer(node: SimulatedNode):
    """N33: the kubelet replays answers, so no key is random; each name has its own, so that none hides another."""
    options = {"device_list_strategy": ["cdi-annotations"], "gds_enabled": True}
    first, again = (device(node, "1:0", **options) for _ in range(2))
    bare = first.id.removeprefix("MIG-")
    assert first.annotations == again.annotations
    assert first.annotations == {
        f"cdi.k8s.io/nvidia-device-plugin_{bare}": f"{CDI}/gpu={first.id}",
        "cdi.k8s.io/nvidia-device-plugin_gds.all": f"{CDI}/gds=all",
    }
    other = device(node, "1:0", cdi_annotation_prefix="nvidia.cdi.k8s.io/", **options)
    assert all(key.startswith("nvidia.cdi.k8s.io/nvidia-device-plugin_") for key in other.annotations)
    by_place = device(node, "1:0", device_id_strategy="index", **options)
    assert by_place.annotations["cdi.k8s.io/nvidia-device-plugin_1.0"] == f"{CDI}/gpu=1:0"


def test_an_annotations_key_is_one_that_kubernetes_takes(node: SimulatedNode):
    """At most 63 characters behind the slash, ending in a letter or digit."""
    for index in ("0", "1:0"):
        keys = device(node, index, device_list_strategy=["cdi-annotations"], mofed_enabled=True).annotations
        assert len(keys) == 2, "one for the GPU, one for the InfiniBand nodes"
        for key in keys:
            name = key.partition("/")[2]
            assert len(name) <= 63
            assert name[-1].isalnum()


def test_all_strategies_at_once(node: SimulatedNode):
    """Strategies combine; each adds its own."""
    every = ["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]
    combined = device(node, device_list_strategy=every, pass_device_specs=True)
    assert combined.envs == {VISIBLE: MOUNTS}
    assert len(combined.mounts) == len(combined.annotations) == len(combined.cdi_devices) == 1
    assert node_paths(combined) == [*CONTROL, "/dev/nvidia0"]


def test_nodes_are_passed_with_those_that_all_gpus_need(node: SimulatedNode):
    """`pass_device_specs`: control nodes that exist, then the GPU's, all `rw`; a MIG device has two nodes more."""
    whole = device(node, pass_device_specs=True)
    assert node_paths(whole) == [*CONTROL, "/dev/nvidia0"]
    assert {(one.container_path, one.permissions) for one in whole.nodes} == {
        (path, "rw") for path in node_paths(whole)
    }
    (node.root / "dev/nvidia-modeset").unlink()
    part = device(node, "1:1", pass_device_specs=True)
    caps = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in (3 + 135 + 9 * 7, 3 + 135 + 9 * 7 + 1)]
    assert node_paths(part) == [*CONTROL[:3], "/dev/nvidia1", *caps]
    assert part.reasons == []


def test_several_devices_share_what_all_gpus_need(tmp_path: Path):
    """N8: ids in one variable, every node and mount once, in an order that does not change."""
    node = simulated(tmp_path, gpus=2)
    put(DeviceNode("dev/gdrdrv", "char", 240, 0), node.root)
    options = {"device_list_strategy": ["envvar", "cdi-cri"], "pass_device_specs": True, "gdrcopy_enabled": True}
    config = resolve(Config.model_validate({"host_root": node.root, "vendors": {"nvidia": options}}))
    (resource,) = scan_once(config).offers
    ids = [one.id for one in resource.devices]
    answer = merge([each.edits for each in resource.devices])
    assert dict(answer.envs) == {VISIBLE: ",".join(ids), "NVIDIA_GDRCOPY": "enabled"}
    assert sorted(one.host_path for one in answer.devices) == sorted([*CONTROL, "/dev/nvidia0", "/dev/nvidia1"])
    names = [one.name for one in answer.cdi_devices]
    assert names == [f"{CDI}/gpu={ids[0]}", f"{CDI}/gdrcopy=all", f"{CDI}/gpu={ids[1]}"]


def test_more_than_the_gpu_is_asked_for_in_variables_and_cdi_names(node: SimulatedNode):
    """GDRCopy, GPUDirect Storage and InfiniBand: the variables whatever the strategy, the names with CDI."""
    options = {"gdrcopy_enabled": True, "gds_enabled": True, "mofed_enabled": True}
    switches = {"NVIDIA_GDRCOPY": "enabled", "NVIDIA_GDS": "enabled", "NVIDIA_MOFED": "enabled"}
    plain = device(node, **options)
    assert plain.envs == {VISIBLE: plain.id, **switches}
    by_cdi = device(node, device_list_strategy=["cdi-cri"], **options)
    assert by_cdi.envs == switches
    assert by_cdi.cdi_devices == [
        f"{CDI}/{name}" for name in (f"gpu={plain.id}", "gdrcopy=all", "gds=all", "mofed=all")
    ]


def test_an_imex_channel_goes_with_every_device(node: SimulatedNode):
    """Variable, mount, node and CDI name, each with its strategy."""
    put(DeviceNode("dev/nvidia-caps-imex-channels/channel0", "char", 505, 0), node.root)
    plain = device(node, imex_channel_ids=[0], pass_device_specs=True)
    assert plain.envs == {VISIBLE: plain.id, "NVIDIA_IMEX_CHANNELS": "0"}
    assert node_paths(plain) == [*CONTROL, "/dev/nvidia0", "/dev/nvidia-caps-imex-channels/channel0"]
    mounted = device(node, imex_channel_ids=[0], device_list_strategy=["volume-mounts"])
    assert mounts(mounted)[1] == ("/dev/null", f"{MOUNTS}/imex/0", False)
    by_cdi = device(node, imex_channel_ids=[0], device_list_strategy=["cdi-cri"])
    assert by_cdi.cdi_devices == [f"{CDI}/gpu={by_cdi.id}", f"{CDI}/imex-channel=0"]


def test_a_missing_imex_channel_is_left_out_and_told(node: SimulatedNode):
    """Not required: a problem with its cure; required: the devices are unusable until it is there."""
    scan = scanned(node.root, imex_channel_ids=[0])
    assert scan.devices[0].envs == {VISIBLE: scan.devices[0].id}
    assert [device.reasons for device in scan.devices] == [[], []]
    (complaint,) = complaints(scan)
    assert complaint.startswith("/dev/nvidia-caps-imex-channels/channel0: IMEX channel 0 does not exist")
    needed = {"imex_channel_ids": [0], "imex_required": True}
    assert [device.reasons for device in scanned(node.root, **needed).devices] == [["node-missing"]] * 2
    put(DeviceNode("dev/nvidia-caps-imex-channels/channel0", "char", 505, 0), node.root)
    assert [device.reasons for device in scanned(node.root, imex_channel_ids=[0], imex_required=True).devices] == [
        [],
        [],
    ]


@pytest.mark.parametrize(
    ("options", "prefix"),
    [
        ({"driver_root": "/run/nvidia/driver"}, "/run/nvidia/driver"),
        ({"driver_root": "/home/kubernetes/bin/nvidia"}, ""),
        ({"driver_root": "/run/nvidia/driver", "dev_root": "/"}, ""),
        ({"dev_root": "/run/nvidia/driver"}, "/run/nvidia/driver"),
    ],
)
def test_nodes_are_where_the_driver_has_them(node: SimulatedNode, options: dict[str, str], prefix: str):
    """Below the dev root, which is the driver root if that has a `dev`; the container sees them in /dev."""
    for name in ("nvidia0", "nvidiactl"):
        put(DeviceNode(f"run/nvidia/driver/dev/{name}", "char", 195, 0 if name == "nvidia0" else 255), node.root)
    passed = device(node, pass_device_specs=True, **options)
    assert f"{prefix}/dev/nvidia0" in node_paths(passed)
    assert {one.container_path for one in passed.nodes} >= {"/dev/nvidiactl", "/dev/nvidia0"}
    assert passed.reasons == []
    own = node.root / f"{prefix}/dev/nvidia0".removeprefix("/")
    own.unlink()
    assert device(node, pass_device_specs=True, **options).reasons == ["node-missing"]


def test_mig_devices_without_nvml_are_given_by_their_nodes_where_nvml_is_not_to_be_asked(tmp_path: Path):
    """`procfs` and `single`: parent and both capability nodes, and a variable that keeps NVIDIA's runtime away."""
    node = simulated(tmp_path, gpus=1, mig=[["3g.40gb"]])
    (part,) = scanned(node.root, mig_strategy="single", device_discovery_strategy="procfs").devices
    uuid = part.attributes["gpu_uuid"]
    assert (part.id, part.resource_name) == (f"MIG-{uuid}/1/0", "nvidia.com/gpu")
    assert part.envs == {VISIBLE: "void"}
    assert node_paths(part) == [
        *CONTROL,
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap12",
        "/dev/nvidia-caps/nvidia-cap13",
    ]
    assert "uuid" not in part.attributes
    (by_cdi,) = scanned(
        node.root, mig_strategy="single", device_discovery_strategy="procfs", device_list_strategy=["cdi-cri"]
    ).devices
    assert (by_cdi.cdi_devices, by_cdi.nodes, by_cdi.envs) == ([f"{CDI}/gpu=MIG-{uuid}_1_0"], [], {})
