"""System calls of scans and of regular polls, counted by strace in a process of its own."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from devherd._native import Scanner


def of_scans(root: Path, settings: str) -> tuple[int, float] | None:
    """How many the first scan of this host makes, and each further one; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    none, one, eleven = (_count(strace, [str(root), settings, str(scans), "0"]) for scans in (0, 1, 11))
    return one - none, (eleven - one) / 10


def of_polls(root: Path, settings: str, polls: int) -> float | None:
    """How many each of so many regular polls makes after a first look at everything; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    first, all_of_them = (_count(strace, [str(root), settings, "1", str(1 + more)]) for more in (0, polls))
    return (all_of_them - first) / polls


def _count(strace: str, arguments: list[str]) -> int:
    with tempfile.NamedTemporaryFile("r") as summary:
        subprocess.run([strace, "-f", "-c", "-o", summary.name, sys.executable, __file__, *arguments], check=True)
        total = re.search(r"^\s*100\.00\s+\S+\s+\S+\s+(\d+)", summary.read(), re.MULTILINE)
        assert total is not None
        return int(total[1])


if __name__ == "__main__":
    scanner = Scanner(sys.argv[1], sys.argv[2])
    for _ in range(int(sys.argv[3])):
        scanner.scan()
    for _ in range(int(sys.argv[4])):
        scanner.poll_due()
