"""System calls of scans and of regular polls, counted by strace in a process of its own."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from devherd._native import Poller, Scanner


def of_scans(root: Path, settings: str) -> tuple[int, float] | None:
    """System calls of the first scan of this host and of each further scan; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    none, one, eleven = (_count(strace, [str(root), settings, str(scans), "0"]) for scans in (0, 1, 11))
    return one - none, (eleven - one) / 10


def of_polls(root: Path, settings: str, polls: int) -> dict[str, float] | None:
    """How many each of so many regular polls makes after a first look at everything, by name; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    first, later = (_counts(strace, [str(root), settings, "1", str(1 + more)]) for more in (0, polls))
    return {name: (count - first.get(name, 0)) / polls for name, count in later.items()}


def _count(strace: str, arguments: list[str]) -> int:
    return _counts(strace, arguments)["total"]


def _counts(strace: str, arguments: list[str]) -> dict[str, int]:
    """Calls by name; `total` is their sum."""
    with tempfile.NamedTemporaryFile("r") as summary:
        subprocess.run([strace, "-f", "-c", "-o", summary.name, sys.executable, __file__, *arguments], check=True)
        lines = re.findall(r"^\s*[\d.]+\s+\S+\s+\S+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", summary.read(), re.MULTILINE)
        return {name: int(count) for count, name in lines}


if __name__ == "__main__":
    scanner = Scanner(sys.argv[1], sys.argv[2])
    poller = Poller(scanner)
    for _ in range(int(sys.argv[3])):
        poller.watch(scanner.scan(), [])
    for _ in range(int(sys.argv[4])):
        poller.poll_due()
