"""One scan: of each vendor's cards, as many as a node may have, of 1000 generic paths, and of the node with everything.

Time and system calls. The floor reads the same attributes, or looks at the same paths, and does nothing else.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import herds
import system_calls
from measure import figure, headline, median_seconds, milliseconds

from devherd._native import Poller, Scanner
from devherd.config.model import Config
from devherd.config.vendors import Vendors
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import FpgaSpec, NodeSpec


@dataclass(frozen=True)
class Subject:
    """Cards of one vendor, one device each."""

    title: str
    vendor: str
    numbers: Sequence[int]
    node: Callable[[int], NodeSpec]
    calls_aim: str = ""
    peer: Mapping[int, float] = field(default_factory=dict)
    """Milliseconds of the vendor's plugin by number of cards, as published for another machine with 2 cores."""


def _section(name: str) -> Callable[[int], NodeSpec]:
    return lambda cards: NodeSpec.model_validate({name: [{"cards": cards}]})


def _fpga(cards: int) -> NodeSpec:
    return NodeSpec(fpga=[FpgaSpec(cards=cards, numa_nodes=2)])


def _nvidia(gpus: int) -> NodeSpec:
    return NodeSpec(nvidia=NvidiaSpec(gpus=gpus, numa_nodes=2, gpus_a_switch=4))


SUBJECTS = (
    Subject("FPGA cards (DFL, mode af)", "intel_fpga", (1, 8, 32), _fpga, "<= 60", {1: 0.63, 8: 4.9, 32: 20}),
    Subject("NVIDIA GPUs, 4 below each switch, without NVML", "nvidia", (8, 16), _nvidia, "<= 60"),
    Subject("Intel GPUs", "intel_gpu", (1, 8, 64), _section("intel_gpu"), peer={1: 0.32, 8: 2.3, 64: 25.9}),
    Subject("Xilinx FPGAs", "xilinx_fpga", (1, 8, 64), _section("xilinx_fpga")),
    Subject("RDMA devices", "rdma", (1, 8, 32), _section("rdma")),
)
MANY_CARDS = 1024
RESCANS = 20
FEW_AND_MORE_CARDS = (8, 16)
PATHS = 1000
AS_SHIPPED: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("fpga", (1, 8)),
    ("intel_gpu", (1, 8, 64)),
    ("rdma", (1, 8, 32)),
    ("xilinx_fpga", (1, 8, 64)),
)
"""Sections of a node's spec, and numbers of cards."""
# AMD's plugin at its start on a node of that shape: openat, getdents64 and read.
AMD_PEER_SYSTEM_CALLS = 6983 + 2504 + 9949


def main() -> None:
    """Print the figures."""
    for subject in SUBJECTS:
        headline(f"scan of {subject.title} (simulated tree on a disk file system)")
        for number in subject.numbers:
            with tempfile.TemporaryDirectory() as directory:
                _measure(subject, number, Path(directory) / "node")
    headline("scans of many FPGA cards")
    _first_scan_calls()
    with herds.directory() as memory:
        _rescan(SimulatedNode.create(memory / "node", NodeSpec(fpga=[FpgaSpec(cards=MANY_CARDS)])).root)
    headline("scan of AMD GPUs (simulated tree on a disk file system)")
    for name in ("amd-8", "amd-8-cpx"):
        with tempfile.TemporaryDirectory() as directory:
            _amd(SimulatedNode.create(Path(directory) / "node", preset(name)).root, name)
    headline("first scan and each further one, CPU time, all vendors on (simulated tree in memory)")
    for section, numbers in AS_SHIPPED:
        for cards in numbers:
            _as_shipped(section, cards)
    headline(f"scan of {PATHS} generic paths (one glob, a file each)")
    with tempfile.TemporaryDirectory() as directory:
        _time_generic(SimulatedNode.create(Path(directory) / "node", preset("generic")).root, "on a disk")
    with herds.directory() as memory:
        _time_generic(SimulatedNode.create(memory / "node", preset("generic")).root, "in memory, as /dev is")
    headline("scan of the node with everything (simulated tree on a disk file system)")
    with tempfile.TemporaryDirectory() as directory:
        _everything(SimulatedNode.create(Path(directory) / "node", preset("everything")).root)


def settings(vendor: str = "", generic: Sequence[object] = ()) -> str:
    """Settings of the scan core for a simulated node with one vendor, or without any."""
    vendors = {name: {"enabled": name == vendor} for name in Vendors.model_fields}
    config = Config.model_validate({"vendors": vendors, "generic": generic})
    return json.dumps(json.loads(config.native_json()) | {"simulated_host": True})


def _first_scan_calls() -> None:
    """System calls that one card more costs at the first scan, which also says what is polled later."""
    for named, of_vendors in (("its vendor alone", settings("intel_fpga")), ("all vendors on", None)):
        first = []
        for cards in FEW_AND_MORE_CARDS:
            with tempfile.TemporaryDirectory() as directory:
                root = Path(directory) / "node"
                SimulatedNode.create(root, _fpga(cards))
                calls = system_calls.of_scans(root, of_vendors or Config(host_root=root).native_json())
                first.append(calls[0] if calls else 0)
        few, more = FEW_AND_MORE_CARDS
        if all(first):
            figure(f"one card more at a first scan, {named}", f"{(first[1] - first[0]) / (more - few):.1f}", "<= 60")


