"""The embedded kubelet says what the real one says where gRPC-Go and gRPC-Python, or Go and Python, differ."""

import subprocess
import sys
import threading
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


def admitted(node, device):
    """What becomes of a pod that asks a plugin with this device."""
    command = [sys.executable, PLUGIN, node.plugins / "p.sock", device]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as plugin:
        try:
            assert plugin.stdout.readline() == "serves\n"
            assert register(node.plugins, "p.sock", RESOURCE) == ""
            eventually(lambda: node.capacity(RESOURCE) == [1, 1])
            return node.admit(pod())
        finally:
            plugin.kill()


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("dies", "rpc error: code = Unavailable desc = error reading from server: EOF"),
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
