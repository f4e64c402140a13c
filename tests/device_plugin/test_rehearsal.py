"""Serving tried without the kubelet, before another instance ends for this one."""

import os
import shutil
import socket
import subprocess
import sys

import pytest
import scratch
from plugin_host import device

from devherd.proto import spool_pb2

GPU = spool_pb2.Resource(
    name="example.com/gpu", devices=[device("bad", "off-bus"), device("good")], preferred=spool_pb2.ALIGNED
)

PROCESS = """
import os, sys
from pathlib import Path
from devherd.device_plugin.rehearsal import rehearse
from devherd.errors import DevherdError
from devherd.proto.spool_pb2 import Resource
from devherd.settings import Settings
from devherd.device_plugin import snapshot

exec(os.environ.get("BREAKS", ""))
resources = [Resource.FromString(bytes.fromhex(each)) for each in sys.argv[3:]]
if int(sys.argv[2]):
    os.setuid(int(sys.argv[2]))
try:
    rehearse(resources, Settings(kubelet_dir=Path(sys.argv[1])))
except DevherdError as error:
    sys.exit(f"devherd: {error}")
"""


@pytest.fixture
def kubelet_dir():
    """With a directory for plugins in it; its path is short, as sockets need it."""
    directory = scratch.directory()
    (directory / "device-plugins").mkdir()
    yield directory
    shutil.rmtree(directory)


def rehearsed(kubelet_dir, *resources, user=0, breaks=""):
    """What it said; gRPC is used in a process of its own."""
    environment = os.environ | {"BREAKS": breaks}
    messages = [each.SerializeToString().hex() for each in resources]
    command = [sys.executable, "-c", PROCESS, str(kubelet_dir), str(user), *messages]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment).stderr


@pytest.mark.parametrize("resources", [[], [GPU], [GPU, spool_pb2.Resource(name="example.com/none")]])
def test_what_is_found_is_served_and_nothing_is_left(kubelet_dir, resources):
    """Also where there is no resource, and none with a device."""
    assert rehearsed(kubelet_dir, *resources) == ""
    assert list((kubelet_dir / "device-plugins").iterdir()) == []


def test_sockets_of_rehearsals_that_were_killed_are_removed_and_no_others(kubelet_dir):
    """One on which somebody listens is another instance's."""
    plugins = kubelet_dir / "device-plugins"
    with socket.socket(socket.AF_UNIX) as left, socket.socket(socket.AF_UNIX) as live:
        left.bind(str(plugins / ".devherd-rehearsal-0.sock"))
        live.bind(str(plugins / ".devherd-rehearsal-1.sock"))
        live.listen()
        assert rehearsed(kubelet_dir, GPU) == ""
        assert [path.name for path in plugins.iterdir()] == [".devherd-rehearsal-1.sock"]


def test_a_kubelet_that_is_away_keeps_nobody_from_taking_over(kubelet_dir):
    """It comes back: its socket has been left behind, or is gone, or there has never been a directory."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(kubelet_dir / "device-plugins/kubelet.sock"))
    assert rehearsed(kubelet_dir, GPU) == ""
    assert rehearsed(kubelet_dir / "none", GPU) == ""


def test_a_kubelet_that_may_not_be_called_is_a_failure(kubelet_dir):
    """As for another user than root."""
    socket_path = kubelet_dir / "device-plugins/kubelet.sock"
    other_user = 65534 if os.getuid() == 0 else 0
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(socket_path))
        kubelet.listen()
        socket_path.chmod(0)
        kubelet_dir.chmod(0o755)
        said = rehearsed(kubelet_dir, GPU, user=other_user)
    assert said.startswith(f"devherd: the kubelet cannot be called at {socket_path} — Permission denied — ")


def test_a_directory_that_takes_no_sockets_is_a_failure(tmp_path):
    """It says why."""
    (tmp_path / "device-plugins").symlink_to("/proc")
    said = rehearsed(tmp_path, GPU)
    assert said.startswith(f"devherd: the kubelet cannot be served in {tmp_path}/device-plugins — ")
    assert said.endswith(" — mount that directory of the host writable, and run devherd as root\n")


def test_a_resource_whose_answers_go_wrong_is_a_failure(kubelet_dir):
    """As with a version that does not understand what it has found."""
    broken = spool_pb2.Resource(name="example.com/broken", devices=[device("a")])
    broken.devices[0].numa_nodes.append(0)
    said = rehearsed(kubelet_dir, broken, breaks="snapshot.Snapshot.device_list = 5")
    assert "\ndevherd: example.com/broken cannot be served to the kubelet — UNKNOWN: " in f"\n{said}"
    assert list((kubelet_dir / "device-plugins").iterdir()) == []
