"""How figures are taken and printed: medians of repeats, a floor or peer from the same run, and what the machine is."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path


def median_seconds(work: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Median time of a call, after a first call that does not count."""
    work()
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return statistics.median(times)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


TABLE = "DEVHERD_BENCH_TABLE"
"""The variable that names a file, to which each bench adds its figures: `all.py` prints it at the end."""


def headline(title: str) -> None:
    """A bench's name."""
    _show(f"\n== {title} ==")


def figure(name: str, value: str, aim: str = "", against: str = "") -> None:
    """One line: what, how much, what was aimed at, and the ratio to a floor or peer."""
    notes = "; ".join(note for note in (f"aim {aim}" if aim else "", against) if note)
    _show(f"{name:<58} {value:>14}   {notes}".rstrip())


def _show(line: str) -> None:
    print(line)
    if table := os.environ.get(TABLE):
        with Path(table).open("a", encoding="utf-8") as file:
            print(line, file=file)


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds, with as many digits as are significant."""
    return f"{seconds * 1000:.3f} ms" if seconds < 0.01 else f"{seconds * 1000:.1f} ms"


def timing(name: str, seconds: Sequence[float], aim: str = "", against: str = "") -> None:
    """One line about repeated times: the median, and the least and the most of them."""
    extent = f"{min(seconds) * 1000:.1f} to {max(seconds) * 1000:.1f} ms in {len(seconds)}"
    figure(name, milliseconds(statistics.median(seconds)), aim, "; ".join(note for note in (extent, against) if note))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """How many times the median of the floor ours is."""
    return f"{statistics.median(ours) / statistics.median(theirs):.2f}x"


def megabytes(size: float) -> str:
    """Bytes as megabytes of a million bytes."""
    return f"{size / 1e6:.1f} MB"


def use_byte_code() -> None:
    """Let processes keep their byte code, as installed packages do, whatever the shell says: compiling is no start."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def machine() -> str:
    """Processor, cores, kernel and Python, for the record."""
    with Path("/proc/cpuinfo").open(encoding="utf-8") as cpuinfo:
        model = next((line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")), "unknown")
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"


def versions() -> str:
    """The versions of what is measured and of the tools."""
    return ", ".join(f"{name} {version(name)}" for name in ("devherd", "grpcio", "protobuf", "supervisor"))
