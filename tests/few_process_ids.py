"""A limit of process ids for a test's processes: a cgroup of its own, as a pod has one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from not_tested import not_tested

ROOT = Path("/sys/fs/cgroup")


class FewProcessIds:
    """A cgroup with a limit that can be lifted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lift()

    def within(self, *command: str) -> tuple[str, ...]:
        """A command that runs in it."""
        return "sh", "-ec", f'echo $$ > {self.directory}/cgroup.procs; exec "$@"', "sh", *command

    def limit(self, ids: int) -> None:
        """There may be as many."""
        (self.directory / "pids.max").write_text(str(ids))

    def lift(self) -> None:
        """There may be as many as one likes."""
        (self.directory / "pids.max").write_text("max")

    @property
    def refused(self) -> int:
        """How often a process or thread was refused."""
        return int((self.directory / "pids.events").read_text().split()[1])


@contextmanager
def few_process_ids() -> Iterator[FewProcessIds]:
    """A cgroup, of version 1 or 2; nothing is tested where none can be made."""
    name = f"devherd-test-{os.getpid()}"
    try:
        if (ROOT / "pids").is_dir():
            directory = ROOT / "pids" / name
        else:
            (ROOT / "cgroup.subtree_control").write_text("+pids")
            directory = ROOT / name
        directory.mkdir()
    except OSError as error:
        not_tested(f"no cgroup can be made: {error}")
    try:
        yield FewProcessIds(directory)
    finally:
        directory.rmdir()
