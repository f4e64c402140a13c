"""What all test folders share: other people's programs that some tests run, and the place of temporary files."""

import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest
import scratch
from charts import Helm
from dealing import dealt
from go_program import GoProgram
from hypothesis import settings
from not_tested import not_tested
from seeds import IS_RANDOM, SEED

from devherd_sim.node.presets import PRESETS
from devherd_sim.node.simulated_node import SimulatedNode

FETCHED_TOOLS = Path(__file__).parents[1] / ".tools" / "bin"

HELM_AND_KUBECTL = GoProgram(Path(__file__).parent / "deploy/programs", "helm_and_kubectl", "Helm and kubectl")

# A busy machine is no defect, so there is no deadline.
settings.register_profile("devherd", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("random" if IS_RANDOM else "devherd")


def kill(pid, number, kill=os.kill):
    """As `os.kill`, but not of 0, which is the tests themselves: the id of a child that has no process just now."""
    assert pid != 0, "the process to be signalled does not run"
    kill(pid, number)


os.kill = kill

tempfile.tempdir = str(scratch.place())  # also where pytest puts what tmp_path names


def pytest_addoption(parser):
    parser.addoption("--rest", action="store_true", help="what `make test` leaves out: all but `testpaths`")


def pytest_report_header():
    return f"seed: {SEED}; the same again: DEVHERD_TEST_SEED={SEED}, another: DEVHERD_TEST_SEED=random"


def pytest_ignore_collect(collection_path, config):
    """With --rest what `make test` plays is not even read: each worker collects for itself."""
    played = config.getini("testpaths") if config.getoption("rest") else ()
    return collection_path in {config.rootpath / path for path in played} or None


@pytest.fixture(scope="session")
def tool():
    """`tool("promtool")` is the path of a program fetched by tests/tools.sh or on PATH; without it the test is skipped.

    With CI=true nothing is skipped: a missing program fails the test.
    """

    def find(name):
        found = shutil.which(name, path=str(FETCHED_TOOLS)) or shutil.which(name)
        return found or not_tested(f"no {name} on PATH or in .tools/bin; run tests/tools.sh")

    return find


def pytest_collection_modifyitems(config, items):
    """What may take longest comes first: no worker is left alone with it when the others are done."""
    workers = config.workerinput["workercount"] if hasattr(config, "workerinput") else 1
    items[:] = dealt(items, workers)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    HELM_AND_KUBECTL.build_before(item)
    return (yield)


@pytest.fixture(scope="session")
def preset_root(tmp_path_factory):
    """`preset_root("fpga-8")` is a host of the preset, made once, for tests that only read it."""

    @cache
    def made(name):
        return SimulatedNode.create(tmp_path_factory.mktemp("node") / name, PRESETS[name].spec).root

    return made


@pytest.fixture(scope="session")
def helm_and_kubectl(tool):
    """The path of the program that is both."""
    return HELM_AND_KUBECTL.built(tool("go"), print)


@pytest.fixture(scope="session")
def kubectl(helm_and_kubectl):
    """The words before those of a kubectl command."""
    return [helm_and_kubectl, "kubectl"]


@pytest.fixture(scope="session")
def helm(helm_and_kubectl, tmp_path_factory):
    """Helm, on the chart of deploy/helm."""
    return Helm(helm_and_kubectl, tmp_path_factory.mktemp("helm"))
