"""Process `kubernetes:events` before a small API server: what is told once, later, and not at all."""

import os
import subprocess
import sys
import time
from pathlib import Path

import offered
import pytest

from devherd import spool
from devherd.config.resolved import Config, write_resolved
from devherd.config.sections import KubernetesOptions
from devherd.proto.spool_pb2 import Device, DriverRestart, Offer
from devherd.settings import Settings

PROCESS = Path(__file__).with_name("reporter_process.py")
GPU, NIC = "nvidia.com/gpu", "rdma/hca"


class Node:
    """The run directory of an instance, and the process."""

    def __init__(self, directory: Path, server) -> None:
        self.directory = directory
        self.server = server
        self.log = directory / "log"
        self._process: subprocess.Popen | None = None
        directory.mkdir()
        self.configure(node_condition=False)

    def configure(self, *, node_condition: bool) -> None:
        settings = Settings(run_dir=self.directory)
        config = Config(common=settings, kubernetes=KubernetesOptions(events=True, node_condition=node_condition))
        write_resolved(settings.resolved_config_file, config)

    def offer(self, name: str, **reasons: str) -> None:
        """Devices by id, with a reason or none."""
        devices = [Device(id=each, reasons=[why] if why else []) for each, why in reasons.items()]
        offered.put(self.directory, Offer(name=name, devices=devices))

    def start(self) -> None:
        command = [sys.executable, PROCESS, self.directory, self.server.directory, str(self.server.port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, env=os.environ | {"NODE_NAME": "node-1"})

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def until(self, condition, what) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self.server.events}\n{self.log.read_text()}"
            time.sleep(0.01)

    def until_told(self, *messages: str) -> None:
        self.until(lambda: [each["message"] for each in self.server.events] == list(messages), messages)


@pytest.fixture
def node(tmp_path, api_server):
    node = Node(tmp_path / "run", api_server)
    yield node
    node.stop()
    assert "Traceback" not in node.log.read_text()


def test_what_was_told_is_not_told_again_by_the_next_process(node):
    """A restart of devherd is no news of its devices."""
    node.offer(GPU, a="xid", b="")
    node.start()
    node.until_told("nvidia.com/gpu: Unhealthy: a (xid)")
    node.until((node.directory / "kubernetes/reported.pb").exists, "it is remembered")

    node.stop()
    node.start()
    node.offer(GPU, a="xid", b="off-bus")

    node.until_told("nvidia.com/gpu: Unhealthy: a (xid)", "nvidia.com/gpu: Unhealthy: b (off-bus)")
    [first, _] = node.server.events
    assert (first["type"], first["reason"], first["involvedObject"]["name"]) == ("Warning", "DeviceUnhealthy", "node-1")


def test_a_restart_for_a_newer_driver_is_told_once_by_the_instance_after_it(node):
    """Whatever becomes of the process: the one that ended had no time to."""
    settings = Settings(run_dir=node.directory)
    restart = DriverRestart(driver="590.48.01", library="580.105.08", timestamp_seconds=1_800_000_000.5)
    spool.write(settings.driver_restart_file, restart)
    said = (
        "the NVIDIA driver 590.48.01 was newer than the library 580.105.08 of devherd's container, which was restarted"
    )
    node.start()
    node.until_told(said)
    [event] = node.server.events
    assert (event["type"], event["reason"], event["firstTimestamp"]) == (
        "Normal",
        "RestartedForDriver",
        "2027-01-15T08:00:00Z",
    )
    node.until((node.directory / "kubernetes/reported.pb").exists, "it is remembered")
    node.stop()
    node.start()
    node.offer(GPU, a="xid")
    node.until_told(said, "nvidia.com/gpu: Unhealthy: a (xid)")


def test_the_condition_follows_a_device_that_fails_when_all_were_well(node):
    """What was told and what the condition says were one object: the condition was never set to a problem."""
    node.configure(node_condition=True)
    node.offer(GPU, a="")
    node.start()
    node.until(lambda: node.server.patches, "the condition is set")
    node.offer(GPU, a="xid")
    node.until(lambda: len(node.server.patches) == 2, "it is set again")

    said = [body["status"]["conditions"][0]["status"] for _, body in node.server.patches]
    assert said == ["False", "True"]


def test_while_nothing_can_be_told_what_comes_to_nothing_is_not_told(node):
    """What is left of it is told once, when the server is back."""
    node.server.refusal = (503, "starting")
    node.offer(GPU, a="xid", b="")
    node.start()
    node.until(lambda: "503: starting" in node.log.read_text(), "the log says so")

    node.offer(GPU, a="", b="xid")
    node.server.refusal = None

    node.until_told("nvidia.com/gpu: Unhealthy: b (xid)")


def test_a_device_that_flaps_for_ever_does_not_flood_the_server(node):
    """25 at once, and from then on five a minute: the last state is what counts."""
    node.start()
    for number in range(40):
        node.offer(f"example.com/r{number}", d="xid")

    node.until(lambda: len(node.server.events) == 25, "25 are told")
    node.stop()

    assert len(node.server.events) == 25
    assert len({each["message"] for each in node.server.events}) == 25


def test_another_request_asks_for_another_process(node):
    """A reload changes what is told; exit code 75 has the supervisor start it anew at once."""
    node.offer(GPU, a="xid")
    node.start()
    node.until_told("nvidia.com/gpu: Unhealthy: a (xid)")
    node.configure(node_condition=True)

    assert node._process.wait(20) == 75
    node.start()
    node.until(lambda: node.server.patches, "the condition is told")
    [(path, body)] = node.server.patches
    assert path == "/api/v1/nodes/node-1/status"
    assert body["status"]["conditions"][0]["status"] == "True"
