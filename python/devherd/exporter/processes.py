"""What processes use: the exporter itself, the supervisor and its children, as /proc shows to everybody.

Sources: proc_pid_stat(5), proc_pid_statm(5), proc_pid_fd(5). The kernel shows how much of a process's memory is its
own (PSS, `smaps_rollup`) to whoever may trace it alone, which no sandbox of devherd allows.
"""

import os
import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from devherd.exporter import observed
from devherd.exporter.exposition import Family
from devherd.instance import Herd

SUPERVISOR = "supervisor"

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_UTIME, _STIME, _STARTTIME = (field - 3 for field in (14, 15, 22))  # what follows the name begins with field 3


@dataclass(frozen=True, slots=True)
class Usage:
    """What one process uses."""

    cpu_seconds: float
    virtual_bytes: int
    resident_bytes: int
    started_after_boot_seconds: float
    open_files: int
    """0 where the kernel does not say: before Linux 6.2."""


def families(herd: Herd) -> Iterator[Family]:
    """The supervisor and each child that runs, by name, and the exporter as `process_*`."""
    booted = _booted_timestamp_seconds()
    yield from _of_exporter(usage("self"), booted)
    pids = {SUPERVISOR: herd.supervisor_pid} | {name: child.pid for name, child in sorted(herd.children.items())}
    usages = {name: usage(str(pid)) for name, pid in pids.items() if pid}
    yield from _of_children({name: used for name, used in usages.items() if used is not None}, booted)


def usage(pid: str) -> Usage | None:
    """What a process uses; None when it is gone, or hidden by the option `hidepid` of /proc."""
    directory = _PROC / pid
    try:
        stat, statm = (directory / "stat").read_text(), (directory / "statm").read_text()
        return parse(stat, statm, (directory / "fd").stat().st_size)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def parse(stat: str, statm: str, open_files: int) -> Usage:
    """From the texts of `stat` and `statm`. A process's name may hold anything, also blanks and brackets."""
    fields = stat[stat.rindex(")") + 2 :].split()
    size, resident = map(int, statm.split()[:2])
    return Usage(
        cpu_seconds=(int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS,
        virtual_bytes=size * _PAGE_BYTES,
        resident_bytes=resident * _PAGE_BYTES,
        started_after_boot_seconds=int(fields[_STARTTIME]) / _TICKS,
        open_files=open_files,
    )


def _of_exporter(used: Usage | None, booted: float) -> Iterator[Family]:
    if used is None:
        return
    for kind, value in (
        (observed.PROCESS_CPU, used.cpu_seconds),
        (observed.PROCESS_RESIDENT_MEMORY, used.resident_bytes),
        (observed.PROCESS_VIRTUAL_MEMORY, used.virtual_bytes),
        (observed.PROCESS_OPEN_FILES, used.open_files or len(os.listdir("/proc/self/fd"))),  # noqa: PTH208 - names alone
        (observed.PROCESS_MAX_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        (observed.PROCESS_START_TIME, booted + used.started_after_boot_seconds),
    ):
        family = kind.family()
        family.add(value)
        yield family


def _of_children(usages: Mapping[str, Usage], booted: float) -> Iterator[Family]:
    def family(kind: observed.Observed, values: Iterable[tuple[str, float]]) -> Family:
        made = kind.family()
        for child, value in values:
            made.add(value, child=child)
        return made

    each = usages.items()
    yield family(observed.CHILD_RESIDENT_MEMORY, ((child, used.resident_bytes) for child, used in each))
    yield family(observed.CHILD_CPU, ((child, used.cpu_seconds) for child, used in each))
    yield family(observed.CHILD_OPEN_FILES, ((child, used.open_files) for child, used in each if used.open_files))
    yield family(observed.CHILD_START_TIME, ((child, booted + used.started_after_boot_seconds) for child, used in each))


@cache
def _booted_timestamp_seconds() -> float:
    """Looked up once, so that no process seems to have started at another time with each step of the clock."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
