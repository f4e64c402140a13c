"""The real kubelet's device manager, built once, and nodes with it."""

import os
import shutil
import sys

import pytest
import scratch
from go_program import SAMPLE_PLUGIN
from harness_program import RELEASE, harness_program
from herd_node import HerdNode
from resource_child import ChildNode

HARNESS = harness_program(RELEASE)
HARNESSES = {"1.37": harness_program("", "harnesses"), "1.36": harness_program("1.36", "harnesses")}
"""For each set of rules that the embedded kubelet has, a release with them."""
if RELEASE:
    HARNESSES["1.36"] = harness_program(RELEASE, "harnesses")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    for program in (HARNESS, SAMPLE_PLUGIN, *HARNESSES.values()):
        program.build_before(item)
    return (yield)


@pytest.fixture(scope="session")
def harness(tool):
    """The path of the harness's program."""
    return HARNESS.built(tool("go"), print)


@pytest.fixture(scope="session")
def harnesses(tool):
    """The path of a harness for each set of rules that the embedded kubelet has."""
    return {rules: program.built(tool("go"), print) for rules, program in HARNESSES.items()}


@pytest.fixture(scope="session")
def sample_plugin(tool):
    """The path of Kubernetes' sample device plugin: example.com/resource with the devices Dev-1 and Dev-2."""
    return SAMPLE_PLUGIN.built(tool("go"), print)


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = scratch.directory()
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
