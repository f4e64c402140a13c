"""A storm in the kernel log: CPU time to read 800 000 Xids, and as many irrelevant lines, in parts.

The log is a simulated node's: the device itself adds one read() a record, which is measured beside it by one of another
device.
"""

import os
import tempfile
import time
from pathlib import Path

from measure import figure, headline

from devherd._native import KernelLog
from devherd.reasons.kernel_log_rules import compiled_from, in_force
from devherd.scanner.kernel_log import RECORDS_A_ROUND
from devherd_sim.node.kernel_events import KernelLog as SimulatedLog

LINES = 800_000
DISTINCT = 29
XIDS = [
    f"NVRM: Xid (PCI:0000:3b:00): 95, pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x{number:x},0x0)."
    for number in range(DISTINCT)
]
OTHERS = ["pcieport 0000:3a:00.0:    [ 0] RxErr                  (First)"]


def main() -> None:
    """Print the figures."""
    headline(f"storm in the kernel log: {LINES:,} lines, {DISTINCT} distinct texts")
    for name, texts in (("Xids", XIDS), ("lines of no interest", OTHERS)):
        seconds, longest = _taken_in(texts)
        figure(
            f"{LINES:,} {name}: CPU time a 100 000",
            f"{seconds / LINES * 1e5:.3f} s",
            "<= 1 s",
            f"longest part {longest * 1e3:.1f} ms of {RECORDS_A_ROUND:,} records",
        )
    figure("floor: one read() of the device each", f"{_reads() * 1e5:.3f} s")


def _taken_in(texts: list[str]) -> tuple[float, float]:
    """The total CPU seconds, and those of the longest part."""
    rules = compiled_from(in_force((), ()).values())
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        node = SimulatedLog(Path(directory))
        node.begin()
        node.write_all(texts[number % len(texts)] for number in range(LINES))
        log = KernelLog(directory, rules, simulated=True)
        parts = [0.0]
        more = True
        while more:
            began = time.process_time()
            _, _, more = log.drain(RECORDS_A_ROUND)
            parts.append(time.process_time() - began)
        log.close()
    return sum(parts), max(parts)


def _reads(times: int = 100_000) -> float:
    """CPU seconds of one read of a character device."""
    device = os.open("/dev/zero", os.O_RDONLY)
    began = time.process_time()
    for _ in range(times):
        os.read(device, 1)
    seconds = time.process_time() - began
    os.close(device)
    return seconds / times


if __name__ == "__main__":
    main()