def _as_shipped(section: str, cards: int) -> None:
    """CPU time with every vendor on: the least of several first scans, and of the scans after the third."""
    with herds.directory() as memory:
        root = SimulatedNode.create(memory / "node", _section(section)(cards)).root
        native_settings = Config(host_root=root).native_json()
        time.sleep(0.1)  # what has just been made is looked at again
        scanners = [Scanner(str(root), native_settings) for _ in range(RESCANS)]
        first = min(_cpu_seconds(scanner.scan) for scanner in scanners)
        scan = scanners[0].scan()
        scanners[0].scan()
        again = min(_cpu_seconds(scanners[0].scan) for _ in range(RESCANS))
        sources = {root / path.lstrip("/") for device in scan.devices for path in device.sources.values()}
        files = [path for path in sources if path.is_file()]
        floor = min(_cpu_seconds(lambda: [_read(path) for path in files]) for _ in range(RESCANS))
        against = f"{first / floor:.2f}x and {again / floor:.2f}x reading its {len(files)} attribute files in Python"
        figure(f"{cards} of {section}", f"{milliseconds(first)}, {milliseconds(again)}", "", against)


def _cpu_seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _rescan(root: Path) -> None:
    """CPU time, the least of several: reads by other processes do not count."""
    scanner = Scanner(str(root), settings("intel_fpga"))
    assert len(scanner.scan().devices) == MANY_CARDS
    time.sleep(0.1)  # what has just been made is looked at again
    scanner.scan()
    spent = []
    for _ in range(RESCANS):
        begin = time.process_time()
        assert not scanner.scan().changed
        spent.append(time.process_time() - begin)
    figure(f"{MANY_CARDS} cards that are as they were, in memory", milliseconds(min(spent)), "<= 50 ms of CPU")


def _amd(root: Path, name: str) -> None:
    """Only the first scan reads links."""
    scanner = Scanner(str(root), settings("amd"))
    begin = time.perf_counter()
    devices = len(scanner.scan().devices)
    first = time.perf_counter() - begin
    figure(f"{name}, {devices} devices, first scan", milliseconds(first))
    figure(f"{name}, {devices} devices, each further scan", milliseconds(median_seconds(scanner.scan, 100)))
    calls = system_calls.of_scans(root, settings("amd"))
    if calls is not None:
        at_first, further = calls
        share = f"{at_first / AMD_PEER_SYSTEM_CALLS:.2f}x AMD's plugin's at start" if name == "amd-8-cpx" else ""
        figure(f"{name}, system calls of the first scan", f"{at_first}", "", share)
        figure(f"{name}, system calls of each further scan", f"{further:.0f}")


def _time_generic(root: Path, where: str) -> None:
    nodes = root / "dev/many"
    nodes.mkdir()
    for number in range(PATHS):
        (nodes / f"d{number}").touch()
    device = {"name": "example.com/many", "groups": [{"paths": [{"path": "/dev/many/d*"}]}]}
    scanner = Scanner(str(root), settings(generic=[device]))
    scan, poller = scanner.scan(), Poller(scanner)
    poller.watch(scan, [])
    assert len(scan.devices) == PATHS
    took, floor = (
        median_seconds(scanner.scan, 50),
        median_seconds(lambda: [node.stat() for node in nodes.iterdir()], 50),
    )
    figure(f"scan, {where}", milliseconds(took), "", f"{took / floor:.2f}x listing and stat in Python")
    figure(f"health poll, {where}", milliseconds(median_seconds(poller.poll, 50)))


def _measure(subject: Subject, number: int, root: Path) -> None:
    SimulatedNode.create(root, subject.node(number))
    native_settings = settings(subject.vendor)
    scanner = Scanner(str(root), native_settings)
    scan = scanner.scan()
    assert len(scan.devices) == number, scan.problems
    files = sorted({root / path.lstrip("/") for device in scan.devices for path in device.sources.values()})
    attributes = [path for path in files if path.is_file()]
    took = median_seconds(scanner.scan, 200)
    floor = median_seconds(lambda: [_read(path) for path in attributes], 200)
    against = f"{took / floor:.2f}x reading its {len(attributes)} attribute files in Python"
    if peer := subject.peer.get(number):
        against += f"; {took * 1000 / peer:.2f}x the Go plugin's {peer} ms on another machine"
    figure(f"{number} {subject.vendor}", milliseconds(took), "", against)
    calls = system_calls.of_scans(root, native_settings)
    shown = "no strace" if calls is None else f"{calls[1] / number:.1f}"
    figure(f"{number} {subject.vendor}, system calls a card", shown, subject.calls_aim)


def _everything(root: Path) -> None:
    native_settings = Config(host_root=root).native_json()
    scanner = Scanner(str(root), native_settings)
    scan, poller = scanner.scan(), Poller(scanner)
    poller.watch(scan, [])
    devices = len(scan.devices)
    alone = sum(median_seconds(Scanner(str(root), settings(vendor)).scan, 100) for vendor in Vendors.model_fields)
    took = median_seconds(scanner.scan, 100)
    against = f"{took / alone:.2f}x each vendor alone, summed"
    figure(f"{devices} devices of {len(Vendors.model_fields)} vendors", milliseconds(took), "", against)
    figure("health poll", milliseconds(median_seconds(poller.poll, 100)))
    calls = system_calls.of_scans(root, native_settings)
    if calls is not None:
        figure("system calls of the first scan", f"{calls[0]}")
        figure("system calls a device of each further scan", f"{calls[1] / devices:.1f}")


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    content = os.pread(descriptor, 4096, 0)
    os.close(descriptor)
    return content


if __name__ == "__main__":
    main()
