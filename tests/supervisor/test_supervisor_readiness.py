"""What the service manager hears of a start."""

import signal
import socket

import pytest


@pytest.fixture(params=["path", "abstract"])
def manager(request, directory, monkeypatch):
    """A service manager's socket, named as systemd names it to a service of Type=notify."""
    path = str(directory / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(path if request.param == "path" else f"\0{path}")
        listening.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", path if request.param == "path" else f"@{path}")
        yield listening


def test_the_service_manager_is_told_once_when_resource_children_are_there(instance, manager):
    """What is started after devherd finds it waiting for the kubelet; nothing is said of later ones."""
    instance.start()
    assert manager.recv(100) == b"READY=1"
    instance.running("resource:example.com_first")
    instance.process.send_signal(signal.SIGHUP)
    instance.process.send_signal(signal.SIGTERM)
    assert instance.ended() == 0
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_a_service_manager_that_is_gone_is_no_reason_not_to_run(instance, directory, monkeypatch):
    """It is said, and that is all."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(directory / "nobody"))
    instance.up()
    assert "cannot tell the service manager that devherd is ready: [Errno 2]" in instance.stderr()
