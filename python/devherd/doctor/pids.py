"""Process ids: how many there are in the cgroup of an instance, and how many there may be.

Each thread is one. The limit is the pod's (podPidsLimit of the kubelet), the unit's (TasksMax) or one above it, by
`pids.current`, `pids.max` and `pids.events` of the cgroup's directory
(https://docs.kernel.org/admin-guide/cgroup-v2.html#pid; version 1 of cgroups has the same files).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from devherd.doctor.line import Line, ok, problem, warning
from devherd.process import MORE_PROCESS_IDS

TOPIC = "instance"
CGROUPS = Path("/sys/fs/cgroup")
_FEW = 32
"""A child needs fewer threads to start."""


@dataclass(frozen=True, slots=True)
class Pids:
    """The process ids of one cgroup."""

    directory: Path
    current: int
    limit: int
    refused: int
    """How often one was refused since the cgroup exists."""

    @property
    def room(self) -> int:
        """How many more there may be."""
        return self.limit - self.current


def look(pid: int, cgroups: Path = CGROUPS) -> Pids | None:
    """The tightest limit on a process, of its cgroup and those above it; None without a visible limit.

    Raises OSError if there is no such process.
    """
    rows = (row.split(":", 2) for row in Path(f"/proc/{pid}/cgroup").read_text("utf-8", errors="replace").splitlines())
    found: list[Pids] = []
    for _, controllers, path in rows:
        if controllers in ("", "pids"):
            root = cgroups / controllers
            own = root / path.lstrip("/")
            # A container may see the path of the host and only its own directory, at the root.
            within = [own, *(each for each in own.parents if each.is_relative_to(root))] if own.is_dir() else [root]
            found += filter(None, map(_read, within))
    return min(found, key=lambda each: each.room, default=None)


def _read(directory: Path) -> Pids | None:
    """The limit of one cgroup; None if it has none."""
    try:
        current = int((directory / "pids.current").read_text("ascii"))
        limit = int((directory / "pids.max").read_text("ascii"))
    except (OSError, ValueError):  # ValueError: `max`
        return None
    return Pids(directory, current, limit, _refused(directory))


def _refused(directory: Path) -> int:
    try:
        words = (directory / "pids.events").read_text("ascii").split()
        return int(words[words.index("max") + 1])
    except (OSError, ValueError, IndexError):
        return 0


def judge(found: Pids | None) -> Iterator[Line]:
    """The report lines."""
    if found is None:
        return
    before = f"; {found.refused} were refused since it exists" if found.refused else ""
    what = f"process ids: {found.current} of {found.limit} in {found.directory}{before}"
    if found.room <= 0:
        yield problem(TOPIC, what, MORE_PROCESS_IDS)
    elif found.room < _FEW:
        yield warning(TOPIC, what, MORE_PROCESS_IDS)
    else:
        yield ok(TOPIC, what)
