"""What pods with two NVIDIA GPUs get through the kubelet, in each strategy of the vendor's plugin: whole answers."""

import re
from pathlib import Path
from typing import Any

import pytest
from cdi_runtime import Runtime

from devherd._native import NaturalKey
from devherd_sim.kubelet.pod import AdmissionError
from devherd_sim.node.nvidia_faults import MpsDaemon

GPU = "nvidia.com/gpu"
CDI = "k8s.device-plugin.nvidia.com"
DIRECTORY = "/var/run/nvidia-container-devices"
NOTHING: dict[str, Any] = {"devices": [], "mounts": [], "envs": {}, "annotations": {}, "cdi_devices": []}


def on(expected: str, **options: Any) -> Any:
    """The test's parameter, on a node of eight GPUs with these options of NVIDIA's."""
    return pytest.param(expected, marks=pytest.mark.on("nvidia-8", {"vendors": {"nvidia": options}}), id=expected)


def mount(host_path: str, container_path: str) -> dict[str, Any]:
    return {"host_path": host_path, "container_path": container_path, "read_only": False}


def node(path: str) -> dict[str, Any]:
    return {"host_path": path, "container_path": path, "permissions": "rw"}


def expectation(strategy: str, first: str, second: str, numbers: list[str]) -> dict[str, Any]:
    """What the vendor's plugin answers for these UUIDs, nvidia.md 3.2 and 3.3, in the order of the list."""
    uuids = {"envs": {"NVIDIA_VISIBLE_DEVICES": f"{first},{second}"}}
    match strategy:
        case "envvar":
            return uuids
        case "index":
            return {"envs": {"NVIDIA_VISIBLE_DEVICES": ",".join(numbers)}}
        case "volume-mounts":
            mounts = [mount("/dev/null", f"{DIRECTORY}/{uuid}") for uuid in (first, second)]
            return {"envs": {"NVIDIA_VISIBLE_DEVICES": DIRECTORY}, "mounts": mounts}
        case "cdi-cri":
            return {"cdi_devices": [f"{CDI}/gpu={first}", f"{CDI}/gpu={second}"]}
        case "cdi-annotations":
            keys = [f"cdi.k8s.io/nvidia-device-plugin_{uuid.removeprefix('GPU-')}" for uuid in (first, second)]
            return {"annotations": {keys[0]: f"{CDI}/gpu={first}", keys[1]: f"{CDI}/gpu={second}"}}
    control = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
    return uuids | {"devices": [node(path) for path in (*control, *(f"/dev/nvidia{number}" for number in numbers))]}


@pytest.mark.parametrize(
    "strategy",
    [
        on("envvar"),
        on("index", device_id_strategy="index"),
        on("volume-mounts", device_list_strategy=["volume-mounts"]),
        on("cdi-annotations", device_list_strategy=["cdi-annotations"]),
        on("cdi-cri", device_list_strategy=["cdi-cri"]),
        on("pass-device-specs", pass_device_specs=True),
    ],
)
async def test_a_pod_with_two_gpus_gets_what_the_vendors_plugin_gives(testbed, strategy):
    """Drop-in, but for the order: here it is always the same."""
    await testbed.kubelet.until_allocatable(GPU, 8, within=30)

    allocation = await testbed.kubelet.allocate(GPU, 2, pod="train")

    first, second = sorted(allocation.device_ids, key=NaturalKey)
    numbers = [minor_of(testbed.node.root, uuid) for uuid in (first, second)]
    assert allocation.answer() == NOTHING | expectation(strategy, first, second, numbers)


@pytest.mark.on("nvidia-8", {"vendors": {"nvidia": {"device_list_strategy": ["cdi-cri"]}}})
async def test_the_runtime_knows_the_names_before_the_pod_is_admitted(testbed):
    """Allocate does no I/O: the specs stand when the devices are advertised."""
    await testbed.kubelet.until_allocatable(GPU, 8, within=30)

    allocation = await testbed.kubelet.allocate(GPU, 2, pod="train")

    edits = Runtime(testbed.node.root / "var/run/cdi").edits(allocation.answer()["cdi_devices"])
    given = {f"/dev/nvidia{minor_of(testbed.node.root, uuid)}" for uuid in allocation.device_ids}
    gpus = {path for path in (one["path"] for one in edits["deviceNodes"]) if re.fullmatch(r"/dev/nvidia\d", path)}
    assert gpus == given


MPS_CONFIG = {
    "vendors": {"nvidia": {"mps_root": "/run/nvidia/mps"}},
    "resources": [
        {
            "match": {"index": ["0"]},
            "sharing": {"strategy": "mps", "replicas": 2, "rename": "nvidia.com/gpu.shared"},
        }
    ],
}


@pytest.mark.on("nvidia-8", MPS_CONFIG)
async def test_one_gpu_is_shared_by_mps_and_the_others_are_whole(testbed, request):
    """N28, nvidia.md 3.6: a container finds the control daemon of its resource, and may have one replica only."""
    request.addfinalizer(MpsDaemon(testbed.node.root, "/run/nvidia/mps", "nvidia.com/gpu.shared").start().kill)
    await testbed.kubelet.until_allocatable("nvidia.com/gpu.shared", 2, within=30)
    await testbed.kubelet.until_allocatable(GPU, 7, within=30)

    with pytest.raises(AdmissionError, match="request 1"):
        await testbed.kubelet.allocate("nvidia.com/gpu.shared", 2, pod="greedy")
    allocation = await testbed.kubelet.allocate("nvidia.com/gpu.shared", 1, pod="modest")

    [replica] = allocation.device_ids
    pipe = "nvidia.com/gpu.shared/pipe"
    assert allocation.answer() == NOTHING | {
        "envs": {"CUDA_MPS_PIPE_DIRECTORY": f"/mps/{pipe}", "NVIDIA_VISIBLE_DEVICES": replica.partition("::")[0]},
        "mounts": [mount(f"/run/nvidia/mps/{pipe}", f"/mps/{pipe}"), mount("/run/nvidia/mps/shm", "/dev/shm")],
    }


def minor_of(root: Path, uuid: str) -> str:
    """The number of a GPU's node, by the driver's procfs."""
    told = (path.read_text() for path in (root / "proc/driver/nvidia/gpus").glob("*/information"))
    return next(re.search(r"Device Minor:\s+(\d+)", text)[1] for text in told if uuid in text)
