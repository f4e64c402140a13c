"""Process `kubernetes:nvidia-pause` before a small API server that has a node to be watched."""

import http.server
import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import pytest
from reported import problems_of
from small_api import SmallApi

from devherd import spool
from devherd.proto.spool_pb2 import NvidiaPause
from devherd.settings import Settings

PROCESS = Path(__file__).with_name("nvidia_pause_process.py")
CLIENT, PLUGIN = "nvidia.com/gpu.deploy.client", "nvidia.com/gpu.deploy.device-plugin"
UPGRADE, MIG = "paused-for-driver-upgrade", "paused-for-mig-change"


class WatchedNode(SmallApi):
    """Its one node can be read and watched, by its name."""

    def __init__(self, directory: Path) -> None:
        self.changed = threading.Condition()
        self.labels: dict[str, str] = {}
        self.version = 1
        self.reads = self.watches = 0
        self.has_forgotten = False
        """Whether it says so of the version from which a watch wants to go on."""
        self.is_ended = False
        super().__init__(directory)

    def label(self, **labels: str) -> None:
        """The node has these labels from now on."""
        with self.changed:
            self.labels, self.version = (
                {f"nvidia.com/gpu.deploy.{key}": each for key, each in labels.items()},
                self.version + 1,
            )
            self.changed.notify_all()

    def end_watches(self) -> None:
        """Each watch that runs comes to its end."""
        with self.changed:
            self.is_ended = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.watches == 0, 10)
            self.is_ended = False

    def answer(self, method: str, path: str, body: dict) -> tuple[int, dict]:
        if self.refusal:
            return super().answer(method, path, body)
        assert (method, path) == ("GET", "/api/v1/nodes/node-1")
        self.reads += 1
        return 200, self._node()

    def _node(self) -> dict:
        return {"metadata": {"name": "node-1", "labels": self.labels, "resourceVersion": str(self.version)}}

    def _handler(api) -> type[http.server.BaseHTTPRequestHandler]:  # noqa: N805 - the handler has a self of its own
        class Handler(super()._handler()):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                if path != "/api/v1/nodes" or api.refusal:
                    super().do_GET()
                    return
                asked = dict(urllib.parse.parse_qsl(query))
                assert (asked["watch"], asked["fieldSelector"]) == ("true", "metadata.name=node-1")
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self._watch(int(asked["resourceVersion"]))
                self.wfile.write(b"0\r\n\r\n")

            def _watch(self, version: int) -> None:
                if api.has_forgotten:
                    api.has_forgotten = False
                    self._tell("ERROR", {"code": 410, "message": "too old resource version"})
                    return
                told = [version]
                with api.changed:
                    api.watches += 1
                    self._tell("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})
                    while api.changed.wait_for(lambda: api.is_ended or api.version > told[-1], 30) and not api.is_ended:
                        self._tell("MODIFIED", api._node())
                        told.append(api.version)
                    api.watches -= 1
                    api.changed.notify_all()

            def _tell(self, kind: str, changed: dict) -> None:
                line = json.dumps({"type": kind, "object": changed}).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

        return Handler


class Instance:
    """The run directory, and the process."""

    def __init__(self, directory: Path, server: WatchedNode) -> None:
        self.settings = Settings(run_dir=directory)
        self.settings.kubernetes_directory.mkdir(parents=True)
        self.server = server
        self.log = directory / "log"
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        command = [sys.executable, PROCESS, self.settings.run_dir, self.server.directory, str(self.server.port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, env=os.environ | {"NODE_NAME": "node-1"})

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> NvidiaPause:
        return spool.read_or_empty(self.settings.nvidia_pause_file, NvidiaPause)

    def until(self, condition, what) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self.pause()}\n{self.log.read_text()}"
            time.sleep(0.01)

    def until_paused(self, label: str = "", value: str = "") -> None:
        self.until(lambda: ((pause := self.pause()).label, pause.value) == (label, value), (label, value))


@pytest.fixture
def server(tmp_path):
    server = WatchedNode(tmp_path / "serviceaccount")
    yield server
    server.end_watches()
    server.close()


@pytest.fixture
def instance(tmp_path, server):
    instance = Instance(tmp_path / "run", server)
    yield instance
    instance.stop()
    assert "Traceback" not in instance.log.read_text()


def test_a_pause_is_told_from_its_begin_to_its_end(instance, server):
    """By either label, whatever stood there before; the node is read once, and watched from then on."""
    server.label(client="true", **{"device-plugin": "true"})
    instance.start()
    instance.until(lambda: server.watches, "it watches")
    assert not instance.settings.nvidia_pause_file.exists()
    server.label(client=UPGRADE, **{"device-plugin": UPGRADE})
    instance.until_paused(CLIENT, UPGRADE)
    server.label(client="true", **{"device-plugin": "true"})
    instance.until_paused()
    server.label(**{"device-plugin": f"mine_{UPGRADE}"})
    instance.until_paused(PLUGIN, f"mine_{UPGRADE}")
    server.label(client=MIG)
    instance.until_paused(CLIENT, MIG)
    assert server.reads == 1


def test_a_pause_is_written_again_while_it_lasts_also_where_the_api_server_is_away(instance, server):
    """Its reader drops an old one: then nobody writes any more. What is wrong is a problem with its cure."""
    server.label(client=MIG)
    instance.start()
    instance.until_paused(CLIENT, MIG)
    first = instance.pause().monotonic_seconds
    server.refusal = 403, "nodes is forbidden"
    server.end_watches()
    cure = "cannot be watched for pauses of GPU clients: 403: nodes is forbidden: add the component"
    instance.until(lambda: any(cure in why for _, why in problems_of(instance.settings, "nvidia-pause")), "problem")
    refused = instance.pause().monotonic_seconds
    instance.until(lambda: instance.pause().monotonic_seconds > refused > first, "it is written again")
    server.refusal = None
    instance.until(lambda: not problems_of(instance.settings, "nvidia-pause"), "the problem is solved")
    server.label()
    instance.until_paused()


def test_what_an_earlier_process_has_written_is_taken_back_once_the_node_has_been_read(instance, server):
    """The pause has ended while nobody watched."""
    now = time.monotonic()
    spool.write(instance.settings.nvidia_pause_file, NvidiaPause(label=CLIENT, value=MIG, monotonic_seconds=now))
    server.label(client="true")
    instance.start()
    instance.until_paused()


def test_a_version_that_the_server_has_forgotten_is_no_problem(instance, server):
    """410: the node is read again, and what happened meanwhile is known."""
    instance.start()
    instance.until(lambda: server.watches, "it watches")
    server.has_forgotten = True
    server.end_watches()
    server.label(client=UPGRADE)
    instance.until_paused(CLIENT, UPGRADE)
    assert server.reads == 2
    assert problems_of(instance.settings, "nvidia-pause") == []
