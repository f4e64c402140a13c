"""The real kubelet's device manager, built once, and nodes with it."""

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import harness_program
import pytest
from herd_node import HerdNode
from resource_child import ChildNode

HERE = Path(__file__).parent


def pytest_collection_finish(session):
    """Build before the first test: the first build takes longer than a test may."""
    wanted = any(HERE in item.path.parents for item in session.items)
    go = harness_program.found()
    if not wanted or go is None or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")

    def say(text):
        with capture.global_and_fixture_disabled():
            print(f"\n{text}", file=sys.stderr, flush=True)

    with suppress(RuntimeError):  # the fixture meets it again, and fails the tests with it
        harness_program.program(go, say)


@pytest.fixture(scope="session")
def harness(tool):
    """The path of the harness's program."""
    return harness_program.program(tool("go"), print)


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def child_node(directory, harness):
    """A node with a kubelet and resource children."""
    node = ChildNode(directory, harness)
    yield node
    node.close()
    _show_logs(directory)


@pytest.fixture
def herd_node(directory, harness):
    """A node with a kubelet and a whole devherd."""
    node = HerdNode(directory, harness)
    yield node
    node.close()
    _show_logs(directory)
    assert "Traceback" not in node.log, node.log


def _show_logs(directory):
    if os.environ.get("DEVHERD_TEST_LOGS"):
        for log in sorted(directory.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text()}", file=sys.stderr)
