"""A node on which claims are prepared, and devherd whole, with a stand-in for what prepares claims."""

import shutil

import pytest
import pytest_asyncio
import scratch
import standing_in
from preparing import ClaimsApi, PreparingNode

from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = scratch.directory()
    yield path
    shutil.rmtree(path)


@pytest_asyncio.fixture
async def testbed(directory, request, monkeypatch):
    """A herd on the node, with the configuration and the waits of the test's `on` mark."""
    monkeypatch.setenv("NODE_NAME", "node-1")
    mark = request.node.get_closest_marker("on")
    spec, config = mark.args
    testbed = Testbed(directory, preset(spec), config)
    testbed.command = standing_in.command(**mark.kwargs)
    async with testbed:
        yield testbed
    assert "Traceback" not in testbed.log, testbed.log


@pytest_asyncio.fixture
async def node(tmp_path):
    """A node on which claims are prepared."""
    api = ClaimsApi(tmp_path / "serviceaccount")
    made = PreparingNode(tmp_path, api)
    yield made
    await made.close()
    api.close()
