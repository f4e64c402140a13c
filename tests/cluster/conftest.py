"""The programs of a cluster, built once, and nodes with them."""

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import cluster_programs
import pytest
from whole_node import WholeNode

HERE = Path(__file__).parent


def pytest_collection_finish(session):
    """Build before the first test: the first build takes longer than a test may."""
    wanted = any(HERE in item.path.parents for item in session.items)
    go = cluster_programs.found()
    if not wanted or go is None or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")

    def say(text):
        with capture.global_and_fixture_disabled():
            print(f"\n{text}", file=sys.stderr, flush=True)

    with suppress(RuntimeError):  # the fixture meets it again, and fails the tests with it
        cluster_programs.program(go, say)


@pytest.fixture(scope="session")
def programs(tool):
    """The path of the programs of a cluster."""
    return cluster_programs.program(tool("go"), print)


@pytest.fixture
def whole_node(programs):
    """A node in a private machine, with nothing started yet. It takes root; with CI=true its absence is a failure."""
    directory = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    try:
        node = WholeNode(directory, programs)
    except PermissionError as error:
        shutil.rmtree(directory)
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse(f"NOT TESTED: a whole kubelet takes a private machine, and that root: {error}")
    yield node
    node.close()
    if os.environ.get("DEVHERD_TEST_LOGS"):
        print(node.ends_of_logs(1_000_000), file=sys.stderr)
    herd_log = (directory / "herd.log").read_text()
    shutil.rmtree(directory)
    assert "Traceback" not in herd_log, herd_log
