"""One scan: of 8 cards of each vendor and of many, of 1 024 FPGA functions, and of the node with everything.

Time and system calls. The floor reads the same attributes, and does nothing else.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import herds
import system_calls
from herds import MOST_FUNCTIONS
from measure import figure, headline, median_seconds, milliseconds
from polled import polled

from devherd._native import Scanner
from devherd.config.classes import shipped_names
from devherd.config.model import Config
from devherd.config.vendors import Vendors
from devherd_sim.node.entry import Entry, File, attributes, link, named_link
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import FpgaSpec, NodeSpec
from devherd_sim.node.tree import write_tree


@dataclass(frozen=True)
class Subject:
    """Cards of one vendor, one device each."""

    title: str
    vendor: str
    numbers: Sequence[int]
    node: Callable[[int], NodeSpec]
    calls_aim: str = ""
    peer: float | None = None
    """Milliseconds of the vendor's plugin with 8 cards, as published for another machine with 2 cores."""


def _section(name: str) -> Callable[[int], NodeSpec]:
    return lambda cards: NodeSpec.model_validate({name: [{"cards": cards}]})


def _fpga(cards: int) -> NodeSpec:
    return NodeSpec(fpga=[FpgaSpec(cards=cards, numa_nodes=2)])


def _nvidia(gpus: int) -> NodeSpec:
    return NodeSpec(nvidia=NvidiaSpec(gpus=gpus, numa_nodes=2, gpus_a_switch=4))


SUBJECTS = (
    Subject("FPGA cards (DFL, mode af)", "intel_fpga", (8, 128), _fpga, "<= 60", peer=4.9),
    Subject("NVIDIA GPUs, 4 below each switch, without NVML", "nvidia", (8, 16), _nvidia, "<= 60"),
    Subject("Intel GPUs", "intel_gpu", (8, 128), _section("intel_gpu"), peer=2.3),
    Subject("Xilinx FPGAs", "xilinx_fpga", (8, 64), _section("xilinx_fpga")),
    Subject("RDMA devices", "rdma", (8, 32), _section("rdma")),
)
REPEATS = 100
RESCANS = 20
FEW_AND_MORE_CARDS = (8, 16)
MOST_OF_CLASS = 128
MANY_CLASSES = 16
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
        _rescan(SimulatedNode.create(memory / "node", MOST_FUNCTIONS.spec).root)
    headline("scan of AMD GPUs (simulated tree on a disk file system)")
    for name in ("amd-8", "amd-8-cpx"):
        with tempfile.TemporaryDirectory() as directory:
            _amd(SimulatedNode.create(Path(directory) / "node", preset(name)).root, name)
    headline("first scan and each further one, CPU time, all vendors on (simulated tree in memory)")
    for subject in SUBJECTS:
        for number in subject.numbers:
            _as_shipped(subject, number)
    headline("scan of the node with everything (simulated tree on a disk file system)")
    with tempfile.TemporaryDirectory() as directory:
        _everything(SimulatedNode.create(Path(directory) / "node", preset("everything")).root)
    headline("device classes")
    with tempfile.TemporaryDirectory() as directory:
        _classes(Path(directory) / "node")


def settings(vendor: str) -> str:
    """Settings of the scan core for a simulated node with one vendor."""
    vendors = {name: {"enabled": name == vendor} for name in Vendors.model_fields}
    config = Config.model_validate({"vendors": vendors})
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


def _as_shipped(subject: Subject, number: int) -> None:
    """CPU time with every vendor on: the least of several first scans, and of the scans after the third."""
    with herds.directory() as memory:
        root = SimulatedNode.create(memory / "node", subject.node(number)).root
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
        figure(f"{number} {subject.vendor}", f"{milliseconds(first)}, {milliseconds(again)}", "", against)


def _cpu_seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _rescan(root: Path) -> None:
    """CPU time, the least of several: reads by other processes do not count."""
    scanner = Scanner(str(root), settings("intel_fpga"))
    assert len(scanner.scan().devices) == MOST_FUNCTIONS.devices
    time.sleep(0.1)  # what has just been made is looked at again
    scanner.scan()
    spent = []
    for _ in range(RESCANS):
        begin = time.process_time()
        assert not scanner.scan().changed
        spent.append(time.process_time() - begin)
    name = f"{MOST_FUNCTIONS.title} that are as they were"
    figure(name, milliseconds(min(spent)), "<= 50 ms of CPU", "in memory")


def _amd(root: Path, name: str) -> None:
    """Only the first scan reads links."""
    scanner = Scanner(str(root), settings("amd"))
    begin = time.perf_counter()
    devices = len(scanner.scan().devices)
    first = time.perf_counter() - begin
    figure(f"{name}, {devices} devices, first scan", milliseconds(first))
    figure(f"{name}, {devices} devices, each further scan", milliseconds(median_seconds(scanner.scan, REPEATS)))
    calls = system_calls.of_scans(root, settings("amd"))
    if calls is not None:
        at_first, further = calls
        share = f"{at_first / AMD_PEER_SYSTEM_CALLS:.2f}x AMD's plugin's at start" if name == "amd-8-cpx" else ""
        figure(f"{name}, system calls of the first scan", f"{at_first}", "", share)
        figure(f"{name}, system calls of each further scan", f"{further:.0f}")


