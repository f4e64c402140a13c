"""Faults on the kubelet's side, for a plugin's author: it is away, refuses Register, or answers it late."""

import socket
import subprocess
import time
from datetime import datetime

import grpc
import pytest
from sim_kubelet import COMMAND, sim_kubelet
from small_plugin import RESOURCE

from devherd.errors import DevherdError

OTHER = "example.com/other"


def register(devherd_kubelet, *, resource=RESOURCE, timeout=15.0):
    """Call Register for a plugin that nobody serves; the details of the refusal."""
    from devherd.proto import deviceplugin_v1beta1_pb2 as api
    from devherd.proto.deviceplugin_v1beta1_pb2_grpc import RegistrationStub

    with grpc.insecure_channel(f"unix:{devherd_kubelet.socket}") as channel:
        request = api.RegisterRequest(version="v1beta1", endpoint="p.sock", resource_name=resource)
        with pytest.raises(grpc.RpcError) as refused:
            RegistrationStub(channel).Register(request, timeout=timeout)
    return refused.value.code(), refused.value.details()


def refuses(path):
    """True if nobody listens on a socket that is there."""
    with socket.socket(socket.AF_UNIX) as probe:
        return path.is_socket() and probe.connect_ex(str(path)) != 0


def test_a_kubelet_that_is_away_leaves_its_socket_refusing(devherd_kubelet, serving):
    """As a real one; the plugin is lost, and no pod is admitted."""
    serving()
    devherd_kubelet.wait(RESOURCE, allocatable=2)
    devherd_kubelet.stop()
    assert refuses(devherd_kubelet.socket)
    status = devherd_kubelet.status()
    assert (status["running"], status["resources"][0]["plugin"]) == (False, None)
    assert "the kubelet is stopped" in sim_kubelet(devherd_kubelet.directory, "status").stdout
    with pytest.raises(DevherdError, match="the kubelet is stopped"):
        devherd_kubelet.allocate(RESOURCE)
    devherd_kubelet.start()
    assert devherd_kubelet.status()["running"]


def test_the_kubelet_is_away_as_long_as_was_asked_for(devherd_kubelet):
    """Between its end and its start; the command ends when it has started."""
    assert sim_kubelet(devherd_kubelet.directory, "restart", "--down", "700ms").returncode == 0
    [_, stopped, started] = [datetime.fromisoformat(event["time"]) for event in devherd_kubelet.events()]
    assert (started - stopped).total_seconds() >= 0.7


def test_the_kubelet_can_be_stopped_and_started(devherd_kubelet, serving):
    """By commands as well; each twice does nothing more."""
    directory = devherd_kubelet.directory
    for _ in range(2):
        assert sim_kubelet(directory, "stop").stdout == "stopped; its sockets stay, and refuse\n"
    assert refuses(devherd_kubelet.socket)
    for _ in range(2):
        assert sim_kubelet(directory, "start").returncode == 0
    kinds = [event["kind"] for event in devherd_kubelet.events()]
    assert kinds == ["started", "stopped", "started"]
    assert sim_kubelet(directory, "restart", "--down", "100ms").returncode == 0
    serving()
    assert devherd_kubelet.wait(RESOURCE)["allocatable"] == 2


def test_register_is_refused_as_often_as_was_asked_for(devherd_kubelet, serving):
    """Of that resource only, and of calls that the kubelet would take."""
    asked = sim_kubelet(devherd_kubelet.directory, "refuse", RESOURCE, "--times", 2, "--error", "try again")
    assert asked.stdout == f"the next 2 calls of Register for {RESOURCE}: refused\n"
    serving(version="v1alpha")
    for _ in range(2):
        assert register(devherd_kubelet) == (grpc.StatusCode.UNKNOWN, "try again")
    serving()
    assert devherd_kubelet.wait(RESOURCE)["allocatable"] == 2
    refused = [event["error"] for event in devherd_kubelet.events() if event["kind"] == "register-refused"]
    assert refused[1:] == ["try again", "try again"]


def test_a_refusal_outlives_a_restart_and_can_be_taken_back(devherd_kubelet, serving):
    """It is the plugin's author who decides when it ends."""
    devherd_kubelet.refuse(RESOURCE, times=100)
    devherd_kubelet.restart()
    assert register(devherd_kubelet)[1] == "refused by devherd_kubelet.refuse"
    devherd_kubelet.refuse(RESOURCE, times=0)
    serving()
    assert devherd_kubelet.wait(RESOURCE)["allocatable"] == 2


def test_register_is_answered_late(devherd_kubelet, serving):
    """`wait` says so meanwhile; the plugin is registered in the end."""
    asked = sim_kubelet(devherd_kubelet.directory, "delay", RESOURCE, "1s")
    assert asked.stdout == f"the next call of Register for {RESOURCE}: delayed\n"
    began = time.monotonic()
    serving()
    assert time.monotonic() - began >= 1
    assert devherd_kubelet.wait(RESOURCE)["allocatable"] == 2


def test_register_is_not_answered_at_all(devherd_kubelet):
    """The plugin's own deadline ends the call, and the kubelet knows that it was called."""
    devherd_kubelet.refuse(RESOURCE, delay=600)
    assert register(devherd_kubelet, timeout=0.3)[0] == grpc.StatusCode.DEADLINE_EXCEEDED
    began = time.monotonic()
    while [event["kind"] for event in devherd_kubelet.events()] != ["started", "register-called", "register-abandoned"]:
        assert time.monotonic() - began < 30
        time.sleep(0.01)
    with pytest.raises(DevherdError) as refused:
        devherd_kubelet.wait(RESOURCE, timeout=0.1)
    assert refused.value.why.startswith("the call of Register ended ")


def test_a_number_that_is_none_is_refused(tmp_path):
    """Before anything is asked."""
    refused = sim_kubelet(tmp_path, "refuse", RESOURCE, "--times", -1)
    assert (refused.returncode, refused.stderr.startswith("devherd: -1 calls — ")) == (2, True)


def test_a_directory_that_is_a_mount_of_its_own_is_served(kubelet_dir):
    """As in a pod whose hostPath is device-plugins: nothing can be renamed into it from beside."""
    plugins = kubelet_dir / "device-plugins"
    plugins.mkdir()
    inside = f'mount -t tmpfs tmpfs {plugins} && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside, "sh"]
    kubelet = subprocess.Popen([*command, *COMMAND, "--kubelet-dir", kubelet_dir], stdout=subprocess.DEVNULL)
    try:
        assert sim_kubelet(kubelet_dir, "wait", "--timeout", "30s").returncode == 0
    finally:
        kubelet.terminate()
        assert kubelet.wait(60) == 0
