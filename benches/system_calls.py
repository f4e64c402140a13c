"""System calls of scans and of regular polls, counted by strace in a process of its own."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from polled import polled

from devherd._native import Scanner


def of_scans(root: Path, settings: str) -> tuple[int, float] | None:
    """System calls of the first scan of this host and of each further scan; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    none, one, eleven = (_count(strace, root, settings, "scan", scans) for scans in (0, 1, 11))
    return one - none, (eleven - one) / 10


def of_polls(root: Path, settings: str, polls: int) -> float | None:
    """System calls of each of so many regular polls after a first look at everything; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    first, later = (_count(strace, root, settings, "poll", 1 + more) for more in (0, polls))
    return (later - first) / polls


def _count(strace: str, root: Path, settings: str, what: str, times: int) -> int:
    with tempfile.NamedTemporaryFile("r") as summary:
        work = [sys.executable, __file__, str(root), settings, what, str(times)]
        subprocess.run([strace, "-f", "-c", "-o", summary.name, *work], check=True)
        return total(summary.read())


def total(summary: str) -> int:
    """The number of calls in a summary of strace; 0 where none was made."""
    found = re.search(r"^100\.00\s+\S+\s+\d*\s+(\d+)\s+(?:\d+\s+)?total$", summary, re.MULTILINE)
    return int(found[1]) if found else 0


def main(root: Path, settings: str, what: str, times: int) -> None:
    """Scan or poll so many times."""
    if what == "scan":
        scanner = Scanner(str(root), settings)
        for _ in range(times):
            scanner.scan()
    else:
        poller, _ = polled(root, settings)
        for _ in range(times):
            poller.poll_due()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
