"""The processes of the host that have devices open: <https://man7.org/linux/man-pages/man5/proc.5.html>."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from devherd._native import open_devices
from devherd.ledger.cgroup import Place, place_of
from devherd.ledger.nodes import Number
from devherd.process import is_in_container

_PROC = Path("/proc")
_INITIAL_PIDS = "pid:[4026531836]"
"""The initial namespace of process ids has this number: PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h."""
_TITLE = b"devherd: "
"""How the titles of devherd's processes begin (supervisor/fork.py)."""
_MOST_ANCESTORS = 64


class NotSeenError(Exception):
    """The processes of the host cannot be looked at; the text is the reason and what to do."""


@dataclass(frozen=True, slots=True, order=True)
class Opened:
    """A process that has a device node open."""

    number: Number
    pid: int
    started: str
    """When it started, in clock ticks since the boot: its id may become another's."""
    command: str
    """As in /proc/<pid>/comm."""
    place: Place


def opened(numbers: Collection[Number], ignore: Collection[str], supervisor: int) -> list[Opened]:
    """The processes that have nodes with these numbers open, sorted. Raises NotSeenError.

    Left out are those whose names fit a glob of `ignore`, and those of devherd: this instance's, by its supervisor, and
    another's, by their titles.
    """
    if why := _hidden():
        raise NotSeenError(why)
    try:
        found, refused, examined = open_devices(_PROC, frozenset(numbers))
    except OSError as error:
        raise NotSeenError(f"{_PROC} cannot be read: {error.strerror}") from error
    if refused >= examined:  # a security module may guard single ones
        raise NotSeenError(
            f"{refused} of the host's processes must not be looked at: its pod needs the component `ledger`"
            " (appArmorProfile: Unconfined)"
        )
    return sorted(
        one
        for pid, number in found
        if (one := _process(pid, number)) is not None
        and not any(fnmatchcase(one.command, glob) for glob in ignore)
        and not _is_of_devherd(pid, supervisor)
    )


_NEEDED = {2: "CAP_DAC_READ_SEARCH", 19: "CAP_SYS_PTRACE"}
"""Without these only processes of the same user, with as few rights, may be looked into: ptrace(2)."""


def _lacking() -> list[str]:
    """The capabilities that this process lacks."""
    lines = (_PROC / "self/status").read_text().splitlines()
    effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return [name for number, name in _NEEDED.items() if not effective >> number & 1]


def _hidden() -> str:
    """Why the processes of the host cannot be seen; empty if they can."""
    if lacking := _lacking():
        return (
            f"devherd lacks {' and '.join(lacking)}: in a pod add the component `ledger`, else give it to the service"
        )
    try:
        if not is_in_container() or str((_PROC / "self/ns/pid").readlink()) == _INITIAL_PIDS:
            return ""
        if (_PROC / "1/ns/mnt").readlink() != (_PROC / "self/ns/mnt").readlink():
            return ""
    except OSError:
        pass
    return "only the processes of devherd's own container can be seen: its pod needs the component `ledger` (hostPID)"


def _process(pid: int, number: Number) -> Opened | None:
    """What is known of a process; None if it has ended meanwhile."""
    place = _PROC / str(pid)
    try:
        name, after = _stat(pid)
        cgroup = (place / "cgroup").read_text(errors="replace")
    except (OSError, IndexError):
        return None
    return Opened(number, pid, after[19], name, place_of(cgroup))  # field 22 of proc_pid_stat(5)


def _is_of_devherd(pid: int, supervisor: int) -> bool:
    if supervisor in _and_ancestors(pid):
        return True
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().startswith(_TITLE)
    except OSError:
        return False


def _and_ancestors(pid: int) -> Iterator[int]:
    for _ in range(_MOST_ANCESTORS):
        yield pid
        try:
            pid = int(_stat(pid)[1][1])
        except (OSError, IndexError, ValueError):
            return


def _stat(pid: int) -> tuple[str, list[str]]:
    """The name of a process, and the fields behind it. Raises OSError, IndexError."""
    before, _, after = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")
    return before.split("(", 1)[1], after.split()
