"""What a process costs, from /proc: memory, CPU time, wake-ups."""

import re
from pathlib import Path


def pss_bytes(pid: int) -> int:
    """Proportional set size: its own pages, and its share of those it has in common with others."""
    return _kibibytes(Path(f"/proc/{pid}/smaps_rollup").read_text(), "Pss")


def own_bytes(pid: int) -> int:
    """The pages that nobody else has: what would be free without it."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return _kibibytes(rollup, "Private_Clean") + _kibibytes(rollup, "Private_Dirty")


def own_bytes_by_mapping(pid: int) -> dict[str, int]:
    """The same, by what is mapped: a file's name, `[heap]`, `[stack]`, or `[anonymous]` (Python's arenas, threads)."""
    sizes: dict[str, int] = {}
    name = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if mapping := re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+\s*(.*)", line):
            name = Path(mapping[1]).name or "[anonymous]"
        elif private := re.match(r"Private_(?:Clean|Dirty):\s+(\d+) kB", line):
            sizes[name] = sizes.get(name, 0) + int(private[1]) * 1024
    return {name: size for name, size in sizes.items() if size}


def cpu_seconds(pid: int) -> float:
    """Time on a CPU, of all threads, in nanosecond steps (utime has ticks of 10 ms)."""
    return sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in _tasks(pid)) / 1e9


def wake_ups(pid: int) -> int:
    """How often its threads have slept and were woken: their voluntary context switches."""
    statuses = (task.joinpath("status").read_text() for task in _tasks(pid))
    return sum(int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.MULTILINE)[0]) for status in statuses)


def children(pid: int) -> list[int]:
    """The processes that it has forked."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def threads(pid: int) -> int:
    """How many threads it has."""
    return len(_tasks(pid))


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _kibibytes(rollup: str, field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", rollup, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
