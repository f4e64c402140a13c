"""A real supervisor in a process of its own, with real forked children and the real supervisorctl."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from devherd import spool
from devherd.proto import spool_pb2
from devherd.settings import Settings

TINY_HERD = Path(__file__).with_name("tiny_herd.py")
SUPERVISORCTL = Path(sys.executable).with_name("supervisorctl")
PATIENCE_SECONDS = 30.0


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that must come; the bound is for hanging only."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.01)


def open_paths(pid: int) -> dict[int, str]:
    """What the descriptors of a process are; one that it closes meanwhile is not among them."""
    found = {}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[int(path.name)] = str(path.readlink())
    return found


def cpu_ticks(pid: int) -> int:
    """The processor time that a process has used, in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Instance:
    """`devherd run` with tiny children, started by `start`."""

    def __init__(self, directory: Path, run_dir: str = "run", kubelet_dir: str = "kubelet") -> None:
        self.settings = Settings(run_dir=directory / run_dir, kubelet_dir=directory / kubelet_dir)
        self.orders = self.settings.run_dir / "orders"
        self.orders.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None
        self._stderr = directory / f"{run_dir}.stderr"
        self._seen_pids: set[int] = set()

    def start(self, *, takes_over: bool = False, **waits: float) -> "Instance":
        """Start it, with `waits` that are not as usual (devherd/waits.py)."""
        arguments = [self.settings.run_dir, self.settings.kubelet_dir, json.dumps(waits)]
        arguments += ["take-over"] if takes_over else []
        with self._stderr.open("ab") as stderr:
            self.process = subprocess.Popen([sys.executable, TINY_HERD, *map(str, arguments)], stderr=stderr)
        return self

    def up(self, **waits: float) -> "Instance":
        """Start, and wait for the children that are there from the beginning."""
        self.start(**waits)
        for name in ("scanner", "exporter", "resource:example.com_first"):
            self.running(name)
        return self

    def stderr(self) -> str:
        return self._stderr.read_text()

    def children(self) -> dict[str, spool_pb2.Child]:
        try:
            told = spool.read(self.settings.children_file, spool_pb2.Children)
        except FileNotFoundError:
            return {}
        if self.process and told.supervisor_pid != self.process.pid:
            return {}  # an instance before this one left it
        self._seen_pids.update(child.pid for child in told.children if child.pid)
        return {child.name: child for child in told.children}

    def running(self, name: str, *, other_than: int = 0) -> spool_pb2.Child:
        """The child once it runs, as another process than that one."""

        def runs() -> bool:
            child = self.children().get(name)
            return child is not None and child.state == "RUNNING" and child.pid != other_than

        until(runs, f"a running {name}")
        return self.children()[name]

    def order(self, what: str) -> Path:
        self.orders.joinpath(what).touch()
        return self.orders / what

    def appear(self, key: str) -> None:
        """What the scanner does when it finds a resource."""
        spool.write(spool.path_of(self.settings.resources_directory, key), spool_pb2.Resource(name="found"))

    def vanish(self, key: str) -> None:
        spool.remove(self.settings.resources_directory, key)

    def ctl(self, *arguments: str) -> str:
        """The output of the real supervisorctl."""
        command = [SUPERVISORCTL, "-c", self.settings.supervisord_conf, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert not done.stderr, done.stderr
        return done.stdout

    def ended(self) -> int:
        """The exit code, once it has ended."""
        assert self.process
        return self.process.wait(PATIENCE_SECONDS)

    def clean_up(self) -> None:
        """End it, however it is; nothing may be left behind."""
        if self.process:
            self.children()
            self.process.kill()
            self.process.wait()
            until(lambda: not any(map(is_alive, self._seen_pids)), "the end of all children")
