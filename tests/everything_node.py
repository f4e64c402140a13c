"""What the tests of the node with everything share: its configuration, and what a container with a device is to get."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.instance.inventory_json import inventory_json
from devherd.scanner.once import scan_once
from devherd_sim.testbed import Testbed

KVM, SERIAL, CAMERA = (f"devic.es/{name}" for name in ("kvm", "serial", "camera"))
GPU, PARTITION = "nvidia.com/gpu", "amd.com/cpx_nps4"
CONFIG: dict[str, Any] = {
    "scan": {"period": "500ms"},
    "health": {"poll": "100ms", "recover_after": 2, "forget_after": "1s"},
    "vendors": {
        "nvidia": {
            "mig_strategy": "mixed",
            "pass_device_specs": True,
            "device_list_strategy": ["envvar", "cdi-annotations"],
        },
        "amd": {"naming": "mixed"},
    },
    "generic": [
        {"name": KVM, "groups": [{"count": 10, "paths": [{"path": "/dev/kvm"}]}]},
        {"name": SERIAL, "groups": [{"usb": [{"vendor": "1a86", "product": "7523"}]}]},
        {"name": CAMERA, "groups": [{"paths": [{"path": "/dev/video*"}]}]},
    ],
}
NODE_OF = {
    "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs": "dfl-port.0",
    "fpga.intel.com/af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg": "intel-fpga-port.1",
    GPU: "nvidia0",
    "amd.com/gpu": "dri/renderD136",
    PARTITION: "dri/renderD143",
    "gpu.intel.com/i915": "dri/card30",
    "gpu.intel.com/xe": "dri/renderD160",
    "amd.com/xilinx_u200_xdma_201830_2-1561465320": "dri/renderD162",
    "rdma/hca": "infiniband/uverbs1",
    CAMERA: "video0",
}
"""A resource of every vendor, and a node below /dev of one of its devices."""

_SCANS = 5

Told = dict[str, dict[str, dict[str, Any]]]


def scanned(root: Path, config: dict[str, Any] = CONFIG) -> Told:
    """What `devherd scan --output json` says, by resource and id; there is nothing that it could not do.

    On a busy machine a card or NVML may not answer in time: it is asked again.
    """
    for _ in range(_SCANS):
        report = scan_once(resolve(Config.model_validate({"host_root": str(root), **config})))
        told = inventory_json(report.offers, report.problems, report.duration_seconds)
        if not told["problems"]:
            break
    assert told["problems"] == [], told["problems"]
    return {one["name"]: {device["id"]: device for device in one["devices"]} for one in told["resources"]}


def answer(devices: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What a container with these devices, of as many resources, gets of the kubelet: for each path the first one's."""
    nodes: dict[str, Any] = {}
    mounts: dict[str, Any] = {}
    envs: dict[str, str] = {}
    annotations: dict[str, str] = {}
    names: set[str] = set()
    for device in devices:
        for node in device["nodes"]:
            nodes.setdefault(node["container_path"], node)
        for mount in device["mounts"]:
            mounts.setdefault(mount["container_path"], mount)
        envs = device["envs"] | envs
        annotations = device["annotations"] | annotations
        names.update(device["cdi_devices"])
    return {
        "devices": [nodes[path] for path in sorted(nodes)],
        "mounts": [mounts[path] for path in sorted(mounts)],
        "envs": envs,
        "annotations": annotations,
        "cdi": sorted(names),
    }


def in_order(devices: list[Any], mounts: list[Any], envs: Any, annotations: Any, cdi: list[str]) -> dict[str, Any]:
    """What a container got, with nodes and mounts by path: the kubelet asks its resources in no order."""
    return {
        "devices": sorted(devices, key=lambda node: node["container_path"]),
        "mounts": sorted(mounts, key=lambda mount: mount["container_path"]),
        "envs": envs,
        "annotations": annotations,
        "cdi": sorted(cdi),
    }


def pid_of_scanner(testbed: Testbed) -> int:
    """0 while it is not known to run: os.kill would then mean the test itself."""
    scanner = testbed.children().get("scanner")
    return scanner.pid if scanner is not None else 0


class Absent:
    """A node that is taken out of /dev, and put back as it was."""

    def __init__(self, root: Path, name: str, kept_as: str = "absent") -> None:
        self._place, self._kept = root / "dev" / name, root / kept_as
        self._place.rename(self._kept)

    def put_back(self) -> None:
        self._kept.rename(self._place)
