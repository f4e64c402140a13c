"""Hosts of a simulated node and a stub library that tells of its GPUs, and who asks it."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from nvml_stub import Stub

from devherd._native import Scan
from devherd.config.model import Config
from devherd.scanner.core import native_scanner
from devherd.scanner.side_files import SourceRequests
from devherd.sources.nvml import session as nvml_answer
from devherd_sim.node.simulated_node import SimulatedNode

H100 = 85_520_809_984
PROCESS = """
import pathlib, signal, sys
from devherd import _native
from devherd.process import Child
from devherd.sources.nvml import main as nvml
from devherd.process import Heartbeats
from devherd.settings import Settings
_native.die_with_parent(signal.SIGKILL)
beats = Heartbeats()
settings = Settings(run_dir=pathlib.Path(sys.argv[1]))
sys.exit(nvml.main(Child("source:nvml", settings, beats, beats.claim(), sys.argv[2])))
"""


class Host:
    """A node with H100 GPUs, whose driver has the stub library; GPUs with MIG devices are in MIG mode."""

    def __init__(self, node: SimulatedNode, stub: Stub) -> None:
        self.node, self.root, self.stub = node, node.root, stub
        self.addresses = node.nvidia.addresses()
        for number, address in enumerate(self.addresses):
            mode = any(self.root.glob(f"proc/driver/nvidia/capabilities/gpu{number}/mig/gi*"))
            place = {"uuid": self.uuid(address), "pci": f"0000{address}", "mig": int(mode)}
            stub.gpu(number, name="NVIDIA H100 80GB HBM3", memory=H100, major=9, **place)
        stub.write().put_below(self.root)

    def uuid(self, address: str) -> str:
        """As the driver tells it in procfs."""
        lines = (self.root / f"proc/driver/nvidia/gpus/{address}/information").read_text().splitlines()
        return next(line.split()[-1] for line in lines if line.startswith("GPU UUID"))

    def mig(self, gpu: int, slot: int, instance: tuple[int, int], slices: int, mebibytes: int, **values: object) -> str:
        """One MIG device as NVML tells of it; its UUID."""
        values |= {"gi": instance[0], "ci": instance[1], "gpu_slices": slices, "memory": mebibytes}
        values = {"compute_slices": slices, "profile": 0, "uuid": f"MIG-{gpu}-{slot}"} | values
        if isinstance(values.get("name"), str):
            values["name"] = f"NVIDIA H100 80GB HBM3 MIG {values['name']}"
        self.stub.say("mig", gpu=gpu, slot=slot, **values).write()
        return str(values["uuid"])


def put_below(stub: Stub, root: Path, environment: pytest.MonkeyPatch) -> None:
    """Have what the stub says lie on the host, where the sandbox of `source:nvml` lets it be read."""
    stub.file = root / "nvml.txt"
    environment.setenv("DEVHERD_NVML_STUB", str(stub.file))


def askers(stub: Stub) -> list[int]:
    """Processes that have loaded this stub from where a driver installs it."""
    libraries = {str(file).encode() for file in stub.installed}
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mapped = {line.split(maxsplit=5)[-1] for line in (process / "maps").read_bytes().splitlines()}
        except OSError:
            continue
        if libraries & mapped:
            found.append(int(process.name))
    return found


class Looking:
    """A scanner with process `source:nvml` beside it, which is started again when it ends, as the supervisor does."""

    def __init__(self, config: Config, run_dir: Path) -> None:
        run_dir.mkdir(exist_ok=True)
        self.settings = replace(config.settings(), run_dir=run_dir)
        self.answer_file = self.settings.nvml_answer_file
        self.scanner = native_scanner(config, self.answer_file)
        self.starts = 0
        self._requests = SourceRequests(self.settings)
        self._process: subprocess.Popen[bytes] | None = None

    def scan(self) -> Scan:
        """Look once; nobody waits for NVML."""
        scan = self.scanner.scan()
        self._requests.publish(scan.requests)
        if scan.requests and (self._process is None or self._process.poll() is not None):
            self._start("" if self._process is None else str(self._process.returncode))
        return scan

    def settled(self) -> Scan:
        """The scan after NVML has answered what the last one requested, or failed to."""
        until(lambda: self._is_answered(self.scan().requests["nvml"]), "NVML has answered")
        return self.scan()

    def _is_answered(self, request: str) -> bool:
        answer = nvml_answer.read_answer(self.answer_file)
        return answer.asking is None and json.loads(request) in (answer.facts_of, answer.failed)

    def _start(self, last_exit: str) -> None:
        self.starts += 1
        command = [sys.executable, "-c", PROCESS, str(self.settings.run_dir), last_exit]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def process_has_closed(self, library: Path) -> bool:
        """Whether the process lives and has not loaded the library."""
        assert self._process is not None
        maps = Path(f"/proc/{self._process.pid}/maps").read_text()
        return self._process.poll() is None and bool(maps) and str(library.resolve()) not in maps

    def end(self) -> None:
        """Leave nothing behind."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def until(condition, what, seconds=60.0):
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
