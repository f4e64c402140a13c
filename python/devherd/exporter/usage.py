"""What each process of the instance uses, from /proc, as metric families."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit

from prometheus_client.core import Metric as Family

from devherd.exporter import declarations
from devherd.exporter.declarations import Observed
from devherd.instance.read import SUPERVISOR, Herd

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_UTIME, _STIME, _STARTTIME = (field - 3 for field in (14, 15, 22))  # the part after the name begins with field 3


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource usage of one process."""

    cpu_seconds: float
    virtual_bytes: int
    resident_bytes: int
    started_after_boot_seconds: float
    open_files: int
    """0 if unknown: Linux before 6.2 does not report it."""


def process_families(herd: Herd) -> Iterator[Family]:
    """Usage of the supervisor and of each running child, by name, and of the exporter as `process_*`."""
    booted = _booted_timestamp_seconds()
    yield from _of_exporter(usage_of_process("self"), booted)
    pids = {SUPERVISOR: herd.supervisor_pid} | {name: child.pid for name, child in sorted(herd.children.items())}
    usages = {name: usage_of_process(str(pid)) for name, pid in pids.items() if pid}
    yield from _of_children({name: used for name, used in usages.items() if used is not None}, booted)


def usage_of_process(pid: str) -> Usage | None:
    """The usage of a process; None if it is gone, or hidden by the mount option `hidepid` of /proc."""
    directory = _PROC / pid
    try:
        stat, statm = (directory / "stat").read_text(), (directory / "statm").read_text()
        return parsed_usage(stat, statm, (directory / "fd").stat().st_size)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def parsed_usage(stat: str, statm: str, open_files: int) -> Usage:
    """Parse the contents of `stat` and `statm`. The process name in `stat` may contain blanks and brackets."""
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
        (declarations.PROCESS_CPU, used.cpu_seconds),
        (declarations.PROCESS_RESIDENT_MEMORY, used.resident_bytes),
        (declarations.PROCESS_VIRTUAL_MEMORY, used.virtual_bytes),
        (declarations.PROCESS_OPEN_FILES, used.open_files or len(os.listdir("/proc/self/fd"))),  # noqa: PTH208
        (declarations.PROCESS_MAX_FILES, getrlimit(RLIMIT_NOFILE)[0]),
        (declarations.PROCESS_START_TIME, booted + used.started_after_boot_seconds),
    ):
        family = kind.family()
        family.add_metric((), value)
        yield family


def _of_children(usages: Mapping[str, Usage], booted: float) -> Iterator[Family]:
    def family(kind: Observed, values: Iterable[tuple[str, float]]) -> Family:
        made = kind.family()
        for child, value in values:
            made.add_metric((child,), value)
        return made

    each = usages.items()
    yield family(declarations.CHILD_RESIDENT_MEMORY, ((child, used.resident_bytes) for child, used in each))
    yield family(declarations.CHILD_CPU, ((child, used.cpu_seconds) for child, used in each))
    yield family(declarations.CHILD_OPEN_FILES, ((child, used.open_files) for child, used in each if used.open_files))
    yield family(
        declarations.CHILD_START_TIME, ((child, booted + used.started_after_boot_seconds) for child, used in each)
    )


@cache
def _booted_timestamp_seconds() -> float:
    """The time of the boot; cached, so that a step of the clock does not move the start times of processes."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
