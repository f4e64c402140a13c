"""Whole host trees through the scan core: AMD GPUs as the kernel lays them out, and not as the simulated node does."""

import shutil
from pathlib import Path

from amd_host import TOPOLOGY, by_id, names, scanned

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.scanner.observer import Observer
from devherd_sim.node.tree import write_tree

REFUSED = Path(__file__).parent / "trees/amd-refused-nodes.tree"
FIRST, SECOND = "0000:29:00.0", "0000:a3:00.0"
SECOND_PATH = "sys/devices/pci0000:a0/0000:a0:03.1/0000:a1:00.0/0000:a2:00.0/0000:a3:00.0"


def planted(root: Path, *changes: str) -> Path:
    """The tree below `root`, with later lines in place of earlier ones."""
    for text in (REFUSED.read_text(), *changes):
        write_tree(text, root)
    return root


READABLE = """\
sys/devices/virtual/kfd/kfd/topology/nodes/2/properties =
    cpu_cores_count 0
    simd_count 416
    mem_banks_count 1
    io_links_count 1
    simd_per_cu 4
    gfx_target_version 90010
    vendor_id 4098
    device_id 29711
    location_id 10496
    domain 0
    drm_render_minor 128
    hive_id 0
    unique_id 9100
    num_xcc 1
"""
"""What KFD says of the first GPU to those who may know."""


def test_gpus_whose_nodes_kfd_refuses_are_served_whole_and_it_is_said_once(tmp_path: Path) -> None:
    """The unprivileged DaemonSet: PCI, DRM and the driver say enough; what KFD alone knows is left out."""
    scan = scanned(planted(tmp_path))

    assert names(scan) == {"amd.com/gpu": 2}
    assert {device.id: [node.host_path for node in device.nodes] for device in scan.devices} == {
        FIRST: ["/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128"],
        SECOND: ["/dev/kfd", "/dev/dri/card2", "/dev/dri/renderD129"],
    }
    assert [(device.numa_nodes, device.reasons) for device in scan.devices] == [([0], []), ([1], [])]
    assert {device.attributes["product_name"] for device in scan.devices} == {"AMD INSTINCT MI210"}
    [problem] = scan.problems
    assert problem.path == f"/{TOPOLOGY}/nodes/2/properties"


def test_one_refused_node_of_two_costs_the_other_none_of_its_facts(tmp_path: Path) -> None:
    """A container that may open one GPU's nodes is told of that GPU alone."""
    shutil.rmtree(planted(tmp_path) / TOPOLOGY / "nodes/2/properties")
    write_tree(READABLE, tmp_path)

    devices = by_id(scanned(tmp_path))

    assert devices[FIRST].attributes.keys() - devices[SECOND].attributes.keys() >= {"simd_count"}
    assert [node.host_path for node in devices[SECOND].nodes] == ["/dev/kfd", "/dev/dri/card2", "/dev/dri/renderD129"]


def test_a_gpu_pulled_out_of_such_a_host_is_gone_for_good_b1(tmp_path: Path) -> None:
    """Refused nodes say nothing: neither that the GPU is there nor that it may be."""
    root = planted(tmp_path)
    observer = Observer(resolve(Config(host_root=root)))
    observer.scan(0.0)
    observer.poll(periodic=True)
    shutil.rmtree(root / SECOND_PATH)
    for left in (
        *("sys/bus/pci/drivers/amdgpu/", "sys/bus/pci/devices/", "sys/class/drm/card2", "sys/class/drm/renderD129"),
        *("dev/dri/card2", "dev/dri/renderD129"),
    ):
        (root / (f"{left}{SECOND}" if left.endswith("/") else left)).unlink()

    for moment in range(1, 8):
        observer.scan(float(moment))
        observer.poll(periodic=True)

    assert {key[2]: verdict.reasons for key, verdict in observer.policy.verdicts().items()} == {SECOND: ("gone",)}
