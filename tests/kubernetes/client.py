"""Process `kubernetes` on the run directory of an instance, before a small API server."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import offered
from small_api import SmallApi

from devherd import spool
from devherd.config.resolved import ResolvedConfig, write_resolved
from devherd.config.sections import KubernetesOptions
from devherd.proto.spool_pb2 import Device, Offer, Problems
from devherd.settings import Settings

PROCESS = Path(__file__).with_name("kubernetes_process.py")
NODE_NAME = "node-1"


class Client:
    """`waits`: the fields of devherd/waits.py that are not as usual."""

    def __init__(self, directory: Path, server: SmallApi) -> None:
        self.directory = directory
        self.server = server
        self.port = server.port
        self.waits = {"round": 0.1, "watch_again": 0.1, "labels_settle": 0.3}
        self.log = directory / "log"
        self.settings = Settings(run_dir=directory, kubelet_dir=directory / "kubelet")
        self.process: subprocess.Popen | None = None
        (directory / "kubernetes").mkdir(parents=True)
        self.log.touch()

    def configure(self, **options: bool) -> None:
        """What the supervisor has loaded: the section `kubernetes`; nothing is on without being named."""
        options = {"events": False} | options
        config = ResolvedConfig(common=self.settings, kubernetes=KubernetesOptions(**options))
        write_resolved(self.settings.resolved_config_file, config)

    def offer(self, name: str, **reasons: str) -> None:
        """Devices by id, with a reason or none."""
        devices = [Device(id=each, reasons=[why] if why else []) for each, why in reasons.items()]
        offered.put(self.directory, Offer(name=name, devices=devices))

    def start(self, **environment: str) -> None:
        waits = json.dumps(self.waits)
        command = [sys.executable, PROCESS, self.directory, self.server.directory, str(self.port), waits]
        with self.log.open("ab") as log:
            variables = os.environ | {"NODE_NAME": NODE_NAME} | environment
            self.process = subprocess.Popen(command, stderr=log, env=variables)

    def end(self) -> int:
        """Its exit code, once it ends by itself."""
        return self.process.wait(20)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def problems(self, part: str) -> list[tuple[str, str]]:
        """What each is about, and what is wrong."""
        file = spool.path_of(self.settings.kubernetes_problems_directory, part)
        return [(problem.path, problem.error) for problem in spool.read_or_empty(file, Problems).problems]

    def until(self, condition, what) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self.server.state()}\n{self.log.read_text()}"
            time.sleep(0.01)

    def until_told(self, *messages: str) -> None:
        """The Events that the server has, in their order."""
        self.until(lambda: [each["message"] for each in self.server.events] == list(messages), messages)
