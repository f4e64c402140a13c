"""The cost of health: a regular poll of FPGA cards and of many nodes, and a look at all devices.

Simulated trees are plain files, which may be replaced: of more than a few cards the directories are watched for that,
so that a read is one system call, as of sysfs, whose objects report their removal.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import system_calls
from herds import directory
from measure import figure, headline, milliseconds, use_byte_code

from devherd._native import Poller, Scanner, health_sources
from devherd.config.model import Config
from devherd.config.resolution import resolve
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import FpgaSpec, NodeSpec

CARDS = (64, 1024)
NODES = 10_000
MOST_TRACED = 64
"""Fewer devices under strace, which makes system calls slow."""
POLLS = 60
"""A multiple of the polls between two looks at any file."""
LOOKS = 10
REREADS = 1000
NO_SOURCE = {"of nobody"}
FUNCTIONS = Path("/sys/bus/pci/devices")
FILES = Path("/proc/self/fd")


def main() -> None:
    """Print the figures."""
    headline(f"health: CPU time of {POLLS} regular polls, one a second, and of a look at everything")
    use_byte_code()
    _floor()
    for cards in CARDS:
        with directory() as path:
            root = SimulatedNode.create(path / "node", NodeSpec(fpga=[FpgaSpec(cards=cards)])).root
            _measure(f"{cards} FPGA cards", root, cards, {"intel_fpga": {"enabled": True}})
    with directory() as path:
        root = SimulatedNode.create(path / "node", preset("generic")).root
        (root / "dev/many").mkdir(parents=True)
        for number in range(NODES):
            (root / f"dev/many/d{number}").touch()
        groups = [{"name": "example.com/many", "groups": [{"paths": [{"path": "/dev/many/*"}]}]}]
        _measure(f"{NODES} nodes", root, NODES, {}, groups)


def _measure(what: str, root: Path, devices: int, vendors: dict[str, object], generic: Sequence[object] = ()) -> None:
    config = Config.model_validate({"host_root": root, "vendors": vendors, "generic": generic})
    settings = resolve(config).native_json()
    already = len(list(FILES.iterdir()))
    scanner = Scanner(str(root), settings)
    scan, poller = scanner.scan(), Poller(scanner)
    poller.watch(scan, [])
    keys = [device.key for device in scan.devices]
    assert len(keys) >= devices
    for is_logged in (False, True):
        poller.reads_kernel_log(is_logged)
        poller.poll()
        regular = _cpu_seconds(poller.poll_due)
        aim = "<= 1 % of a core" if devices <= max(CARDS) else ""
        log = f"{'with' if is_logged else 'without'} the kernel log; {regular:.2%} of a core at one a second"
        figure(f"{what}: a regular poll", milliseconds(regular), aim, log)
        opened = (len(list(FILES.iterdir())) - already) / devices
        figure("  files that stay open, a device", f"{opened:.2f}", "", "of sysfs, 4.5 kB of kernel memory each")
    figure("  a look at everything", milliseconds(_cpu_seconds(poller.poll)))
    for reads, sources in _by_class().items():
        seconds = _cpu_seconds(partial(poller.poll_due, [(key, sources) for key in keys]), LOOKS)
        more = seconds - _cpu_seconds(partial(poller.poll_due, [(key, NO_SOURCE) for key in keys]), LOOKS)
        figure(f"  every {reads} looked at besides, a device", f"{max(0.0, more) / devices * 1e6:.2f} us")
    calls = system_calls.of_polls(root, settings, POLLS) if devices <= MOST_TRACED else None
    if calls is not None:
        attributes = sum(calls.get(name, 0) for name in ("pread64", "readlinkat", "newfstatat"))
        figure("  system calls of a regular poll, a device", f"{calls['total'] / devices:.2f}")
        figure("  system calls an attribute", f"{calls['total'] / attributes:.2f}", "<= 1.1 in memory of the kernel")


def _by_class() -> dict[str, set[str]]:
    """The sources that read files, by the kind of file."""
    classes: dict[str, set[str]] = {}
    for source in health_sources():
        if source.reads not in ("none", "kernel memory"):
            classes.setdefault(source.reads, set()).add(source.name)
    return classes


def _read_all(files: list[int], size: int) -> None:
    for file in files:
        os.pread(file, size, 0)


def _floor() -> None:
    """The machine's own sysfs, from files that are kept open, as the native scanner keeps them."""
    for what, name, size in (("kernel memory", "power_state", 64), ("config space", "config", 4)):
        files = [os.open(path, os.O_RDONLY) for path in sorted(FUNCTIONS.glob(f"*/{name}"))]
        if files:
            seconds = _cpu_seconds(partial(_read_all, files, size), REREADS)
            figure(f"floor: a read of this machine's {what}", f"{seconds / len(files) * 1e6:.2f} us")
        for file in files:
            os.close(file)


def _cpu_seconds(work: Callable[[], object], times: int = POLLS) -> float:
    before = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - before) / times


if __name__ == "__main__":
    main()
