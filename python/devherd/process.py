"""A child of the supervisor: its arguments at the fork, and its heartbeat.

Heartbeats are in shared memory without a path, mapped before the forks: each process stores a time. The supervisor
reads the children's times. The exporter inherits the mapping, and commands use the supervisor's descriptor: both read
all times.
"""

import contextlib
import mmap
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from devherd.settings import Settings

_SLOT = struct.Struct("=dd")
_BEAT, _FLAG, _SECONDS = struct.Struct("=d"), struct.Struct("=?"), struct.Struct("=B")
_WAITS, _YIELDS = _BEAT.size, _BEAT.size + _FLAG.size
_RESTS = _YIELDS + _FLAG.size


MOST_CHILDREN = 1 << 16
"""More than a node can run. Mapped pages that are never written use no memory."""

BEAT_PERIOD_SECONDS = 1.0
LOOK_PERIOD_SECONDS = 5.0
"""Time between two polls while no event comes: a poll finds changes that no event has reported."""
_MEMORY_NAME = "devherd-heartbeats"
SOURCE_MARK = "DEVHERD_SOURCE_PROCESS"
"""Environment variable of an operator's program, and of all that it starts: the id of the source's process."""
HOLDERS = "holders"
"""The process that asks the kubelet which pods hold devices, and the scanner's request for it."""
LONGEST_PRE_START_SECONDS = 25.0
"""Limit for all `pre_start` programs of one request; ending a program may take 4 s more."""
PRE_START_SECONDS = 29.5
"""Process `pre-start` answers within this time: the kubelet waits 30 s (KubeletPreStartContainerRPCTimeoutInSecs)."""
YIELD = signal.SIGUSR1
"""Asks the child of a program that hands over to serve on until the next instance has taken over."""
RENEW = 75
"""Exit code of a child that wants to be started again at once, in a fresh sandbox (EX_TEMPFAIL of sysexits.h)."""


class Heartbeat:
    """The heartbeats, for reading. The last slot, after the children's, is the supervisor's."""

    def __init__(self, page: mmap.mmap) -> None:
        self._page = page
        self.supervisor = len(page) // _SLOT.size - 1
        """The supervisor's own slot."""

    def last_beat(self, slot: int) -> float:
        """Monotonic second of the last heartbeat, 0.0 before the first."""
        return max(0.0, self._value(slot))

    def rest_seconds(self, slot: int) -> int:
        """How long the process of this slot rests after its last heartbeat; a rest does not count as silence."""
        seconds: int = _SECONDS.unpack_from(self._page, slot * _SLOT.size + _RESTS)[0]
        return seconds

    def silence_seconds(self, slot: int) -> float:
        """Seconds since the rest after the last heartbeat ended, or since the start of a child without a heartbeat."""
        return time.monotonic() - abs(self._value(slot)) - self.rest_seconds(slot)

    def _value(self, slot: int) -> float:
        value: float = _BEAT.unpack_from(self._page, slot * _SLOT.size)[0]
        return value


