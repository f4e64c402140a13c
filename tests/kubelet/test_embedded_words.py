"""The embedded kubelet says what the real one says where gRPC-Go and gRPC-Python, or Go and Python, differ."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from embedded_node import EmbeddedNode
from harness_program import KUBERNETES
from raw_plugin import register
from real_node import RealNode
from resource_child import eventually

PLUGIN = Path(__file__).with_name("words_plugin.py")
RESOURCE = "example.com/words"


@pytest.fixture
def nodes(directory, harness):
    """The real device manager and the embedded one, started."""
    real = RealNode(harness, directory / "r", directory / "real.log")
    real.kubelet.directory.mkdir()
    embedded = EmbeddedNode(directory / "e", "1.36" if KUBERNETES < (1, 37) else "1.37")
    for node in (real, embedded):
        node.start("none", 1)
    yield real, embedded
    real.stop()
    embedded.stop()
    embedded.close()


def pod():
    """One container that asks for the device."""
    main = {"name": "main", "limits": {RESOURCE: 1}, "sidecar": False}
    return {"uid": "p", "name": "p", "namespace": "default", "init_containers": [], "containers": [main]}


@contextmanager
def serving(node, device):
    """A plugin with this device, which the kubelet has listed."""
    command = [sys.executable, PLUGIN, node.plugins / "p.sock", device]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as plugin:
        try:
            assert plugin.stdout.readline() == "serves\n"
            # The kubelet may not have noticed yet that a plugin before it has died.
            eventually(lambda: register(node.plugins, "p.sock", RESOURCE) == "")
            eventually(lambda: node.capacity(RESOURCE) == [1, 1])
            yield plugin
        finally:
            plugin.kill()


def admitted(node, device):
    """What becomes of a pod that asks a plugin with this device."""
    with serving(node, device):
        return node.admit(pod())


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("too-large", "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (50000"),
        ("long", f"rpc error: code = Internal desc = {'y' * 20_000}"),
        ("odd-letters", 'rpc error: code = Internal desc = é "quoted"\n\t%20 \U0001f600'),
        ("not-implemented", "rpc error: code = Unimplemented desc = Method not implemented!"),
    ],
)
def test_an_allocation_fails_in_the_same_words(nodes, device, words):
    """Those of the plugin as they are, those of the library as gRPC-Go has them."""
    real, embedded = (admitted(node, device) for node in nodes)
    assert embedded == real
    assert f"Allocate failed due to {words}" in real["message"]


SENT_AFTER = [0.2 * 1.25**attempt for attempt in range(20)]
"""Seconds for a request to be sent to a plugin that is stopped, attempt by attempt."""


def lost(node, device, words, seconds):
    """What becomes of a pod that asks a plugin which dies meanwhile; empty if that ends in other words.

    It depends on whether there is something that the plugin has not read: one that is stopped reads nothing.
    """
    with serving(node, device) as plugin, ThreadPoolExecutor() as executor:
        if device == "well":
            os.kill(plugin.pid, signal.SIGSTOP)
        pending = executor.submit(node.admit, pod())
        if device == "well":
            time.sleep(seconds)
            plugin.kill()
        seen = pending.result()
    # gRPC-Go in the kubelets up to 1.36 names the socket, too; the embedded one has the words of 1.37.
    seen["message"] = seen["message"].replace(f"read unix @->{node.plugins / 'p.sock'}: read: ", "")
    return seen if f"error reading from server: {words}" in seen["message"] else None


@pytest.mark.parametrize(("device", "words"), [("dies", "EOF"), ("well", "connection reset by peer")])
def test_a_plugin_that_dies_during_a_call_is_told_in_the_same_words(nodes, device, words):
    """Defect: the embedded kubelet told a reset in the words of gRPC's C core."""
    real, embedded = (
        next(filter(None, (lost(node, device, words, wait) for wait in SENT_AFTER)), None) for node in nodes
    )
    assert embedded == real
    assert real is not None


def dial_error(node):
    """Why a pod is rejected, once that is because nobody could be dialled."""
    message = node.admit(pod())["message"]
    return message if "Error while dialing" in message else ""


@pytest.mark.skipif(KUBERNETES < (1, 37), reason="up to 1.36 the kubelet asks no plugin whose stream has ended")
@pytest.mark.parametrize(("left", "words"), [(True, "connection refused"), (False, "no such file or directory")])
def test_a_plugin_that_is_not_there_any_more_is_dialled_in_the_same_words(nodes, left, words):
    """A second Register at its socket makes the kubelet blind to its end."""
    seen = []
    for node in nodes:
        socket = node.plugins / "p.sock"
        with serving(node, "well") as plugin:
            assert register(node.plugins, "p.sock", RESOURCE) == f"UNKNOWN: device plugin already connected: {socket}"
            plugin.kill()
            plugin.wait()
        if not left:
            socket.unlink()
        # Until both have seen the end of the connection, a call may still be sent there, and fail with it.
        seen.append(eventually(lambda node=node: dial_error(node)).replace(str(socket), "SOCKET"))
    real, embedded = seen
    assert embedded == real
    dialled = f'connection error: desc = "transport: Error while dialing: dial unix SOCKET: connect: {words}"'
    assert f"Allocate failed due to rpc error: code = Unavailable desc = {dialled}" in real


def test_a_start_that_takes_too_long_fails_in_the_same_words(nodes):
    """PreStartContainer has 30 s."""
    seen = {}
    threads = [
        threading.Thread(target=lambda node=node: seen.update({node: admitted(node, "late-start")})) for node in nodes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    real, embedded = (seen[node]["containers"]["main"]["error"] for node in nodes)
    assert embedded == real
    assert real.endswith("rpc error: code = DeadlineExceeded desc = context deadline exceeded")


@pytest.mark.parametrize(
    "word", ['a"b', "a\\b", "\t\r\n\a", "\x01\x7f", "é", "\u00a0", "\u200b", "\U0001f600", "\U000e0001", "%q"]
)
def test_names_and_versions_are_quoted_alike(nodes, word):
    """As Go's %q prints them."""
    for said in ({"resource": word, "version": "v1beta1"}, {"resource": RESOURCE, "version": word}):
        real, embedded = (register(node.plugins, "p.sock", said["resource"], version=said["version"]) for node in nodes)
        assert embedded == real
        assert real.startswith("UNKNOWN: ")
