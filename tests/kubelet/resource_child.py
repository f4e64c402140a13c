"""A node with a real kubelet and devherd's resource children alone, with device lists of the test's own."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from real_kubelet import RealKubelet

from devherd import spool
from devherd.proto import spool_pb2

PROCESS = Path(__file__).parents[1] / "device_plugin" / "resource_process.py"
RESOURCE = "example.com/gpu"


def eventually(condition, seconds=30.0):
    """The first true value of `condition`; fails when there is none in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    pytest.fail(f"did not become true within {seconds:.0f} s")


def device(device_id, *reasons, numa=(), **brings):
    """A device with one node of its own and whatever else it brings."""
    node = spool_pb2.Node(host_path=f"/dev/{device_id}", container_path=f"/dev/{device_id}", permissions="rw")
    return spool_pb2.ListedDevice(
        id=device_id, reasons=reasons, numa_nodes=numa, edits=spool_pb2.Edits(nodes=[node], **brings)
    )


class ChildNode:
    """A kubelet directory, a run directory, a kubelet that can be started, and resource children."""

    def __init__(self, directory: Path, program: Path) -> None:
        self.environment: dict[str, str] = {}
        """Of the children started from now on, besides the usual."""
        self.kubelet = RealKubelet(program, directory / "k", directory / "kubelet.log")
        self.run_dir = directory / "r"
        self.log = directory / "child.log"
        for each in (directory / "k", self.run_dir / "offers/device-plugin", self.run_dir / "state"):
            each.mkdir(parents=True)
        self._runs: list[tuple[subprocess.Popen[str], list[int]]] = []

    def write(self, *devices, name=RESOURCE, **fields):
        """Put the resource's spool file in place, as the scanner would."""
        path = spool.path_of(self.run_dir / "offers/device-plugin", spool.key_of(name))
        spool.write(path, spool_pb2.Resource(name=name, devices=devices, **fields))

    def remove(self, name=RESOURCE):
        """Remove the resource's spool file, as the scanner does when the resource is gone."""
        spool.remove(self.run_dir / "offers/device-plugin", spool.key_of(name))

    def run(self, name=RESOURCE):
        """Start the child of a resource."""
        with self.log.open("a") as log:
            parent = subprocess.Popen(
                [sys.executable, PROCESS, self.kubelet.directory, self.run_dir, spool.key_of(name), "1"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | self.environment,
            )
        self._runs.append((parent, [int(pid) for pid in parent.stdout.readline().split()]))

    @property
    def pids(self):
        """The process of the child started last, as a list."""
        return self._runs[-1][1]

    def serve(self, *devices, name=RESOURCE, **fields):
        """Write the file, start the child, and wait until the kubelet has its list."""
        self.write(*devices, name=name, **fields)
        self.run(name)
        ids = {each.id: max(each.replicas, 1) for each in devices}
        healthy = sum(ids[each.id] for each in devices if not each.reasons)
        self.until_capacity(sum(ids.values()), healthy, name=name)

    def end(self, number=signal.SIGTERM):
        """Signal the child started last; its exit code."""
        parent, pids = self._runs[-1]
        for pid in pids:
            os.kill(pid, number)
        return parent.wait(20)

    def until_capacity(self, capacity, allocatable, name=RESOURCE):
        """Wait until the kubelet's Node would show these numbers."""
        try:
            eventually(lambda: self.kubelet.capacity(name) == (capacity, allocatable))
        except pytest.fail.Exception:
            pytest.fail(f"{name} is {self.kubelet.capacity(name)}, not {(capacity, allocatable)}")

    def state(self, name=RESOURCE):
        """What the child says of itself; nothing at first."""
        path = spool.path_of(self.run_dir / "state", spool.key_of(name))
        return spool.read(path, spool_pb2.ResourceState) if path.exists() else spool_pb2.ResourceState()

    def sockets(self):
        """The names of devherd's sockets, whichever way they are registered."""
        return sorted(path.name for path in self.kubelet.directory.glob("*/devherd-*.sock"))

    def logged(self, text):
        """Whether the child's log has the text."""
        return text in self.log.read_text()

    def close(self):
        """Leave nothing behind."""
        for parent, pids in self._runs:
            for pid in pids if parent.poll() is None else []:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            parent.wait()
            parent.stdout.close()
        self.kubelet.kill()