def heartbeats_of(pid: int, descriptor: int) -> Heartbeat | None:
    """The heartbeats of a running instance by its supervisor's process id and descriptor; None if out of reach."""
    path = Path(f"/proc/{pid}/fd/{descriptor}")
    try:
        if _MEMORY_NAME not in str(path.readlink()):
            return None  # the process id now belongs to another process
        with path.open("rb") as memory:
            return Heartbeat(mmap.mmap(memory.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        return None


class Heartbeats(Heartbeat):
    """The shared memory. The supervisor creates it once and assigns slots; children inherit the mapping."""

    def __init__(self, slots: int = MOST_CHILDREN) -> None:
        self.descriptor = os.memfd_create(_MEMORY_NAME)
        """For `heartbeats_of`. Only the supervisor keeps it open."""
        os.ftruncate(self.descriptor, (slots + 1) * _SLOT.size)
        super().__init__(mmap.mmap(self.descriptor, 0))
        self._slots = slots
        self._used = 0
        self._released: list[int] = []
        self.clear(self.supervisor)

    @property
    def free(self) -> int:
        """Number of free slots."""
        return self._slots - self._used + len(self._released)

    def claim(self) -> int:
        """Assign a slot to a new child. Call it only if `free` is above 0."""
        if self._released:
            slot = self._released.pop()
        else:
            assert self._used < self._slots
            slot = self._used
            self._used += 1
        self.clear(slot)
        return slot

    def release(self, slot: int) -> None:
        """Take back the slot of a child that is not started again."""
        self.clear(slot)
        self._released.append(slot)

    def clear(self, slot: int) -> None:
        """Forget the last heartbeat; called when the child is started."""
        _SLOT.pack_into(self._page, slot * _SLOT.size, -time.monotonic(), 0.0)

    def beat(self, slot: int, rest_seconds: int = 0) -> None:
        """Store the heartbeat of the child with this slot, which may rest after it."""
        _SECONDS.pack_into(self._page, slot * _SLOT.size + _RESTS, rest_seconds)
        _BEAT.pack_into(self._page, slot * _SLOT.size, time.monotonic())

    def waits_for_the_kubelet(self, slot: int, waits: bool) -> None:
        """Store whether the child with this slot waits for the kubelet."""
        _FLAG.pack_into(self._page, slot * _SLOT.size + _WAITS, waits)

    def awaits_the_kubelet(self, slot: int) -> bool:
        """True if the child with this slot waits for the kubelet."""
        return self._flag(slot, _WAITS)

    def yields(self, slot: int) -> None:
        """Store that the child with this slot hands over, and writes no file any more."""
        _FLAG.pack_into(self._page, slot * _SLOT.size + _YIELDS, True)

    def is_yielding(self, slot: int) -> bool:
        """True if the child with this slot hands over."""
        return self._flag(slot, _YIELDS)

    def _flag(self, slot: int, offset: int) -> bool:
        flag: bool = _FLAG.unpack_from(self._page, slot * _SLOT.size + offset)[0]
        return flag


class Confined(Protocol):
    """The part of its sandbox's interface that a child uses."""

    def is_outgrown(self) -> bool:
        """True if a path in the sandbox was created again, which only a new sandbox covers."""

    def may_write(self, path: Path) -> bool:
        """True if the child may create files in a directory."""

    def may_read(self, path: Path) -> bool:
        """True if the child may read files in a directory."""

    def may_serve_in(self, path: Path) -> bool:
        """True if the child may create sockets in a directory."""


@dataclass(frozen=True, slots=True)
class Child:
    """A child's name in supervisorctl (`scanner`, `exporter`, `resource:<key>`), its settings and its heartbeat."""

    name: str
    settings: Settings
    heartbeats: Heartbeats
    slot: int
    last_exit: str = ""
    """How the previous process ended; empty for the first."""
    sandbox: Confined | None = None
    may_watch: bool = True
    """False if it must not use inotify: other programs need some of the user's inotify instances."""

    def beat(self, rest_seconds: int = 0) -> None:
        """Store the heartbeat; the child's main loop calls it every BEAT_PERIOD_SECONDS, and after a rest."""
        self.heartbeats.beat(self.slot, rest_seconds)

    def waits_for_the_kubelet(self, waits: bool) -> None:
        """Report whether the child waits for the kubelet, which the supervisor logs once for all children."""
        self.heartbeats.waits_for_the_kubelet(self.slot, waits)

    def yields(self) -> None:
        """Report that the child serves on for the next instance, and writes no file any more."""
        self.heartbeats.yields(self.slot)

    @property
    def is_yielding(self) -> bool:
        """True after `yields`."""
        return self.heartbeats.is_yielding(self.slot)

    def has_outgrown_its_sandbox(self) -> bool:
        """True if the child must end with RENEW."""
        return self.sandbox is not None and self.sandbox.is_outgrown()

    def may_write(self, path: Path) -> bool:
        """True if the child may create files in a directory."""
        return self.sandbox is None or self.sandbox.may_write(path)

    def may_read(self, path: Path) -> bool:
        """True if the child may read files in a directory."""
        return self.sandbox is None or self.sandbox.may_read(path)

    def may_serve_in(self, path: Path) -> bool:
        """True if the child may create sockets in a directory."""
        return self.sandbox is None or self.sandbox.may_serve_in(path)


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of a process or thread in proc_pid_stat(5)."""

    name: str
    state: str
    """A letter: `D` waits in the kernel, and no signal ends it; `Z` has ended."""
    parent: int
    group: int
    cpu_ticks: int
    """User and system time, in clock ticks."""
    started: int
    """Clock ticks from the boot to its start; tells it from a later process with the same id."""


def stat_of(process: int | str) -> Stat:
    """The kernel's data on a process, by its id or `self`, or on a thread, `self/task/ID`. Raises OSError."""
    return parsed_stat(Path(f"/proc/{process}/stat").read_text(errors="replace"))


def parsed_stat(text: str) -> Stat:
    """The parsed content of the file; the name in it may contain blanks and brackets."""
    before, _, after = text.rpartition(")")
    fields = after.split()  # from field 3 on
    parent, group, user, system, started = (int(fields[field - 3]) for field in (4, 5, 14, 15, 22))
    return Stat(before.partition("(")[2], fields[0], parent, group, user + system, started)


MORE_PROCESS_IDS = "raise the pod's pids limit (podPidsLimit of the kubelet), or the unit's TasksMax"
"""The cure where no process or thread can be started."""
OLDEST_CLOCK = 1_750_000_000.0
"""Unix seconds, June 2025: a clock that shows less is wrong."""


def started_at(process: int) -> float:
    """The Unix second of its start by the present clock, which may have been set meanwhile. Raises OSError."""
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - stat_of(process).started / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def children() -> Iterator[tuple[int, Stat]]:
    """The children of this process, each with its id."""
    own = os.getpid()
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = stat_of(place.name)
            if stat.parent == own:
                yield int(place.name), stat


def take_reloads() -> None:
    """Unblock SIGHUP. It is blocked from the fork until the handler is set, so that none is lost or kills the child."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def is_in_pod() -> bool:
    """Whether this process is in a pod: the kubelet sets this variable in every container of one."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def is_in_container() -> bool:
    """Whether this process is in a container, by the marks of Kubernetes, docker and podman."""
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    return is_in_pod() or any(mark.exists() for mark in marks)


ChildMain = Callable[[Child], int]
"""A child's main function, called after the fork; returns the exit code."""
