"""Whole answers of Allocate for containers with several devices, in the strategies of the vendors' plugins."""

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from devherd.device_plugin.allocation import RefusedError, container_response
from devherd.device_plugin.snapshot import Snapshot
from devherd.proto import spool_pb2

CDI = "k8s.device-plugin.nvidia.com"
CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm")


def node(path: str) -> spool_pb2.Node:
    return spool_pb2.Node(host_path=path, container_path=path, permissions="rw")


def mount(host_path: str, container_path: str) -> spool_pb2.Mount:
    return spool_pb2.Mount(host_path=host_path, container_path=container_path)


def envvar(number: int, uuid: str) -> dict:
    return {"envs": {"NVIDIA_VISIBLE_DEVICES": uuid, "NVIDIA_IMEX_CHANNELS": "0"}}


def index(number: int, uuid: str) -> dict:
    return {"envs": {"NVIDIA_VISIBLE_DEVICES": str(number)}}


def volume_mounts(number: int, uuid: str) -> dict:
    directory = "/var/run/nvidia-container-devices"
    mounts = [mount("/dev/null", f"{directory}/{uuid}"), mount("/dev/null", f"{directory}/imex/0")]
    return {"envs": {"NVIDIA_VISIBLE_DEVICES": directory}, "mounts": mounts}


def cdi_names(uuid: str) -> list[str]:
    return [f"{CDI}/gpu={uuid}", f"{CDI}/imex-channel=0", f"{CDI}/gds=all"]


def cdi_annotations(number: int, uuid: str) -> dict:
    return {"annotations": {"cdi.k8s.io/nvidia-device-plugin_gpu": ",".join(cdi_names(uuid))}}


def cdi_cri(number: int, uuid: str) -> dict:
    return {"cdi_devices": cdi_names(uuid), "envs": {"NVIDIA_GDS": "enabled"}}


def device_specs(number: int, uuid: str) -> dict:
    return envvar(number, uuid) | {"nodes": [*map(node, CONTROL), node(f"/dev/nvidia{number}")]}


def specs(*paths: str) -> list[dict]:
    return [{"hostPath": path, "containerPath": path, "permissions": "rw"} for path in paths]


def mounts(*pairs: tuple[str, str]) -> list[dict]:
    return [{"hostPath": host, "containerPath": container} for host, container in pairs]


ANSWERS = [
    (envvar, {"envs": {"NVIDIA_VISIBLE_DEVICES": "GPU-2,GPU-10", "NVIDIA_IMEX_CHANNELS": "0"}}),
    (index, {"envs": {"NVIDIA_VISIBLE_DEVICES": "2,10"}}),
    (
        volume_mounts,
        {
            "envs": {"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"},
            "mounts": mounts(
                ("/dev/null", "/var/run/nvidia-container-devices/GPU-2"),
                ("/dev/null", "/var/run/nvidia-container-devices/imex/0"),
                ("/dev/null", "/var/run/nvidia-container-devices/GPU-10"),
            ),
        },
    ),
    (
        cdi_annotations,
        {
            "annotations": {
                "cdi.k8s.io/nvidia-device-plugin_gpu": f"{CDI}/gpu=GPU-2,{CDI}/imex-channel=0,{CDI}/gds=all,"
                f"{CDI}/gpu=GPU-10"
            }
        },
    ),
    (
        cdi_cri,
        {
            "envs": {"NVIDIA_GDS": "enabled"},
            "cdiDevices": [
                {"name": name}
                for name in (f"{CDI}/gpu=GPU-2", f"{CDI}/imex-channel=0", f"{CDI}/gds=all", f"{CDI}/gpu=GPU-10")
            ],
        },
    ),
    (
        device_specs,
        {
            "envs": {"NVIDIA_VISIBLE_DEVICES": "GPU-2,GPU-10", "NVIDIA_IMEX_CHANNELS": "0"},
            "devices": specs(*CONTROL, "/dev/nvidia2", "/dev/nvidia10"),
        },
    ),
]


def answered(devices: list[spool_pb2.ListedDevice], ids: list[str]) -> dict:
    return MessageToDict(container_response(Snapshot(spool_pb2.Resource(name="nvidia.com/gpu", devices=devices)), ids))


