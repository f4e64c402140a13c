"""The programs of a cluster, built once, and nodes with them."""

import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from dra_cluster import DraCluster
from go_program import GoProgram
from node_feature_discovery import kinds_of_the_release
from not_tested import not_tested
from private_machine import PrivateMachine
from whole_node import WholeNode

# It takes minutes, and is a target of its own: `make cluster`.
collect_ignore = [] if os.environ.get("DEVHERD_TEST_REAL_CLUSTER") else ["real"]

PROGRAMS = GoProgram(Path(__file__).with_name("programs"), "programs", "kubelet, control plane and etcd")
FEATURE_DISCOVERY = GoProgram(
    Path(__file__).with_name("feature_discovery"),
    "feature_discovery",
    "Node Feature Discovery",
    tuple(f"sigs.k8s.io/node-feature-discovery/cmd/{name}" for name in ("nfd-master", "nfd-worker")),
)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    PROGRAMS.build_before(item)
    FEATURE_DISCOVERY.build_before(item)
    return (yield)


@pytest.fixture(scope="session")
def programs(tool):
    """The path of the programs of a cluster."""
    return PROGRAMS.built(tool("go"), print)


@pytest.fixture(scope="session")
def feature_discovery(tool):
    """The directory of Node Feature Discovery's programs."""
    return FEATURE_DISCOVERY.built(tool("go"), print)


@pytest.fixture(scope="session")
def feature_discovery_kinds(tool):
    """The file with the CustomResourceDefinitions of the same release."""
    return kinds_of_the_release(tool("go"), FEATURE_DISCOVERY.sources)


@contextmanager
def a_private_machine():
    """A machine beside the machine. It takes root: without, the test is skipped, and with CI=true it fails."""
    directory = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    try:
        machine = PrivateMachine(directory)
    except OSError as error:
        shutil.rmtree(directory)
        not_tested(f"a private machine takes root and namespaces: {error}")
    yield machine
    machine.close()
    shutil.rmtree(directory)


@contextmanager
def a_whole_node(program, machine):
    """A node in a private machine, with nothing started yet."""
    node = WholeNode(machine, program)
    yield node
    node.close()
    if os.environ.get("DEVHERD_TEST_LOGS"):
        print(node.ends_of_logs(1_000_000), file=sys.stderr)
    assert "Traceback" not in node.log, node.log


@pytest.fixture
def private_machine():
    """A machine of the test's own."""
    with a_private_machine() as machine:
        yield machine


@pytest.fixture
def whole_node(programs, private_machine):
    """A node of the test's own."""
    with a_whole_node(programs, private_machine) as node:
        yield node


@pytest.fixture(scope="module")
def shared_dra_cluster(programs):
    """A cluster with DRA for the tests of a file, as far as one process plays them."""
    with a_private_machine() as machine, a_whole_node(programs, machine) as node:
        yield DraCluster(node)


@pytest.fixture
def dra(shared_dra_cluster):
    """The same, without pods and claims at the beginning and at the end."""
    yield shared_dra_cluster
    shared_dra_cluster.clean()