def _measure(subject: Subject, number: int, root: Path) -> None:
    SimulatedNode.create(root, subject.node(number))
    native_settings = settings(subject.vendor)
    scanner = Scanner(str(root), native_settings)
    scan = scanner.scan()
    assert len(scan.devices) == number, scan.problems
    files = sorted({root / path.lstrip("/") for device in scan.devices for path in device.sources.values()})
    attributes = [path for path in files if path.is_file()]
    took = median_seconds(scanner.scan, REPEATS)
    floor = median_seconds(lambda: [_read(path) for path in attributes], REPEATS)
    against = f"{took / floor:.2f}x reading its {len(attributes)} attribute files in Python"
    if subject.peer and number == 8:
        against += f"; {took * 1000 / subject.peer:.2f}x the Go plugin's {subject.peer} ms on another machine"
    figure(f"{number} {subject.vendor}", milliseconds(took), "", against)
    calls = system_calls.of_scans(root, native_settings)
    shown = "no strace" if calls is None else f"{calls[1] / number:.1f}"
    figure(f"{number} {subject.vendor}, system calls a card", shown, subject.calls_aim)


def _everything(root: Path) -> None:
    native_settings = Config(host_root=root).native_json()
    scanner = Scanner(str(root), native_settings)
    devices = len(scanner.scan().devices)
    alone = sum(median_seconds(Scanner(str(root), settings(vendor)).scan, REPEATS) for vendor in Vendors.model_fields)
    took = median_seconds(scanner.scan, REPEATS)
    against = f"{took / alone:.2f}x each vendor alone, summed"
    figure(f"{devices} devices of {len(Vendors.model_fields)} vendors", milliseconds(took), "", against)
    poller, _ = polled(root, native_settings)
    figure("health poll", milliseconds(median_seconds(poller.poll, REPEATS)))
    calls = system_calls.of_scans(root, native_settings)
    if calls is not None:
        figure("system calls of the first scan", f"{calls[0]}")
        figure("system calls a device of each further scan", f"{calls[1] / devices:.1f}")


def _classes(root: Path) -> None:
    """Devices that a class describes, and what classes that find nothing cost on a node without them."""
    made = [entry for number in range(MOST_OF_CLASS) for entry in _npu(number)]
    write_tree(made, root)
    found = _of_classes(root, {"enable": ["intel-npu"]})
    assert len(found.scan().devices) == MOST_OF_CLASS
    figure(f"{MOST_OF_CLASS} devices of a class", milliseconds(median_seconds(found.scan, REPEATS)))
    everything = SimulatedNode.create(root.parent / "everything", preset("everything")).root
    none, shipped, nothing = (
        median_seconds(_of_classes(everything, classes, Config(host_root=everything).vendors).scan, REPEATS)
        for classes in (
            {},
            {"enable": shipped_names()},
            {"define": {f"none-{number}": _finds_nothing(number) for number in range(MANY_CLASSES)}},
        )
    )
    figure("the node with everything, without classes", milliseconds(none))
    figure("with all shipped classes", milliseconds(shipped), "", f"{milliseconds(shipped - none)} more")
    more = f"{milliseconds(nothing - none)} more"
    figure(f"with {MANY_CLASSES} classes that find nothing", milliseconds(nothing), "0.200 ms more", more)


def _of_classes(root: Path, classes: dict[str, Any], vendors: Vendors | None = None) -> Scanner:
    """A scanner of these classes, with these vendors or none."""
    off = Vendors.model_validate({name: {"enabled": False} for name in Vendors.model_fields})
    config = Config.model_validate({"classes": classes, "vendors": vendors or off, "host_root": root})
    return Scanner(str(root), json.dumps(json.loads(config.native_json()) | {"simulated_host": True}))


def _finds_nothing(number: int) -> dict[str, Any]:
    find = {"class": "misc", "name": f"widget{number}-{{n}}"} if number % 2 else {"class": f"widget{number}"}
    return {"find": find, "plugin": {"resource": f"example.com/widget{number}"}}


def _npu(number: int) -> list[Entry]:
    """A function with its NPU."""
    address = f"0000:{number:02x}:00.0"
    path = f"sys/devices/pci0000:00/{address}"
    uevent = f"DRIVER=intel_vpu\nPCI_CLASS=120000\nPCI_ID=8086:7D1D\nPCI_SUBSYS_ID=8086:0\nPCI_SLOT_NAME={address}"
    node = f"accel/accel{number}"
    return [
        *attributes(path, {"vendor": "0x8086", "device": "0x7d1d", "class": "0x120000", "numa_node": "0"}),
        File.line(f"{path}/uevent", uevent),
        File.line(f"{path}/{node}/uevent", f"MAJOR=261\nMINOR={number}\nDEVNAME={node}"),
        File.line(f"{path}/{node}/dev", f"261:{number}"),
        link(f"{path}/driver", "sys/bus/pci/drivers/intel_vpu"),
        named_link("sys/bus/pci/devices", path),
        named_link("sys/class/accel", f"{path}/{node}"),
        File(f"dev/{node}", b""),
    ]


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    content = os.pread(descriptor, 4096, 0)
    os.close(descriptor)
    return content


if __name__ == "__main__":
    main()