@pytest.mark.parametrize(("strategy", "answer"), ANSWERS, ids=[strategy.__name__ for strategy, _ in ANSWERS])
def test_a_container_with_two_gpus_gets_both_in_natural_order_and_what_they_share_once(strategy, answer):
    """N8: the vendor's plugin answers in random order; here it is the list's, whatever order is asked for."""
    devices = [
        spool_pb2.ListedDevice(id=uuid, edits=spool_pb2.Edits(**strategy(number, uuid)))
        for number, uuid in ((2, "GPU-2"), (10, "GPU-10"))
    ]

    assert answered(devices, ["GPU-10", "GPU-2"]) == answer
    assert answered(devices, ["GPU-2", "GPU-10"]) == answer


@pytest.mark.parametrize("strategy", [strategy for strategy, _ in ANSWERS])
def test_two_replicas_of_one_gpu_bring_what_the_gpu_brings_alone(strategy):
    """N8: the vendor's plugin lists its path twice."""
    replicas = [spool_pb2.ListedDevice(id="GPU-2", replicas=2, edits=spool_pb2.Edits(**strategy(2, "GPU-2")))]

    assert answered(replicas, ["GPU-2::1", "GPU-2::0"]) == answered(replicas, ["GPU-2::0"])


def test_two_amd_gpus_have_the_common_node_once():
    """`/dev/kfd` and two nodes for each GPU, nothing else."""
    devices = [
        spool_pb2.ListedDevice(
            id=f"0000:{bus}:00.0",
            edits=spool_pb2.Edits(
                nodes=[node("/dev/kfd"), node(f"/dev/dri/card{card}"), node(f"/dev/dri/renderD{128 + card}")]
            ),
        )
        for card, bus in enumerate(("19", "3b"))
    ]

    assert answered(devices, ["0000:3b:00.0", "0000:19:00.0"]) == {
        "devices": specs("/dev/kfd", "/dev/dri/card0", "/dev/dri/renderD128", "/dev/dri/card1", "/dev/dri/renderD129")
    }


def test_lists_that_overlap_name_each_member_once():
    """Two functions of one IOMMU group, or channels that several GPUs bring."""
    devices = [
        spool_pb2.ListedDevice(id=number, edits=spool_pb2.Edits(envs=envs))
        for number, envs in {
            "1": {"CHANNELS": "0,1", "JSON": '{"a": 1, "b": 2}'},
            "2": {"CHANNELS": "1,2", "JSON": '{"a": 1, "b": 2}'},
            "3": {"CHANNELS": ""},
        }.items()
    ]

    assert answered(devices, ["3", "2", "1"])["envs"] == {"CHANNELS": "0,1,2", "JSON": '{"a": 1, "b": 2}'}


@pytest.mark.parametrize(
    ("ids", "status", "words"),
    [
        (["GPU-1"], grpc.StatusCode.FAILED_PRECONDITION, ["'GPU-1'", "xid", "driver-unbound"]),
        (["GPU-0", "GPU-1"], grpc.StatusCode.FAILED_PRECONDITION, ["'GPU-1'"]),
        (["GPU-9"], grpc.StatusCode.INVALID_ARGUMENT, ["nvidia.com/gpu", "'GPU-9'"]),
        (["GPU-2::0", "GPU-2::1"], grpc.StatusCode.INVALID_ARGUMENT, ["2 devices of nvidia.com/gpu", "request 1"]),
        (["GPU-0", "GPU-2::1"], grpc.StatusCode.INVALID_ARGUMENT, ["2 devices of nvidia.com/gpu"]),
    ],
)
def test_what_must_not_be_is_refused_with_a_code_and_a_reason(ids, status, words):
    """N17, N38: the vendor's plugin gives lost GPUs away, and all its errors have the code Unknown."""
    devices = [
        spool_pb2.ListedDevice(id="GPU-0"),
        spool_pb2.ListedDevice(id="GPU-1", reasons=["driver-unbound", "xid"]),
        spool_pb2.ListedDevice(id="GPU-2", replicas=2),
        spool_pb2.ListedDevice(id="GPU-3"),
    ]
    snapshot = Snapshot(spool_pb2.Resource(name="nvidia.com/gpu", devices=devices, fail_requests_greater_than_one=True))

    assert container_response(snapshot, ["GPU-0", "GPU-3"]) is not None
    with pytest.raises(RefusedError) as refusal:
        container_response(snapshot, ids)
    assert refusal.value.status is status
    assert all(word in str(refusal.value) for word in words)
