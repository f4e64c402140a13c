"""Processes that have no file descriptors left, or a few."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, prlimit, setrlimit


@contextmanager
def descriptors(free: int) -> Iterator[None]:
    """This process can open so many files more, and no other."""
    before, held = getrlimit(RLIMIT_NOFILE), []
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    try:
        setrlimit(RLIMIT_NOFILE, (highest + 1 + free, before[1]))
        with suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        for _ in range(free):
            os.close(held.pop())
        yield
    finally:
        setrlimit(RLIMIT_NOFILE, before)
        for descriptor in held:
            os.close(descriptor)


@contextmanager
def none_for(pid: int) -> Iterator[None]:
    """A process with stdin, stdout and stderr keeps what it has open, and can open nothing else."""
    soft, hard = prlimit(pid, RLIMIT_NOFILE)
    prlimit(pid, RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        prlimit(pid, RLIMIT_NOFILE, (soft, hard))
