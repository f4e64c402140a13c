"""`devherd sim fault`: what is injected into a simulated node is there, and taken back without a trace."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from devherd._native import UeventSocket
from devherd.cli import main
from devherd_sim.node.faults import FAULTS
from devherd_sim.node.nvml_script import SCRIPT
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import FAULTS_DIRECTORY, SimulatedNode
from devherd_sim.node.tree import read_tree

GPU = "NVRM: Xid (PCI:{at}): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


class Case(NamedTuple):
    """A fault on a node: what is logged and sent, and then when it is cleared."""

    fault: str
    node: str
    value: str = ""
    said: Sequence[str] = ()
    unsaid: Sequence[str] = ()
    sent: Sequence[tuple[str, str, str]] = ()
    unsent: Sequence[tuple[str, str, str]] = ()


CASES = [
    Case("xid", "nvidia-1", "48, DBE", said=["NVRM: Xid (PCI:{at}): 48, DBE"], unsaid=[GPU]),
    Case("gpu-lost", "nvidia-1", said=["NVRM: GPU {at}.0: GPU has fallen off the bus."], unsaid=[GPU]),
    Case(
        "wedged",
        "intel-gpu-2",
        "rebind",
        said=["i915 {at}.0: [drm] device wedged, needs recovery"],
        unsaid=["i915 {at}.0: [drm] device wedged, but recovered through reset"],
        sent=[("change", "WEDGED", "rebind")],
        unsent=[("bind", "DRIVER", "i915")],
    ),
    Case(
        "wedged",
        "intel-gpu-2",
        "at-load",
        said=[
            "i915 {at}.0: [drm] *ERROR* GT0: GuC initialization failed -ENOENT",
            "i915 {at}.0: [drm] *ERROR* GT0: Failed to initialize GPU, declaring it wedged!",
        ],
        unsent=[("bind", "DRIVER", "i915")],
    ),
    Case(
        "reset-hangs",
        "amd-8",
        said=["amdgpu {at}.0: amdgpu: GPU reset begin!. Source:  1"],
        unsaid=["amdgpu {at}.0: amdgpu: GPU reset(1) succeeded!"],
    ),
    Case(
        "recovery",
        "nvidia-1",
        sent=[("change", "ERROR_EVENT", "BEGIN_RECOVERY")],
        unsent=[("change", "ERROR_EVENT", "SUCCESSFUL_RECOVERY")],
    ),
    Case("aer", "fpga-1", "nonfatal"),
    Case("link", "fpga-1"),
    Case("power", "nvidia-1", "D3cold"),
    Case("off-bus", "nvidia-1"),
    Case(
        "no-resume",
        "amd-8",
        "suspended",
        said=["amdgpu {at}.0: Unable to change power state from D3cold to D0, device inaccessible"],
    ),
    Case("not-started", "nvidia-1", said=["NVRM: GPU {at}.0: RmInitAdapter failed! (0x62:0x65:1792)"]),
    Case("temperature", "fpga-1"),
    Case("firmware", "rdma-2"),
    Case("fpga-errors", "fpga-1"),
    Case("device-dump", "amd-8"),
    Case("unbind", "nvidia-1", sent=[("unbind", "SUBSYSTEM", "pci")], unsent=[("bind", "DRIVER", "nvidia")]),
    Case(
        "probe-failed",
        "amd-1",
        "-5",
        said=["amdgpu {at}.0: probe with driver amdgpu failed with error -5"],
        sent=[("unbind", "SUBSYSTEM", "pci")],
        unsent=[("bind", "DRIVER", "amdgpu")],
    ),
    Case("remove", "fpga-1", sent=[("remove", "SUBSYSTEM", "pci")], unsent=[("add", "SUBSYSTEM", "pci")]),
    Case("flash", "xilinx-2", sent=[("remove", "SUBSYSTEM", "pci")], unsent=[("add", "SUBSYSTEM", "pci")]),
    Case("node", "nvidia-1"),
    Case("stale-link", "intel-gpu-2", "../card9"),
    Case(
        "renamed",
        "intel-gpu-2",
        "card5",
        sent=[("remove", "DEVNAME", "dri/card0"), ("add", "DEVNAME", "dri/card5")],
        unsent=[("add", "DEVNAME", "dri/card0")],
    ),
    Case(
        "replugged",
        "generic",
        "18d1:9302",
        sent=[("remove", "DEVNAME", "bus/usb/001/002"), ("add", "DEVNAME", "bus/usb/001/007")],
    ),
    Case("ras", "amd-8", "gfx 3"),
    Case("bad-page", "amd-8"),
    Case("gpu-health", "intel-gpu-sriov", "warning"),
    Case("port-down", "rdma-2"),
    Case("rdma-rate", "rdma-2"),
    Case("rdma-counter", "rdma-2", "rnr_nak_retry_err 4"),
    Case("afu", "fpga-1", "f" * 32),
    Case("port-driver", "fpga-1"),
    Case("file", "fpga-1"),
    Case("fabric-manager", "nvidia-8-nvswitch"),
    Case("nvml", "nvidia-1", "field id=230 value=1"),
    Case("amd-exporter", "amd-1"),
    Case("xpumd", "intel-gpu-sriov", "warning"),
]
TOLD_TO_ITS_SOURCE_ALONE = {"gpu-reset"}
"""By a socket that the source opens: tests/health/test_amd_kfd.py."""
PLACES = {
    "fabric-manager": "-",
    "flash": "0000:01:00.1",
    "fpga-errors": "dfl-port.0",
    "afu": "dfl-port.0",
    "port-driver": "dfl-port.0",
    "node": "nvidia0",
    "renamed": "card0",
    "replugged": "1-1",
    "stale-link": "dri/by-path/pci-0000:01:00.0-platform-simple-framebuffer.0-card",
    "port-down": "mlx5_0",
    "rdma-rate": "mlx5_0",
    "rdma-counter": "mlx5_0",
    "file": "sys/class/fpga_region/region0/dfl-port.0/id",
}


def place_of(fault: str, node: SimulatedNode) -> str:
    """Where it happens on these nodes."""
    if fault in PLACES:
        return PLACES[fault]
    functions = sorted((node.root / "sys/bus/pci/devices").iterdir())
    return next(path.name for path in functions if (path / "driver").exists() and "pcieport" not in driver_of(path))


def driver_of(function: Path) -> str:
    return (function / "driver").readlink().name


def logged(node: SimulatedNode) -> list[str]:
    """The texts of the kernel log."""
    return [line.partition(";")[2] for line in (node.root / "dev/kmsg").read_text().splitlines() if ";" in line]


def tree(node: SimulatedNode) -> dict[str, object]:
    """All but the log."""
    others = {"dev/kmsg", FAULTS_DIRECTORY, SCRIPT}
    return {entry.path: entry for entry in read_tree(node.root) if entry.path not in others}


def heard(socket: UeventSocket, expected: Sequence[tuple[str, str, str]]) -> bool:
    """Whether there is an event of each action with each variable."""
    events, _ = socket.drain()
    found = {(event["ACTION"], name, value) for event in events for name, value in event.items()}
    return found.issuperset(expected)


@pytest.mark.parametrize("case", CASES, ids=[case.fault for case in CASES])
def test_a_fault_is_there_and_can_be_taken_back(tmp_path, case):
    """By another process, and nothing of the tree is other than before."""
    node = SimulatedNode.create(tmp_path, preset(case.node))
    events = UeventSocket(str(tmp_path))
    before, at = tree(node), place_of(case.fault, node)
    words = ["sim", "fault", str(tmp_path), case.fault, at, *([case.value] if case.value else [])]

    assert main(words) == 0
    assert logged(node) == [text.format(at=at.rpartition(".")[0]) for text in case.said]
    assert heard(events, case.sent)
    assert tree(node) != before or case.said or case.sent
    assert main([*words, "--clear"]) == 0
    assert logged(node) == [text.format(at=at.rpartition(".")[0]) for text in [*case.said, *case.unsaid]]
    assert heard(events, case.unsent)
    assert tree(node) == before
    events.close()


def test_every_fault_is_tried(capsys):
    """And listed in the help."""
    tried = {case.fault for case in CASES} | TOLD_TO_ITS_SOURCE_ALONE
    assert tried == {name for name, fault in FAULTS.items() if not fault.undone_by}
    with pytest.raises(SystemExit):
        main(["sim", "fault", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert all(f" {name} {' '.join(fault.summary.split())}" in said for name, fault in FAULTS.items())


def test_any_uevent_and_any_record_can_be_sent(tmp_path):
    """What there is no fault for."""
    node = SimulatedNode.create(tmp_path, preset("nvidia-1"))
    events = UeventSocket(str(tmp_path))
    at = place_of("uevent", node)
    assert main(["sim", "fault", str(tmp_path), "uevent", at, "change RESET=1 A=b"]) == 0
    assert main(["sim", "fault", str(tmp_path), "uevent", "/sys/module/nvidia", "add"]) == 0
    [[first, second], _] = events.drain()
    assert (first["RESET"], first["A"], first["SUBSYSTEM"]) == ("1", "b", "pci")
    assert (second["ACTION"], second["DEVPATH"]) == ("add", "/module/nvidia")
    assert main(["sim", "fault", str(tmp_path), "kernel-log", at, "nvidia: odd \x01"]) == 0
    assert logged(node) == ["nvidia: odd \\x01"]
    assert f" DEVICE=+pci:{at}\n" in (tmp_path / "dev/kmsg").read_text()
    events.close()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["no-such-directory", "node", "kvm"], "no simulated node"),
        (["{root}", "node", "no-such-node"], "no node /dev/no-such-node"),
        (["{root}", "xid", "0000:ff:00.0"], "no function 0000:ff:00.0"),
        (["{root}", "xid", "{at}"], "it is no function of NVIDIA's"),
        (["{root}", "xid", "0000:ff:00.0", "--clear"], "it was not injected"),
        (["{root}", "kernel-log", "-"], "give the text"),
        (["{root}", "kernel-log", "-", "x", "--clear"], "what is said is said"),
        (["{root}", "aer", "{at}", "odd"], "no aer_dev_odd"),
        (["{root}", "uevent", "{at}", "change odd"], "ACTION NAME=VALUE"),
        (["{root}", "fpga-errors", "dfl-port.0", "many"], "invalid literal"),
        (["{root}", "quake", "-"], "`quake` is not one of"),
        (["{root}", "recovery", "{at}", "half"], "choose from begun, failed"),
        (["{root}", "file", "sys/none"], "no file sys/none"),
        (["{root}", "port-down", "mlx5_9"], "no RDMA device mlx5_9"),
        (["{root}", "rdma-counter", "mlx5_9"], "no RDMA device mlx5_9"),
        (["{root}", "gpu-health", "{at}"], "gpu_health"),
        (["{root}", "ras", "{at}"], "ras/umc_err_count"),
        (["{root}", "nvml", "{at}", "field id=230 value=1"], "no NVIDIA GPU"),
        (["{root}", "nvml", "-", "sing"], "the stub knows no statement 'sing'"),
        (["{root}", "xpumd", "{at}"], "there is no GPU of its vendor"),
        (["{root}", "renamed", "card9", "card0"], "nothing is called card9"),
        (["{root}", "renamed", "dfl-port.0"], "give a name"),
        (["{root}", "replugged", "9-9"], "no USB device 9-9"),
        (["{root}", "stale-link", "dfl-port.0"], "there is /dev/dfl-port.0 already"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, capsys, words, complaint):
    """In one line, with nothing changed."""
    node = SimulatedNode.create(tmp_path, preset("fpga-1"))
    before = tree(node)
    given = [word.format(root=tmp_path, at=place_of("link", node)) for word in words]
    assert main(["sim", "fault", *given]) != 0
    assert complaint in capsys.readouterr().err
    assert tree(node) == before
