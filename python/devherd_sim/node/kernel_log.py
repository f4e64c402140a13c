"""The kernel log of a simulated node: <https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg>.

Its file `dev/kmsg` has the records as the device gives them, one after the other; whoever listens is told of new ones
(rust/src/events/simulated_kernel_log.rs).
"""

import fcntl
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from devherd_sim.node.listeners import tell_listeners

KERNEL = 0
USER = 1
"""What whoever may write to the device is, whatever it says that it is."""
ERROR = 3
LONGEST_TEXT = 2048
"""`PRINTK_MESSAGE_MAX`: the kernel cuts what is longer."""
_LOOKED_BACK = 16384


class KernelLog:
    """The log of the node below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._file = root / "dev/kmsg"

    def begin(self) -> None:
        """Let there be a log, if there is none yet."""
        self._file.parent.mkdir(exist_ok=True)
        self._file.touch()

    def write(
        self, text: str, *, pci_address: str = "", facility: int = KERNEL, level: int = ERROR, monotonic: float = 0
    ) -> None:
        """One record: of the driver of a PCI device if it is given, at CLOCK_MONOTONIC second `monotonic`, or now."""
        self.write_all([text], pci_address=pci_address, facility=facility, level=level, monotonic=monotonic)

    def write_all(
        self,
        texts: Iterable[str],
        *,
        pci_address: str = "",
        facility: int = KERNEL,
        level: int = ERROR,
        monotonic: float = 0,
    ) -> None:
        """Records one after the other, of one moment."""
        microseconds = int((monotonic or time.monotonic()) * 1e6)
        device = f" SUBSYSTEM=pci\n DEVICE=+pci:{pci_address}\n" if pci_address else ""
        with self._file.open("r+b") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            sequence = _next_sequence(log.fileno())
            records = (
                f"{facility << 3 | level},{number},{microseconds},-;{_escaped(text[:LONGEST_TEXT])}\n{device}"
                for number, text in enumerate(texts, sequence)
            )
            log.seek(0, os.SEEK_END)
            log.write("".join(records).encode())
        self._tell()

    def overwrite(self) -> None:
        """Let the ring have come round: what is in it is lost to those who have not read it."""
        with self._file.open("r+b") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            sequence = _next_sequence(log.fileno())
            log.truncate(0)
            log.write(f"6,{sequence},{int(time.monotonic() * 1e6)},-;the oldest that is kept\n".encode())
        self._tell()

    def _tell(self) -> None:
        tell_listeners(self._root, "kernel-log", [b"\n"])


def _next_sequence(log: int) -> int:
    """The number after that of the last record."""
    size = os.fstat(log).st_size
    tail = os.pread(log, _LOOKED_BACK, max(0, size - _LOOKED_BACK))
    numbers = re.findall(rb"^\d+,(\d+),\d+,", tail, re.MULTILINE)
    return int(numbers[-1]) + 1 if numbers else 0


def _escaped(text: str) -> str:
    """As the kernel has it: what is not printable, and the backslash, by their numbers."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != ord("\\") else f"\\x{byte:02x}" for byte in text.encode())
