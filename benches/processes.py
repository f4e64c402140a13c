"""The cost of a process, from /proc: memory, CPU time, wake-ups."""

import os
import re
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_PRESENT, _OF_FILE, _FRAME = 1 << 63, 1 << 61, (1 << 55) - 1
"""Of an entry of /proc/PID/pagemap: https://docs.kernel.org/admin-guide/mm/pagemap.html."""


@dataclass(frozen=True)
class Memory:
    """The proportional set size of a process: a page that n processes have counts 1/n for each. In bytes."""

    anonymous: float
    """Anonymous pages: heap, stacks, written private pages of files."""
    file: float
    """Unmodified pages of files, and shared memory."""
    own: float
    """Pages in both parts that no other process has."""

    @property
    def total(self) -> float:
        """The sum of both parts."""
        return self.anonymous + self.file


def memory_of(pids: Iterable[int]) -> list[Memory]:
    """The memory of processes that stand for themselves: what others map of the same pages makes no share smaller.

    So the sum is what they take together on a machine where nothing else runs. Page frames are for root to see: for
    others it is what the kernel counts, smaller by what other processes share of interpreter and libraries.
    """
    frames = [[*_frames(pid)] for pid in pids]
    if not all(any(frame for frame, _ in of_one) for of_one in frames):
        return [_counted_by_the_kernel(pid) for pid in pids]
    sharers = Counter(frame for of_one in frames for frame in {frame for frame, _ in of_one})
    return [_memory(of_one, sharers) for of_one in frames]


def _memory(frames: Iterable[tuple[int, bool]], sharers: Counter[int]) -> Memory:
    sizes = {True: 0.0, False: 0.0}
    own = 0
    for frame, is_file in dict(frames).items():
        sizes[is_file] += _PAGE / sharers[frame]
        own += _PAGE if sharers[frame] == 1 else 0
    return Memory(anonymous=sizes[False], file=sizes[True], own=own)


def _frames(pid: int) -> Iterator[tuple[int, bool]]:
    """The page frames that a process has, 0 where they are hidden, and whether a file's page is in it."""
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        for start, end, _ in _mappings(pid):
            pagemap.seek(start // _PAGE * 8)
            entries = array("Q", pagemap.read((end - start) // _PAGE * 8))
            yield from ((entry & _FRAME, bool(entry & _OF_FILE)) for entry in entries if entry & _PRESENT)


def _mappings(pid: int) -> Iterator[tuple[int, int, str]]:
    """Start, end and file name of what is mapped; not the kernel's own page at the end of the address space."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        place, _, _, _, _, *file = line.split(maxsplit=5)
        start, end = (int(text, 16) for text in place.split("-"))
        if file != ["[vsyscall]"]:
            yield start, end, "" if not file or file[0].startswith("[") else Path(file[0]).name


def _counted_by_the_kernel(pid: int) -> Memory:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    own = _kibibytes(rollup, "Private_Clean") + _kibibytes(rollup, "Private_Dirty")
    file = _kibibytes(rollup, "Pss_File") + _kibibytes(rollup, "Pss_Shmem")
    return Memory(anonymous=_kibibytes(rollup, "Pss_Anon"), file=file, own=own)


def own_bytes(pid: int) -> int:
    """The pages that no other process has: memory that its end frees."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return _kibibytes(rollup, "Private_Clean") + _kibibytes(rollup, "Private_Dirty")


def by_mapping(pids: Iterable[int]) -> list[dict[tuple[str, bool], float]]:
    """Of each process the bytes by what is mapped, and whether no other of the processes has them.

    As `memory_of` counts them. What is mapped is a file's name, also of its pages that were written to; "" is memory of
    no file: heap, arenas, stacks. Page frames are for root to see: for others it is empty.
    """
    named = [{frame: name for frame, name in _named_frames(pid) if frame} for pid in pids]
    sharers = Counter(frame for of_one in named for frame in of_one)
    sizes: list[dict[tuple[str, bool], float]] = []
    for of_one in named:
        sizes.append({})
        for frame, name in of_one.items():
            key = name, sharers[frame] == 1
            sizes[-1][key] = sizes[-1].get(key, 0) + _PAGE / sharers[frame]
    return sizes


def _named_frames(pid: int) -> Iterator[tuple[int, str]]:
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        for start, end, name in _mappings(pid):
            pagemap.seek(start // _PAGE * 8)
            entries = array("Q", pagemap.read((end - start) // _PAGE * 8))
            yield from ((entry & _FRAME, name) for entry in entries if entry & _PRESENT)


def cpu_seconds(pid: int) -> float:
    """Time on a CPU, of all threads, those that have ended too, and of children that were waited for.

    The process's own part is its CPU clock, in nanoseconds (utime and stime of /proc/PID/stat are the same in ticks of
    10 ms); the children's part is in ticks.
    """
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat[stat.rindex(")") + 2 :].split()  # from field 3 on; cutime is field 16, cstime 17
    return time.clock_gettime(_cpu_clock(pid)) + (int(fields[13]) + int(fields[14])) / _TICKS


def _cpu_clock(pid: int) -> int:
    """What clock_getcpuclockid(3) gives, which Python lacks: Linux makes it so (CPUCLOCK_SCHED of a process)."""
    return (~pid << 3) | 2


def wake_ups(pid: int) -> int:
    """How often the threads that it has now have slept and were woken: their voluntary context switches."""
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
