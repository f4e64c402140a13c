"""The cost of health: a regular poll of FPGA cards, and a look at everything.

Simulated trees are plain files, which may be replaced. Those of sysfs report their removal: a read is one system call
of a file that stays open.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import system_calls
from herds import EIGHT_CARDS, MANY_PORTS, MOST_CARDS, MOST_FUNCTIONS, FpgaNode, directory
from measure import figure, headline, milliseconds, use_byte_code
from polled import polled

from devherd._native import health_sources
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd_sim.node.simulated_node import SimulatedNode

POLLS = 60
"""A multiple of the polls between two looks at any file."""
LOOKS = 10
REREADS = 1000
READS = ("filesystem", "config space", "device registers")
NO_SOURCE = {"of nobody"}
FUNCTIONS = Path("/sys/bus/pci/devices")


def main() -> None:
    """Print the figures."""
    headline(f"health: CPU time of {POLLS} regular polls, one a second, and of a look at everything")
    use_byte_code()
    _floor()
    for node in (EIGHT_CARDS, MANY_PORTS, MOST_CARDS, MOST_FUNCTIONS):
        with directory() as path:
            _measure(node, SimulatedNode.create(path / "node", node.spec).root)


def _measure(node: FpgaNode, root: Path) -> None:
    settings = resolve(Config(host_root=root)).native_json()
    poller, devices = polled(root, settings)
    assert len(devices) == node.devices
    for is_logged in (False, True):
        poller.reads_kernel_log(is_logged)
        poller.poll()
        regular = _cpu_seconds(poller.poll_due)
        log = f"{'with' if is_logged else 'without'} the kernel log; {regular:.2%} of a core at one a second"
        figure(f"{node.title}: a regular poll", milliseconds(regular), "<= 1 % of a core", log)
    figure("  a look at everything", milliseconds(_cpu_seconds(poller.poll)))
    keys = [device.key for device in devices]
    nothing = _cpu_seconds(partial(poller.poll_due, [(key, NO_SOURCE) for key in keys]), LOOKS)
    for reads in READS:
        sources = {source.name for source in health_sources() if source.reads == reads}
        seconds = _cpu_seconds(partial(poller.poll_due, [(key, sources) for key in keys]), LOOKS)
        more = max(0.0, seconds - nothing) / len(keys)
        figure(f"  every {reads} looked at besides, a device", f"{more * 1e6:.2f} us")
    calls = system_calls.of_polls(root, settings, POLLS)
    if calls is not None:
        figure("  system calls of a regular poll, a device", f"{calls / len(devices):.2f}")


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
