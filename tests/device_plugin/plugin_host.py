"""A kubelet directory and a run directory with real resource children on them, for the tests beside it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from small_kubelet import SmallKubelet

from devherd import spool
from devherd.exporter import metrics
from devherd.instance.read import InstanceState
from devherd.proto import spool_pb2

PROCESS = Path(__file__).with_name("resource_process.py")
RESOURCE = "example.com/gpu"
KEY = spool.key_of(RESOURCE)


def eventually(condition, seconds=20.0):
    """The first true value of `condition`; fails when there is none in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    pytest.fail(f"did not become true within {seconds:.0f} s")


def device(device_id, *reasons, numa=(), node=None):
    """A device with one node of its own."""
    path = node or f"/dev/{device_id}"
    return spool_pb2.ListedDevice(
        id=device_id,
        reasons=reasons,
        numa_nodes=numa,
        edits=spool_pb2.Edits(nodes=[spool_pb2.Node(host_path=path, container_path=path, permissions="rw")]),
    )


class Host:
    """A kubelet directory, a run directory, and the resource children that run on them."""

    def __init__(self, directory: Path) -> None:
        self.kubelet_dir = directory / "k"
        self.run_dir = directory / "r"
        self.plugins = self.kubelet_dir / "device-plugins"
        self.resources = self.run_dir / "offers/device-plugin"
        for each in (self.kubelet_dir, self.resources, self.run_dir / "state"):
            each.mkdir(parents=True)
        self.log = directory / "log"
        self.kubelet = SmallKubelet(self.kubelet_dir)
        self._runs = []

    def write(self, *devices, name=RESOURCE, **fields):
        """Put the resource's spool file in place."""
        path = spool.path_of(self.resources, spool.key_of(name))
        spool.write(path, spool_pb2.Resource(name=name, devices=devices, **fields))
        return path

    def run(self, key=KEY, count=1, environment=None):
        """Start children; the pid of the first."""
        with self.log.open("a") as log:
            parent = subprocess.Popen(
                [sys.executable, PROCESS, self.kubelet_dir, self.run_dir, key, str(count)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | (environment or {}),
            )
        self.pids = [int(pid) for pid in parent.stdout.readline().split()]
        self._runs.append((parent, self.pids))
        return self.pids[0]

    def end(self, number=signal.SIGTERM):
        """Signal the children of the last `run`; their exit code."""
        for pid in self.pids:
            os.kill(pid, number)
        return self._runs[-1][0].wait(20)

    def close(self):
        """Leave nothing behind."""
        for parent, pids in self._runs:
            for pid in pids if parent.poll() is None else []:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            parent.wait()
            parent.stdout.close()
        self.kubelet.stop()

    def registered(self, count=1):
        """The registration of that number, once its stream has brought a list and the child knows of it."""
        eventually(lambda: len(self.kubelet.registrations) >= count and self.kubelet.registrations[count - 1].lists)
        registration = self.kubelet.registrations[count - 1]
        eventually(lambda: self.state().registered or self.state().endpoint != registration.request.endpoint)
        return registration

    def state(self, name=RESOURCE):
        """What the child says of itself; None before it has said anything."""
        path = spool.path_of(self.run_dir / "state", spool.key_of(name))
        return spool.read(path, spool_pb2.ResourceState) if path.exists() else None

    def beat_age(self):
        """Seconds since the first child's last beat; None before its first."""
        path = self.run_dir / "last-beat"
        last = float(path.read_text()) if path.exists() else 0.0
        return time.monotonic() - last if last else None

    def sockets(self):
        """The names of devherd's sockets."""
        return sorted(path.name for path in self.plugins.glob("devherd-*.sock"))

    def logged(self, text):
        """How many log lines have the text."""
        return sum(text in line for line in self.log.read_text().splitlines())

    def counted(self, name, **labels):
        """The value of a counter of the children, as the exporter reads it."""
        states = {state.name: state for _, state in spool.read_all(self.run_dir / "state", spool_pb2.ResourceState)}
        herd = InstanceState([spool_pb2.Offer(name=state) for state in states], states)
        for family in metrics.counter_families(herd, "none"):
            for sample in family.samples:
                if (sample.name, sample.labels) == (name, labels):
                    return sample.value
        return None
