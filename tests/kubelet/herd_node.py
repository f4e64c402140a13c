"""A simulated node with a real kubelet and the whole of devherd on it, as three sets of processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from real_kubelet import RealKubelet
from resource_child import eventually

from devherd import spool
from devherd.instance.files import read_standby
from devherd.proto import spool_pb2
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode


class HerdNode:
    """In the directory: `node` (the simulated host), `k` (the kubelet's), `run`, `config.yaml`, `herd.log`."""

    def __init__(self, directory: Path, program: Path) -> None:
        self.listen = ""
        """Where the exporter serves; off by default."""
        self.command: tuple[str, ...] = (sys.executable, "-m", "devherd")
        self.environment: dict[str, str] = {}
        """Of the herd, beside the tests' own."""
        self.directory = directory
        self.kubelet = RealKubelet(program, directory / "k", directory / "kubelet.log")
        self.kubelet.directory.mkdir()
        self.node: SimulatedNode | None = None
        self._herd: subprocess.Popen[bytes] | None = None

    @property
    def cdi(self) -> Path:
        """Where CDI specs of this node are."""
        return self.directory / "node/var/run/cdi"

    def start(self, spec="fpga-1", config=None, **kubelet_options):
        """The kubelet, then devherd, on a node of the preset, or of a spec."""
        self.prepare(spec, config)
        self.kubelet.start(**kubelet_options)
        self.start_herd()

    def prepare(self, spec, config=None):
        """The node and the configuration."""
        self.node = SimulatedNode.create(self.directory / "node", preset(spec) if isinstance(spec, str) else spec)
        (self.directory / "config.yaml").write_text(json.dumps(config or {}))

    def start_herd(self, *arguments):
        """`devherd run`."""
        options = {"config": "config.yaml", "host-root": "node", "kubelet-dir": "k", "run-dir": "run"}
        command = [f"--{option}={self.directory / name}" for option, name in options.items()]
        command += [f"--listen={self.listen}"]
        with (self.directory / "herd.log").open("ab") as log:
            variables = os.environ | self.environment
            self._herd = subprocess.Popen([*self.command, "run", *command, *arguments], stderr=log, env=variables)

    def stand_by(self):
        """Start another devherd, which takes over when the running one ends; the process of that one."""
        running, count = self._herd, self.log.count(": standing by: ")
        self.start_herd("--take-over")
        eventually(
            lambda: self.log.count(": standing by: ") > count and read_standby(self.directory / "run/standby.pb")
        )
        return running

    def roll_out(self):
        """Replace devherd by another one, as a DaemonSet does; wait until that has taken over and the old one ended."""
        count = self.log.count("took over from the server before")
        old = self.stand_by()
        old.send_signal(signal.SIGTERM)
        assert old.wait(30) == 0
        eventually(lambda: self.log.count("took over from the server before") > count)

    def stop_herd(self, number=signal.SIGTERM):
        """End it; the exit code."""
        if self._herd is None:
            return None
        self._herd.send_signal(number)
        try:
            return self._herd.wait(30)
        except subprocess.TimeoutExpired:
            self._herd.kill()
            return self._herd.wait()

    def until_capacity(self, name, capacity, allocatable):
        """Wait until the kubelet's Node would show these numbers."""
        try:
            eventually(lambda: self.kubelet.capacity(name) == (capacity, allocatable))
        except pytest.fail.Exception:
            node = self.kubelet.ask("capacity")
            pytest.fail(f"{name} is not {(capacity, allocatable)} in {node}; the herd says\n{self.log[-2000:]}")

    def is_registered(self, name):
        """Whether the devherd started last, which serves, says that the kubelet has this resource."""
        supervisor = spool.read_or_empty(self.directory / "run/children.pb", spool_pb2.Children).supervisor_pid
        state = spool.path_of(self.directory / "run/state", spool.key_of(name))
        return supervisor == self._herd.pid and spool.read_or_empty(state, spool_pb2.ResourceState).registered

    def until_quiet(self):
        """Wait until nothing is logged for a second: no hand-over is in its middle, where an end may stay unnoticed."""
        last, since = len(self.log), time.monotonic()
        while time.monotonic() - since < 1:
            time.sleep(0.05)
            if len(self.log) != last:
                last, since = len(self.log), time.monotonic()

    @property
    def log(self):
        """What the herd has written so far."""
        return (self.directory / "herd.log").read_text()

    def close(self):
        """Leave nothing behind."""
        self.stop_herd()
        self.kubelet.kill()
